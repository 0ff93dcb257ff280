"""The bodies of messages as their senders gave them."""

from __future__ import annotations

import zlib
from typing import Final

from bmqctl.common.installed import installing
from formats.errors import FormatError, check_memory
from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import CompressionType, SystemFlag, compression_of
from formats.schema import Buffer

__all__ = ["BodyUnreadable", "inflate_other", "read_body"]

# Plain integers: an enumeration's operators make new members.
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
_INNER_BATCH: Final = int(SystemFlag.INNER_BATCH)
_ARROW_NAMES: Final = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstd"}


class BodyUnreadable(ValueError):
    """A body that cannot be decompressed; the text is the reason."""


def read_body(record: Record, bytes_max: int) -> Buffer:
    """The decompressed body; a view if it was not compressed.

    Raises `BodyUnreadable`, also for more than `bytes_max` decompressed bytes.
    """
    if record.system_flags & _INNER_BATCH:
        raise BodyUnreadable("a batch that is stored as one message")
    if not record.system_flags & _COMPRESSED:
        return record.body
    try:
        compression = compression_of(record.system_flags)
    except ValueError as fault:
        raise BodyUnreadable(str(fault)) from None
    assert compression is not None
    if compression is not CompressionType.ZLIB:
        try:
            return inflate_other(memoryview(record.body), compression, bytes_max, bytes_max)[0]
        except FormatError as fault:
            raise BodyUnreadable(f"a body compressed with {compression.name}: {fault.reason}") from None
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(record.body, bytes_max)
    except zlib.error as fault:
        check_memory(fault)
        raise BodyUnreadable(f"a body that is not ZLIB: {fault}") from None
    if not unpacking.eof:
        raise BodyUnreadable(f"a compressed body that is cut off, or larger than {bytes_max} bytes")
    return body


def inflate_other(body: memoryview, compression: CompressionType, keep: int, bytes_max: int) -> tuple[bytes, int]:
    """Decompress the first `keep` bytes of a body in LZ4 or Zstandard; return them and the full size.

    Raises `FormatError`, also without pyarrow, and for a full size above `bytes_max`.
    """
    name = _ARROW_NAMES[compression]
    try:
        from bmqctl.client.remoting.arrow_bodies import inflate_by_arrow
    except ImportError:
        reason = f"needs pyarrow, which is not installed: {installing('arrow')}"
        raise FormatError(name, 0, reason) from None
    return inflate_by_arrow(body, name, keep, bytes_max)
