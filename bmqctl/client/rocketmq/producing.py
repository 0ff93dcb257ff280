"""Producers of a RocketMQ topic."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import anyio
from anyio.lowlevel import checkpoint

from bmqctl.client.errors import SessionEnded
from bmqctl.client.remoting.faults import FAULTS, code_name, words_of
from bmqctl.client.remoting.link import RemotingLink
from bmqctl.client.remoting.sending import Sender, UniqueIds
from bmqctl.client.rocketmq.cluster import Cluster
from bmqctl.client.rocketmq.errors import BatchFailed, PostFailed, PostRefused, PostUncertain, RequestRefused
from bmqctl.client.rocketmq.outgoing import (
    Fate,
    Item,
    Options,
    Outbox,
    Request,
    Settled,
    Verdict,
    encode_message,
    verdict_of,
)
from bmqctl.client.room import Room
from bmqctl.client.spans import Place, Receiver, TracedPost
from formats.errors import FormatError
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import SendMessageResponse
from formats.schema import Buffer

__all__ = ["Batch", "Posted", "Producer", "Sent"]

log = logging.getLogger("bmqctl.client")

_SENT = codec_of(SendMessageResponse)
_SECOND_NS: Final = 1_000_000_000
# Messages posted to a batch between two turns of other tasks.
_TURN: Final = 128
_TURNS: Final = 1 << 31


class Sent(NamedTuple):
    """The place of a stored message. `status` is SUCCESS, or the original's word for less safe storage."""

    message_id: str
    broker: str
    queue_id: int
    offset: int
    status: str = "SUCCESS"


_Receiver = Receiver[Sent | PostFailed]


class Posted:
    """A message handed to the session; awaiting it returns its `Sent`, or raises `PostRefused` or `PostUncertain`."""

    __slots__ = ("_answer", "_event", "_is_observed", "message_id")

    def __init__(self) -> None:
        self.message_id = ""
        self._answer: Sent | PostFailed | None = None
        self._event: anyio.Event | None = None
        self._is_observed = False

    @property
    def answer(self) -> Sent | PostFailed | None:
        """The answer, whichever it is; None while there is none."""
        self._is_observed = True
        return self._answer

    def __await__(self) -> Generator[Any, Any, Sent]:
        return self._wait().__await__()

    async def _wait(self) -> Sent:
        self._is_observed = True
        if self._answer is None:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        if isinstance(self._answer, PostFailed):
            raise self._answer
        assert self._answer is not None
        return self._answer

    def answered(self, answer: Sent | PostFailed) -> None:
        """Take the answer; called by the producer."""
        self._answer = answer
        if self._event is not None:
            self._event.set()
        elif isinstance(answer, PostFailed) and not self._is_observed:
            log.warning("%s", answer)


