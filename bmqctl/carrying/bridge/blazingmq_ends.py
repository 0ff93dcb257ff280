"""BlazingMQ as a bridge's source and destination."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

import trio

from bmqctl.carrying.bridge.carrying import Bridge, Tell, TryAgain
from bmqctl.carrying.bridge.encoding import Encoded
from bmqctl.carrying.bridge.ends import BlazingEnd
from bmqctl.carrying.bridge.flow import AGAIN, TAKEN, Answer, AnswerKind, CarriedMessage, Send
from bmqctl.carrying.bridge.mapping import Unfit, to_rocketmq
from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import Ack, StreamOptions
from bmqctl.client.protocol.message import Message
from bmqctl.client.remoting.faults import words_of
from bmqctl.client.remoting.sending import UniqueIds
from bmqctl.client.session import Queue, RequestFailed, Session, SessionLost, SessionOptions
from formats.bmq.control.messages import StatusCategory
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.properties import Property
from formats.errors import FormatError

__all__ = [
    "BlazingDestination",
    "BlazingSource",
    "Confirming",
    "Keeping",
    "Made",
    "Make",
    "ToPost",
    "for_topic",
    "lane_of",
]

# The size of messages converted before the bridge takes them: decompressed payloads are larger than deliveries.
_PORTION_BYTES: Final = 1 << 20
FAULTS: Final = (OSError, SessionLost, RequestFailed, Unusable)
_PASSING: Final = frozenset(
    {StatusCategory.TIMEOUT, StatusCategory.NOT_CONNECTED, StatusCategory.CANCELED, StatusCategory.NOT_READY}
)


class ToPost(NamedTuple):
    """A message to post, and its GUID for each number of renewals."""

    encoded: Encoded
    guid: Callable[[int], bytes]


class Made(NamedTuple):
    """A message for the destination, and its size. With `is_alone` it is a batch by itself."""

    message: Any
    size: int
    is_alone: bool = False


Make = Callable[[Message, list[Property]], Made]
"""Converts a queue's message and its properties for the destination. Raises `Unfit`, and `FormatError`."""


def for_topic() -> Make:
    """Make a converter of messages for a topic, which gives each an id of its own."""
    ids = UniqueIds()

    def make(message: Message, properties: list[Property]) -> Made:
        made = to_rocketmq(message.payload, properties, message.guid, ids.next())
        return Made(made, len(made.body) + len(made.properties))

    return make


class Keeping(Protocol):
    """The treatment of messages at their queue."""

    @property
    def options(self) -> StreamOptions: ...

    def wanted(self, messages: list[Message]) -> list[Message]: ...

    def settle(self, queue: Queue, messages: list[Message]) -> None:
        """Let the queue forget messages that the destination has. Raises `SessionLost` or `Unusable`."""
        ...

    async def attend(self, queue: Queue) -> None:
        """Do additional work while an open queue is consumed, until cancelled."""
        ...


class Confirming:
    """Confirms messages, so that their queue deletes them."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options

    def wanted(self, messages: list[Message]) -> list[Message]:
        return messages

    def settle(self, queue: Queue, messages: list[Message]) -> None:
        queue.confirm_all(messages)

    async def attend(self, queue: Queue) -> None:
        """Do nothing."""


class _Token(NamedTuple):
    """A delivered message, and its session's queue."""

    queue: Queue
    message: Message


_queue_of = attrgetter("queue")


def lane_of(properties: list[Property], key: str, lanes: int) -> int:
    """The lane of a message, by the text of the property `key`; the first one without it."""
    for name, _, value in properties:
        if name == key:
            return zlib.crc32(value if isinstance(value, bytes) else str(value).encode(errors="replace")) % lanes
    return 0


