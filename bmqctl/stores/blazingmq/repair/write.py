"""Writes the new files of a partition, by a plan.

Kept records keep their numbers, so that none contradicts another replica's record. Where numbers are missing, the
journal has the form that a rollover leaves: the header names the first sync point, and only from there on must numbers
be consecutive (source: mqbs::FileStore::recoverMessages).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from bmqctl.stores.blazingmq.repair.order import CHUNK_RECORDS
from bmqctl.stores.blazingmq.repair.parts import Damaged, Plan, Window, iter_places, unpack_record
from bmqctl.stores.blazingmq.repair.queues import Entry
from bmqctl.stores.blazingmq.repair.report import Note, PartitionReport
from formats.bmq.disk.files import (
    FILE_HEADER,
    JOURNAL_FILE_HEADER,
    JOURNAL_RECORD_SIZE,
    FileType,
    initial_bytes,
)
from formats.bmq.disk.journal import (
    LAYOUTS,
    RECORD_MAGIC,
    JournalOpRecord,
    JournalOpType,
    MessageRecord,
    QueueOpRecord,
    Record,
    RecordType,
    SyncPointType,
)
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.stores.check_data import read_data_record

__all__ = ["write_partition"]

COPY_SIZE = 4 << 20
SEQUENCE_NUMBER_MAX = (1 << 48) - 1


def write_partition(
    damaged: Damaged, plan: Plan, out: Path, names: dict[FileType, str], on_progress: Callable[[int, int], None]
) -> PartitionReport:
    """Write the three files to `out`, which must not have them yet."""
    report = PartitionReport(damaged.partition_id, tuple(names.values()), outstanding=plan.outstanding)
    report.left_out, report.restored, report.added = plan.left_out, plan.restored, plan.added
    with ExitStack() as stack:
        files = {kind: stack.enter_context((out / name).open("xb")) for kind, name in names.items()}
        _Writer(damaged, plan, files, report).write(on_progress)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    return report


class _Writer:
    """The open files, each written from start to end."""

    def __init__(
        self, damaged: Damaged, plan: Plan, files: Mapping[FileType, IO[bytes]], report: PartitionReport
    ) -> None:
        self._damaged = damaged
        self._plan = plan
        self._report = report
        self._journal, self._payloads, self._qlist = (
            files[kind] for kind in (FileType.JOURNAL, FileType.DATA, FileType.QLIST)
        )
        for kind, file in files.items():
            file.write(initial_bytes(kind, damaged.partition_id))
        self._data = None if damaged.data is None else Window(damaged.data)
        self._first_sync_point: int | None = None  # its offset as written, in bytes
        self._counts: Counter[int] = Counter()

    def write(self, on_progress: Callable[[int, int], None]) -> None:
        plan = self._plan
        total = sum(run.length for run in plan.order.runs)
        for done, (place, raw) in enumerate(iter_places(self._damaged, plan.order)):
            inserted = plan.inserted.get(place)
            if inserted is not None:
                self._write_queue_op(*inserted)
            if place not in plan.left:
                record = plan.replaced.get(place)
                kind = raw[0] >> 4
                if record is None and kind in (RecordType.CONFIRM, RecordType.DELETION):
                    # These do not depend on positions.
                    self._journal.write(raw)
                    self._counts[kind] += 1
                else:
                    self._write(place, record or unpack_record(raw))
            if done % CHUNK_RECORDS == 0:
                on_progress(done, total)
        if self._first_sync_point is None and self._counts:
            self._add_sync_point()
        self._finish_header()
        self._report.records = {kind.name: self._counts[kind] for kind in RecordType if self._counts[kind]}

    def _write(self, place: int, record: Record) -> None:
        if isinstance(record, MessageRecord):
            record = self._with_payload(record)
        elif isinstance(record, QueueOpRecord):
            entry = self._plan.entries.get(place)
            if entry is not None:
                self._write_queue_op(record, entry)
                return
        elif isinstance(record, JournalOpRecord) and record.journal_op_type == JournalOpType.SYNCPOINT:
            if self._first_sync_point is None:
                if place != self._plan.first_sync_point:
                    # After a sync point no number may be missing.
                    self._report.sync_points_dropped += 1
                    return
                self._first_sync_point = self._journal.tell()
            record = record._replace(
                data_file_offset_dwords=self._payloads.tell() // DWORD,
                qlist_file_offset_words=self._qlist.tell() // WORD,
            )
        self._append(record)

    def _append(self, record: Record) -> None:
        kind = RecordType(record.type)
        self._journal.write(LAYOUTS[kind].pack(record))
        self._counts[kind] += 1

    def _with_payload(self, record: MessageRecord) -> MessageRecord:
        assert self._data is not None
        found = read_data_record(self._data, record.message_offset_dwords * DWORD)
        offset = self._payloads.tell()
        for at in range(found.offset, found.end, COPY_SIZE):
            self._payloads.write(self._data.read(at, min(COPY_SIZE, found.end - at)))
        return record._replace(message_offset_dwords=offset // DWORD)

    def _write_queue_op(self, record: QueueOpRecord, entry: Entry) -> None:
        offset = self._qlist.tell()
        self._qlist.write(entry.content)
        self._append(record._replace(queue_uri_record_offset_words=offset // WORD))

    def _add_sync_point(self) -> None:
        plan = self._plan
        lease, number = plan.last.primary_lease_id, plan.last.sequence_number + 1
        if number > SEQUENCE_NUMBER_MAX:
            lease, number = lease + 1, 1
        self._first_sync_point = self._journal.tell()
        self._append(
            JournalOpRecord(
                type=RecordType.JOURNAL_OP,
                flags=0,
                sequence_number=number,
                primary_lease_id=lease,
                timestamp=plan.timestamp,
                reserved1=bytes(3),
                sync_point_type=SyncPointType.ROLLOVER,
                journal_op_type=JournalOpType.SYNCPOINT,
                sync_point_sequence_number=number,
                primary_node_id=plan.primary_node_id,
                sync_point_primary_lease_id=lease,
                data_file_offset_dwords=self._payloads.tell() // DWORD,
                qlist_file_offset_words=self._qlist.tell() // WORD,
                reserved2=bytes(4),
                magic=RECORD_MAGIC,
            )
        )
        reason = "a sync point after the last record: numbers before it may be missing"
        where = (self._damaged.journal.name, self._first_sync_point, JOURNAL_RECORD_SIZE)
        self._report.added.append(Note(*where, "JOURNAL_OP", reason, f"{lease}:{number}"))

    def _finish_header(self) -> None:
        """Name the first sync point, unless the journal begins with it, and always did."""
        first = len(initial_bytes(FileType.JOURNAL, 0))
        if self._first_sync_point is None or (self._first_sync_point == first and not self._damaged.rolled_over):
            return
        header = JOURNAL_FILE_HEADER.unpack(initial_bytes(FileType.JOURNAL, 0), FILE_HEADER.size)
        words = self._first_sync_point // WORD
        self._journal.seek(FILE_HEADER.size)
        self._journal.write(
            JOURNAL_FILE_HEADER.pack(header._replace(first_sync_point_after_rollover_offset_words=words))
        )
