"""Any bytes as a QLIST file are refused, or have records up to the end, one after the other, of text and keys.

The content of a record can be written and read again.
"""

from __future__ import annotations

from formats.bmq.disk.files import FileType, open_file
from formats.bmq.disk.qlist import QueueRecord, build_queue_record, parse_queue_record
from formats.bmq.stores.recover import iter_qlist
from tests.fuzz.seeds import queue_lists

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[QueueRecord]:
    return list(iter_qlist(data))


def verify(data: bytes, records: list[QueueRecord]) -> None:
    at = open_file(data, FileType.QLIST).first_record_offset
    for record in records:
        assert record.offset == at
        built = build_queue_record(record.uri, record.queue_key, record.apps)
        assert parse_queue_record(built, 0) == record._replace(offset=0, end=len(built))
        at = record.end
    assert at <= len(data)


def seeds() -> list[bytes]:
    lists = list(queue_lists())
    return [*lists, lists[0] + bytes(40)]
