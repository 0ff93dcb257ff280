"""The mark of the last flush in its file; see `formats.rocketmq.flush_mark`."""

from __future__ import annotations

from broker.common.files import StoreFile
from formats.rocketmq.flush_mark import FLUSH_MARK, MARK_NAME, FlushMark, decode_mark, encode_mark

__all__ = ["FLUSH_MARK", "MARK_NAME", "FlushMark", "read_mark", "write_mark"]


def read_mark(file: StoreFile) -> FlushMark | None:
    """The mark in a file; None without one that is whole."""
    return decode_mark(file.buffer)


def write_mark(file: StoreFile, stored_ms: int, log_end: int) -> None:
    """Write a mark; not where there is no disk for it."""
    if file.reserve(FLUSH_MARK.size):
        file.buffer[: FLUSH_MARK.size] = encode_mark(stored_ms, log_end)
