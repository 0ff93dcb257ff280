# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Fast reader of ordinary commit log records: a fraction of the time of `record.decode_record`.

A record is plain if it has version 1, hosts with IPv4 and no part in a transaction. Other records, and records with a
fault, are left to `decode_record`, which names the fault.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from formats.rocketmq.files.record import BLANK_BYTES_MIN, RECORD_FRONT, Magic
from formats.rocketmq.flags import TRANSACTION_MASK, SystemFlag
from formats.rocketmq.lite import LITE_TOPIC

__all__ = ["LITE_MARK", "PROPERTY_END", "PlainRecord", "plain_records", "read_keys", "read_property"]

_V1 = int(Magic.V1)
_OTHER = int(TRANSACTION_MASK | SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
_CRC_MASK = 0x7FFFFFFF
_FRONT_BYTES = RECORD_FRONT.size
# Of RecordFront: size, magic, checksum, queue, queue offset, physical offset, system flags, storing time, body size.
_unpack_front = struct.Struct(">IIIi4xqqi16xq20xi").unpack_from

PROPERTY_END: Final = b"\2"
# Names of properties between separators.
LITE_MARK: Final = b"\2%b\1" % LITE_TOPIC.encode()
_UNIQUE_KEY: Final = b"\2UNIQ_KEY\1"
_KEYS: Final = b"\2KEYS\1"
_TAGS: Final = b"\2TAGS\1"


# Offset, size, topic field with its length, queue, queue offset, storing time, and properties after a separator. A
# plain tuple, as one is made for each record.
PlainRecord = tuple[int, int, bytes, int, int, int, bytes]


def plain_records(data: memoryview, offset: int, file_size: int, size_max: int) -> Iterator[PlainRecord]:
    """Yield the plain records at the front of `data`, which begins at `offset` of a log.

    The log has files of `file_size` bytes. Each record is at most `size_max` bytes long, is whole, matches its
    checksum, gives its own offset, and ends in its file, with room for a blank record after it.
    """
    at, end = 0, len(data)
    file_end = file_size - offset % file_size
    while end - at > _FRONT_BYTES:
        size, magic, crc, queue_id, queue_offset, physical_offset, flags, stored_ms, body_size = _unpack_front(data, at)
        record_end = at + size
        if magic != _V1 or record_end > end or record_end + BLANK_BYTES_MIN > file_end or size > size_max:
            break
        if physical_offset != offset + at or flags & _OTHER or body_size < 0:
            break
        body_at = at + _FRONT_BYTES
        topic_at = body_at + body_size
        if topic_at >= record_end:
            break
        topic_end = topic_at + 1 + data[topic_at]
        properties_at = topic_end + 2
        if properties_at > record_end or properties_at + (data[topic_end] << 8 | data[topic_end + 1]) != record_end:
            break
        if crc32(data[body_at:topic_at]) & _CRC_MASK != crc:
            break
        topic = bytes(data[topic_at:topic_end])
        properties = PROPERTY_END + data[properties_at:record_end]
        yield offset + at, size, topic, queue_id, queue_offset, stored_ms, properties
        at = record_end


def read_property(properties: bytes, mark: bytes) -> bytes:
    """Return the value of a property of a plain record; empty if there is none.

    `mark` is the name between its separators. As with `decode_properties`, the last property of a name counts.
    """
    at = properties.rfind(mark)
    if at < 0:
        return b""
    at += len(mark)
    end = properties.find(PROPERTY_END, at)
    return properties[at:] if end < 0 else properties[at:end]


def read_keys(properties: bytes) -> tuple[list[bytes], bytes]:
    """Return the unique id and the keys of a plain record, none of them empty, and its tags."""
    unique_id = read_property(properties, _UNIQUE_KEY)
    names = [unique_id] if unique_id else []
    if _KEYS in properties:
        names += filter(None, read_property(properties, _KEYS).split(b" "))
    return names, read_property(properties, _TAGS) if _TAGS in properties else b""
