"""Any bytes as the body of a STORAGE or PARTITION_SYNC event are refused, or are messages with journal records.

The data beside a record are read, too: a message of DATA, a queue of QLIST. All of it can be written and read again.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.bmq.codes import EventType, StorageMessageType
from formats.bmq.disk.data import DataRecord, parse_data_record
from formats.bmq.disk.journal import LAYOUTS, Record, decode_record
from formats.bmq.disk.qlist import QueueRecord, build_queue_record, parse_queue_record
from formats.bmq.wire.storage import StorageMessage, append_storage, iter_storage
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


class Read(NamedTuple):
    message: StorageMessage
    record: Record
    beside: DataRecord | QueueRecord | None


def _beside(message: StorageMessage) -> DataRecord | QueueRecord | None:
    if message.message_type == StorageMessageType.DATA:
        return parse_data_record(message.data, 0)
    return parse_queue_record(message.data, 0) if message.message_type == StorageMessageType.QLIST else None


def decode(data: bytes) -> list[Read]:
    return [
        Read(message, decode_record(message.record), _beside(message))
        for message in iter_storage(memoryview(data), 0, len(data))
    ]


def verify(data: bytes, messages: list[Read]) -> None:
    out = bytearray()
    for message, record, beside in messages:
        packed = LAYOUTS[record.type].pack(record)
        assert packed == message.record
        where = (message.message_type, message.partition_id, message.journal_offset_words)
        append_storage(out, *where, packed, message.data, message.flags)
        if isinstance(beside, QueueRecord):
            built = build_queue_record(beside.uri, beside.queue_key, beside.apps)
            again = parse_queue_record(built, 0)
            assert (again.uri, again.queue_key, again.apps) == (beside.uri, beside.queue_key, beside.apps)
        elif beside is not None:
            assert beside.app_data_offset + beside.app_data_size < beside.end <= len(message.data)
    assert decode(bytes(out)) == messages


def seeds() -> list[bytes]:
    return [*bodies(EventType.STORAGE), *bodies(EventType.PARTITION_SYNC)]
