"""Outgoing messages of a topic: their bytes, and the decisions where, when and for how long to send them.

No I/O: `Outbox` takes the queues, the answers and the time, and returns the requests to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from bmqctl.client.arguments import INT_MAX, check_whole
from bmqctl.client.remoting.routes import Queue
from bmqctl.client.rocketmq.arguments import unix_ms
from formats.rocketmq.java import string_hash
from formats.rocketmq.message_types import PRIORITY
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.batch import PROPERTIES_BYTES_MAX, BatchMessage
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX
from formats.rocketmq.reserved_names import RESERVED_NAMES
from formats.schema import Buffer

__all__ = ["Fate", "Item", "Options", "Outbox", "Request", "Settled", "Verdict", "encode_message", "verdict_of"]

SHARDING_KEY: Final = "__SHARDINGKEY"
# A batch is stored as a whole, so it must not exceed a broker's limit of one message (4 MiB unless configured).
_BATCH_COUNT: Final = 128
_BATCH_SIZE: Final = 512 << 10
# Bytes for a frame's header besides the properties.
_HEADER_SIZE: Final = 64 << 10
_SECOND_NS: Final = 1_000_000_000
# For a failed broker if there is another, and for one of its queues.
_AVOID_NS: Final = 2 * _SECOND_NS
_PAUSE_NS: Final = _SECOND_NS // 5


class Options(NamedTuple):
    """The fields of a message besides its payload."""

    properties: Mapping[str, str] | None = None
    tag: str | None = None
    keys: Sequence[str] = ()
    delay_level: int = 0
    deliver_at: datetime | None = None
    sharding_key: str | None = None
    priority: int | None = None


def encode_message(payload: Buffer, options: Options, unique_id: str) -> BatchMessage:
    """Make a message. Raises `ValueError` if it is invalid."""
    body = payload if type(payload) is bytes else bytes(memoryview(payload))
    if not body:
        raise ValueError("a message of RocketMQ has a payload")
    if len(body) > FRAME_BYTES_MAX - _HEADER_SIZE:
        raise ValueError(
            f"the payload has {len(body)} bytes, more than the {FRAME_BYTES_MAX - _HEADER_SIZE} of a frame"
        )
    given = {**_own_properties(options.properties or {}), **_system_properties(options)}
    properties = encode_properties({**given, "UNIQ_KEY": unique_id})
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise ValueError(f"the properties have {len(properties)} bytes, more than {PROPERTIES_BYTES_MAX}")
    return BatchMessage(0, body, properties)


def _own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The application's properties. Raises `ValueError` for invalid ones."""
    if not isinstance(properties, Mapping):
        raise ValueError(f"properties is {properties!r:.80}: expected a mapping by name")
    for name, value in properties.items():
        if type(name) is not str or type(value) is not str or not name or not value:
            raise ValueError(f"property {name!r}: names and values of RocketMQ's properties are strings, not empty")
        if name in RESERVED_NAMES:
            raise ValueError(f"property {name!r} has a meaning of its own in RocketMQ: choose another name")
    return dict(properties)


def _system_properties(options: Options) -> dict[str, str]:
    """The properties that RocketMQ reads. Raises `ValueError` for invalid options."""
    keys = [options.keys] if isinstance(options.keys, str) else list(options.keys)
    if any(not isinstance(key, str) or not key or " " in key for key in keys):
        raise ValueError("a key is a text, is not empty and has no spaces")
    for name, text in (("tag", options.tag), ("sharding_key", options.sharding_key)):
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{name} is {text!r:.80}: expected a text")
    if options.delay_level < 0 or (options.delay_level and options.deliver_at is not None):
        raise ValueError("a message has a delay level from 1 on, or a time of delivery, or neither")
    check_whole("delay_level", options.delay_level, 0, INT_MAX)
    given = {} if options.priority is None else {PRIORITY: _priority_text(options)}
    if keys:
        given["KEYS"] = " ".join(keys)
    if options.tag:
        given["TAGS"] = options.tag
    if options.delay_level:
        given["DELAY"] = str(options.delay_level)
    if options.deliver_at is not None:
        given["TIMER_DELIVER_MS"] = str(unix_ms("deliver_at", options.deliver_at))
    if options.sharding_key:
        given[SHARDING_KEY] = options.sharding_key
    return given


