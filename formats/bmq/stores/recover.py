"""Iteration over whole files, and the search for the end of a journal.

Files are preallocated: zeros follow the written part, or nothing after a clean stop. Source: mqbs::JournalFileIterator,
mqbs::DataFileIterator, mqbs::QlistFileIterator, mqbs::FileStoreProtocolUtil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.bmq.disk.data import DataRecord, parse_data_record
from formats.bmq.disk.files import HEADERS_SIZE_MAX, JOURNAL_RECORD_SIZE, FileType, OpenedFile, open_file
from formats.bmq.disk.journal import (
    ANY_RECORD,
    JOURNAL_OP_RECORD,
    RECORD_MAGIC,
    JournalOpType,
    Record,
    RecordType,
    decode_record,
    scan,
    select,
)
from formats.bmq.disk.ledger import LedgerRecord, open_ledger, parse_ledger_record
from formats.bmq.disk.padding import WORD
from formats.bmq.disk.qlist import QueueRecord, parse_queue_record
from formats.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "JournalExtent",
    "find_journal_extent",
    "iter_data",
    "iter_journal",
    "iter_ledger",
    "iter_qlist",
    "journal_extent",
    "scan_chunks",
]

CHUNK_RECORDS = 1 << 16


class JournalExtent(NamedTuple):
    """The written part of a journal; offsets are in bytes.

    `end` is where the next record goes; `last_sync_point_offset` is None without a sync point.
    """

    opened: OpenedFile
    first_record_offset: int
    end: int
    last_sync_point_offset: int | None

    @property
    def record_count(self) -> int:
        return (self.end - self.first_record_offset) // JOURNAL_RECORD_SIZE


def journal_extent(buffer: Buffer) -> JournalExtent:
    """Find the written part of the journal in `buffer`, by the reference's rule. FormatError if its headers are wrong.

    The last valid sync point is searched for from the back; from there (or from the start, without one) records extend
    to the first with type 0 or a wrong magic. A damaged record before the last sync point therefore does not end the
    journal: iteration reports it.
    """
    view = memoryview(buffer)
    return find_journal_extent(lambda offset, size: view[offset : offset + size], len(view))


def find_journal_extent(read: Callable[[int, int], Buffer], size: int) -> JournalExtent:
    """Find the written part of a journal of `size` bytes that is not in memory, like `journal_extent`.

    `read(offset, size)` may return fewer bytes than requested, since a file may be truncated while it is read. An empty
    buffer stands for zeros.
    """
    opened = open_file(read(0, min(size, HEADERS_SIZE_MAX)), FileType.JOURNAL)
    first = opened.first_record_offset

    def records_at(index: int, count: int) -> NDArray[Any]:
        block = read(first + index * JOURNAL_RECORD_SIZE, count * JOURNAL_RECORD_SIZE)
        return scan(block, 0, len(block) // JOURNAL_RECORD_SIZE)

    total = (size - first) // JOURNAL_RECORD_SIZE
    sync_point = _last_sync_point(records_at, total)
    index = 0 if sync_point is None else sync_point + 1
    while index < total:
        count = min(CHUNK_RECORDS, total - index)
        written = _written(records_at(index, count))
        if len(written) < count or not written.all():
            index += len(written) if written.all() else int(written.argmin())
            break
        index += count
    last = None if sync_point is None else first + sync_point * JOURNAL_RECORD_SIZE
    return JournalExtent(opened, first, first + index * JOURNAL_RECORD_SIZE, last)


def _written(records: NDArray[Any]) -> NDArray[Any]:
    written: NDArray[Any] = (records["magic"] == RECORD_MAGIC) & (
        ANY_RECORD.column(records, "type") != RecordType.UNDEFINED
    )
    return written


def _last_sync_point(records_at: Callable[[int, int], NDArray[Any]], total: int) -> int | None:
    end = total
    while end > 0:
        start = max(0, end - CHUNK_RECORDS)
        chunk = records_at(start, end - start)
        # A preallocated tail has no magic: check that column first.
        if (chunk["magic"] == RECORD_MAGIC).any():
            records, indexes = select(chunk, RecordType.JOURNAL_OP)
            valid = (
                (records["journal_op_type"] == JournalOpType.SYNCPOINT)
                & (records["magic"] == RECORD_MAGIC)
                & (records["primary_lease_id"] != 0)
                & (JOURNAL_OP_RECORD.column(records, "sequence_number") != 0)
            )
            if valid.any():
                return start + int(indexes[valid][-1])
        end = start
    return None


def scan_chunks(
    buffer: Buffer, extent: JournalExtent, chunk_records: int = CHUNK_RECORDS
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the written records as (index of the first, scanned array), at most `chunk_records` at a time."""
    for index in range(0, extent.record_count, chunk_records):
        count = min(chunk_records, extent.record_count - index)
        yield index, scan(buffer, extent.first_record_offset + index * JOURNAL_RECORD_SIZE, count)


def iter_journal(buffer: Buffer) -> Iterator[tuple[int, Record]]:
    """Yield (offset, record) for each written record. FormatError at a damaged one before the end."""
    extent = journal_extent(buffer)
    for offset in range(extent.first_record_offset, extent.end, JOURNAL_RECORD_SIZE):
        yield offset, decode_record(buffer, offset)


def iter_data(buffer: Buffer) -> Iterator[DataRecord]:
    """Yield a DATA file's records up to a header of zeros or the end of the file. FormatError at a damaged one."""
    offset = open_file(buffer, FileType.DATA).first_record_offset
    while not _zeros(buffer, offset, WORD):
        record = parse_data_record(buffer, offset)
        yield record
        offset = record.end


def iter_qlist(buffer: Buffer) -> Iterator[QueueRecord]:
    """Yield a QLIST file's records, like `iter_data`."""
    offset = open_file(buffer, FileType.QLIST).first_record_offset
    while not _zeros(buffer, offset, 2 * WORD):
        record = parse_queue_record(buffer, offset)
        yield record
        offset = record.end


def iter_ledger(buffer: Buffer) -> Iterator[LedgerRecord]:
    """Yield a ledger's records, like `iter_data`."""
    _, offset = open_ledger(buffer)
    while not _zeros(buffer, offset, WORD):
        record = parse_ledger_record(buffer, offset)
        yield record
        offset = record.end


def _zeros(buffer: Buffer, offset: int, size: int) -> bool:
    return not any(buffer[offset : offset + size])
