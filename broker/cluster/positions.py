"""Where a shard's journal stands: the lease id and sequence number of its records, and how they are found in it.

Records come in the order of their positions, also those that a rollover carried over. Behind the first sync point of a
file every record of a lease is there, up to the last that its primary gave to this node.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from broker.store.partition_files import PartitionFiles
from formats.control.messages import PartitionSequenceNumber
from formats.disk.files import FILE_HEADER, JOURNAL_FILE_HEADER, JOURNAL_RECORD_SIZE, FileType, initial_bytes
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
    "offset_of",
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
    lasts = []
    end = files.journal_end
    while end > start:
        last = position_at(files.journal.buffer, end - JOURNAL_RECORD_SIZE)
        lasts.append(last)
        end = _offset_of(files, Position(last.lease_id, 0), start)
    return lasts


def _offset_of(files: PartitionFiles, position: Position, start: int) -> int:
    """Where the first record from `start` on is that is at `position` or behind it; the journal's end if none is.

    By halves: a journal has millions of records, and everybody waits.
    """
    buffer = files.journal.buffer
    rows = range((files.journal_end - start) // JOURNAL_RECORD_SIZE)
    row = bisect_left(rows, position, key=lambda row: position_at(buffer, start + row * JOURNAL_RECORD_SIZE))
    return start + row * JOURNAL_RECORD_SIZE


def offset_of(files: PartitionFiles, position: Position) -> int | None:
    """Where the record at `position` is, carried over or not; None if there is none."""
    offset = _offset_of(files, position, JOURNAL_START)
    is_there = offset < files.journal_end and position_at(files.journal.buffer, offset) == position
    return offset if is_there else None


def offset_behind(files: PartitionFiles, position: Position) -> int | None:
    """Where the journal goes on behind the record at `position`; None if there is no such record.

    Of the records that a rollover carried over, none counts: what was between them is gone.
    """
    if position == NOWHERE:
        return JOURNAL_START
    offset = offset_of(files, position)
    if offset is None or offset < _first_sync_point_offset(files):
        return None
    return offset + JOURNAL_RECORD_SIZE
