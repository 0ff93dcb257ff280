"""Commit log records, one per message (source: MessageExtEncoder, CommitLog).

A record is a front of 88 to 112 bytes, whose two hosts take 8 bytes each, or 20 where the system flags say IPv6; then
the body; the topic after its length, 1 byte in version 1 and 2 bytes in version 2; and the properties after their
length. If the next record does not fit into a file, a blank record fills it: its size, which reaches to the end of the
file, and a magic number.

`decode_record` reads a record with all its checks; `read_head` reads just enough to step over it.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from formats.errors import FormatError
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.hosts import HOST_V4_BYTES, HOST_V6_BYTES
from formats.schema import Annotated, Buffer, Kind, Layout, i32, i64, raw, u32

__all__ = [
    "BLANK_BYTES_MIN",
    "FRONTS",
    "HEAD_BYTES",
    "RECORD_FRONT",
    "Blank",
    "Magic",
    "Record",
    "RecordFront",
    "body_crc",
    "decode_record",
    "encode_blank",
    "encode_record",
    "read_head",
    "record_bytes",
]

# Java keeps the lengths of properties in a signed short.
PROPERTIES_BYTES_MAX = 0x7FFF
TOPIC_BYTES_MAX_V1 = 0x7F
TOPIC_BYTES_MAX_V2 = 0x7FFF
BLANK_BYTES_MIN = 8
HEAD_BYTES = 8


class Magic(IntEnum):
    """The second word of a record: its version, or blank."""

    V1 = 0xDAA320A7
    V2 = 0xDAA320AB
    BLANK = 0xCBD43194


class RecordFront(NamedTuple):
    """The fixed part of a record, up to the size of its body.

    The hosts are 8 bytes each, or 20 where `SystemFlag.BORN_HOST_V6` and `STORE_HOST_V6` are set. `body_crc` is the
    CRC-32 of the body as stored (compressed, if it is) with its top bit cleared. Times are in milliseconds since the
    epoch.

    rocketmq::MessageExtEncoder, 88 bytes:

         0 | size 32                        |
         4 | magic 32                       |
         8 | body_crc 32                    |
        12 | queue_id 32                    |
        16 | flag 32                        |
        20 | queue_offset 64                |
        28 | physical_offset 64             |
        36 | system_flags 32                |
        40 | born_ms 64                     |
        48 | born_host 64                   |
        56 | stored_ms 64                   |
        64 | store_host 64                  |
        72 | reconsume_times 32             |
        76 | prepared_transaction_offset 64 |
        84 | body_size 32                   |
    """

    size: Annotated[int, u32, "Bytes of the whole record."]
    magic: Annotated[int, u32, "A Magic: the record's version."]
    body_crc: Annotated[int, u32, "CRC-32 of the body as stored, its top bit cleared."]
    queue_id: Annotated[int, i32, "The queue's number in its topic."]
    flag: Annotated[int, i32, "The application's own number."]
    queue_offset: Annotated[int, i64, "The message's offset in its queue."]
    physical_offset: Annotated[int, i64, "Where the record begins in the commit log."]
    system_flags: Annotated[int, i32, "SystemFlag."]
    born_ms: Annotated[int, i64, "When the producer made the message."]
    born_host: Annotated[bytes, raw(8), "The producer's address and port; 20 bytes with IPv6."]
    stored_ms: Annotated[int, i64, "When the broker stored it."]
    store_host: Annotated[bytes, raw(8), "The broker's address and port; 20 bytes with IPv6."]
    reconsume_times: Annotated[int, i32, "How often it was sent back."]
    prepared_transaction_offset: Annotated[int, i64, "Where the half message of its transaction begins."]
    body_size: Annotated[int, i32, "Bytes of the body, which follows."]


_V6 = raw(20)


def _front(size: int, **kinds: Kind) -> Layout[RecordFront]:
    return Layout(RecordFront, size=size, upstream="rocketmq::MessageExtEncoder", kinds=kinds)


RECORD_FRONT = _front(88)
# By the two IPv6 bits of the system flags.
FRONTS: dict[int, Layout[RecordFront]] = {
    0: RECORD_FRONT,
    SystemFlag.BORN_HOST_V6: _front(100, born_host=_V6),
    SystemFlag.STORE_HOST_V6: _front(100, store_host=_V6),
    SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6: _front(112, born_host=_V6, store_host=_V6),
}
# Plain integers: bit operations on members of an enumeration create members, which is slow.
_V6_MASK = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)

_HEAD = struct.Struct(">II")
_SYSTEM_FLAGS = struct.Struct(">i")
_SYSTEM_FLAGS_AT = 36
_SMALLEST = RECORD_FRONT.size
_front_words = struct.Struct(">IIIiiqqiq8sq8siqi").unpack_from
_LENGTH_V1 = struct.Struct(">B").unpack_from
_LENGTH = struct.Struct(">H").unpack_from
_new = tuple.__new__


class Record(NamedTuple):
    """A message in the commit log.

    `body` is a view of the buffer that it was read from. The hosts are packed: see `Host`.
    """

    version: Magic
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    system_flags: int
    born_ms: int
    born_host: bytes
    stored_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: Buffer
    topic: str
    properties: bytes

    @property
    def is_body_sound(self) -> bool:
        return body_crc(self.body) == self.body_crc


class Blank(NamedTuple):
    """The unused tail of a file, `size` bytes long."""

    size: int


def body_crc(body: Buffer) -> int:
    """CRC-32 of a body without the top bit, since Java keeps it in a signed int."""
    return zlib.crc32(body) & 0x7FFFFFFF


def record_bytes(version: Magic, system_flags: int, body_size: int, topic_size: int, properties_size: int) -> int:
    front = FRONTS[system_flags & _V6_MASK].size
    return front + body_size + (1 if version is Magic.V1 else 2) + topic_size + 2 + properties_size


def read_head(buffer: Buffer, at: int, end: int) -> tuple[int, Magic] | None:
    """The size and magic number of the record at `at`; None where nothing was written, or at `end`.

    Raises `FormatError` for an unknown magic number or a size that does not fit between `at` and `end`.
    """
    if end - at < HEAD_BYTES:
        return None
    size, number = _HEAD.unpack_from(buffer, at)
    if size == 0 and number == 0:
        return None
    try:
        magic = Magic(number)
    except ValueError:
        raise FormatError("Record.magic", at + 4, f"{number:#010x} is no record's magic number") from None
    if size > end - at:
        raise FormatError("Record.size", at, f"{size} bytes reach beyond the {end - at} that are left")
    smallest = BLANK_BYTES_MIN if magic is Magic.BLANK else record_bytes(magic, 0, 0, 0, 0)
    if size < smallest:
        raise FormatError("Record.size", at, f"{size} bytes are fewer than the {smallest} of the smallest record")
    return size, magic


def decode_record(buffer: Buffer, at: int = 0, end: int | None = None) -> Record | Blank | None:
    """Decode the record at `at`; None where nothing was written.

    Raises `FormatError` if its parts do not fill exactly its size. Does not check the body: see `Record.is_body_sound`.
    """
    limit = len(buffer) if end is None else end
    if limit - at >= _SMALLEST:
        usual = _decode_usual(buffer, at, limit)
        if usual is not None:
            return usual
    return _decode_any(buffer, at, limit)


def _decode_any(buffer: Buffer, at: int, limit: int) -> Record | Blank | None:
    """Decode any record, with a separate fault for each unsound part."""
    head = read_head(buffer, at, limit)
    if head is None:
        return None
    size, magic = head
    if magic is Magic.BLANK:
        return Blank(size)
    (system_flags,) = _SYSTEM_FLAGS.unpack_from(buffer, at + _SYSTEM_FLAGS_AT)
    layout = FRONTS[system_flags & _V6_MASK]
    record_end = at + size
    if record_end < at + layout.size:
        raise FormatError("Record.size", at, f"{size} bytes are fewer than the {layout.size} of its front")
    front = layout.unpack(buffer, at)
    body_at = at + layout.size
    topic_at = _end_of("body", body_at, front.body_size, record_end)
    topic, properties_at = _read_topic(buffer, topic_at, record_end, magic)
    properties_size, properties_at = _read_length("properties", buffer, properties_at, 2, record_end)
    if properties_at + properties_size != record_end:
        raise FormatError(
            "Record.size", at, f"{size} bytes, but its parts fill {properties_at + properties_size - at} of them"
        )
    view = memoryview(buffer)
    return Record(
        magic,
        front.body_crc,
        front.queue_id,
        front.flag,
        front.queue_offset,
        front.physical_offset,
        system_flags,
        front.born_ms,
        front.born_host,
        front.stored_ms,
        front.store_host,
        front.reconsume_times,
        front.prepared_transaction_offset,
        view[body_at:topic_at],
        topic,
        bytes(view[properties_at:record_end]),
    )


def _decode_usual(buffer: Buffer, at: int, limit: int) -> Record | None:
    """Decode a sound record with hosts of 4 bytes, as nearly all are; None for others."""
    front = _front_words(buffer, at)
    size, number, flags, body_size = front[0], front[1], front[7], front[14]
    end = at + size
    body_at = at + _SMALLEST
    topic_size_at = body_at + body_size
    if flags & _V6_MASK or body_size < 0 or end > limit or topic_size_at + 2 > end:
        return None
    if number == Magic.V1:
        magic = Magic.V1
        topic_at = topic_size_at + 1
        properties_size_at = topic_at + _LENGTH_V1(buffer, topic_size_at)[0]
    elif number == Magic.V2:
        magic = Magic.V2
        topic_at = topic_size_at + 2
        properties_size_at = topic_at + _LENGTH(buffer, topic_size_at)[0]
    else:
        return None
    properties_at = properties_size_at + 2
    if properties_at > end or properties_at + _LENGTH(buffer, properties_size_at)[0] != end:
        return None
    view = memoryview(buffer)
    try:
        topic = str(view[topic_at:properties_size_at], "utf-8")
    except UnicodeDecodeError:
        return None
    properties = bytes(view[properties_at:end])
    return _new(Record, (magic, *front[2:14], view[body_at:topic_size_at], topic, properties))


def encode_record(record: Record) -> bytes:
    """Encode a record. Raises `ValueError` if a part is too long for its length field."""
    topic = record.topic.encode()
    topic_max = TOPIC_BYTES_MAX_V1 if record.version is Magic.V1 else TOPIC_BYTES_MAX_V2
    if len(topic) > topic_max:
        raise ValueError(
            f"the topic has {len(topic)} bytes, more than the {topic_max} that a {record.version.name} record takes"
        )
    if len(record.properties) > PROPERTIES_BYTES_MAX:
        raise ValueError(f"the properties have {len(record.properties)} bytes, more than {PROPERTIES_BYTES_MAX}")
    flags = record.system_flags
    for host, bit in ((record.born_host, SystemFlag.BORN_HOST_V6), (record.store_host, SystemFlag.STORE_HOST_V6)):
        if len(host) != (HOST_V6_BYTES if flags & bit else HOST_V4_BYTES):
            raise ValueError(f"a host has {len(host)} bytes; the system flags {flags:#x} say otherwise")
    size = record_bytes(record.version, flags, len(record.body), len(topic), len(record.properties))
    front = RecordFront(
        size,
        record.version,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        flags,
        record.born_ms,
        record.born_host,
        record.stored_ms,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        len(record.body),
    )
    return b"".join(
        (
            FRONTS[flags & _V6_MASK].pack(front),
            record.body,
            len(topic).to_bytes(1 if record.version is Magic.V1 else 2, "big"),
            topic,
            len(record.properties).to_bytes(2, "big"),
            record.properties,
        )
    )


def encode_blank(size: int) -> bytes:
    """Encode the 8 bytes that begin a blank record of `size` bytes; the rest is not written."""
    return _HEAD.pack(size, Magic.BLANK)


def _end_of(part: str, at: int, size: int, end: int) -> int:
    if not 0 <= size <= end - at:
        raise FormatError(f"Record.{part}", at, f"{size} bytes do not fit into the {end - at} that are left")
    return at + size


def _read_length(part: str, buffer: Buffer, at: int, width: int, end: int) -> tuple[int, int]:
    """Read a length field of `width` bytes; return it and the field's end. The part must end by `end`."""
    behind = _end_of(f"{part}_size", at, width, end)
    size = int.from_bytes(buffer[at:behind], "big")
    _end_of(part, behind, size, end)
    return size, behind


def _read_topic(buffer: Buffer, at: int, end: int, magic: Magic) -> tuple[str, int]:
    size, at = _read_length("topic", buffer, at, 1 if magic is Magic.V1 else 2, end)
    try:
        return str(bytes(buffer[at : at + size]), "utf-8"), at + size
    except UnicodeDecodeError:
        raise FormatError("Record.topic", at, "is not UTF-8") from None
