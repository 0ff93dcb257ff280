"""Validation of a store's files: faults with their codes and offsets in bytes. Does no I/O of its own.

`validate_file_set` checks the three files of a partition against each other, `validate_file` one file alone. Faults are
yielded as they are found; a caller may stop at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from formats.bmq.disk.columns import kinds_of
from formats.bmq.disk.files import (
    HEADERS_SIZE_MAX,
    JOURNAL_RECORD_SIZE,
    FileType,
    JournalFileHeader,
    OpenedFile,
    initial_bytes,
    open_file,
    parse_file_name,
)
from formats.bmq.disk.journal import (
    JOURNAL_OP_RECORD,
    RECORD_MAGIC,
    JournalOpRecord,
    JournalOpType,
    QueueOpRecord,
    RecordType,
    decode_record,
    select,
)
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.stores import recover
from formats.bmq.stores.check_data import DataChecker, walk_data
from formats.bmq.stores.check_ledger import check_ledger
from formats.bmq.stores.check_queues import KnownQueue, QlistChecker, QueueChecker
from formats.bmq.stores.check_records import Chunk, Order, check_fields, check_order, check_shape
from formats.bmq.stores.faults import Fault, fault
from formats.bmq.stores.lives import Lives
from formats.bmq.stores.recover import JournalExtent, find_journal_extent, iter_qlist
from formats.bmq.stores.source import FileView, Source, scan_source
from formats.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "FileView",
    "Progress",
    "SetChecker",
    "Settle",
    "Source",
    "check_file_set",
    "validate_file",
    "validate_file_set",
    "validate_ledger",
]

Progress = Callable[[int, int], None]
"""Called after every chunk of a journal with (records done, records in total)."""

Settle = Callable[[], bool]
"""Gives a broker time to finish a write; returns False when that has taken too long."""

_SYNC_POINT_OFFSET_SIZE = 8
_MAGIC = RECORD_MAGIC.to_bytes(WORD, "big")


def validate_file_set(
    journal: Source,
    data: Source | None = None,
    qlist: Source | None = None,
    *,
    on_progress: Progress | None = None,
) -> Iterator[Fault]:
    """Yield the faults of one file set; checks that need an absent file are omitted.

    Reads the journal in chunks, and every payload that it refers to. The journal's end is determined before the other
    files are read: a broker that is writing has by then written everything that earlier records refer to.
    """
    yield from check_file_set(journal, data, qlist, on_progress=on_progress)


def check_file_set(
    journal: Source,
    data: Source | None = None,
    qlist: Source | None = None,
    *,
    on_progress: Progress | None = None,
    settle: Settle = lambda: False,
) -> Generator[Fault, None, SetChecker | None]:
    """Yield the faults of a file set like `validate_file_set`; return its state for `check_agreement`.

    Returns None if the journal's headers are damaged. `settle` is called where a broker may be writing.
    """
    try:
        extent = find_journal_extent(journal.read, journal.size)
    except FormatError as error:
        yield _header_fault(journal, error)
        return None
    yield from _check_headers(journal, extent.opened, FileType.JOURNAL)
    data_first = yield from _open(data, FileType.DATA)
    qlist_first = yield from _open(qlist, FileType.QLIST)
    checker = SetChecker(
        journal,
        extent,
        None if data is None or data_first is None else DataChecker(data, data_first),
        None if qlist is None or qlist_first is None else QlistChecker(qlist, qlist_first),
    )
    yield from checker.check(on_progress, settle)
    return checker


def validate_file(view: Source, file_type: FileType, *, on_progress: Progress | None = None) -> Iterator[Fault]:
    if file_type is FileType.JOURNAL:
        yield from validate_file_set(view, on_progress=on_progress)
        return
    first = yield from _open(view, file_type)
    if first is None:
        return
    if file_type is FileType.DATA:
        yield from walk_data(view, first)
        return
    try:
        for _ in iter_qlist(view.read(0, view.size)):
            pass
    except FormatError as error:
        yield fault("qlist-record", view.name, error.offset, f"{error.path}: {error.reason}")


def validate_ledger(view: Source) -> Iterator[Fault]:
    """Yield the faults of a ledger by itself: checksums, messages, the order of their numbers, and the name."""
    yield from check_ledger(view)


class SetChecker:
    """One pass over a journal, with the checkers of its DATA and QLIST files.

    After `check`, `queues` are those at the journal's end, `leases` the start of each primary's lease (offset in
    bytes), `primaries` the node in a lease's first sync point, and that record's offset.
    """

    def __init__(
        self, journal: Source, extent: JournalExtent, data: DataChecker | None, qlist: QlistChecker | None
    ) -> None:
        self.journal = journal
        self.qlist = qlist
        self.partition_id = extent.opened.file.partition_id
        self.journal_name = journal.name
        self.qlist_name = None if qlist is None else qlist.name
        self.leases: dict[int, int] = {}
        self.primaries: dict[int, tuple[int, int]] = {}
        self._extent = extent
        self._data = data
        self._order = Order()
        self._queues = QueueChecker(journal.name, qlist)
        self._references = References()
        self._first_sync_point: int | None = None

    @property
    def _stated_first_sync_point(self) -> int:
        """End of the rollover according to the header, in bytes; 0 in a journal that no rollover made."""
        header = self._extent.opened.header
        assert isinstance(header, JournalFileHeader)
        return header.first_sync_point_after_rollover_offset_words * WORD

    @property
    def queues(self) -> dict[bytes, KnownQueue]:
        return self._queues.queues

    def check(self, on_progress: Progress | None, settle: Settle) -> Iterator[Fault]:
        extent, first = self._extent, self._extent.first_record_offset
        for index in range(0, extent.record_count, recover.CHUNK_RECORDS):
            records = scan_source(self.journal, first, index, min(recover.CHUNK_RECORDS, extent.record_count - index))
            offset = first + index * JOURNAL_RECORD_SIZE
            yield from self._check_chunk(Chunk(self.journal.name, index, offset, records))
            if on_progress is not None:
                on_progress(index + len(records), extent.record_count)
        yield from self._queues.check_end()
        if self._data is not None:
            yield from self._data.check_tail()
        yield from self._check_rollover()
        yield from self._check_tail(settle)

    def _check_chunk(self, chunk: Chunk) -> Iterator[Fault]:
        import numpy as np

        good = np.ones(len(chunk.records), bool)
        yield from check_shape(chunk, good)
        yield from check_order(chunk, good, self._order)
        self._note_leases(chunk, good)
        # Queues come first, since other records refer to them.
        for kind in (RecordType.QUEUE_OP, RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION):
            records, positions = _readable(chunk, kind, good)
            yield from check_fields(chunk, kind, records, positions)
            if kind is RecordType.QUEUE_OP:
                yield from self._queues.begin(chunk, records, positions)
                continue
            yield from self._queues.check(chunk, kind, records, positions)
            if kind is RecordType.MESSAGE:
                yield from self._check_messages(chunk, records, positions)
        yield from self._references.check(chunk, kinds_of(chunk.records) * good)
        records, positions = _readable(chunk, RecordType.JOURNAL_OP, good)
        yield from check_fields(chunk, RecordType.JOURNAL_OP, records, positions)
        yield from self._check_sync_points(chunk, records, positions)

    def _note_leases(self, chunk: Chunk, good: NDArray[Any]) -> None:
        import numpy as np

        positions = np.flatnonzero(good)
        leases, first = np.unique(chunk.records["primary_lease_id"][positions], return_index=True)
        for lease, at in zip(leases.tolist(), first.tolist(), strict=True):
            self.leases.setdefault(lease, chunk.offset_of(int(positions[at])))

    def _check_messages(self, chunk: Chunk, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        if self._data is not None:
            yield from self._data.check(chunk, records, positions)
        if self._stated_first_sync_point and self._first_sync_point is None:
            return
        yield from self._queues.check_ref_counts(chunk, records, positions)

    def _check_sync_points(self, chunk: Chunk, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        for position, raw in zip(positions.tolist(), records, strict=True):
            record = JOURNAL_OP_RECORD.unpack(raw.tobytes())
            if record.journal_op_type != JournalOpType.SYNCPOINT:
                continue
            if self._first_sync_point is None:
                self._first_sync_point = chunk.index + position
            lease, number = record.sync_point_primary_lease_id, record.sync_point_sequence_number
            # A new primary may write its predecessor's outstanding sync point, which has the predecessor's lower lease
            # id.
            own = (record.primary_lease_id, record.sequence_number)
            if not lease or not number or lease > own[0] or (lease == own[0] and number != own[1]):
                yield chunk.fault("sync-point", position, f"stands for ({lease}, {number}), its record is {own}")
            node_id = self.primaries.setdefault(own[0], (record.primary_node_id, chunk.offset_of(position)))[0]
            if node_id != record.primary_node_id:
                reason = f"node {record.primary_node_id} is primary under lease id {own[0]}, node {node_id} was before"
                yield chunk.fault("sync-point", position, reason)
            for checked, stated, end in (
                ("DATA", record.data_file_offset_dwords * DWORD, self._data and self._data.end_before(position)),
                (
                    "QLIST",
                    record.qlist_file_offset_words * WORD,
                    self.qlist and self._queues.qlist_end_before(position),
                ),
            ):
                if end is not None and stated != end:
                    yield chunk.fault("sync-point", position, f"{checked} ends at {stated}, not {end}")

    def _check_rollover(self) -> Iterator[Fault]:
        extent, name = self._extent, self.journal.name
        stated = self._stated_first_sync_point
        first = extent.first_record_offset
        found_at = self._first_sync_point
        at = extent.end if found_at is None else first + found_at * JOURNAL_RECORD_SIZE
        if stated and (stated != at or found_at is None):
            found = "nowhere" if found_at is None else f"at {at}"
            yield fault("rollover-offset", name, 32, f"first sync point at {stated}, found {found}")
        elif not stated and at != first:
            yield fault("rollover-unfinished", name, first, f"{at - first} bytes of records before any sync point")

    def _check_tail(self, settle: Settle) -> Iterator[Fault]:
        """Yield the fault after the last record: the rest of an interrupted write, or damage that hides more records.

        A broker may be writing. The records after the end are counted before the one at the end is read: a broker that
        writes records in order has written that one first. A broker that copies several at once may write the beginning
        of the first one last: `settle` waits for it.
        """
        name, end = self.journal.name, self._extent.end
        while True:
            hidden = sum(self._records_with_magic(end + JOURNAL_RECORD_SIZE))
            tail = self._settled_tail()
            if tail[-WORD:] == _MAGIC and tail[0] >> 4:
                return  # written by a broker since the journal's end was determined
            if not (hidden or tail[-WORD:] == _MAGIC) or not settle():
                break
        if hidden:
            yield fault("records-after-end", name, end, f"no valid record, but {hidden} records follow")
        elif tail[-WORD:] == _MAGIC:
            yield fault("record-type", name, end, "0 is no record type")
        elif len(tail) == JOURNAL_RECORD_SIZE and not _MAGIC.startswith(tail[-WORD:].rstrip(b"\0")):
            # The magic is written last: a torn record has at most its beginning.
            yield fault("record-magic", name, end, f"{tail[-WORD:]!r} is not '*rEc'")
        elif any(tail):
            yield fault("torn-tail", name, end, "an unfinished record")

    def _settled_tail(self) -> bytes:
        """Read the record at the end until two reads agree: a single read may mix two states."""
        tail, before = bytes(self.journal.read(self._extent.end, JOURNAL_RECORD_SIZE)), None
        while tail != before:
            tail, before = bytes(self.journal.read(self._extent.end, JOURNAL_RECORD_SIZE)), tail
        return tail

    def _records_with_magic(self, offset: int) -> Iterator[int]:
        step = recover.CHUNK_RECORDS
        total = max(0, self.journal.size - offset) // JOURNAL_RECORD_SIZE
        for index in range(0, total, step):
            records = scan_source(self.journal, offset, index, min(step, total - index))
            yield int((records["magic"] == RECORD_MAGIC).sum())


def _readable(chunk: Chunk, kind: RecordType, good: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The well-formed records of a kind, and their positions in the chunk."""
    records, positions = select(chunk.records, kind)
    readable = good[positions]
    return records[readable], positions[readable]


