"""Padding that says its own length, and the units that offsets are counted in (source: bmqp::ProtocolUtil).

Whatever is padded gets 1 to `unit` bytes, each holding their number, so that the last byte tells how many to drop.
Something that already fills whole units gets a whole unit more.
"""

from __future__ import annotations

from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["DWORD", "WORD", "padding", "unpadded_size"]

WORD = 4
DWORD = 8

_PADDING = tuple(bytes([count]) * count for count in range(DWORD + 1))


def padding(size: int, unit: int) -> bytes:
    """The bytes to put after `size` bytes; `unit` is `WORD` or `DWORD`."""
    return _PADDING[unit - size % unit]


def unpadded_size(buffer: Buffer, start: int, end: int, unit: int, path: str) -> int:
    """How many of the bytes from `start` to `end` come before the padding; FormatError named `path` if it is not one.

    As the reference, trusts the last byte for the count; unlike it, refuses a count that cannot be.
    """
    if end <= start:
        raise FormatError(path, start, "empty, where at least padding must be")
    count = buffer[end - 1]
    if not 1 <= count <= min(unit, end - start):
        raise FormatError(path, end - 1, f"padding of {count} bytes, not 1..{min(unit, end - start)}")
    return end - start - count
