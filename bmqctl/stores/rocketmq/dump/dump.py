"""Dump of the filtered records of a commit log to a sink, once or as they are written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from bmqctl.common.tables import TablePrinter
from bmqctl.stores.blazingmq.dump.formats import DumpFormat, load_arrow
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.dump.rows import TABLE, columns_with, rows_of, shown_row
from bmqctl.stores.rocketmq.dump.text import CsvLines, JsonLines
from bmqctl.stores.rocketmq.read.columns import LogColumns
from bmqctl.stores.rocketmq.read.files import LogFile, log_files
from bmqctl.stores.rocketmq.read.filters import LogFilters, LogSelector
from bmqctl.stores.rocketmq.read.index_lookup import Found, look_up, record_at
from bmqctl.stores.rocketmq.read.losses import lose_bodies
from bmqctl.stores.rocketmq.read.payload import BodyReader
from bmqctl.stores.rocketmq.read.records import FRONT_BYTES, LogRecords
from bmqctl.stores.rocketmq.read.scan import LogChunk, LogFault, LogScan, Loss, end_of_log, fault_chunk

__all__ = [
    "CheckingSink",
    "FollowEnded",
    "LogFollower",
    "LogPrinter",
    "LogReport",
    "LogSink",
    "dump_log",
    "look_up_wanted",
    "make_sink",
]

Progress = Callable[[int, int], None]


class LogSink(Protocol):
    """Takes the records and faults of a log, in order."""

    def write(self, records: LogRecords, faults: Sequence[LogFault]) -> None:
        """Print them."""

    def close(self) -> None:
        """Print the end of the output."""


class _LineSink:
    def __init__(self, stream: IO[bytes], lines: JsonLines | CsvLines) -> None:
        self._stream = stream
        self._lines = lines

    def write(self, records: LogRecords, faults: Sequence[LogFault]) -> None:
        self._stream.write(self._lines.text(records, faults))

    def close(self) -> None:
        self._stream.flush()


class _TableSink:
    def __init__(self, bodies: BodyReader | None) -> None:
        self._bodies = bodies
        self._table = TablePrinter(TABLE)

    def write(self, records: LogRecords, faults: Sequence[LogFault]) -> None:
        self._table.print(map(shown_row, rows_of(records, faults, self._bodies)))

    def close(self) -> None:
        sys.stdout.flush()


class _ArrowSink:
    def __init__(self, stream: IO[bytes], bodies: BodyReader | None, *, parquet: bool) -> None:
        self._arrow = load_arrow()
        self._stream = stream
        self._bodies = bodies
        self._columns = columns_with(bodies)
        self._values = LogColumns(bodies)
        schema = self._arrow.schema_of(self._columns)
        self._writer: Any = self._arrow.BatchWriter(stream, schema, parquet=parquet)

    def write(self, records: LogRecords, faults: Sequence[LogFault]) -> None:
        if faults:
            batch = self._arrow.batch_of_rows(rows_of(records, faults, self._bodies), self._columns)
        else:
            batch = self._arrow.batch_of_columns(self._values.of(records), len(records), self._columns)
        self._writer.write(batch)

    def close(self) -> None:
        self._writer.close()
        self._stream.flush()


class CheckingSink:
    """Passes records to a sink, and compares their bodies with the checksums; `account` covers the records."""

    def __init__(self, sink: LogSink) -> None:
        self._sink = sink
        self.account = Account()

    def write(self, records: LogRecords, faults: Sequence[LogFault]) -> None:
        self.account.read(len(records), records.sizes.sum().item())
        lose_bodies(self.account, records)
        self._sink.write(records, faults)

    def close(self) -> None:
        self._sink.close()


def make_sink(chosen: DumpFormat, stream: IO[bytes], bodies: BodyReader | None) -> LogSink:
    if chosen is DumpFormat.TABLE:
        return _TableSink(bodies)
    if chosen is DumpFormat.JSON_LINE:
        return _LineSink(stream, JsonLines(bodies))
    if chosen is DumpFormat.CSV:
        lines = CsvLines(bodies)
        stream.write(lines.names)
        return _LineSink(stream, lines)
    return _ArrowSink(stream, bodies, parquet=chosen is DumpFormat.PARQUET)


@dataclass
class LogReport:
    """The result of a dump: damage, and requested ids and offsets without a record.

    `end` is the end of the log's last record; None unless the log was read to its end.
    """

    is_damaged: bool = False
    end: int | None = None
    unseen: list[str] = field(default_factory=list)


class LogPrinter:
    """Passes wanted records and faults to a sink, at most `limit` of them."""

    def __init__(self, sink: LogSink, filters: LogFilters, limit: int | None) -> None:
        self._sink = sink
        self._filters = filters
        self._left = limit
        self.selector = LogSelector(filters)

    @property
    def is_done(self) -> bool:
        return self._left is not None and self._left <= 0

    def print(self, chunk: LogChunk) -> list[LogFault]:
        """Print the wanted part of the chunk; return the faults in the filters' range."""
        records = self.selector.select(chunk.records)
        in_range = faults = [fault for fault in chunk.faults if self._filters.passes_fault(fault)]
        if self._left is not None and len(records) + len(faults) > self._left:
            places = sorted([*records.offsets.tolist(), *(fault.offset for fault in faults)])[: self._left]
            last = places[-1] if places else -1
            records = records.where(records.offsets <= last)
            faults = [fault for fault in faults if fault.offset <= last]
        if self._left is not None:
            self._left -= len(records) + len(faults)
        if len(records) or faults:
            self._sink.write(records, faults)
        return in_range


