# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Padding and units of the disk formats: `formats.bmq.padding`, with sizes in place of ends."""

from __future__ import annotations

from formats.bmq.padding import DWORD, PADDING, WORD, padding, unpadded_end
from formats.schema import Buffer

__all__ = ["DWORD", "PADDING", "WORD", "padding", "unpadded_size"]


def unpadded_size(buffer: Buffer, start: int, end: int, unit: int, path: str) -> int:
    """Return the number of bytes before the padding; see `formats.bmq.padding.unpadded_end`."""
    return unpadded_end(buffer, start, end, path, unit) - start