def _priority_text(options: Options) -> str:
    """The priority as a property. Raises `ValueError` for one that is invalid, or that brokers would ignore."""
    check_whole("priority", options.priority, 0, INT_MAX)
    if options.delay_level or options.deliver_at is not None or options.sharding_key:
        raise ValueError("a message with a priority has no delay, no time of delivery and no sharding key")
    return str(options.priority)


class Item:
    """An unsettled message, whose end `receiver` gets.

    It is sent again until `until_ns`, and waits for its first attempt until `first_until_ns`, if that is later.
    """

    __slots__ = (
        "given_up_ns",
        "may_be_stored",
        "message",
        "message_id",
        "receiver",
        "sharding_key",
        "size",
        "until_ns",
        "waits_alone",
    )

    def __init__(
        self,
        message_id: str,
        message: BatchMessage,
        options: Options,
        receiver: Any,
        until_ns: int,
        first_until_ns: int = 0,
    ) -> None:
        self.message_id = message_id
        self.message = message
        self.sharding_key = options.sharding_key or None
        self.receiver = receiver
        self.until_ns = until_ns
        self.given_up_ns = max(until_ns, first_until_ns)
        self.size = len(message.body) + len(message.properties)
        # Brokers refuse batches with delayed messages, and store all messages of a batch in one queue.
        self.waits_alone = bool(options.delay_level) or options.deliver_at is not None or options.priority is not None
        self.may_be_stored = False


class Request(NamedTuple):
    """Messages for a queue, sent in one request."""

    queue: Queue
    items: list[Item]


class Verdict(Enum):
    """The meaning of an answer."""

    STORED = "stored"
    AGAIN = "to be sent again"
    NOT_HERE = "to be sent to another broker"
    ILLEGAL = "one of the messages cannot be stored"
    UNKNOWN = "no answer"


class Fate(Enum):
    """The end of a message."""

    STORED = "stored"
    REFUSED = "refused"
    UNCERTAIN = "uncertain"


class Settled(NamedTuple):
    """A message whose fate is known."""

    item: Item
    fate: Fate
    reason: str


# Stored, but less safely than configured.
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
_ILLEGAL: Final = frozenset({ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER})
_NOT_HERE: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})


def verdict_of(code: int) -> Verdict:
    """The meaning of an answer's code. Unknown codes count as temporary faults."""
    if code in _STORED:
        return Verdict.STORED
    if code in _ILLEGAL:
        return Verdict.ILLEGAL
    return Verdict.NOT_HERE if code in _NOT_HERE else Verdict.AGAIN


