"""Records for places of a log without a sound one, so that every broker reads on after them.

A lost message whose queue offset is known gets a record without a body, so that later messages keep their numbers in
any queue made from the log. A record that was rolled back fills the rest, as no queue and no index has those; a blank
one fills the end of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, HALF_TOPIC, TIMER_TOPIC
from bmqctl.stores.rocketmq.repair.parts import Area, Lost
from formats.rocketmq.files.record import (
    BLANK_BYTES_MIN,
    Magic,
    Record,
    body_crc,
    decode_record,
    encode_blank,
    encode_record,
)
from formats.rocketmq.flags import SystemFlag, Transaction
from formats.rocketmq.properties import encode_properties

__all__ = ["FILLER_TOPIC", "LOST", "SMALLEST", "fill_area", "room_for"]

LOST: Final = "BMQCTL_LOST"
FILLER_TOPIC: Final = "BMQCTL_FILLER"
# The smallest record: a front, one byte of a topic, and no properties.
SMALLEST: Final = 92
_FRONT_BYTES: Final = 91
_FILLER_BYTES_MAX: Final = 1 << 20
_COMPRESSION_BITS: Final = 0x700
_PROPERTIES_BYTES_MAX: Final = 0x7FFF
# All readers skip these between properties.
_PADDING: Final = b"\2"
_NO_HOST: Final = bytes(8)


def room_for(lost: Lost) -> int:
    return len(encode_record(_placeholder(lost, 0, 0)))


def _placeholder(lost: Lost, offset: int, stored_ms: int) -> Record:
    properties = {LOST: "1"}
    if lost.topic == DELAY_TOPIC:
        # Brokers skip delayed messages that belong there.
        properties |= {"DELAY": str(lost.queue_id + 1), "REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"}
    elif lost.topic == TIMER_TOPIC:
        # The recall of a message that does not exist.
        properties |= {"TIMER_OUT_MS": str(stored_ms), "TIMER_DEL_UNIQKEY": LOST, "REAL_TOPIC": HALF_TOPIC}
    return _record(lost, offset, stored_ms, 0, b"", encode_properties(properties))


def _record(lost: Lost, offset: int, stored_ms: int, flags: int, body: bytes, properties: bytes) -> Record:
    version = Magic.V1 if len(lost.topic.encode()) <= 0x7F else Magic.V2
    return Record(
        version,
        body_crc(body),
        lost.queue_id,
        0,
        lost.number,
        offset,
        flags,
        stored_ms,
        _NO_HOST,
        stored_ms,
        _NO_HOST,
        0,
        0,
        body,
        lost.topic,
        properties,
    )


def fill_area(area: Area, file_end: int, damaged: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """Yield the pieces to write into an area, with their offsets; its file ends at `file_end`.

    `damaged` is the record with a damaged body, if the area is one.
    """
    records = [_placeholder(each, 0, area.stored_ms) for each in sorted(area.lost)]
    if area.is_record:
        records = [_emptied(damaged)]
    left = area.end - area.begin - sum(len(encode_record(record)) for record in records)
    assert left >= 0
    if 0 < left < SMALLEST and area.end != file_end:
        if not records:
            raise ValueError(f"{left} bytes at {area.begin} are fewer than the smallest record")
        records[-1] = _padded(records[-1], left)
        left = 0
    at = area.begin
    for record in records:
        data = encode_record(record._replace(physical_offset=at))
        yield at, data
        at += len(data)
    if left and area.end == file_end:
        if left >= BLANK_BYTES_MIN:
            yield at, encode_blank(left)
        return
    while left:
        size = left if left <= _FILLER_BYTES_MAX else _FILLER_BYTES_MAX - SMALLEST
        yield at, _filler(at, size, area.stored_ms)
        at, left = at + size, left - size


def _filler(offset: int, size: int, stored_ms: int) -> bytes:
    topic = FILLER_TOPIC[: size - _FRONT_BYTES]
    body = bytes(size - _FRONT_BYTES - len(topic))
    return encode_record(_record(Lost(topic, 0, 0), offset, stored_ms, int(Transaction.ROLLBACK), body, b""))


def _padded(record: Record, size: int) -> Record:
    if len(record.properties) + size <= _PROPERTIES_BYTES_MAX:
        return record._replace(properties=record.properties + _PADDING * size)
    body = bytes(record.body) + bytes(size)
    return record._replace(body=body, body_crc=body_crc(body))


def _emptied(data: bytes) -> Record:
    record = decode_record(data)
    assert isinstance(record, Record)
    flags = record.system_flags & ~(int(SystemFlag.COMPRESSED) | _COMPRESSION_BITS)
    emptied = record._replace(body=b"", body_crc=0, system_flags=flags)
    mark = b"" if not record.properties or record.properties.endswith(_PADDING) else _PADDING
    properties = record.properties + mark + encode_properties({LOST: "1"})
    fits = len(record.body) >= len(properties) - len(record.properties) and len(properties) <= _PROPERTIES_BYTES_MAX
    return emptied._replace(properties=properties) if fits else emptied
