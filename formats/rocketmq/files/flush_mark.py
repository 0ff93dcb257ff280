"""A file that the original does not have: the log offset up to which everything is on the disk.

Recovery need not read earlier records. The original's checkpoint gives only a time, and times may go back. The original
ignores this file: after it has run, its checkpoint is newer, and the mark does not count.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from formats.schema import Buffer

__all__ = ["FLUSH_MARK", "MARK_NAME", "FlushMark", "decode_mark", "encode_mark"]

MARK_NAME: Final = "bmqctl.flushed"


class FlushMark(NamedTuple):
    """`bmqctl.flushed`: the end of the log at a flush, and the storing time of its last message.

    20 bytes, big-endian:

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
    return FLUSH_MARK.pack(stored_ms, log_end, _checksum(stored_ms, log_end))
