"""Messages of the gRPC protocol, encoded and decoded by Protocol Buffers from the declarations here.

`make` returns a message with the given fields (see `declarations.MESSAGES`).
"""

from __future__ import annotations

from typing import Any, Final

from formats.rocketmq.grpc.codes import ENUMS
from formats.rocketmq.grpc.declarations import MESSAGES, METHODS
from formats.rocketmq.grpc.describing import Declared, Types

__all__ = [
    "DECLARED",
    "PACKAGE",
    "SERVICE",
    "Message",
    "decode",
    "duration_of_ms",
    "has_more_fields",
    "is_time",
    "make",
    "ms_of",
    "time_of_ms",
]

PACKAGE: Final = "apache.rocketmq.v2"

# Wire types, the last bits of a tag, and the sizes of types with a fixed size. A group is two tags.
_KIND_MASK: Final = 7
_VARINT, _BYTES = 0, 2
_SIZES: Final = {1: 8, 3: 0, 4: 0, 5: 4}
_SHIFT_MAX: Final = 63

# The first and the last second of a `Timestamp`.
_SECONDS_MIN: Final = -62_135_596_800
_SECONDS_MAX: Final = 253_402_300_799

# Protocol Buffers creates the classes at run time.
Message = Any

DECLARED: Final = Declared("apache/rocketmq/v2/messages", PACKAGE, "MessagingService", METHODS, MESSAGES, ENUMS)
SERVICE: Final = DECLARED.service_name
_TYPES: Final = Types(DECLARED)
make: Final = _TYPES.make
decode: Final = _TYPES.decode


def has_more_fields(data: bytes, most: int) -> bool:
    """Return whether a message has more than `most` fields; each repetition counts.

    A field of two bytes may take a hundred times as much memory during decoding. Nested fields are not counted. The
    result is False for data that is not a message.
    """
    at, end, count = 0, len(data), 0
    while at < end:
        count += 1
        if count > most:
            return True
        tag, at = _varint(data, at)
        kind = tag & _KIND_MASK
        if kind == _BYTES:
            size, at = _varint(data, at)
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        else:
            at += _SIZES.get(kind, end)
    return False


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint; return it and its end, which exceeds the data if it is incomplete."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _SHIFT_MAX:
            break
    return value, len(data) + 1


def ms_of(value: Message) -> int:
    """Convert a time or a duration to milliseconds, rounded down."""
    ms: int = value.seconds * 1000 + value.nanos // 1_000_000
    return ms


def is_time(value: Message) -> bool:
    """Return whether a time is in the years 1 to 9999, the range of Protocol Buffers."""
    return bool(_SECONDS_MIN <= value.seconds <= _SECONDS_MAX and 0 <= value.nanos < 1_000_000_000)


def time_of_ms(ms: int) -> Message:
    return make("Timestamp", seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def duration_of_ms(ms: int) -> Message:
    return make("Duration", seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
