"""A journal that is written record by record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c

from formats.bmq.disk import journal_packing
from formats.bmq.disk.data import data_record_size, write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.journal import DeletionRecordFlag, QueueOpType, SyncPointType
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.stores.faults import Fault
from formats.bmq.stores.validate import FileView, validate_file_set

if TYPE_CHECKING:
    pass

SECOND = 1_795_237_864
QUEUE, OTHER, APP = b"queue", b"other", b"appky"
JOURNAL_NAME, DATA_NAME, QLIST_NAME = (f"bmq_0.20261121_051104.bmq_{kind}" for kind in ("journal", "data", "qlist"))


def guid(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(4, "big")).digest()[:16]


@dataclass
class Writer:
    """A store written record by record, with the numbers that a healthy one has."""

    journal: bytearray = field(default_factory=lambda: bytearray(initial_bytes(FileType.JOURNAL, 0)))
    data: bytearray = field(default_factory=lambda: bytearray(initial_bytes(FileType.DATA, 0)))
    qlist: bytearray = field(default_factory=lambda: bytearray(initial_bytes(FileType.QLIST, 0)))
    lease: int = 1
    number: int = 0
    second: int = SECOND

    def next(self) -> tuple[bytearray, int, int, int, int]:
        self.number += 1
        self.journal += bytes(JOURNAL_RECORD_SIZE)
        return self.journal, len(self.journal) - JOURNAL_RECORD_SIZE, self.lease, self.number, self.second

    def sync_point(self, kind: SyncPointType = SyncPointType.REGULAR) -> Writer:
        head = self.next()
        ends = (len(self.data) // 8, len(self.qlist) // 4)
        journal_packing.pack_sync_point(*head, kind, self.lease, self.number, 0, *ends)
        return self

    def create(self, key: bytes = QUEUE, kind: QueueOpType = QueueOpType.CREATION, app: bytes = APP) -> Writer:
        offset = len(self.qlist) // 4
        self.qlist += build_queue_record(f"bmq://domain/{key.decode()}", key, [("foo", app)])
        journal_packing.pack_queue_op(*self.next(), kind, key, NULL_KEY, offset)
        return self

    def delete_queue(self, key: bytes = QUEUE) -> Writer:
        journal_packing.pack_queue_op(*self.next(), QueueOpType.DELETION, key)
        return self

    def purge(self, key: bytes = QUEUE) -> Writer:
        journal_packing.pack_queue_op(*self.next(), QueueOpType.PURGE, key)
        return self

    def post(self, number: int, key: bytes = QUEUE, size: int = 10) -> Writer:
        payload = bytes(number % 251 for _ in range(size))
        offset = len(self.data)
        self.data += bytes(data_record_size(0, size))
        write_data_record(self.data, offset, payload)
        journal_packing.pack_message(*self.next(), 1, 0, key, offset // 8, guid(number), crc32c(payload))
        return self

    def confirm(self, number: int, key: bytes = QUEUE, app: bytes = APP, reason: int = 0) -> Writer:
        journal_packing.pack_confirm(*self.next(), reason, key, app, guid(number))
        return self

    def delete(self, number: int, key: bytes = QUEUE) -> Writer:
        journal_packing.pack_deletion(*self.next(), DeletionRecordFlag.NONE, key, guid(number))
        return self

    def views(self) -> tuple[FileView, FileView, FileView]:
        return (
            FileView(JOURNAL_NAME, self.journal),
            FileView(DATA_NAME, self.data),
            FileView(QLIST_NAME, self.qlist),
        )

    def faults(self) -> list[Fault]:
        return list(validate_file_set(*self.views()))

    def codes(self) -> list[str]:
        return [found.code for found in self.faults()]


def healthy() -> Writer:
    writer = Writer().sync_point().create().post(1).post(2).confirm(1).delete(1).sync_point().post(3).confirm(3)
    return writer.sync_point()
