"""A file of our own beside the original's checkpoint: up to which offset of the log everything is on the disk.

The checkpoint says that as a time, and times may go back. What is before the mark need not be looked at after a crash.
The original leaves the file as it is: where it has run since, its checkpoint is newer, and the mark says nothing.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from broker.common.files import StoreFile
from formats.schema import Annotated, Layout, i64, u32

__all__ = ["FLUSH_MARK", "MARK_NAME", "FlushMark", "read_mark", "write_mark"]

MARK_NAME: Final = "bmqctl.flushed"


class FlushMark(NamedTuple):
    """`bmqctl.flushed`: the end of the log at a flush, and when its last message had been stored.

    bmqctl::FlushMark, 20 bytes:

         0 | stored_ms 64 |
         8 | log_end 64   |
        16 | checksum 32  |
    """

    stored_ms: Annotated[int, i64]
    log_end: Annotated[int, i64]
    checksum: Annotated[int, u32]


FLUSH_MARK = Layout(FlushMark, size=20, upstream="bmqctl::FlushMark")


def _checksum(stored_ms: int, log_end: int) -> int:
    return zlib.crc32(b"%d %d" % (stored_ms, log_end))


def read_mark(file: StoreFile) -> FlushMark | None:
    """The mark in a file; None without one that is whole."""
    mark = FLUSH_MARK.unpack(file.buffer)
    return mark if mark.checksum == _checksum(mark.stored_ms, mark.log_end) else None


def write_mark(file: StoreFile, stored_ms: int, log_end: int) -> None:
    """Write a mark; not where there is no disk for it."""
    if file.reserve(FLUSH_MARK.size):
        FLUSH_MARK.pack_into(file.buffer, 0, FlushMark(stored_ms, log_end, _checksum(stored_ms, log_end)))
