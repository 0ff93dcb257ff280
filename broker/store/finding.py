"""Finding the record of a message in a journal of millions, while everybody waits."""

from __future__ import annotations

import numpy as np

from broker.store.partition_files import PartitionFiles
from formats.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes, open_file
from formats.disk.journal import ANY_RECORD, MESSAGE_RECORD, MessageRecord, RecordType, scan
from formats.disk.padding import DWORD
from formats.errors import FormatError

__all__ = ["find_message", "find_row", "journal_start"]

# So many records are looked at together.
ROWS = 4096

_START_OF_OURS = len(initial_bytes(FileType.JOURNAL, 0))


def journal_start(files: PartitionFiles) -> int:
    """The place of the first record in the journal."""
    try:
        return open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
    except FormatError:
        # A set that is being received has its headers written last; they will be those that this node writes.
        return _START_OF_OURS


def find_message(files: PartitionFiles, offset: int) -> MessageRecord:
    """The record of the message whose payload is at `offset` of DATA; it must be there."""
    row = find_row(files, offset)
    assert row is not None
    return MESSAGE_RECORD.unpack(files.journal.buffer, journal_start(files) + row * JOURNAL_RECORD_SIZE)


def find_row(files: PartitionFiles, offset: int) -> int | None:
    """Which record of the journal is that of the message whose payload is at `offset` of DATA; None if there is none.

    By halves: messages lie in DATA in the order of their records, and those that were removed do, too.
    """
    journal, first = files.journal.buffer, journal_start(files)
    records = scan(journal, first, (files.journal_end - first) // JOURNAL_RECORD_SIZE)
    wanted = offset // DWORD

    def messages(start: int, end: int) -> list[int]:
        """The rows from `start` on that are messages, of the next that has any."""
        for at in range(start, end, ROWS):
            rows = np.flatnonzero(ANY_RECORD.column(records[at : min(at + ROWS, end)], "type") == RecordType.MESSAGE)
            if rows.size:
                return (rows + at).tolist()
        return []

    def place(row: int) -> int:
        return int(MESSAGE_RECORD.column(records[row : row + 1].view(MESSAGE_RECORD.dtype), "message_offset_dwords")[0])

    low, high = 0, len(records)
    while high - low > ROWS:
        middle = (low + high) // 2
        found = messages(middle, high)
        if found and place(found[0]) <= wanted:
            low = found[0]
        else:
            high = middle
    return next((row for row in messages(low, high) if place(row) == wanted), None)
