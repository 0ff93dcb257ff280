"""Padding that says its own length (source: bmqp::ProtocolUtil).

Whatever is padded gets 1 to `unit` bytes, each holding their number, so that the last byte tells how many to drop.
Something that already fills whole units gets a whole unit more.
"""

from __future__ import annotations

from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["DWORD", "PADDING", "WORD", "padding", "unpadded_end"]

WORD = 4
DWORD = 8

PADDING = tuple(bytes([count]) * count for count in range(DWORD + 1))
"""The bytes that make up a padding of so many; `PADDING[unit - size % unit]` goes after `size` bytes."""


def padding(size: int, unit: int = WORD) -> bytes:
    """The bytes to put after `size` bytes; `unit` is `WORD` or `DWORD`."""
    return PADDING[unit - size % unit]


def unpadded_end(buffer: Buffer, start: int, end: int, path: str, unit: int = WORD) -> int:
    """Where the padding of `buffer[start:end]` begins; FormatError named `path` if there is none.

    As the reference, trusts the last byte for the count; unlike it, refuses a count that cannot be.
    """
    if end <= start:
        raise FormatError(path, start, "empty, where at least padding must be")
    count = buffer[end - 1]
    if not 1 <= count <= min(unit, end - start):
        raise FormatError(path, end - 1, f"padding of {count} bytes, not 1..{min(unit, end - start)}")
    return end - count
