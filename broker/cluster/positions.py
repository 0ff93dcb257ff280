"""Where a shard's journal stands: the lease id and sequence number of its records, and how they are found in it.

Records come in the order of their positions, also those that a rollover carried over. Behind the first sync point of a
file every record of a lease is there, up to the last that its primary gave to this node.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from broker.store.partition_files import PartitionFiles
from formats.control.messages import PartitionSequenceNumber
from formats.disk.files import FILE_HEADER, JOURNAL_FILE_HEADER, JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.disk.journal import ANY_RECORD, scan
from formats.disk.padding import WORD
from formats.schema import Buffer

__all__ = [
    "JOURNAL_START",
    "NOWHERE",
    "Position",
    "first_sync_point",
    "history",
    "last_position",
    "offset_behind",
    "position_at",
]

# Where the first record of a journal is.
JOURNAL_START = len(initial_bytes(FileType.JOURNAL, 0))

_HEAD = struct.Struct(">QI")
_NUMBER_MASK = (1 << 48) - 1


class Position(NamedTuple):
    """A record's place in the history of its shard; positions grow from record to record."""

    lease_id: int
    number: int

    @classmethod
    def of(cls, value: PartitionSequenceNumber) -> Position:
        return cls(value.primary_lease_id, value.sequence_number)

    @property
    def wire(self) -> PartitionSequenceNumber:
        return PartitionSequenceNumber(primary_lease_id=self.lease_id, sequence_number=self.number)


# Before all records.
NOWHERE = Position(0, 0)


def position_at(buffer: Buffer, offset: int = 0) -> Position:
    """The position of the journal record at `offset`."""
    word, lease_id = _HEAD.unpack_from(buffer, offset)
    return Position(lease_id, word & _NUMBER_MASK)


def last_position(files: PartitionFiles) -> Position:
    if files.journal_end <= JOURNAL_START:
        return NOWHERE
    return position_at(files.journal.buffer, files.journal_end - JOURNAL_RECORD_SIZE)


def first_sync_point(files: PartitionFiles) -> Position:
    """The sync point that the rollover into these files ended with; NOWHERE in a shard that never rolled over."""
    offset = _first_sync_point_offset(files)
    return position_at(files.journal.buffer, offset) if offset else NOWHERE


def _first_sync_point_offset(files: PartitionFiles) -> int:
    header = JOURNAL_FILE_HEADER.unpack(files.journal.buffer, FILE_HEADER.size)
    return header.first_sync_point_after_rollover_offset_words * WORD


def history(files: PartitionFiles) -> list[Position]:
    """The last position under each lease since the last rollover, newest first."""
    start = _first_sync_point_offset(files) or JOURNAL_START
    records = scan(files.journal.buffer, start, (files.journal_end - start) // JOURNAL_RECORD_SIZE)
    leases = ANY_RECORD.column(records, "primary_lease_id").astype(np.int64)
    numbers = ANY_RECORD.column(records, "sequence_number")
    lasts = [*np.flatnonzero(leases[1:] != leases[:-1]).tolist(), len(leases) - 1] if len(leases) else []
    return [Position(int(leases[row]), int(numbers[row])) for row in reversed(lasts)]


def offset_behind(files: PartitionFiles, position: Position) -> int | None:
    """Where the journal goes on behind the record at `position`; None if there is no such record.

    Of the records that a rollover carried over, none counts: what was between them is gone.
    """
    if position == NOWHERE:
        return JOURNAL_START
    start = _first_sync_point_offset(files) or JOURNAL_START
    records = scan(files.journal.buffer, start, (files.journal_end - start) // JOURNAL_RECORD_SIZE)
    leases = ANY_RECORD.column(records, "primary_lease_id")
    numbers = ANY_RECORD.column(records, "sequence_number")
    rows = np.flatnonzero((leases == position.lease_id) & (numbers == position.number))
    return start + (int(rows[0]) + 1) * JOURNAL_RECORD_SIZE if len(rows) else None
