"""Stored messages of either system, converted to go out to BlazingMQ or to RocketMQ.

Between the systems they are mapped as by a bridge. Each names its origin and its storing time there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bmqctl.carrying.bridge.mapping import Unfit, message_for_topic, to_blazingmq, to_rocketmq
from bmqctl.carrying.bridge.names import ROCKETMQ_ID, ROCKETMQ_OFFSET, ROCKETMQ_QUEUE, UNIQUE_KEY, is_system_name
from bmqctl.carrying.replay.messages import Stored, StoredMessage, StoredRecord
from formats.bmq.guid import format_guid
from formats.bmq.wire.properties import Property, PropertyType
from formats.errors import FormatError
from formats.rocketmq.files.record import Record
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.batch import BatchMessage

__all__ = [
    "DELAY",
    "GUID_PROPERTY",
    "TIME_PROPERTY",
    "ForBlazingMQ",
    "Unfit",
    "for_blazingmq",
    "for_rocketmq",
    "marked",
    "payload_size",
]

GUID_PROPERTY: Final = "replay_guid"
TIME_PROPERTY: Final = "replay_time"
DELAY: Final = "DELAY"
_MS: Final = 1000


class ForBlazingMQ(NamedTuple):
    """A message for a queue of BlazingMQ."""

    payload: bytes
    properties: list[Property]
    compress: bool


def payload_size(message: Stored) -> int:
    return len(message.payload if isinstance(message, StoredMessage) else message.record.body)


def for_blazingmq(message: Stored) -> ForBlazingMQ:
    """Make the message for a queue. Raises `Unfit` if it cannot be posted."""
    if isinstance(message, StoredMessage):
        return ForBlazingMQ(message.payload, marked(message), message.compressed)
    record = message.record
    posted = to_blazingmq(record, _store_host(record))
    if not any(each.name == TIME_PROPERTY for each in posted.properties):
        posted.properties.append(Property(TIME_PROPERTY, PropertyType.INT64, record.stored_ms // _MS))
    return ForBlazingMQ(bytes(posted.payload), posted.properties, message.compressed)


def marked(message: StoredMessage) -> list[Property]:
    """The message's properties, and marks of its origin: its GUID, and its time in seconds since 1970.

    Existing marks, of an earlier replay, stay.
    """
    known = {each.name for each in message.properties}
    marks = (
        Property(GUID_PROPERTY, PropertyType.STRING, format_guid(message.guid)),
        Property(TIME_PROPERTY, PropertyType.INT64, message.timestamp),
    )
    return [*message.properties, *(mark for mark in marks if mark.name not in known)]


def for_rocketmq(message: Stored, unique_id: str) -> BatchMessage:
    """Make the message for a topic, known to its clients by `unique_id`. Raises `Unfit` if it cannot be sent."""
    if isinstance(message, StoredRecord):
        return _copied(message, unique_id)
    properties = message.properties
    if not any(each.name == TIME_PROPERTY for each in properties):
        properties = [*properties, Property(TIME_PROPERTY, PropertyType.INT64, message.timestamp)]
    return to_rocketmq(message.payload, properties, message.guid, unique_id)


def _copied(message: StoredRecord, unique_id: str) -> BatchMessage:
    record = message.record
    found = decode_properties(record.properties)
    kept = {name: text for name, text in found.items() if name and text and not is_system_name(name)}
    marks = {
        ROCKETMQ_QUEUE: f"{record.topic}/{_store_host(record)}/{record.queue_id}",
        ROCKETMQ_OFFSET: str(record.queue_offset),
        ROCKETMQ_ID: found.get(UNIQUE_KEY) or _offset_id(record),
        TIME_PROPERTY: str(record.stored_ms // _MS),
    }
    properties = {UNIQUE_KEY: unique_id, **marks, **kept}
    if message.delay_level:
        properties[DELAY] = str(message.delay_level)
    # Decoded texts have no separators, except 0x01 in values, which the original accepts.
    encoded = "".join(f"{name}\x01{text}\x02" for name, text in properties.items()).encode()
    return message_for_topic(record.flag, record.body, encoded)


def _store_host(record: Record) -> str:
    try:
        return str(Host.unpack(record.store_host))
    except FormatError:
        return record.store_host.hex().upper()


def _offset_id(record: Record) -> str:
    try:
        return str(OffsetId(Host.unpack(record.store_host), record.physical_offset))
    except FormatError:
        return ""