def _open(view: Source | None, file_type: FileType) -> Generator[Fault, None, int | None]:
    """Yield the faults of `view`'s headers; return the first record's offset, or None without file or sound headers."""
    if view is None:
        return None
    try:
        opened = open_file(view.read(0, HEADERS_SIZE_MAX), file_type)
    except FormatError as error:
        yield _header_fault(view, error)
        return None
    yield from _check_headers(view, opened, file_type)
    return opened.first_record_offset


def _check_headers(view: Source, opened: OpenedFile, file_type: FileType) -> Iterator[Fault]:
    partition_id = opened.file.partition_id
    name = parse_file_name(view.name)
    if name is not None and (name.partition_id, name.file_type) != (partition_id, file_type):
        reason = f"the header says {file_type.name} of partition {partition_id}"
        yield fault("partition-mismatch", view.name, 20, reason)
    expected = bytearray(initial_bytes(file_type, partition_id))
    found = view.read(0, len(expected))
    if opened.first_record_offset != len(expected):
        reason = f"headers of {opened.first_record_offset} bytes, {len(expected)} are known"
        yield fault("header-unknown", view.name, 8, reason)
        return
    if file_type is FileType.JOURNAL:
        # The end of a rollover is checked separately.
        expected[-_SYNC_POINT_OFFSET_SIZE:] = found[-_SYNC_POINT_OFFSET_SIZE:]
    at = next((at for at, (one, other) in enumerate(zip(expected, found, strict=True)) if one != other), None)
    if at is not None:
        yield fault("reserved-not-zero", view.name, at, "a byte of the headers that nothing is known to use")


