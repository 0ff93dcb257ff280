"""Small stores written record by record, for what the golden ones do not hold."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from formats.bmq.disk import journal_packing
from formats.bmq.disk.data import data_record_size, write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, StoreFileName, initial_bytes
from formats.bmq.disk.journal import JournalOpType, QueueOpType, SyncPointType
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.padding import DWORD, WORD

__all__ = ["TIME", "WrittenStore"]

TIME = 1_800_000_000


class WrittenStore:
    """One file set in memory; `save` writes it. Every record gets the next sequence number and second."""

    def __init__(self, partition_id: int = 0, timestamp: str = "20270115_080000") -> None:
        self.partition_id = partition_id
        self.timestamp = timestamp
        self.journal = bytearray(initial_bytes(FileType.JOURNAL, partition_id))
        self.data = bytearray(initial_bytes(FileType.DATA, partition_id))
        self.qlist = bytearray(initial_bytes(FileType.QLIST, partition_id))
        self.sequence_number = 0

    def _record(self) -> tuple[int, int, int, int]:
        """The offset of a new record, and the lease, sequence number and time that it gets."""
        offset = len(self.journal)
        self.journal += bytes(JOURNAL_RECORD_SIZE)
        self.sequence_number += 1
        return offset, 1, self.sequence_number, TIME + self.sequence_number

    def queue(self, key: bytes, uri: str, *apps: tuple[str, bytes], kind: QueueOpType = QueueOpType.CREATION) -> None:
        words = len(self.qlist) // WORD
        self.qlist += build_queue_record(uri, key, apps)
        self.queue_op(kind, key, words=words)

    def queue_op(
        self, kind: QueueOpType, key: bytes, app_key: bytes = NULL_KEY, words: int = 0, start: int = 0
    ) -> None:
        lease = 1 if start else 0
        journal_packing.pack_queue_op(self.journal, *self._record(), kind, key, app_key, words, lease, start)

    def message(
        self,
        key: bytes,
        guid: bytes,
        payload: bytes = b"payload",
        *,
        ref_count: int = 1,
        compression: int = 0,
        flags: int = 0,
        schema_id: int = 0,
    ) -> int:
        """Returns the sequence number of its record."""
        at = len(self.data)
        self.data += bytes(data_record_size(0, len(payload)))
        write_data_record(self.data, at, payload, b"", flags, schema_id)
        record = self._record()
        journal_packing.pack_message(
            self.journal, *record, ref_count, compression, key, at // DWORD, guid, crc32c(payload)
        )
        return self.sequence_number

    def confirm(self, key: bytes, guid: bytes, app_key: bytes, reason: int = 0) -> None:
        journal_packing.pack_confirm(self.journal, *self._record(), reason, key, app_key, guid)

    def deletion(self, key: bytes, guid: bytes, flag: int = 0) -> None:
        journal_packing.pack_deletion(self.journal, *self._record(), flag, key, guid)

    def sync_point(self, kind: SyncPointType = SyncPointType.REGULAR) -> int:
        """Returns the offset of its record."""
        sizes = len(self.data) // DWORD, len(self.qlist) // WORD
        offset, lease, number, time = self._record()
        journal_packing.pack_sync_point(self.journal, offset, lease, number, time, kind, lease, number, 7, *sizes)
        assert self.journal[offset + 24 : offset + 28] == JournalOpType.SYNCPOINT.to_bytes(4, "big")
        return offset

    def finish_rollover(self) -> None:
        """Write the header field that a completed rollover leaves in the journal."""
        offset = self.sync_point(SyncPointType.ROLLOVER)
        self.journal[36:44] = (offset // WORD).to_bytes(8, "big")

    def save(self, directory: Path) -> Path:
        directory.mkdir(exist_ok=True)
        for file_type, content in (
            (FileType.JOURNAL, self.journal),
            (FileType.DATA, self.data),
            (FileType.QLIST, self.qlist),
        ):
            name = StoreFileName(self.partition_id, self.timestamp, file_type)
            (directory / str(name)).write_bytes(content)
        return directory
