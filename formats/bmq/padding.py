# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Padding that encodes its own length (source: bmqp::ProtocolUtil).

Padded data gets 1 to `unit` bytes, each holding their number. Data that already fills whole units gets one unit more.
"""

from __future__ import annotations

from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["DWORD", "PADDING", "WORD", "padding", "unpadded_end"]

WORD = 4
DWORD = 8

PADDING = tuple(bytes([count]) * count for count in range(DWORD + 1))
"""The padding of each length; `PADDING[unit - size % unit]` goes after `size` bytes."""


def padding(size: int, unit: int = WORD) -> bytes:
    """The padding of `size` bytes; `unit` is `WORD` or `DWORD`."""
    return PADDING[unit - size % unit]


def unpadded_end(buffer: Buffer, start: int, end: int, path: str, unit: int = WORD) -> int:
    """Return the start of the padding of `buffer[start:end]`. FormatError named `path` if there is none.

    Like the reference, it takes the count from the last byte; unlike it, it rejects an impossible count.
    """
    if end <= start:
        raise FormatError(path, start, "empty, where at least padding must be")
    count = buffer[end - 1]
    if not 1 <= count <= min(unit, end - start):
        raise FormatError(path, end - 1, f"padding of {count} bytes, not 1..{min(unit, end - start)}")
    return end - count
