"""The run of `bmqctl post`: messages from a source to a queue or a topic, until all are acknowledged.

It ends at the first message that is not one, or that is not acknowledged; those that are on their way then are awaited.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import trio

from bmqctl.carrying.messages.content import BadMessage, Outgoing, to_text_properties
from bmqctl.carrying.messages.ends import BlazingEnd, CannotBegin, End, Reach, blazingmq_session, rocketmq_session
from bmqctl.client import AckStatus, ClientError, Posted, PostFailed, Queue
from bmqctl.client.rocketmq import Posted as RocketPosted
from bmqctl.client.rocketmq import PostFailed as RocketPostFailed
from bmqctl.client.rocketmq import PostUncertain as RocketPostUncertain
from bmqctl.client.rocketmq import Producer
from bmqctl.common.nurseries import open_nursery
from formats.bmq.uri import parse_uri

__all__ = ["DEFAULT_GROUP", "Account", "Failure", "PostOptions", "Run", "Sink", "Source", "post"]

DEFAULT_GROUP: Final = "bmqctl-post"
# Messages between two turns of other tasks.
_TURN: Final = 64


class Source(NamedTuple):
    """The messages of a run, each with its number in the input, in units such as lines."""

    unit: str
    messages: Callable[[], AsyncGenerator[tuple[int, Outgoing]]]


class PostOptions(NamedTuple):
    """`rate` is in messages a second, None as fast as possible; `patience_s` bounds the time without an answer."""

    rate: float | None = None
    window: int = 4096
    compress: bool = False
    patience_s: float = 30.0


class Failure(NamedTuple):
    """A message that was not acknowledged: its number in the input, from 1 on, and the reason."""

    unit: str
    number: int
    reason: str
    is_uncertain: bool


@dataclass(slots=True)
class Account:
    """The counts of a run. `ended_by` says why it ended by itself before the end of the input."""

    posted: int = 0
    acknowledged: int = 0
    payload_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    ended_by: str = ""
    is_interrupted: bool = False

    @property
    def unanswered(self) -> int:
        """Messages of which nobody knows whether they are stored, as no answer has come."""
        return self.posted - self.acknowledged - sum(not each.is_uncertain for each in self.failures)

    @property
    def refused(self) -> int:
        """Messages that are not stored."""
        return sum(not each.is_uncertain for each in self.failures)

    @property
    def is_complete(self) -> bool:
        """True if the input came to its end, and all of it is acknowledged."""
        return not self.ended_by and not self.is_interrupted and self.acknowledged == self.posted


class Sink(Protocol):
    """A queue or a topic that messages are posted to."""

    async def send(self, message: Outgoing) -> Awaitable[object]:
        """Hand over a message as soon as there is room; return what its acknowledgment can be awaited by.

        Raises `ValueError` if it cannot be a message there.
        """
        ...


class _QueueSink:
    """A queue of BlazingMQ."""

    def __init__(self, queue: Queue, compress: bool) -> None:
        self._queue = queue
        self._compress = compress

    async def send(self, message: Outgoing) -> Awaitable[object]:
        if message.tag is not None or message.keys or message.sharding_key is not None:
            raise BadMessage("messages of BlazingMQ have no tag, keys and sharding key: use properties")
        sent = await self._queue.send(message.payload, message.properties, compress=self._compress)
        return _observed(sent)


class _TopicSink:
    """A topic of RocketMQ."""

    def __init__(self, producer: Producer, key: str) -> None:
        self._producer = producer
        self._key = key

    async def send(self, message: Outgoing) -> Awaitable[object]:
        properties = to_text_properties(message.properties)
        sent = await self._producer.send(
            message.payload,
            properties,
            tag=message.tag,
            keys=message.keys,
            sharding_key=message.sharding_key or properties.get(self._key),
        )
        return _observed(sent)


def _observed(posted: Posted | RocketPosted) -> Awaitable[object]:
    """Look at the answer, so that the library does not warn of a refusal that comes before it is awaited."""
    _ = posted.ack if isinstance(posted, Posted) else posted.answer
    return posted


@asynccontextmanager
async def _open(end: End, reach: Reach, options: PostOptions) -> AsyncIterator[Sink]:
    """Open a queue or a topic for posting. Raises `CannotBegin`."""
    has_begun = False
    try:
        if isinstance(end, BlazingEnd):
            async with blazingmq_session(end, reach, window=options.window) as session:
                queue = await session.open(end.uri, write=True)
                has_begun = True
                yield _QueueSink(queue, options.compress)
        else:
            async with rocketmq_session(end, reach, window=options.window) as other:
                producer = await other.producer(end.topic, group=end.group)
                has_begun = True
                yield _TopicSink(producer, end.key)
    except (ClientError, ValueError) as fault:
        if has_begun:
            raise
        raise CannotBegin(str(fault)) from None


def _check_end(end: End, options: PostOptions) -> None:
    """Raise `CannotBegin` for an end that messages cannot be posted to as they should be."""
    if isinstance(end, BlazingEnd):
        if parse_uri(end.uri).app_id:
            raise CannotBegin(f"{end}: messages are posted to a queue, not to an app of it")
    elif end.queue is not None:
        raise CannotBegin(f"{end}: messages go to all queues of the topic; choose one by a property, with ?key=NAME")
    elif options.compress:
        raise CannotBegin("--compress is for queues of BlazingMQ")


async def post(
    end: End, reach: Reach, options: PostOptions, source: Source, on_progress: Callable[[int], None]
) -> Account:
    """Post the messages of a source. Raises `CannotBegin`."""
    _check_end(end, options)
    run = Run(options, on_progress)
    async with open_nursery() as nursery:
        nursery.start_soon(run.watch_signals)
        with run.scope:
            async with _open(end, reach, options) as sink:
                await run.carry_out(sink, source)
    if not run.has_begun:
        raise CannotBegin("interrupted before it began")
    return run.account


class Run:
    """A run over a sink."""

    def __init__(self, options: PostOptions, on_progress: Callable[[int], None]) -> None:
        self.account = Account()
        self.scope = trio.CancelScope()
        self.has_begun = False
        self._options = options
        self._on_progress = on_progress
        self._reading = trio.CancelScope()
        # Posted and not yet answered, in their order.
        self._unanswered: deque[tuple[int, Awaitable[object]]] = deque()
        self._change = trio.Event()
        # When the last answer came, or the first message of those that have none was posted.
        self._last_s = 0.0

    async def watch_signals(self) -> None:
        """End the input at the first signal, and the wait for acknowledgments at the second."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            async for _ in received:
                if self.account.is_interrupted or not self.has_begun:
                    self.scope.cancel()
                self.account.is_interrupted = True
                self._reading.cancel()

    async def carry_out(self, sink: Sink, source: Source) -> None:
        """Post all messages, and wait for their answers."""
        self.has_begun = True
        async with open_nursery() as nursery:
            nursery.start_soon(self._watch_patience)
            nursery.start_soon(self._collect, source.unit)
            with self._reading:
                await self._post_all(sink, source)
            while self._unanswered:
                await self._changed()

    async def _post_all(self, sink: Sink, source: Source) -> None:
        account = self.account
        began_s = trio.current_time()
        try:
            async with aclosing(source.messages()) as messages:
                async for number, message in messages:
                    if self._options.rate is not None:
                        await trio.sleep_until(began_s + account.posted / self._options.rate)
                    elif account.posted % _TURN == 0:
                        await trio.lowlevel.checkpoint()
                    try:
                        sent = await sink.send(message)
                    except (ClientError, ValueError) as fault:
                        self._end(f"{source.unit} {number}: {fault}")
                        return
                    self._note(number, sent, len(message.payload))
        except BadMessage as fault:
            self._end(str(fault))
        except OSError as fault:
            self._end(f"cannot read the input: {fault.strerror}")

    def _note(self, number: int, sent: Awaitable[object], size: int) -> None:
        if not self._unanswered:
            self._last_s = trio.current_time()
        self._unanswered.append((number, sent))
        self.account.posted += 1
        self.account.payload_bytes += size
        self._tell_change()

    async def _collect(self, unit: str) -> None:
        """Await the answers in the order of the messages."""
        account = self.account
        while True:
            while not self._unanswered:
                await self._changed()
            number, sent = self._unanswered[0]
            try:
                await sent
            except (PostFailed, RocketPostFailed) as fault:
                account.failures.append(Failure(unit, number, str(fault), _is_uncertain(fault)))
                self._end(f"{unit} {number} was not acknowledged")
                self._reading.cancel()
            else:
                account.acknowledged += 1
                if account.acknowledged % _TURN == 0:
                    self._on_progress(account.acknowledged)
                    await trio.lowlevel.checkpoint()
            self._last_s = trio.current_time()
            self._unanswered.popleft()
            if not self._unanswered:
                self._tell_change()

    async def _watch_patience(self) -> None:
        """End the run when messages have been without an answer for too long."""
        patience_s = self._options.patience_s
        while True:
            while not self._unanswered:
                await self._changed()
            await trio.sleep_until(self._last_s + patience_s)
            if self._unanswered and trio.current_time() - self._last_s >= patience_s:
                self._end(f"no answer within {patience_s:g} s")
                self.scope.cancel()

    def _end(self, reason: str) -> None:
        """Note why the run ends by itself; the first reason is the one that counts."""
        self.account.ended_by = self.account.ended_by or reason

    async def _changed(self) -> None:
        await self._change.wait()

    def _tell_change(self) -> None:
        self._change.set()
        self._change = trio.Event()


def _is_uncertain(fault: PostFailed | RocketPostFailed) -> bool:
    if isinstance(fault, PostFailed):
        return fault.ack.status is AckStatus.UNKNOWN
    return isinstance(fault, RocketPostUncertain)
