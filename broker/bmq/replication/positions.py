# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Positions in a partition's journal: lease ids and sequence numbers of records, and the search for them.

Records are in the order of their positions, including those carried over by a rollover. After the first sync point of a
file every record of a lease is present, up to the last that its primary sent to this node.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.control.messages import PartitionSequenceNumber
from formats.bmq.disk.files import FILE_HEADER, JOURNAL_FILE_HEADER, JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.journal import ANY_RECORD, SEQUENCE_NUMBER_MASK, RecordType
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import WORD
from formats.schema import Buffer

__all__ = [
    "JOURNAL_START",
    "NOWHERE",
    "first_sync_point",
    "history",
    "last_position",
    "mirrored_lease",
    "offset_behind",
    "offset_of",
    "on_wire",
    "position_at",
    "position_until",
]

JOURNAL_START: Final = len(initial_bytes(FileType.JOURNAL, 0))

_number: Final = ANY_RECORD.partial("sequence_number", "primary_lease_id").unpack_from
# The records that the reference's nodes find by their positions.
_FOUND_BY_POSITION: Final = (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.QUEUE_OP)


def on_wire(number: RecordNumber) -> PartitionSequenceNumber:
    return PartitionSequenceNumber(primary_lease_id=number.primary_lease_id, sequence_number=number.sequence_number)


NOWHERE: Final = RecordNumber(0, 0)


def position_at(buffer: Buffer, offset: int = 0) -> RecordNumber:
    word, lease_id = _number(buffer, offset)
    return RecordNumber(lease_id, word & SEQUENCE_NUMBER_MASK)


def last_position(files: PartitionFiles) -> RecordNumber:
    if files.journal_end <= JOURNAL_START:
        return NOWHERE
    return position_at(files.journal.buffer, files.journal_end - JOURNAL_RECORD_SIZE)


def first_sync_point(files: PartitionFiles) -> RecordNumber:
    """Return the sync point that ended the rollover into these files; NOWHERE if there was no rollover."""
    offset = _first_sync_point_offset(files)
    return position_at(files.journal.buffer, offset) if offset else NOWHERE


def _first_sync_point_offset(files: PartitionFiles) -> int:
    header = JOURNAL_FILE_HEADER.unpack(files.journal.buffer, FILE_HEADER.size)
    return header.first_sync_point_after_rollover_offset_words * WORD


def history(files: PartitionFiles) -> list[RecordNumber]:
    """Return the last position under each lease since the last rollover, newest first."""
    return _lasts(files, _first_sync_point_offset(files) or JOURNAL_START)


def _lasts(files: PartitionFiles, start: int) -> list[RecordNumber]:
    """Do `history` from the offset `start` on."""
    lasts = []
    end = files.journal_end
    while end > start:
        last = position_at(files.journal.buffer, end - JOURNAL_RECORD_SIZE)
        lasts.append(last)
        end = _offset_of(files, RecordNumber(last.primary_lease_id, 0), start)
    return lasts


def mirrored_lease(files: PartitionFiles, lease_id: int) -> int:
    """Return the newest lease whose record of number `lease_id` is a message's, a confirm's or a queue's; 0 if none.

    Replicas of the reference remember a record that they receive by its lease and number exchanged, and one that they
    read from a file by both as they are (source: mqbs::FileStore::writeMessageRecord and its like). So they would
    mistake a record of `lease_id` whose number is the returned lease for the one that was found.
    """
    for lease, newest in _lasts(files, JOURNAL_START):
        offset = offset_of(files, RecordNumber(lease, lease_id)) if newest >= lease_id else None
        if offset is not None and ANY_RECORD.unpack(files.journal.buffer, offset).type in _FOUND_BY_POSITION:
            return lease
    return 0


def _offset_of(files: PartitionFiles, position: RecordNumber, start: int) -> int:
    """Return the offset of the first record from `start` on at or after `position`; the journal's end if none is.

    Bisects: a journal has millions of records and other work waits.
    """
    buffer = files.journal.buffer
    rows = range((files.journal_end - start) // JOURNAL_RECORD_SIZE)
    row = bisect_left(rows, position, key=lambda row: position_at(buffer, start + row * JOURNAL_RECORD_SIZE))
    return start + row * JOURNAL_RECORD_SIZE


def position_until(files: PartitionFiles, position: RecordNumber) -> RecordNumber:
    """Return the position of the last record at or before `position`; NOWHERE if there is none."""
    offset = _offset_of(files, RecordNumber(position.primary_lease_id, position.sequence_number + 1), JOURNAL_START)
    return position_at(files.journal.buffer, offset - JOURNAL_RECORD_SIZE) if offset > JOURNAL_START else NOWHERE


def offset_of(files: PartitionFiles, position: RecordNumber) -> int | None:
    """Return the offset of the record at `position`, carried over or not; None if there is none."""
    offset = _offset_of(files, position, JOURNAL_START)
    is_there = offset < files.journal_end and position_at(files.journal.buffer, offset) == position
    return offset if is_there else None


def offset_behind(files: PartitionFiles, position: RecordNumber) -> int | None:
    """Return the offset after the record at `position`; None if there is no such record.

    Records carried over by a rollover do not count, since those between them are gone.
    """
    if position == NOWHERE:
        return JOURNAL_START
    offset = offset_of(files, position)
    if offset is None or offset < _first_sync_point_offset(files):
        return None
    return offset + JOURNAL_RECORD_SIZE
