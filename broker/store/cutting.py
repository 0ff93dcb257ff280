"""Files whose last records are taken back: where DATA and QLIST end then is told by the records that are left."""

from __future__ import annotations

import numpy as np

from broker.store.partition_files import PartitionFiles, zero_from
from formats.disk.data import parse_data_record
from formats.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.disk.journal import MESSAGE_RECORD, QUEUE_OP_RECORD, QueueOpType, RecordType, scan, select
from formats.disk.padding import DWORD, WORD
from formats.disk.qlist import parse_queue_record

__all__ = ["cut_off"]

# So many records are looked at in one go.
PART_RECORDS = 1 << 16
_MAKING = (QueueOpType.CREATION, QueueOpType.ADDITION)


def cut_off(files: PartitionFiles, journal_end: int) -> None:
    """Take the journal to end there, where it has been cleared already, and clear what DATA and QLIST have behind that.

    The ends are those that `broker.store.recovery.recover` finds; most of the time few records have to be looked at.
    FormatError, the files left as they are, when they cannot be read.
    """
    first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
    data_end, qlist_end = _data_end(files, first, journal_end), _qlist_end(files, first, journal_end)
    for file, end, dirty_end in ((files.data, data_end, files.data_end), (files.qlist, qlist_end, files.qlist_end)):
        zero_from(file, end, dirty_end)
    files.journal_end, files.data_end, files.qlist_end = journal_end, data_end, qlist_end


def _data_end(files: PartitionFiles, first: int, journal_end: int) -> int:
    """Behind the last message's DATA record: each is behind the one before."""
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
    """Behind the last record that a queue or app was made with."""
    end = open_file(files.qlist.buffer, FileType.QLIST).first_record_offset
    if files.qlist_end == end:
        return end
    # Only a byte of each record is looked at, and queues are made seldom: all at once.
    count = (journal_end - first) // JOURNAL_RECORD_SIZE
    found, _ = select(scan(files.journal.buffer, first, count), RecordType.QUEUE_OP)
    offsets = QUEUE_OP_RECORD.column(found[np.isin(found["queue_op_type"], _MAKING)], "queue_uri_record_offset_words")
    offset = int(offsets.max()) * WORD if offsets.size else 0
    return max(end, parse_queue_record(files.qlist.buffer, offset).end) if offset else end