def _header_fault(view: Source, error: FormatError) -> Fault:
    return fault("header", view.name, error.offset, f"{error.path}: {error.reason}")


class References:
    """Follows messages from their record to their end, chunk by chunk; memory grows with the messages alive."""

    def __init__(self) -> None:
        self._lives = Lives()

    def check(self, chunk: Chunk, kinds: NDArray[Any]) -> Iterator[Fault]:
        """Yield the faults of a chunk's records; `kinds` are their types, 0 for unreadable ones."""
        import numpy as np

        step = self._lives.feed(np.arange(len(chunk.records)) + chunk.index, chunk.records, kinds)
        for index in step.unknown.tolist():
            code = "confirm-without-message"
            if kinds[index - chunk.index] == RecordType.DELETION:
                code = "deletion-without-message"
            yield _fault(chunk, code, index, "no message is there that has")
        for index in step.duplicates.tolist():
            yield _fault(chunk, "duplicate-message", index, "a message is there already that has")
        for index in step.repeated.tolist():
            yield _fault(chunk, "confirm-repeated", index, "the app has already confirmed")
        for index in step.excess.tolist():
            yield _fault(chunk, "ref-count", index, "more apps than its reference count says have confirmed")
        for index in step.early.tolist():
            yield _fault(chunk, "ref-count", index, "more than one app has not confirmed")


def _fault(chunk: Chunk, code: str, index: int, reason: str) -> Fault:
    position = index - chunk.index
    record = decode_record(chunk.records[position].tobytes())
    assert not isinstance(record, (QueueOpRecord, JournalOpRecord))
    return chunk.fault(code, position, f"{reason} GUID {record.guid.hex().upper()}")
