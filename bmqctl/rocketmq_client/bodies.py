"""The bodies of messages as their senders gave them."""

from __future__ import annotations

import zlib
from typing import Final

from formats.rocketmq.flags import CompressionType, SystemFlag, compression_of
from formats.rocketmq.record import Record
from formats.schema import Buffer

__all__ = ["BodyUnreadable", "read_body"]

# Plain integers: an operation with a member of an enumeration makes another member.
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
_INNER_BATCH: Final = int(SystemFlag.INNER_BATCH)


class BodyUnreadable(ValueError):
    """A body that cannot be decompressed; the text is the reason."""


def read_body(record: Record, bytes_max: int) -> Buffer:
    """The message's body, decompressed; a view if it was not compressed.

    Raises `BodyUnreadable`, also if it has more than `bytes_max` bytes then.
    """
    if record.system_flags & _INNER_BATCH:
        raise BodyUnreadable("a batch that is stored as one message")
    if not record.system_flags & _COMPRESSED:
        return record.body
    try:
        compression = compression_of(record.system_flags)
    except ValueError as fault:
        raise BodyUnreadable(str(fault)) from None
    if compression is not CompressionType.ZLIB:
        raise BodyUnreadable(
            f"a body compressed with {compression.name if compression else 'nothing'}; only ZLIB is known"
        )
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(record.body, bytes_max)
    except zlib.error as fault:
        raise BodyUnreadable(f"a body that is not ZLIB: {fault}") from None
    if not unpacking.eof:
        raise BodyUnreadable(f"a compressed body that is cut off, or larger than {bytes_max} bytes")
    return body
