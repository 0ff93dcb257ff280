"""Records held back while a partition's files must not change, and written afterwards.

All replicas of a partition roll over between the same two records, so nothing may be added to the old files while a
primary carries over live records. Nobody awaits the records of confirms and removals, which stay in memory meanwhile; a
process killed then has not written them, as if killed earlier.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.rollover import MAKING
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, QUEUE_OP_RECORD, SEQUENCE_NUMBER_MASK, RecordType
from formats.bmq.disk.padding import WORD

__all__ = ["HeldRecords"]

_WORD_NAME: Final = ANY_RECORD.dtype.names[0]  # type: ignore[index]  # type, flags and sequence number
_NUMBER_MASK: Final = np.uint64(SEQUENCE_NUMBER_MASK)


class _Memory:
    __slots__ = ("buffer",)

    def __init__(self, size: int) -> None:
        # These zeros take neither memory nor time until they are written to.
        self.buffer: memoryview = np.zeros(size, np.uint8).data

    def reserve(self, end: int) -> bool:
        return end <= len(self.buffer)


class HeldRecords:
    """A journal and QLIST in memory, after those of a partition whose last record has the sequence number `number`."""

    __slots__ = ("journal", "journal_end", "number", "qlist", "qlist_end")

    def __init__(self, records_max: int, qlist_max: int, number: int) -> None:
        self.journal = _Memory(records_max * JOURNAL_RECORD_SIZE)
        self.journal_end = 0
        self.qlist = _Memory(qlist_max)
        self.qlist_end = 0
        self.number = number

    def append_to(self, files: PartitionFiles, number: int) -> int:
        """Write all held records to files whose last record has that number; return the new last number."""
        count = self.journal_end // JOURNAL_RECORD_SIZE
        records = np.frombuffer(self.journal.buffer, ANY_RECORD.dtype, count).copy()
        numbers = np.arange(number + 1, number + 1 + count, dtype=np.uint64)
        records[_WORD_NAME] = records[_WORD_NAME] & ~_NUMBER_MASK | numbers
        start, files.journal_end = files.journal_end, files.journal_end + self.journal_end
        base = files.qlist_end
        files.qlist_end = base + self.qlist_end
        files.qlist.buffer[base : files.qlist_end] = self.qlist.buffer[: self.qlist_end]
        data = bytearray(records.tobytes())
        for row in np.flatnonzero(ANY_RECORD.column(records, "type") == RecordType.QUEUE_OP).tolist():
            op = QUEUE_OP_RECORD.unpack(data, row * JOURNAL_RECORD_SIZE)
            if op.queue_op_type in MAKING:
                offset = op.queue_uri_record_offset_words + base // WORD
                moved = op._replace(queue_uri_record_offset_words=offset)
                QUEUE_OP_RECORD.pack_into(data, row * JOURNAL_RECORD_SIZE, moved)
        files.journal.buffer[start : files.journal_end] = data
        return number + count
