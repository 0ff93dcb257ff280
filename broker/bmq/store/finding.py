# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Fast search for a message's record in a large journal: all other work waits for it."""

from __future__ import annotations

from typing import Final

import numpy as np

from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes, open_file
from formats.bmq.disk.journal import ANY_RECORD, MESSAGE_RECORD, MessageRecord, RecordType, scan
from formats.bmq.disk.padding import DWORD
from formats.errors import FormatError

__all__ = ["find_message", "find_row", "journal_start"]

# Number of records examined at once.
ROWS: Final = 4096

_START_OF_OURS: Final = len(initial_bytes(FileType.JOURNAL, 0))


def journal_start(files: PartitionFiles) -> int:
    try:
        return open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
    except FormatError:
        # A set being received gets its headers last, of the size that this node writes.
        return _START_OF_OURS


def find_message(files: PartitionFiles, offset: int) -> MessageRecord:
    """Find the record at the row of `find_row`; it must exist."""
    row = find_row(files, offset)
    assert row is not None
    return MESSAGE_RECORD.unpack(files.journal.buffer, journal_start(files) + row * JOURNAL_RECORD_SIZE)


def find_row(files: PartitionFiles, offset: int) -> int | None:
    """Find the index of the record of the message whose payload is at `offset` of DATA; None if there is none.

    Uses bisection: DATA has messages, including removed ones, in the order of their records.
    """
    journal, first = files.journal.buffer, journal_start(files)
    records = scan(journal, first, (files.journal_end - first) // JOURNAL_RECORD_SIZE)
    wanted = offset // DWORD

    def messages(start: int, end: int) -> list[int]:
        """Return the rows of messages in the first block from `start` on that has any."""
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
