# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Truncation of a partition's files: clears the last journal records, and the ends of DATA and QLIST.

If the process is killed meanwhile, the order of clearing leaves a valid, merely longer, journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from broker.bmq.store.partition_files import FileEnds, PartitionFiles, zero_from
from formats.bmq.disk.data import parse_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import MESSAGE_RECORD, QUEUE_OP_RECORD, QueueOpType, RecordType, scan, select
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import parse_queue_record
from formats.schema import Buffer

__all__ = ["clear_order", "clear_records", "ends_at", "set_ends"]

# Number of records examined or cleared in one operation.
PART_RECORDS: Final = 1 << 16
_MAKING: Final = (QueueOpType.CREATION, QueueOpType.ADDITION)


def ends_at(files: PartitionFiles, journal_end: int) -> FileEnds:
    """Return the ends of all files for a journal that ends at `journal_end`; usually reads few records.

    Raises FormatError if the files cannot be read.
    """
    first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
    return FileEnds(journal_end, _data_end(files, first, journal_end), _qlist_end(files, first, journal_end))


def set_ends(files: PartitionFiles, ends: FileEnds) -> None:
    """End the files at `ends`, and clear the rest of DATA and QLIST; the journal must have been cleared."""
    zero_from(files.data, ends.data, files.data_end)
    zero_from(files.qlist, ends.qlist, files.qlist_end)
    files.journal_end, files.data_end, files.qlist_end = ends


def clear_records(journal: Buffer, start: int, end: int) -> None:
    writable = memoryview(journal)
    zeros = bytes(min(end - start, PART_RECORDS * JOURNAL_RECORD_SIZE))
    for part in clear_order(journal, start, end):
        writable[part] = zeros[: part.stop - part.start]


def clear_order(journal: Buffer, start: int, end: int) -> Iterator[slice]:
    """Yield the parts of a journal to clear, the last first.

    Within a part, sync points come first, from the last to the first: readers look for the end of a journal after its
    last sync point (`formats.bmq.stores.recover.journal_extent`). If the process is killed while it clears a part from
    its start, the records after the gap therefore do not count.
    """
    size = PART_RECORDS * JOURNAL_RECORD_SIZE
    while end > start:
        part = slice(max(start, end - size), end)
        records = scan(journal, part.start, (part.stop - part.start) // JOURNAL_RECORD_SIZE)
        _, rows = select(records, RecordType.JOURNAL_OP)
        for row in reversed(rows.tolist()):
            at = part.start + row * JOURNAL_RECORD_SIZE
            yield slice(at, at + JOURNAL_RECORD_SIZE)
        yield part
        end = part.start


def _data_end(files: PartitionFiles, first: int, journal_end: int) -> int:
    end = open_file(files.data.buffer, FileType.DATA).first_record_offset
    left = (journal_end - first) // JOURNAL_RECORD_SIZE
    while left:
        count = min(left, PART_RECORDS)
        left -= count
        found, _ = select(scan(files.journal.buffer, first + left * JOURNAL_RECORD_SIZE, count), RecordType.MESSAGE)
        if len(found):
            offset = int(MESSAGE_RECORD.column(found, "message_offset_dwords").max()) * DWORD
            return parse_data_record(files.data.buffer, offset).end if offset else end
    return end


def _qlist_end(files: PartitionFiles, first: int, journal_end: int) -> int:
    end = open_file(files.qlist.buffer, FileType.QLIST).first_record_offset
    if files.qlist_end == end:
        return end
    # Only one byte of each record is read, and few records make queues.
    count = (journal_end - first) // JOURNAL_RECORD_SIZE
    found, _ = select(scan(files.journal.buffer, first, count), RecordType.QUEUE_OP)
    offsets = QUEUE_OP_RECORD.column(found[np.isin(found["queue_op_type"], _MAKING)], "queue_uri_record_offset_words")
    offset = int(offsets.max()) * WORD if offsets.size else 0
    return max(end, parse_queue_record(files.qlist.buffer, offset).end) if offset else end
