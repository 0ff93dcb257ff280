"""Members that send what no member can mean: malformed events, and numbers out of any range.

A member that has proved who it is may say what it has and has not, and is believed: one that lies about its storage is
outside the fault model. Bytes that cannot be read, and counts, terms, leases and numbers out of range, are inside:
the receiver ends the link, or refuses them, and nothing else comes of it. Where only the end of
an event cannot be read, its beginning is believed: a whole message under a GUID that nobody has posted is a lie, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from broker.bmq.core.received import received
from formats.bmq.codes import EncodingType, EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import ClusterMessage, ControlMessage, ElectorMessage
from formats.bmq.control.schema import Choice, Description, Integer, describe
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, parse_ledger_record
from formats.bmq.wire.ack import iter_acks
from formats.bmq.wire.confirm import iter_confirms
from formats.bmq.wire.event import build_event, build_schema_event, iter_frames, schema_encoding, schema_message
from formats.bmq.wire.push import iter_pushes
from formats.bmq.wire.put import iter_puts
from formats.bmq.wire.receipt import build_receipt_event, parse_receipt
from formats.bmq.wire.reject import iter_rejects
from formats.bmq.wire.storage import iter_storage
from formats.errors import FormatError
from tests.fuzz.session_events import LENGTH_MAX, NUMBERS, Maker, events_of

__all__ = ["Malformer"]

PART = 0.02
SHOWN_BYTES_MAX = 4096
TRIES_MAX = 12
KINDS = (
    *(EventType.CONTROL, EventType.CONTROL, EventType.ELECTOR, EventType.CLUSTER_STATE, EventType.STORAGE),
    *(EventType.PARTITION_SYNC, EventType.REPLICATION_RECEIPT, EventType.PUT, EventType.ACK, EventType.PUSH),
    *(EventType.CONFIRM, EventType.REJECT),
)
EXTREME = 1 << 30
LEAP = 1 << 36
# A sender may give any number to its own requests, queues, apps and subscriptions, any flags to its handles, and any
# priority and limit to its consumers. With another such number an old request is a valid one, and is carried out again.
OWN = (
    *("r_id", "q_id", "sub_id", "s_id", "flags"),
    *("consumer_priority", "max_unconfirmed_messages", "max_unconfirmed_bytes"),
)
# A sender may open and close any number of these, and a close may name more than are open; none is below zero.
COUNTS = ("read_count", "write_count", "admin_count", "consumer_priority_count")
_BODIES: dict[int, Callable[[memoryview, int, int], Iterable[object]]] = {
    EventType.STORAGE: iter_storage,
    EventType.PARTITION_SYNC: iter_storage,
    EventType.PUT: iter_puts,
    EventType.ACK: iter_acks,
    EventType.PUSH: iter_pushes,
    EventType.CONFIRM: iter_confirms,
    EventType.REJECT: iter_rejects,
}
_MESSAGES: dict[int, Callable[[memoryview, int, int], Iterable[object]]] = {
    EventType.PUT: iter_puts,
    EventType.PUSH: iter_pushes,
}
_SCHEMAS: dict[int, type[Any]] = {EventType.CONTROL: ControlMessage, EventType.ELECTOR: ElectorMessage}


class Malformer:
    """One direction of a link between two members: now and then something that cannot be follows what is sent."""

    def __init__(self, random: Random, is_busy: Callable[[], bool]) -> None:
        self._random = random
        self._is_busy = is_busy
        self._maker = Maker(random)
        self._last: list[bytes] = []

    def sent(self, data: bytes) -> bytes | None:
        """An event that comes after these."""
        for event in events_of(data):
            # A node sends its identity before all else.
            if len(event) <= SHOWN_BYTES_MAX and event[4] & 0x3F in KINDS and not is_malformed(event):
                self._maker.show(event)
                self._last = [*self._last[-20:], event]
        if not self._last or not self._is_busy() or self._random.random() >= PART:
            return None
        if self._random.random() < 0.4:
            return self.stretched(self._random.choice(self._last))
        for _ in range(TRIES_MAX):
            event = self._maker.any_event(KINDS)
            if is_malformed(event) and not has_whole_message(event):
                return event
        return None

    def stretched(self, event: bytes) -> bytes | None:
        """An event with a number that cannot be; None if it has no number."""
        kind, body = _frame(event)
        if kind in _SCHEMAS:
            message = ber.decode(_SCHEMAS[kind], schema_message(body, 0, len(body)))
            stretched = self._with_extreme(message)
            return None if stretched is None else build_schema_event(ber.encode(stretched), EventType(kind))
        if kind == EventType.CLUSTER_STATE:
            record = parse_ledger_record(body, 0)
            changed = self._with_extreme(ber.decode(ClusterMessage, record.body))
            if changed is None:
                return None
            header = record.header
            record_type = LedgerRecordType(header.record_type)
            rebuilt = build_ledger_record(
                record_type, header.elector_term, header.sequence_number, 1, ber.encode(changed)
            )
            return build_event(EventType.CLUSTER_STATE, rebuilt)
        if kind == EventType.REPLICATION_RECEIPT:
            receipt = parse_receipt(body, 0, len(body))
            number = self._random.choice([each for each in NUMBERS if LEAP < each < 1 << 64])
            return build_receipt_event(receipt.partition_id, receipt.primary_lease_id, number)
        return None

    def _with_extreme(self, message: Any) -> Any | None:
        """A message of which one number is out of any range."""
        paths = list(_integers(message))
        if not paths:
            return None
        path, kind = self._random.choice(paths)
        # Of terms and of numbers of records some leap is taken for what may have been.
        least = EXTREME if kind.high < 1 << 32 else LEAP
        high = 0 if path[-1][0] in COUNTS else kind.high
        numbers = [each for each in NUMBERS if abs(each) > least and kind.low <= each <= high]
        return _replaced(message, path, self._random.choice(numbers))


def _frame(event: bytes) -> tuple[int, memoryview]:
    view = memoryview(event)
    (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
    return frame.type, view[frame.body : frame.end]


Path = tuple[tuple[str, int | None], ...]


def _integers(message: Any, before: Path = ()) -> Iterator[tuple[Path, Integer]]:
    """The places of a message's numbers."""
    for element in describe(type(message)).elements:
        value = getattr(message, element.attribute)
        each_value = enumerate(value) if element.array else [(None, value)]
        for index, each in each_value:
            path: Path = (*before, (element.attribute, index))
            if isinstance(element.kind, Integer) and each is not None and element.attribute not in OWN:
                yield path, element.kind
            elif isinstance(element.kind, (Description, Choice)) and each is not None:
                yield from _integers(each, path)


