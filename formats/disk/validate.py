"""Whether the files of a store hold what was written to them: faults, in bytes and codes. No I/O; buffers come in.

`validate_file_set` checks the three files of a partition with each other: every journal record's shape, order and
fields, every payload's header and checksum, what records refer to, sync points. `validate_file` checks one file by
itself, as far as that goes. Faults come as they are found; a caller with enough of them stops asking.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.control import ber
from formats.control.messages_cluster import ClusterMessage
from formats.disk.check_data import DataChecker
from formats.disk.check_records import Chunk, Order, check_fields, check_order, check_shape
from formats.disk.check_references import QlistChecker, References
from formats.disk.faults import Fault, fault
from formats.disk.files import JOURNAL_RECORD_SIZE, FileType, JournalFileHeader, open_file, parse_file_name
from formats.disk.journal import (
    JOURNAL_OP_RECORD,
    LAYOUTS,
    RECORD_MAGIC,
    JournalOpRecord,
    JournalOpType,
    RecordType,
    scan,
    select,
)
from formats.disk.ledger import LedgerRecordType, open_ledger, parse_ledger_file_name
from formats.disk.padding import DWORD, WORD
from formats.disk.recover import JournalExtent, iter_data, iter_ledger, iter_qlist, journal_extent, scan_chunks
from formats.errors import FormatError
from formats.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FileView", "Progress", "validate_file", "validate_file_set", "validate_ledger"]

Progress = Callable[[int, int], None]
"""Called with (records done, records in all) after every chunk of a journal."""

_MAGIC = RECORD_MAGIC.to_bytes(WORD, "big")


class FileView(NamedTuple):
    """A file's name, as faults and checks of names want it (no directory), and its bytes."""

    name: str
    buffer: Buffer


def validate_file_set(
    journal: FileView,
    data: FileView | None = None,
    qlist: FileView | None = None,
    *,
    on_progress: Progress | None = None,
) -> Iterator[Fault]:
    """The faults of one file set; checks that need an absent file are left out.

    Reads the journal once, in chunks, and every payload that it refers to.
    """
    try:
        extent = journal_extent(journal.buffer)
    except FormatError as error:
        yield _header_fault(journal, error)
        return
    yield from _check_name(journal, extent.opened.file.partition_id, FileType.JOURNAL)
    data_first = yield from _open(data, FileType.DATA)
    qlist_first = yield from _open(qlist, FileType.QLIST)
    checker = _SetChecker(
        journal,
        extent,
        DataChecker(data.name, data.buffer, data_first) if data is not None and data_first is not None else None,
        QlistChecker(qlist.name, qlist.buffer, qlist_first) if qlist is not None and qlist_first is not None else None,
    )
    yield from checker.check(on_progress)


def validate_file(view: FileView, file_type: FileType, *, on_progress: Progress | None = None) -> Iterator[Fault]:
    """The faults of one file by itself."""
    if file_type is FileType.JOURNAL:
        yield from validate_file_set(view, on_progress=on_progress)
        return
    first = yield from _open(view, file_type)
    if first is None:
        return
    code = "data-record" if file_type is FileType.DATA else "qlist-record"
    walk: Iterator[object] = iter_data(view.buffer) if file_type is FileType.DATA else iter_qlist(view.buffer)
    try:
        for _ in walk:
            pass
    except FormatError as error:
        yield fault(code, view.name, error.offset, f"{error.path}: {error.reason}")


def validate_ledger(view: FileView) -> Iterator[Fault]:
    """The faults of a cluster-state ledger: checksums, messages, the order of their numbers, the name."""
    try:
        header, _ = open_ledger(view.buffer)
    except FormatError as error:
        yield _header_fault(view, error)
        return
    name = parse_ledger_file_name(view.name)
    if name is not None and name.log_id != header.file_key:
        reason = f"the log id is {header.file_key.hex().upper()}, the name says {name.log_id.hex().upper()}"
        yield fault("ledger-name", view.name, 1, reason)
    last = (0, 0)
    try:
        for record in iter_ledger(view.buffer):
            number = (record.header.elector_term, record.header.sequence_number)
            # A rollover's snapshot takes the number of the record that caused it, and uncommitted ones follow it.
            if number < last and record.header.record_type != LedgerRecordType.SNAPSHOT:
                yield fault("ledger-order", view.name, record.offset, f"{number} after {last}")
            last = max(last, number)
            try:
                ber.decode(ClusterMessage, record.body)
            except FormatError as error:
                yield fault("ledger-message", view.name, record.offset, f"{error.path}: {error.reason}")
    except FormatError as error:
        yield fault("ledger-record", view.name, error.offset, f"{error.path}: {error.reason}")