class BlazingSource:
    """A consumer of a queue. The options of `keeping` limit the unconfirmed messages that the broker delivers."""

    def __init__(
        self,
        end: BlazingEnd,
        session: SessionOptions,
        keeping: Keeping,
        make: Make,
        lanes: int,
        key: str,
        trying: TryAgain,
    ) -> None:
        self.lanes = lanes
        self._end = end
        self._session = session
        self._keeping = keeping
        self._make = make
        self._key = key
        self._trying = trying

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Consume until the bridge has ended; confirm settled messages before leaving."""
        while not bridge.ended.is_set():
            reason, is_final = "the queue was closed", False
            try:
                async with Session.connect(self._end.host, self._end.port, self._session) as session:
                    queue = await session.open_queue(self._end.uri, read=True, options=self._keeping.options)
                    self._trying.connected(task_status)
                    bridge.is_source_away = False
                    await self._consume(queue, bridge)
                    if bridge.ended.is_set():
                        return
            except FAULTS as fault:
                reason, is_final = words_of(fault), _is_final(fault)
            bridge.is_source_away = True
            bridge.source_lost()
            await self._trying.failed(reason, is_final=is_final)

    def settle(self, lane: int, items: list[CarriedMessage]) -> None:
        """Confirm messages. Those of an ended session are delivered again."""
        for queue, group in groupby((item.token for item in items), _queue_of):
            with suppress(SessionLost, Unusable):
                self._keeping.settle(queue, [token.message for token in group])

    async def _consume(self, queue: Queue, bridge: Bridge) -> None:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await bridge.ended.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            nursery.start_soon(self._keeping.attend, queue)
            with suppress(SessionLost):
                while messages := await queue.receive():
                    await self._take_all(queue, self._keeping.wanted(messages), bridge)
            nursery.cancel_scope.cancel()
        if not bridge.ended.is_set():
            # Raises the reason, if the session has ended.
            await queue.receive()

    async def _take_all(self, queue: Queue, messages: list[Message], bridge: Bridge) -> None:
        """Give the bridge messages, converted as it has room for them.

        This bounds the decompressed payloads to the lanes' windows and one portion.
        """
        lanes: dict[int, list[CarriedMessage]] = {}
        size = 0
        for message in messages:
            lane, item = self._item(queue, message)
            lanes.setdefault(lane, []).append(item)
            size += item.size
            if size >= _PORTION_BYTES:
                _take(bridge, lanes)
                while not all(bridge.flow.room(each) for each in lanes):
                    await bridge.await_change()
                lanes, size = {}, 0
        _take(bridge, lanes)

    def _item(self, queue: Queue, message: Message) -> tuple[int, CarriedMessage]:
        token = _Token(queue, message)
        lane = 0
        try:
            properties = message.typed_properties
            lane = lane_of(properties, self._key, self.lanes) if self._key else 0
            made, size, _ = self._make(message, properties)
        except (Unfit, FormatError) as fault:
            return lane, CarriedMessage(token, None, 0, str(fault))
        return lane, CarriedMessage(token, made, size)


def _take(bridge: Bridge, lanes: Mapping[int, list[CarriedMessage]]) -> None:
    for lane, items in lanes.items():
        bridge.take(lane, items)


class BlazingDestination:
    """A producer of a queue."""

    def __init__(self, end: BlazingEnd, session: SessionOptions, trying: TryAgain, tell: Tell) -> None:
        self._end = end
        self._session = session
        self._trying = trying
        self._tell = tell
        self._queue: Queue | None = None
        self._bridge: Bridge | None = None
        # By lane: the posted batch, with the answers so far.
        self._open: dict[int, _OpenBatch] = {}
        self._told = AckStatus.SUCCESS

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        self._bridge = bridge
        while True:
            reason, is_final = "disconnected", False
            try:
                host, port = self._end.host, self._end.port
                async with Session.connect(host, port, self._session, self._take_acks) as session:
                    self._queue = await session.open_queue(self._end.uri, write=True)
                    self._trying.connected(task_status)
                    bridge.destination_up()
                    reason = await session.lost()
            except FAULTS as fault:
                reason, is_final = words_of(fault), _is_final(fault)
            finally:
                self._queue = None
            self._lose(bridge)
            await self._trying.failed(reason, is_final=is_final)

    def send(self, send: Send) -> None:
        self._open[send.lane] = opened = _OpenBatch(send.batch, [None] * len(send.items), len(send.items))
        if self._queue is None:
            return  # the end of the connection answers it
        for at, item in enumerate(send.items):
            (payload, area), guid_of = item.message
            guid = guid_of(item.renewals)
            try:
                self._queue.post_nowait(payload, area, correlation=(send.lane, send.batch, at), guid=guid)
            except ValueError as fault:
                opened.answer(at, Answer(AnswerKind.REFUSED, str(fault)))
            except (SessionLost, Unusable):
                return
        self._finish(send.lane, opened)

    def _take_acks(self, acks: list[Ack]) -> None:
        touched = {}
        for status, _, correlation, _ in acks:
            if correlation is None:
                continue
            lane, batch, at = correlation
            opened = self._open.get(lane)
            if opened is None or opened.batch != batch:
                continue
            touched[lane] = opened
            opened.answer(at, TAKEN if status is AckStatus.SUCCESS else AGAIN)
            self._hear(status)
        for lane, opened in touched.items():
            self._finish(lane, opened)

    def _hear(self, status: AckStatus) -> None:
        if status is not self._told:
            self._told = status
            what = "takes messages again" if status is AckStatus.SUCCESS else f"refuses messages ({status.name})"
            self._tell(f"{self._end}: the broker {what}")

    def _finish(self, lane: int, opened: _OpenBatch) -> None:
        if not opened.left and self._bridge is not None:
            del self._open[lane]
            self._bridge.answered(lane, opened.batch, [answer or AGAIN for answer in opened.answers])

    def _lose(self, bridge: Bridge) -> None:
        lost, self._open = self._open, {}
        bridge.destination_down({lane: [each or AGAIN for each in opened.answers] for lane, opened in lost.items()})


class _OpenBatch:
    """A posted batch: its answers, and the number of missing ones."""

    def __init__(self, batch: int, answers: list[Answer | None], left: int) -> None:
        self.batch = batch
        self.answers = answers
        self.left = left

    def answer(self, at: int, answer: Answer) -> None:
        if self.answers[at] is None:
            self.answers[at] = answer
            self.left -= 1


def _is_final(fault: Exception) -> bool:
    """Return True for a permanent refusal, such as for an unknown domain."""
    return isinstance(fault, RequestFailed) and fault.status.category not in _PASSING
