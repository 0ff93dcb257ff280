"""Events of peers, with random errors: in fields, order, lengths, ids of others.

A `Maker` changes schema messages element by element, within the schema, and the words of all other events; it reuses
what it has seen. Everything follows from its random numbers and the events shown to it: a seed repeats a story.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

from formats.bmq.codes import EncodingType, EventType
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import AuthenticationMessage, ClusterMessage, ControlMessage, ElectorMessage
from formats.bmq.control.schema import (
    Boolean,
    Choice,
    Description,
    Element,
    Enumeration,
    Integer,
    Kind,
    Octets,
    Text,
    describe,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, parse_ledger_record
from formats.bmq.padding import WORD
from formats.bmq.wire.event import EVENT_HEADER_SIZE, build_event, build_schema_event, iter_frames, schema_message
from formats.errors import FormatError

__all__ = ["LENGTH_MAX", "SCHEMAS", "Maker", "changed_words", "events_of", "shown"]

LENGTH_MAX = 1 << 29
KEPT_MAX = 40
DEPTH_MAX = 12
ARRAY_MAX = 40

NUMBERS = (
    *(0, 1, 2, 3, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0xF_FFFF, 0xFF_FFFF),
    *(0x7FFF_FFFE, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFF4, 0xFFFF_FFF5, 0xFFFF_FFFE, 0xFFFF_FFFF),
    *(1 << 32, 1 << 40, (1 << 48) - 1, 1 << 48, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1),
    *(-1, -2, -0x8000_0000, -(1 << 63)),
)

TEXTS = (
    *("", " ", "x", "foo", "bar", "__default", "..", "/", "../../etc/passwd", "a\0b", "\x1b[2J\n", "é", "𝄞", "%s%n%d"),
    *("bmq://", "bmq:///q", "bmq://bmq.test.mmap.priority/", "bmq://../q", "bmq://bmq.test.mmap.priority/q?id="),
    *("bmq://bmq.test.mmap.priority.~x/q", "bmq://nowhere/q", f"bmq://{'d' * 300}/q", f"bmq://d/{'q' * 65}"),
    *("x > 1 && y < 2", "(" * 400, "!" * 400 + "x", "x == " + "9" * 400, "a" * 5000, f"{'(x)&&' * 100}1", "-" * 1000),
    *("PROTOCOL_ENCODING:BER,JSON", "MPS:MESSAGE_PROPERTIES_EX", ";;:,", "ANONYMOUS", "BASIC"),
)


def events_of(data: bytes) -> list[bytes]:
    view = memoryview(data)
    found, at = [], 0
    for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
        found.append(bytes(view[at : frame.end]))
        at = frame.end
    return found


def _frame(event: bytes) -> tuple[int, memoryview]:
    view = memoryview(event)
    (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
    return frame.type, view[frame.body : frame.end]


def _key(kind: Kind, name: str) -> tuple[type[Any], str]:
    """Return the key for a scalar element's values: those of one name are alike in all messages."""
    return (kind.cls if isinstance(kind, Enumeration) else type(kind)), name


