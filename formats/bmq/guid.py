"""Message GUIDs: 16 bytes that no two messages share (source: bmqt::MessageGUID, bmqp::MessageGUIDGenerator).

`GuidFields` are those of version 1, the only one in use. The timer tick counts nanoseconds since the generator's start;
the client id is the head of an MD5 of properties that identify the generator. A producer's identity gives the broker
both. Readers treat a GUID as opaque, except to print it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.errors import FormatError
from formats.schema import Annotated, Layout, bits, raw, u16

__all__ = [
    "CLIENT_ID_SIZE",
    "GUID",
    "GUID_SIZE",
    "GuidFields",
    "GuidGenerator",
    "format_guid",
    "parse_guid",
    "timer_tick_ns",
]

GUID_SIZE = 16
GUID_VERSION = 1
CLIENT_ID_SIZE = 6
_HEX = re.compile(r"[0-9A-F]{32}", re.ASCII)
_COUNTER_MASK = (1 << 22) - 1
_TICK_MASK = (1 << 56) - 1


class GuidFields(NamedTuple):
    """The parts of a GUID; the tick's 56 bits span two words, and so take two fields.

    bmqt::MessageGUID, 16 bytes:

        0 | version 2 | counter 22 | timer_tick_upper 40 |
        8 | timer_tick_lower 16 | client_id 48           |
    """

    version: Annotated[int, bits(2), "1, the only version that is made."]
    counter: Annotated[int, bits(22), "Grows with every GUID of the generator."]
    timer_tick_upper: Annotated[int, bits(40), "High 40 bits of the nanoseconds since the generator was made."]
    timer_tick_lower: Annotated[int, u16, "Low 16 bits of them."]
    client_id: Annotated[bytes, raw(CLIENT_ID_SIZE), "Tells generators apart: the head of an MD5."]


GUID = Layout(GuidFields, size=GUID_SIZE, upstream="bmqt::MessageGUID")


def timer_tick_ns(fields: GuidFields) -> int:
    """Nanoseconds from the generator's start to the GUID."""
    return fields.timer_tick_upper << 16 | fields.timer_tick_lower


def format_guid(guid: bytes) -> str:
    """Format a GUID as the reference's tools do: 32 upper-case hexadecimal digits."""
    return guid.hex().upper()


def parse_guid(text: str) -> bytes:
    """Parse a GUID; FormatError unless it is 32 upper-case hexadecimal digits."""
    if not _HEX.fullmatch(text):
        raise FormatError("guid", 0, "not 32 upper-case hexadecimal digits")
    return bytes.fromhex(text)


class GuidGenerator:
    """GUIDs of a client id, unique for 2.28 years if fewer than 2**22 are made in a nanosecond."""

    __slots__ = ("_counter", "_fixed", "_start_ns")

    def __init__(self, client_id: bytes, start_ns: int) -> None:
        """`start_ns` is the monotonic clock at tick 0."""
        if len(client_id) != CLIENT_ID_SIZE:
            raise ValueError(f"a client id has {CLIENT_ID_SIZE} bytes")
        self._fixed = GUID_VERSION << 126 | int.from_bytes(client_id, "big")
        self._start_ns = start_ns
        self._counter = 0

    def make(self, now_ns: int) -> bytes:
        """The next GUID; `now_ns` is of the clock of `start_ns`."""
        counter = self._counter
        self._counter = counter + 1 & _COUNTER_MASK
        tick = now_ns - self._start_ns & _TICK_MASK
        return (self._fixed | counter << 104 | tick << 48).to_bytes(GUID_SIZE, "big")
