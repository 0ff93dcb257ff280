"""Padding and units as the disk formats use them: `formats.padding`, with sizes in place of ends."""

from __future__ import annotations

from formats.padding import DWORD, PADDING, WORD, padding, unpadded_end
from formats.schema import Buffer

__all__ = ["DWORD", "PADDING", "WORD", "padding", "unpadded_size"]


def unpadded_size(buffer: Buffer, start: int, end: int, unit: int, path: str) -> int:
    """How many of the bytes from `start` to `end` come before the padding; see `formats.padding.unpadded_end`."""
    return unpadded_end(buffer, start, end, path, unit) - start