def _replaced(message: Any, path: Path, number: int) -> Any:
    (attribute, index), *rest = path
    value = getattr(message, attribute)
    old = value if index is None else value[index]
    new = _replaced(old, tuple(rest), number) if rest else number
    if index is not None:
        new = (*value[:index], new, *value[index + 1 :])
    return replace(message, **{attribute: new})


def is_malformed(event: bytes) -> bool:
    """Return whether an event cannot be read, or has an element out of its range."""
    view = memoryview(event)
    try:
        (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
        if frame.type in _SCHEMAS:
            encoding = schema_encoding(frame.type_specific) if frame.type == EventType.CONTROL else EncodingType.BER
            received(_SCHEMAS[frame.type], schema_message(view, frame.body, frame.end), encoding)
        elif frame.type == EventType.CLUSTER_STATE:
            received(ClusterMessage, parse_ledger_record(view, frame.body).body, EncodingType.BER)
        elif frame.type == EventType.REPLICATION_RECEIPT:
            parse_receipt(view, frame.body, frame.end)
        elif frame.type in _BODIES:
            for _ in _BODIES[frame.type](view, frame.body, frame.end):
                """It can be read so far."""
        else:
            return True
    except FormatError:
        return True
    return False


def has_whole_message(event: bytes) -> bool:
    """Return whether an event begins with a message that can be read.

    Nothing tells that it was altered, so its receiver would hand it out.
    """
    kind, body = event[4] & 0x3F, memoryview(event)[8:]
    if kind not in _MESSAGES:
        return False
    try:
        return any(True for _ in _MESSAGES[kind](body, 0, len(body)))
    except FormatError:
        return False