class Batch:
    """Posts of many messages at once, made by `Producer.batch`.

    Leaving the block waits until all are answered, and raises `BatchFailed` if some were not stored.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._done = anyio.Event()
        self.posted = 0
        self.acked = 0
        self.failures: list[PostFailed] = []

    async def post(
        self,
        payload: Buffer,
        properties: Mapping[str, str] | None = None,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        priority: int | None = None,
    ) -> str:
        """Post a message as soon as there is room, and return its id without waiting for its answer."""
        if self.posted % _TURN == _TURN - 1:
            await checkpoint()
        options = Options(properties, tag, keys, sharding_key=sharding_key, priority=priority)
        message_id = await self._producer.put(payload, options, self)
        self.posted += 1
        return message_id

    def answered(self, answer: Sent | PostFailed) -> None:
        """Take an answer; called by the producer."""
        if isinstance(answer, PostFailed):
            self.failures.append(answer)
        else:
            self.acked += 1
        self._done.set()

    async def settled(self) -> None:
        """Wait until all messages posted so far are answered. Raises `BatchFailed` if some were not stored."""
        while self.acked + len(self.failures) < self.posted:
            self._done = anyio.Event()
            await self._done.wait()
        if self.failures:
            text = f"{self._producer}: {len(self.failures)} of {self.posted} messages were not stored"
            raise BatchFailed(f"{text} (the first: {self.failures[0]})", self.failures)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        if fault is None:
            await self.settled()


class Producer:
    """A producer of a topic, made by `Session.producer`."""

    def __init__(
        self, cluster: Cluster, topic: str, group: str, *, window: int, buffer_size: int, retry_s: float
    ) -> None:
        self.topic = topic
        self.group = group
        self._cluster = cluster
        self._retry_ns = int(retry_s * _SECOND_NS)
        self._sender = Sender(group, topic)
        self._ids = UniqueIds()
        self._outbox = Outbox(secrets.randbelow(_TURNS))
        self._room = Room(window, buffer_size, lambda: self._outbox.count, lambda: self._outbox.size)
        self._wanted = anyio.Event()
        self._answered = anyio.Event()
        self._is_ended = False
        self._is_looking = False

    def __str__(self) -> str:
        return f"topic {self.topic} at {self._cluster}"

    def __repr__(self) -> str:
        return f"<Producer of {self}>"

    async def post(
        self,
        payload: Buffer,
        properties: Mapping[str, str] | None = None,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay_level: int = 0,
        deliver_at: datetime | None = None,
        sharding_key: str | None = None,
        priority: int | None = None,
    ) -> Sent:
        """Post a message and wait until a broker has stored it.

        Consumers that pop messages of a topic of the type PRIORITY get those of a higher `priority` first.

        Raises `PostRefused` if the brokers refuse it, `PostUncertain` if no answer came, and `ValueError` if it cannot
        be a message. Cancellation leaves open whether it was sent.
        """
        options = Options(properties, tag, keys, delay_level, deliver_at, sharding_key, priority)
        posted = Posted()
        posted.message_id = await self.put(payload, options, posted)
        return await posted

    async def send(
        self,
        payload: Buffer,
        properties: Mapping[str, str] | None = None,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay_level: int = 0,
        deliver_at: datetime | None = None,
        sharding_key: str | None = None,
        priority: int | None = None,
    ) -> Posted:
        """Post a message as soon as there is room; its answer may be awaited later, or not at all."""
        posted = Posted()
        options = Options(properties, tag, keys, delay_level, deliver_at, sharding_key, priority)
        posted.message_id = await self.put(payload, options, posted)
        return posted

    def batch(self) -> Batch:
        """Make a batch, for `async with`: its posts are answered at the end of the block."""
        return Batch(self)

    async def post_all(self, payloads: Iterable[bytes]) -> int:
        """Post messages without properties, and wait until they are stored; return their number."""
        async with self.batch() as batch:
            for payload in payloads:
                await batch.post(payload)
        return batch.posted

    async def put(self, payload: Buffer, options: Options, receiver: _Receiver) -> str:
        """Hand over a message as soon as there is room, and return its id; `receiver` gets the answer."""
        spans = self._cluster.spans
        if spans is None:
            return await self._put(payload, options, receiver)
        span, carrier = spans.begin_post(Place("rocketmq", self.topic), memoryview(payload).nbytes)
        traced = TracedPost(span, receiver, _read)
        try:
            return await self._put(
                payload, options._replace(properties={**carrier, **(options.properties or {})}), traced
            )
        except BaseException as fault:
            traced.failed(fault)
            raise

    async def _put(self, payload: Buffer, options: Options, receiver: _Receiver) -> str:
        message_id = self._ids.next()
        message = encode_message(payload, options, message_id)
        if self._room.is_contended:
            await self._room.wait()
        while self._room.left() <= 0 and not self._is_ended:
            await self._room.wait()
        if self._is_ended:
            raise SessionEnded("the client ended the session")
        now_ns = time.monotonic_ns()
        first_until_ns = now_ns + int(self._cluster.timeout_s * _SECOND_NS)
        self._outbox.put(Item(message_id, message, options, receiver, now_ns + self._retry_ns, first_until_ns))
        self._wanted.set()
        return message_id

    async def flush(self) -> None:
        """Wait until every post has an answer."""
        while self._outbox.count:
            if self._answered.is_set():
                self._answered = anyio.Event()
            await self._answered.wait()

    def end(self) -> None:
        """Give up unanswered messages; the session calls it at its end."""
        self._is_ended = True
        self._settle(self._outbox.give_up("the session has ended"), None)
        self._room.release()

    # Sending

    async def find_queues(self) -> None:
        """Ask for the topic's queues. Raises one of `FAULTS`, also if none is writable."""
        route = await self._cluster.route(self.topic, makes=True)
        self._outbox.route(route.to_write(self.topic))

    async def run(self) -> None:
        while True:
            now_ns = time.monotonic_ns()
            self._settle(self._outbox.expire(now_ns), None)
            for request in self._outbox.requests(now_ns):
                self._cluster.start(partial(self._carry_out, request))
            due_ns = self._outbox.due_ns(now_ns)
            self._wanted = anyio.Event()
            if due_ns is None:
                await self._wanted.wait()
            else:
                with anyio.move_on_after(max(0.0, (due_ns - now_ns) / _SECOND_NS)):
                    await self._wanted.wait()

    async def _carry_out(self, request: Request) -> None:
        """Send a request, and pass its answer to the outbox; after a failure, ask for the topic's queues again."""
        address = request.queue.address
        try:
            link = await self._cluster.link_to(address)
        except FAULTS as fault:
            self._take(request, Verdict.AGAIN, f"{self} at {address}: {words_of(fault)}", None)
            await self.look_again()
            return
        try:
            answer = await self._ask(link, request)
        except FAULTS as fault:
            self._take(request, Verdict.UNKNOWN, f"{self} at {address}: {words_of(fault)}", None)
            await self.look_again()
            return
        verdict = verdict_of(answer.code)
        remark = f", {answer.remark}" if answer.remark else ""
        self._take(request, verdict, f"{self} at {address}: {code_name(answer.code)}{remark}", answer)
        if verdict not in (Verdict.STORED, Verdict.ILLEGAL):
            await self.look_again()

    async def _ask(self, link: RemotingLink, request: Request) -> Frame:
        born_ms = time.time_ns() // 1_000_000
        messages = [item.message for item in request.items]
        if len(messages) == 1:
            fields, body = self._sender.encoded(request.queue.queue_id, born_ms, messages[0])
            return await link.call(RequestCode.SEND_MESSAGE_V2, fields, self._cluster.timeout_s, body)
        fields, body = self._sender.encoded_batch(request.queue.queue_id, born_ms, messages)
        return await link.call(RequestCode.SEND_BATCH_MESSAGE, fields, self._cluster.timeout_s, body)

    async def look_again(self) -> None:
        if self._is_looking:
            return
        self._is_looking = True
        try:
            await self.find_queues()
        except (RequestRefused, *FAULTS) as fault:
            log.info("%s: %s", self, words_of(fault))
        finally:
            self._is_looking = False
        self._wanted.set()

    def _take(self, request: Request, verdict: Verdict, reason: str, answer: Frame | None) -> None:
        places: Iterable[Sent] | None = None
        if verdict is Verdict.STORED and answer is not None:
            try:
                places = _places(request, answer)
            except FormatError as fault:
                verdict, reason = Verdict.UNKNOWN, f"{self} at {request.queue.address}: {fault}"
        self._settle(self._outbox.answered(request, verdict, reason, time.monotonic_ns()), places)
        self._wanted.set()

    def _settle(self, settled: list[Settled], places: Iterable[Sent] | None) -> None:
        if not settled:
            return
        if places is not None:
            for (item, _, _), place in zip(settled, places, strict=True):
                item.receiver.answered(place)
        else:
            for item, fate, reason in settled:
                kind = PostUncertain if fate is Fate.UNCERTAIN else PostRefused
                item.receiver.answered(kind(f"message {item.message_id}: {reason}", item.message_id))
        self._answered.set()
        self._room.changed()


def _read(answer: Sent | PostFailed) -> tuple[str, str]:
    if isinstance(answer, PostFailed):
        return "", type(answer).__name__
    return answer.message_id, ""


def _places(request: Request, answer: Frame) -> list[Sent]:
    """The places of a successful request's messages; those of a batch are consecutive."""
    header = _SENT.read(answer.ext_fields)
    status = code_name(answer.code)
    broker = request.queue.broker_name
    return [
        Sent(item.message_id, broker, header.queue_id, header.queue_offset + number, status)
        for number, item in enumerate(request.items)
    ]
