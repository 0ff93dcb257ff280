"""Names of the files of a store (source: UtilAll.offset2FileName, IndexService)."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.numbers import read_digits

__all__ = ["offset_name", "offset_of_name"]

NAME_DIGITS: Final = 20


def offset_name(offset: int) -> str:
    """The name of the file that begins at `offset`: 20 digits."""
    if not 0 <= offset < 1 << 63:
        raise ValueError(f"{offset} is no file offset")
    return f"{offset:020d}"


def offset_of_name(name: str) -> int | None:
    """The offset at which the file begins; None for any other name."""
    return read_digits(name) if len(name) == NAME_DIGITS else None