def dump_log(
    files: Sequence[LogFile],
    filters: LogFilters,
    sink: LogSink,
    limit: int | None = None,
    on_progress: Progress = lambda done, total: None,
    index_files: Sequence[Path] = (),
) -> LogReport:
    """Print the wanted records of a log, through the index if it covers them all. Raises `OSError`."""
    if filters.offsets:
        return _dump_single(files, filters, sink, limit)
    report = LogReport()
    printer = LogPrinter(sink, filters, limit)
    found = look_up_wanted(files, index_files, filters)
    scan = LogScan(files, filters.begin(files))
    chunks = scan.chunks() if found is None else _chunks_of(files, found)
    begin, end = (filters.begin(files), files[-1].end) if files else (0, 0)
    for chunk in chunks:
        if printer.is_done:
            return report
        on_progress(chunk.end - begin, end - begin)
        report.is_damaged |= any(fault.is_loss for fault in printer.print(chunk))
        if filters.ends_before(chunk.records, chunk.end):
            break
    else:
        report.end = scan.end if found is None else None
    if not printer.is_done:
        report.unseen = [f"no record has the id {text}" for text in sorted(printer.selector.unseen)]
    return report


def look_up_wanted(files: Sequence[LogFile], index_files: Sequence[Path], filters: LogFilters) -> Found | None:
    """Look for messages by ids or keys; None if the log must be read."""
    if not files or filters.has_range or not (filters.ids or filters.keys):
        return None
    selector = LogSelector(filters)
    places = selector.places
    records = [record for place in places if (record := record_at(files, place)) is not None]
    if filters.ids and selector.is_at_places(records):
        return Found([(files[0].begin, files[-1].end)], places)
    if not index_files or not filters.index_keys:
        return None
    found = look_up(index_files, files, filters.index_keys)
    return Found(found.parts, sorted({*found.places, *places}))


def _chunks_of(files: Sequence[LogFile], found: Found) -> Iterator[LogChunk]:
    at = files[0].begin
    for begin, end in (*found.parts, (files[-1].end, files[-1].end)):
        if at < begin:
            yield from _chunks_between(files, at, begin)
        for place in found.places:
            record = record_at(files, place) if begin <= place < end else None
            if record is not None:
                yield LogChunk(record, [], place + int(record.sizes[0]))
        at = end


def _chunks_between(files: Sequence[LogFile], begin: int, end: int) -> Iterator[LogChunk]:
    for chunk in LogScan([file for file in files if file.end > begin], begin).chunks():
        if chunk.end < end:
            yield chunk
            continue
        faults = [fault for fault in chunk.faults if fault.offset < end]
        yield LogChunk(chunk.records.where(chunk.records.offsets < end), faults, end)
        return


def _dump_single(files: Sequence[LogFile], filters: LogFilters, sink: LogSink, limit: int | None) -> LogReport:
    report = LogReport()
    for offset in sorted(filters.offsets)[:limit]:
        records = _first_records(files, offset)
        if records is None or int(records.offsets[0]) != offset:
            report.unseen.append(f"no record at offset {offset}")
        else:
            sink.write(records.where(slice(1)), ())
    return report


def _first_records(files: Sequence[LogFile], offset: int) -> LogRecords | None:
    around = [file for file in files if file.begin <= offset < file.end]
    return next((chunk.records for chunk in LogScan(around, offset).chunks() if len(chunk.records)), None)


class FollowEnded(Exception):
    """A log that cannot be followed further; the text says why, and what to do."""


class LogFollower:
    """New records of the store `root`, from `begin` or the current end on."""

    def __init__(self, root: Path, begin: int | None = None) -> None:
        files = log_files(root)
        self._root = root
        self._at = end_of_log(files) if begin is None else begin
        self._is_exact = begin is None
        self._had_files = bool(files)
        # The last record read: its offset, and its first bytes.
        self._last: tuple[int, bytes] | None = None

    def poll(self) -> Iterator[LogChunk]:
        """Yield complete records added since the last call.

        Raises `OSError`, and `FollowEnded` if the log has gone or was cut.
        """
        every = log_files(self._root)
        self._check(every)
        files = [file for file in every if file.end > self._at]
        if self._is_exact and files and files[0].begin > self._at:
            lost = files[0].begin - self._at
            yield fault_chunk(LogFault(self._at, lost, "deleted by the broker before it was read", Loss.MISSING))
            self._at = files[0].begin
        scan = LogScan(files, self._at, exact=self._is_exact, tail=False)
        try:
            for chunk in scan.chunks():
                records = chunk.records
                if len(records):
                    at = int(records.starts[-1])
                    self._last = int(records.offsets[-1]), bytes(records.data[at : at + FRONT_BYTES])
                yield chunk
        finally:
            if scan.end > self._at:
                self._at, self._is_exact = scan.end, True

    def _check(self, files: Sequence[LogFile]) -> None:
        """Raise `FollowEnded` if the log has gone, or another record replaced the last one."""
        if self._had_files and not files:
            raise FollowEnded(f"{self._root} has no commit log any more: it was deleted")
        self._had_files = bool(files)
        if self._last is None or files[0].begin > self._last[0]:
            return
        offset, front = self._last
        file = next((file for file in files if file.begin <= offset < file.end), None)
        if file is None or _bytes_at(file, offset) not in (front, None):
            raise FollowEnded(
                f"{self._root}: the record at {offset} no longer exists: the log was cut or replaced; start again"
            )


def _bytes_at(file: LogFile, offset: int) -> bytes | None:
    """The first bytes of the record at an offset; None if the file was just deleted."""
    try:
        with file.path.open("rb", buffering=0) as stream:
            return os.pread(stream.fileno(), FRONT_BYTES, offset - file.begin)
    except FileNotFoundError:
        return None