def changed_words(random: Random, body: bytes, unit: int) -> bytes:
    """Return a body with some words replaced or cut off, or with more after it."""
    out = bytearray(body)
    for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
        if len(out) < unit:
            break
        # Headers are in front.
        last = len(out) // unit if random.random() < 0.3 else min(len(out) // unit, 24)
        at = random.randrange(last) * unit
        match random.randrange(4):
            case 0:
                out[at : at + unit] = (random.choice(NUMBERS) & 0xFFFF_FFFF).to_bytes(4, "big")
            case 1:
                out[at + random.randrange(unit)] ^= 1 << random.randrange(8)
            case 2:
                word = int.from_bytes(out[at : at + unit], "big") + random.choice((-1, 1))
                out[at : at + unit] = (word & 0xFFFF_FFFF).to_bytes(4, "big")
            case _:
                other = random.randrange(len(out) // unit) * unit
                out[at : at + unit] = out[other : other + unit]
    match random.randrange(12):
        case 0:
            del out[random.randrange(len(out) + 1) :]
        case 1:
            out += random.randbytes(random.choice((1, 4, 60, 72)))
        case 2:
            out += bytes(out)
    return bytes(out)


SCHEMAS: dict[int, type[Any]] = {
    EventType.CONTROL: ControlMessage,
    EventType.ELECTOR: ElectorMessage,
    EventType.AUTHENTICATION: AuthenticationMessage,
}


_SIZES: dict[type[Any], int] = {}


def _size(cls: type[Any]) -> int:
    if cls in _SIZES:
        return _SIZES[cls]
    size = 1
    for element in describe(cls).elements:
        if isinstance(element.kind, Description):
            size += _size(element.kind.cls) - 1
        elif isinstance(element.kind, Choice):
            size += sum(map(_size, element.kind.by_class))
    _SIZES[cls] = size
    return size


class Maker:
    """Makes events from random numbers, from events that it is `show`n, and from the words of the protocol."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._seen: dict[tuple[type[Any], str], list[Any]] = defaultdict(list)
        self._templates: dict[int, list[bytes]] = defaultdict(list)

    # -- what it knows

    def show(self, event: bytes) -> None:
        """Remember an event and its elements' values."""
        kind, body = _frame(event)
        self._keep(self._templates[kind], event)
        try:
            if kind in SCHEMAS:
                self._learn(ber.decode(SCHEMAS[kind], schema_message(body, 0, len(body))))
            elif kind == EventType.CLUSTER_STATE:
                self._learn(ber.decode(ClusterMessage, parse_ledger_record(body, 0).body))
        except FormatError:
            pass

    def _keep(self, values: list[Any], value: Any) -> None:
        if len(values) < KEPT_MAX:
            values.append(value)
        else:
            values[self.random.randrange(KEPT_MAX)] = value

    def _learn(self, message: Any) -> None:
        for element in describe(type(message)).elements:
            value = getattr(message, element.attribute)
            for each in value if element.array else (value,):
                if each is None:
                    continue
                if isinstance(element.kind, (Description, Choice)):
                    self._keep(self._seen[type(each), ""], each)
                    self._learn(each)
                else:
                    self._keep(self._seen[_key(element.kind, element.name)], each)

    # -- schema messages

    def message(self, cls: type[Any], depth: int = 0) -> Any:
        seen = self._seen.get((cls, ""))
        if seen and self.random.random() < 0.3:
            return self.random.choice(seen)
        elements = describe(cls).elements
        return cls(**{element.attribute: self._made(element, depth) for element in elements})

    def _made(self, element: Element, depth: int) -> Any:
        if element.optional and self.random.random() < 0.3:
            return None
        if element.array:
            count = 0 if depth > DEPTH_MAX else self.random.choice((0, 1, 1, 2, 3, ARRAY_MAX))
            if count == ARRAY_MAX and depth > 4:
                count = 4
            return tuple(self._value(element.kind, element.name, depth + 1) for _ in range(count))
        return self._value(element.kind, element.name, depth + 1)

    def _value(self, kind: Kind, name: str, depth: int) -> Any:
        random = self.random
        if isinstance(kind, Description):
            return self.message(kind.cls, depth)
        if isinstance(kind, Choice):
            alternatives = tuple(kind.by_class)
            # Those with many alternatives are made more often, or the innermost would hardly ever be.
            weights = [_size(cls) for cls in alternatives] if random.random() < 0.5 else None
            return self.message(random.choices(alternatives, weights)[0], depth)
        seen = self._seen.get(_key(kind, name))
        if seen and random.random() < 0.6:
            return self._near(kind, random.choice(seen))
        if isinstance(kind, Integer):
            return random.choice([number for number in NUMBERS if kind.low <= number <= kind.high])
        if isinstance(kind, Enumeration):
            return random.choice(list(kind.cls))
        if isinstance(kind, Boolean):
            return random.random() < 0.5
        if isinstance(kind, Octets):
            return random.randbytes(random.choice((0, 1, 4, 5, 5, 5, 6, 16, 300)))
        assert isinstance(kind, Text)
        return random.choice(TEXTS)

    def _near(self, kind: Kind, value: Any) -> Any:
        """A value, or a neighbour."""
        if isinstance(kind, Integer) and self.random.random() < 0.3:
            return min(max(value + self.random.choice((-1, 1, 1, 2)), kind.low), kind.high)
        if isinstance(kind, Text) and self.random.random() < 0.1:
            return (value + self.random.choice(TEXTS))[:100_000]
        return value

    def changed(self, message: Any, rate: float = 0.12) -> Any:
        """Return a message with elements changed, each with the probability `rate`."""
        values = {}
        for element in describe(type(message)).elements:
            value = getattr(message, element.attribute)
            if self.random.random() < rate:
                values[element.attribute] = self._replaced(element, value)
            elif element.array:
                values[element.attribute] = tuple(self.changed(each, rate) for each in value)
            elif value is not None and isinstance(element.kind, (Description, Choice)):
                values[element.attribute] = self.changed(value, rate)
            else:
                values[element.attribute] = value
        return type(message)(**values)

    def _replaced(self, element: Element, value: Any) -> Any:
        if element.array and value and self.random.random() < 0.7:
            match self.random.randrange(4):
                case 0:
                    return value[1:]
                case 1:
                    return (*value, *value)
                case 2:
                    return tuple(reversed(value))
                case _:
                    return (*value, self._value(element.kind, element.name, 1))
        return self._made(element, 1)

    # -- events

    def schema_event(self, message: Any, kind: EventType = EventType.CONTROL) -> bytes:
        """A message's event, mostly in BER."""
        if kind is EventType.CONTROL and self.random.random() < 0.1:
            return build_schema_event(jsonc.encode(message), kind, EncodingType.JSON)
        return build_schema_event(ber.encode(message), kind)

    def changed_event(self, event: bytes) -> bytes:
        kind, body = _frame(event)
        try:
            if kind in SCHEMAS and self.random.random() < 0.9:
                message = ber.decode(SCHEMAS[kind], schema_message(body, 0, len(body)))
                return self.schema_event(self.changed(message), EventType(kind))
            if kind == EventType.CLUSTER_STATE and self.random.random() < 0.9:
                return self._changed_record(body)
        except FormatError:
            pass
        return build_event(EventType(kind), changed_words(self.random, bytes(body), WORD))

    def _changed_record(self, body: memoryview) -> bytes:
        """A ledger's record whose header mostly agrees with its message."""
        record = parse_ledger_record(body, 0)
        message = self.changed(ber.decode(ClusterMessage, record.body))
        term, number = record.header.elector_term, record.header.sequence_number
        inner = getattr(message.choice, "sequence_number", None)
        if inner is not None and self.random.random() < 0.8:
            term, number = inner.elector_term, inner.sequence_number
        kind = LedgerRecordType(record.header.record_type)
        if self.random.random() < 0.1:
            kind = self.random.choice(list(LedgerRecordType))
        rebuilt = build_ledger_record(kind, term, number, 1, ber.encode(message))
        return build_event(EventType.CLUSTER_STATE, rebuilt)

    def any_event(self, kinds: tuple[EventType, ...], control: type[Any] = ControlMessage) -> bytes:
        """Make an event of one of these kinds: like a seen one, or invented."""
        kind = self.random.choice(kinds)
        templates = self._templates.get(kind)
        if templates and self.random.random() < 0.75:
            return self.changed_event(self.random.choice(templates))
        if kind in SCHEMAS:
            cls = control if kind is EventType.CONTROL else SCHEMAS[kind]
            return self.schema_event(self.message(cls), kind)
        if kind is EventType.CLUSTER_STATE:
            message = self.message(ClusterMessage)
            record_type = self.random.choice(list(LedgerRecordType))
            term, number = (self.random.choice(NUMBERS) & 0xFFFF_FFFF for _ in range(2))
            return build_event(kind, build_ledger_record(record_type, term, number, 1, ber.encode(message)))
        words = [self.random.choice(NUMBERS) & 0xFFFF_FFFF for _ in range(self.random.choice((0, 1, 4, 6, 9, 18, 25)))]
        return build_event(kind, b"".join(word.to_bytes(4, "big") for word in words))

    def seen_event(self, kinds: tuple[EventType, ...]) -> bytes | None:
        known = [kind for kind in kinds if self._templates.get(kind)]
        return self.random.choice(self._templates[self.random.choice(known)]) if known else None

    def garbled(self, event: bytes) -> bytes:
        """Return an event with a false frame, or cut off."""
        out = bytearray(event)
        match self.random.randrange(3):
            case 0:
                out[self.random.randrange(EVENT_HEADER_SIZE)] ^= 1 << self.random.randrange(8)
            case 1:
                del out[self.random.randrange(len(out)) :]
            case _:
                out += self.random.randbytes(self.random.randrange(1, 40))
        return bytes(out)


def shown(event: bytes, limit: int = 600) -> str:
    """An event for people: its content, if readable, and its bytes."""
    try:
        kind, body = _frame(event)
    except (FormatError, ValueError):
        return f"bytes {event[:80].hex()} ({len(event)} bytes)"
    name = EventType(kind).name
    try:
        if kind in SCHEMAS:
            return f"{name} {ber.decode(SCHEMAS[kind], schema_message(body, 0, len(body)))}"[:limit]
        if kind == EventType.CLUSTER_STATE:
            record = parse_ledger_record(body, 0)
            return f"{name} {record.header} {ber.decode(ClusterMessage, record.body)}"[:limit]
    except FormatError:
        pass
    return f"{name} {bytes(body[:120]).hex()} ({len(event)} bytes)"
