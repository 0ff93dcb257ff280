# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The records of a replica's copy: their files, where these end, and their room on disk.

Records must fit the ends of journal, DATA and QLIST; others are refused before anything is written (source:
mqbs::FileStore::processStorageEvent, mqbs::FileStoreUtil::writeMessageRecordImpl).
"""

from __future__ import annotations

from typing import Final

from broker.bmq.core.messages import Full
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.copying.record_runs import RECORDS_MAX, AppendPoint, RecordRun, parse_run
from broker.bmq.replication.positions import last_position
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.common.files import StoreFile
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.numbers import LEASE_ID_MAX, RecordNumber
from formats.bmq.disk.qlist import parse_queue_record
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["CopyRecords", "OutOfStep", "TooSmall"]

_new: Final = tuple.__new__


class OutOfStep(Exception):
    """A record that does not continue this replica's, or for which there is no room."""


class TooSmall(OutOfStep):
    """The files here are smaller than the primary's: larger ones will do."""


class CopyRecords:
    """The records written so far, up to `position`, in `files`.

    `is_fresh` is True while the partition is received from scratch, into files that are not the partition's yet. No
    record has a lease above `lease_id_max`.
    """

    __slots__ = ("_data_granted", "_journal_granted", "_stored", "files", "is_fresh", "lease_id_max", "position")

    def __init__(self, stored: StoredPartition) -> None:
        self._stored = stored
        self.is_fresh = False
        self.lease_id_max = LEASE_ID_MAX
        self.attach(stored.files)
        self.position = last_position(stored.files)

    def create(self) -> PartitionFiles:
        """Make files that hold what the primary's do. Raises `OutOfStep` if the disk has no room."""
        try:
            return self._stored.sets.create(self._stored.capacity)
        except Full as full:
            raise OutOfStep(str(full)) from None

    def attach(self, files: PartitionFiles) -> None:
        self.files = files
        self._journal_granted = self._data_granted = 0

    def find_end(self) -> None:
        self.position = last_position(self.files)

    @property
    def is_full(self) -> bool:
        """Return True if the journal has reached its maximum size, regardless of free disk space."""
        return self.files.journal_end + JOURNAL_RECORD_SIZE > len(self.files.journal.buffer)

    @property
    def point(self) -> AppendPoint:
        """The end, which further records must continue."""
        files = self.files
        return _new(AppendPoint, (self.position, files.journal_end, files.data_end, self.is_fresh, self.lease_id_max))

    def run(self, data: memoryview, start: int, end: int) -> RecordRun | None:
        """Return the next records that can be written together, with room reserved for them.

        None if the next record is not one of a run. Raises `OutOfStep` if there is no room for it.
        """
        files = self.files
        if not files.journal_end:
            # The first record after a rollover shows where the files begin.
            return None
        point = self.point
        run = parse_run(data, start, end, point, RECORDS_MAX)
        while run is not None:
            journal_end, data_end = files.journal_end + len(run.records), files.data_end + run.data_size
            full = self._reserve(journal_end, data_end)
            if full is None:
                break
            if len(run.records) == JOURNAL_RECORD_SIZE:
                raise self.no_room(full, journal_end if full is files.journal else data_end)
            run = parse_run(data, start, end, point, len(run.records) // JOURNAL_RECORD_SIZE // 2)
        return run

    def append(self, run: RecordRun) -> None:
        """Write a run. DATA is written before the journal's records, which refer to it."""
        files = self.files
        buffer, at = files.data.buffer, files.data_end
        for entry in run.entries:
            end = at + len(entry)
            buffer[at:end] = entry
            at = end
        files.data_end = at
        self.append_records(run.records, run.last)

    def append_records(self, records: Buffer, last: RecordNumber) -> None:
        files = self.files
        end = files.journal_end + len(records)
        files.journal.buffer[files.journal_end : end] = records
        files.journal_end = end
        self.position = last

    def reserve_one(self) -> None:
        """Reserve room for a record without DATA. Raises `OutOfStep` if there is none."""
        end = self.files.journal_end + JOURNAL_RECORD_SIZE
        if (full := self._reserve(end, self.files.data_end)) is not None:
            raise self.no_room(full, end)

    def append_queue(self, offset: int, data: memoryview) -> None:
        """Write a queue to QLIST. Raises `OutOfStep`, without effect, if it is not one for the end of that file."""
        files = self.files
        start = files.qlist_end
        end = start + len(data)
        try:
            fits = offset == start and parse_queue_record(data, 0).end == len(data)
        except FormatError as error:
            raise OutOfStep(f"no QLIST record: {error}") from error
        if not fits:
            raise OutOfStep(f"a queue of {len(data)} bytes for {offset}, QLIST is at {start}")
        if not files.qlist.reserve(end):
            raise self.no_room(files.qlist, end)
        files.qlist.buffer[start:end] = data
        files.qlist_end = end

    def _reserve(self, journal_end: int, data_end: int) -> StoreFile | None:
        files = self.files
        if journal_end > self._journal_granted:
            if not files.journal.reserve(journal_end):
                return files.journal
            self._journal_granted = files.journal.granted
        if data_end > self._data_granted:
            if not files.data.reserve(data_end):
                return files.data
            self._data_granted = files.data.granted
        return None

    def no_room(self, file: StoreFile, end: int) -> OutOfStep:
        """Make the error for a file too small for `end`; a primary with filled files has larger ones."""
        if end <= len(file.buffer):
            return OutOfStep(f"no disk space for {end} bytes in {file.name}")
        files, limits = self.files, self._stored.capacity
        self._stored.capacity = PartitionLimits(
            journal=max(limits.journal, 2 * end if file is files.journal else 0),
            data=max(limits.data, 2 * end if file is files.data else 0),
            qlist=max(limits.qlist, 2 * end if file is files.qlist else 0),
        )
        return TooSmall(f"{end} bytes are more than {file.name} holds")
