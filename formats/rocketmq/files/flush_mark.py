"""A file of our own beside the original's checkpoint: up to which offset of the log everything is on the disk.

The checkpoint says that as a time, and times may go back. What is before the mark need not be looked at after a crash.
The original leaves the file as it is: where it has run since, its checkpoint is newer, and the mark says nothing.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from formats.schema import Buffer

__all__ = ["FLUSH_MARK", "MARK_NAME", "FlushMark", "decode_mark", "encode_mark"]

MARK_NAME: Final = "bmqctl.flushed"


class FlushMark(NamedTuple):
    """`bmqctl.flushed`: the end of the log at a flush, and when its last message had been stored.

    20 bytes, big-endian, of no structure of the original's:

         0 | stored_ms 64 |
         8 | log_end 64   |
        16 | checksum 32  |
    """

    stored_ms: int
    log_end: int
    checksum: int


FLUSH_MARK: Final = struct.Struct(">qqI")


def _checksum(stored_ms: int, log_end: int) -> int:
    return zlib.crc32(b"%d %d" % (stored_ms, log_end))


def decode_mark(data: Buffer) -> FlushMark | None:
    """The mark in a file's bytes; None if it is not whole."""
    if len(data) < FLUSH_MARK.size:
        return None
    mark = FlushMark(*FLUSH_MARK.unpack_from(data))
    return mark if mark.checksum == _checksum(mark.stored_ms, mark.log_end) else None


def encode_mark(stored_ms: int, log_end: int) -> bytes:
    """The bytes of a mark."""
    return FLUSH_MARK.pack(stored_ms, log_end, _checksum(stored_ms, log_end))