class _SetChecker:
    """One pass over a journal, with the checkers of the files beside it."""

    def __init__(
        self, journal: FileView, extent: JournalExtent, data: DataChecker | None, qlist: QlistChecker | None
    ) -> None:
        self._journal = journal
        self._extent = extent
        self._data = data
        self._qlist = qlist
        self._order = Order()
        self._references = References(journal.name, extent.first_record_offset)
        self._sync_points: list[tuple[int, JournalOpRecord]] = []

    def check(self, on_progress: Progress | None) -> Iterator[Fault]:
        extent, name = self._extent, self._journal.name
        for index, records in scan_chunks(self._journal.buffer, extent):
            offset = extent.first_record_offset + index * JOURNAL_RECORD_SIZE
            yield from self._check_chunk(Chunk(name, index, offset, records))
            if on_progress is not None:
                on_progress(index + len(records), extent.record_count)
        yield from self._references.check()
        if self._qlist is not None:
            yield from self._qlist.check(self._references)
            yield from self._references.check_apps(self._qlist.apps)
            for index, record in self._sync_points:
                end = self._qlist.end_before(index)
                if record.qlist_file_offset_words * WORD != end:
                    yield self._sync_point(index, f"QLIST ends at {record.qlist_file_offset_words * WORD}, not {end}")
        if self._data is not None:
            yield from self._data.check_tail()
        yield from self._check_rollover()
        yield from self._check_tail()

    def _check_chunk(self, chunk: Chunk) -> Iterator[Fault]:
        import numpy as np

        good = np.ones(len(chunk.records), bool)
        yield from check_shape(chunk, good)
        yield from check_order(chunk, good, self._order)
        for kind in LAYOUTS:
            records, positions = select(chunk.records, RecordType(kind))
            readable = good[positions]
            records, positions = records[readable], positions[readable]
            yield from check_fields(chunk, RecordType(kind), records, positions)
            self._references.add(chunk, RecordType(kind), records, positions)
            if kind == RecordType.MESSAGE and self._data is not None:
                yield from self._data.check(chunk, records, positions)
            elif kind == RecordType.JOURNAL_OP:
                yield from self._check_sync_points(chunk, records, positions)

    def _check_sync_points(self, chunk: Chunk, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        for position, raw in zip(positions.tolist(), records, strict=True):
            record = JOURNAL_OP_RECORD.unpack(raw.tobytes())
            if record.journal_op_type != JournalOpType.SYNCPOINT:
                continue
            index = chunk.index + position
            self._sync_points.append((index, record))
            lease, number = record.sync_point_primary_lease_id, record.sync_point_sequence_number
            # A new primary may write the sync point that its predecessor owed: then the lease id inside is lower.
            own = (record.primary_lease_id, record.sequence_number)
            if not lease or not number or lease > own[0] or (lease == own[0] and number != own[1]):
                yield self._sync_point(index, f"stands for ({lease}, {number}), its record is {own}")
            if self._data is not None:
                end = self._data.end_before(position)
                if record.data_file_offset_dwords * DWORD != end:
                    yield self._sync_point(index, f"DATA ends at {record.data_file_offset_dwords * DWORD}, not {end}")

    def _check_rollover(self) -> Iterator[Fault]:
        extent, name = self._extent, self._journal.name
        header = extent.opened.header
        assert isinstance(header, JournalFileHeader)
        stated = header.first_sync_point_after_rollover_offset_words * WORD
        first = extent.first_record_offset
        at = first + self._sync_points[0][0] * JOURNAL_RECORD_SIZE if self._sync_points else extent.end
        if stated and (stated != at or not self._sync_points):
            found = f"at {at}" if self._sync_points else "nowhere"
            yield fault("rollover-offset", name, 32, f"first sync point at {stated}, found {found}")
        elif not stated and at != first:
            yield fault("rollover-unfinished", name, first, f"{at - first} bytes of records before any sync point")

    def _check_tail(self) -> Iterator[Fault]:
        """What follows the last record: zeros, or what a stop amid a write left, or damage that hides more records."""
        buffer, name, end = self._journal.buffer, self._journal.name, self._extent.end
        tail = bytes(buffer[end : end + JOURNAL_RECORD_SIZE])
        hidden = sum(self._records_with_magic(end + JOURNAL_RECORD_SIZE))
        if hidden:
            yield fault("records-after-end", name, end, f"no valid record, but {hidden} records follow")
        elif tail[-WORD:] == _MAGIC:
            yield fault("record-type", name, end, "0 is no record type")
        elif len(tail) == JOURNAL_RECORD_SIZE and not _MAGIC.startswith(tail[-WORD:].rstrip(b"\0")):
            # The magic is written last: a torn record has none of it, or its beginning.
            yield fault("record-magic", name, end, f"{tail[-WORD:]!r} is not '*rEc'")
        elif any(tail):
            yield fault("torn-tail", name, end, "an unfinished record")

    def _records_with_magic(self, offset: int) -> Iterator[int]:
        buffer, step = self._journal.buffer, 1 << 20
        total = max(0, len(buffer) - offset) // JOURNAL_RECORD_SIZE
        for index in range(0, total, step):
            records = scan(buffer, offset + index * JOURNAL_RECORD_SIZE, min(step, total - index))
            yield int((records["magic"] == RECORD_MAGIC).sum())

    def _sync_point(self, index: int, reason: str) -> Fault:
        offset = self._extent.first_record_offset + index * JOURNAL_RECORD_SIZE
        return fault("sync-point", self._journal.name, offset, reason)


def _open(view: FileView | None, file_type: FileType) -> Generator[Fault, None, int | None]:
    """Where the records of `view` begin, or None if there is no file or its headers are wrong."""
    if view is None:
        return None
    try:
        opened = open_file(view.buffer, file_type)
    except FormatError as error:
        yield _header_fault(view, error)
        return None
    yield from _check_name(view, opened.file.partition_id, file_type)
    return opened.first_record_offset


def _check_name(view: FileView, partition_id: int, file_type: FileType) -> Iterator[Fault]:
    name = parse_file_name(view.name)
    if name is not None and (name.partition_id, name.file_type) != (partition_id, file_type):
        reason = f"the header says {file_type.name} of partition {partition_id}"
        yield fault("partition-mismatch", view.name, 20, reason)


def _header_fault(view: FileView, error: FormatError) -> Fault:
    return fault("header", view.name, error.offset, f"{error.path}: {error.reason}")