class Outbox:
    """The unsettled messages of a producer.

    Those without a sharding key go to all queues in turn, avoiding a broker that has just failed if there is another.
    Those with one go to the queue that the key chooses, in order, one request at a time. `turn` chooses the first
    queue: as in the original's client (ThreadLocalIndex) it is random, so that programs that post one message each use
    all queues.
    """

    def __init__(self, turn: int = 0) -> None:
        self.count = 0
        self.size = 0
        self._queues: Sequence[Queue] = ()
        self._turn = turn
        self._waiting: deque[Item] = deque()
        # By sharding key: waiting messages; and the keys with a request in flight.
        self._lanes: dict[str, deque[Item]] = {}
        self._busy: set[str] = set()
        # In flight, in order.
        self._asked: dict[Item, None] = {}
        self._is_over = False
        self._avoided: dict[str, int] = {}
        self._refused: set[str] = set()
        self._last_reason = "no broker has answered"

    def route(self, queues: Iterable[Queue]) -> None:
        self._queues = tuple(queues)
        names = {queue.broker_name for queue in self._queues}
        self._refused &= names
        self._avoided = {name: until for name, until in self._avoided.items() if name in names}

    def put(self, item: Item) -> None:
        self.count += 1
        self.size += item.size
        if item.sharding_key is None:
            self._waiting.append(item)
        else:
            self._lanes.setdefault(item.sharding_key, deque()).append(item)

    def requests(self, now_ns: int) -> list[Request]:
        if not self._queues or self._is_over:
            return []
        found: list[Request] = []
        while self._waiting and (queue := self._next_queue(now_ns)) is not None:
            found.append(Request(queue, self._take(self._waiting)))
        for key, lane in self._lanes.items():
            if not lane or key in self._busy:
                continue
            queue = self._queues[abs(string_hash(key)) % len(self._queues)]
            if self._avoided.get(queue.broker_name, 0) <= now_ns:
                self._busy.add(key)
                found.append(Request(queue, self._take(lane)))
        for request in found:
            self._asked |= dict.fromkeys(request.items)
            for item in request.items:
                item.given_up_ns = item.until_ns
        return found

    def due_ns(self, now_ns: int) -> int | None:
        """The time of the next action without an event; None if nothing waits."""
        if not self.count:
            return None
        later = [until for until in self._avoided.values() if until > now_ns]
        return min([now_ns + _SECOND_NS, *later])

    def answered(self, request: Request, verdict: Verdict, reason: str, now_ns: int) -> list[Settled]:
        """Take an answer, or its lack; return the messages that it settles."""
        if self._is_over:
            return []
        queue, items = request
        for item in items:
            self._asked.pop(item, None)
        keys = {item.sharding_key for item in items} - {None}
        self._busy -= {str(key) for key in keys}
        settled: list[Settled] = []
        if verdict is Verdict.STORED:
            self._avoided.pop(queue.broker_name, None)
            self._refused.discard(queue.broker_name)
            settled = [Settled(item, Fate.STORED, "") for item in items]
        elif verdict is Verdict.ILLEGAL and len(items) == 1:
            settled = [Settled(items[0], Fate.REFUSED, reason)]
        else:
            self._last_reason = reason
            settled = self._failed(request, verdict, now_ns)
        self._forget(settled)
        for key in keys:
            if not self._lanes.get(str(key)) and str(key) not in self._busy:
                self._lanes.pop(str(key), None)
        return settled

    def expire(self, now_ns: int) -> list[Settled]:
        """Give up the messages whose time is over, except those in flight."""
        settled: list[Settled] = []
        for waiting in (self._waiting, *self._lanes.values()):
            while waiting and waiting[0].given_up_ns <= now_ns:
                settled.append(self._given_up(waiting.popleft(), self._last_reason))
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane or key in self._busy}
        self._forget(settled)
        return settled

    def give_up(self, reason: str) -> list[Settled]:
        """Give up all messages for good; whether those in flight are stored stays unknown."""
        self._is_over = True
        for item in self._asked:
            item.may_be_stored = True
        settled = [
            self._given_up(item, reason)
            for items in (self._asked, self._waiting, *self._lanes.values())
            for item in items
        ]
        self._asked.clear()
        self._waiting.clear()
        self._lanes.clear()
        self._forget(settled)
        return settled

    def _failed(self, request: Request, verdict: Verdict, now_ns: int) -> list[Settled]:
        queue, items = request
        if verdict is Verdict.ILLEGAL:
            # The broker does not say which message it was.
            for item in items:
                item.waits_alone = True
        elif verdict is Verdict.NOT_HERE:
            self._refused.add(queue.broker_name)
            if self._refused >= {each.broker_name for each in self._queues}:
                return [Settled(item, Fate.REFUSED, self._last_reason) for item in items]
            self._avoided[queue.broker_name] = now_ns + _AVOID_NS
        else:
            others = {each.broker_name for each in self._queues} - {queue.broker_name}
            self._avoided[queue.broker_name] = now_ns + (_AVOID_NS if others else _PAUSE_NS)
            if verdict is Verdict.UNKNOWN:
                for item in items:
                    item.may_be_stored = True
        waiting = self._waiting
        if items[0].sharding_key is not None:
            waiting = self._lanes.setdefault(items[0].sharding_key, deque())
        waiting.extendleft(reversed(items))
        return []

    def _next_queue(self, now_ns: int) -> Queue | None:
        """The next queue in turn; None if all brokers have just failed."""
        for _ in self._queues:
            queue = self._queues[self._turn % len(self._queues)]
            self._turn += 1
            if self._avoided.get(queue.broker_name, 0) <= now_ns:
                return queue
        return None

    def _take(self, waiting: deque[Item]) -> list[Item]:
        """Take out the messages of one request: the first, and the next ones that fit into a batch with it."""
        items = [waiting.popleft()]
        size = items[0].size
        while waiting and not items[0].waits_alone and not waiting[0].waits_alone:
            size += waiting[0].size
            if len(items) >= _BATCH_COUNT or size > _BATCH_SIZE:
                break
            items.append(waiting.popleft())
        return items

    def _given_up(self, item: Item, reason: str) -> Settled:
        return Settled(item, Fate.UNCERTAIN if item.may_be_stored else Fate.REFUSED, reason)

    def _forget(self, settled: list[Settled]) -> None:
        self.count -= len(settled)
        self.size -= sum(each.item.size for each in settled)
