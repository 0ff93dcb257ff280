# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The frame of everything on a connection (source: bmqp::EventHeader).

An `EventHeader`, then a body by its type. Schema messages are padded to words. A heartbeat has no body.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from formats.bmq.codes import PROTOCOL_VERSION, EncodingType, EventType
from formats.bmq.padding import WORD, padding, unpadded_end
from formats.bmq.wire.layouts.event_layout import EVENT_HEADER, EVENT_HEADER_SIZE, EventHeader
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = [
    "EVENT_HEADER",
    "EVENT_HEADER_SIZE",
    "HEARTBEAT_REQUEST",
    "HEARTBEAT_RESPONSE",
    "PROTOCOL_VERSION",
    "EncodingType",
    "EventHeader",
    "EventType",
    "Frame",
    "build_event",
    "build_schema_event",
    "iter_frames",
    "next_frame",
    "schema_encoding",
    "schema_message",
]


_words: Final = EVENT_HEADER.words.unpack_from
_pack: Final = EVENT_HEADER.words.pack

# By the byte of version and type: the type as a plain integer, 0 for an invalid byte.
_FIRST: Final = int(EventType.CONTROL)
_LAST: Final = int(EventType.AUTHENTICATION)
_KINDS: Final = tuple(
    byte & 0x3F if byte >> 6 == PROTOCOL_VERSION and _FIRST <= byte & 0x3F <= _LAST else 0 for byte in range(256)
)
_SCHEMA_TYPES: Final = frozenset(map(int, (EventType.CONTROL, EventType.AUTHENTICATION, EventType.ELECTOR)))
# A length has 31 bits.
LENGTH_MAX: Final = (1 << 31) - 1
_new: Final = tuple.__new__


class Frame(NamedTuple):
    """A whole event in a buffer: its body is `buffer[body:end]`."""

    type: int
    type_specific: int
    body: int
    end: int


def next_frame(
    buffer: Buffer, offset: int, available: int, length_max: int, schema_length_max: int = LENGTH_MAX
) -> Frame | None:
    """The event at `offset`, or None while it is incomplete; `available` is the end of the received bytes.

    FormatError for an invalid header, a length above `length_max`, or above `schema_length_max` for an event with a
    schema message (CONTROL, AUTHENTICATION, ELECTOR): after it, the stream is lost.
    """
    if offset + 8 > available:
        return None
    length: int
    version_and_type: int
    header_words: int
    length, version_and_type, header_words, type_specific, _ = _words(buffer, offset)
    # The fragment bit, always zero, is the top bit of the length's word: if set, it exceeds any limit.
    if length > length_max:
        raise FormatError("EventHeader.length", offset, f"{length} bytes, the limit is {length_max}")
    if length > schema_length_max and version_and_type & 0x3F in _SCHEMA_TYPES:
        name = EventType(version_and_type & 0x3F).name
        raise FormatError("EventHeader.length", offset, f"{length} bytes of {name}, the limit is {schema_length_max}")
    kind = _KINDS[version_and_type]
    if not kind:
        if version_and_type >> 6 != PROTOCOL_VERSION:
            raise FormatError("EventHeader.protocol_version", offset + 4, f"{version_and_type >> 6} is unknown")
        raise FormatError("EventHeader.type", offset + 4, f"{version_and_type & 0x3F} is no event type")
    body = header_words * 4
    if body < 8 or body > length:
        raise FormatError("EventHeader.header_words", offset + 5, f"{header_words} in an event of {length} bytes")
    end = offset + length
    if end > available:
        return None
    return _new(Frame, (kind, type_specific, offset + body, end))


def iter_frames(buffer: Buffer, offset: int, available: int, length_max: int) -> Iterator[Frame]:
    """Iterate over the whole events of `buffer[offset:available]`; an incomplete one may follow them."""
    while (frame := next_frame(buffer, offset, available, length_max)) is not None:
        yield frame
        offset = frame.end


def build_event(event_type: EventType, body: Buffer, type_specific: int = 0) -> bytes:
    length = EVENT_HEADER_SIZE + len(body)
    return _pack(length, PROTOCOL_VERSION << 6 | event_type, EVENT_HEADER_SIZE // WORD, type_specific, b"") + body


def build_schema_event(
    message: bytes, event_type: EventType = EventType.CONTROL, encoding: EncodingType = EncodingType.BER
) -> bytes:
    return build_event(event_type, message + padding(len(message)), encoding << 5)


def schema_encoding(type_specific: int) -> EncodingType:
    """The encoding of an event with a schema message; FormatError if it is neither BER nor JSON."""
    try:
        return EncodingType(type_specific >> 5)
    except ValueError:
        raise FormatError("EventHeader.type_specific", 6, f"{type_specific >> 5} is no encoding") from None


def schema_message(buffer: memoryview, start: int, end: int) -> memoryview:
    """An event's encoded schema message, without padding."""
    return buffer[start : unpadded_end(buffer, start, end, "SchemaEvent.padding")]


HEARTBEAT_REQUEST: Final = build_event(EventType.HEARTBEAT_REQ, b"")
HEARTBEAT_RESPONSE: Final = build_event(EventType.HEARTBEAT_RSP, b"")
