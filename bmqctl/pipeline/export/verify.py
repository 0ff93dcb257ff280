"""The job of `bmqctl spark-verify`: an export checked against its manifest, and against its source store.

A store that has grown is read up to the last exported record. If it has rolled over, records and messages from before
the rollover may be missing; these are counted, but are not errors. Everything that both have must be equal, row by row,
except positions in files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import SparkContext

from bmqctl.pipeline.export.accounting import worst_of
from bmqctl.pipeline.export.delta import live_files
from bmqctl.pipeline.export.export import table_options
from bmqctl.pipeline.export.exported import count_exported, subject_of_export
from bmqctl.pipeline.export.manifest import MANIFEST, Manifest, is_unsettled, need_manifest
from bmqctl.pipeline.export.output import Output, open_output
from bmqctl.pipeline.export.table_files import FileFormat, read_table
from bmqctl.pipeline.export.verify_tasks import (
    CheckFile,
    FileCheck,
    ReadRows,
    Rows,
    Segments,
    Sums,
    check_file,
    joined,
    read_rows,
)
from bmqctl.pipeline.export.write_tasks import TableShape
from bmqctl.pipeline.reading import POSITION, Subject, read_task, tables_of
from bmqctl.pipeline.source.options import FileSets, ReadOptions
from bmqctl.pipeline.source.plan import Part, PartitionExtent
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.pipeline.spark.run_tasks import OnProgress, run_all
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.read.source import FileSource
from formats.bmq.disk.files import HEADERS_SIZE_MAX, JOURNAL_RECORD_SIZE, FileType, JournalFileHeader, open_file
from formats.bmq.disk.journal import decode_record
from formats.bmq.padding import WORD
from formats.errors import FormatError

__all__ = ["Difference", "TableCheck", "Verdict", "VerifyRequest", "verify"]

NAMED_MAX = 20
"""Rows of one kind of difference that are named; all are counted."""


@dataclass(frozen=True)
class Difference:
    """A difference: its table, its place (a file, or a record's position in its partition), and its kind."""

    table: str
    where: str
    what: str


@dataclass
class TableCheck:
    """The comparison of one table. `left` counts rows whose records a rollover has since removed from the store."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    in_store: int | None = None
    left: int = 0
    different: int = 0


@dataclass
class Verdict:
    """The result; `gone_on` has the ids of partitions with newer records than the export, `newer_in` their names.

    For RocketMQ, a partition is a broker, by its place in the export. `store` is the account of the store: no export
    can have its damaged or missing parts.
    """

    tables: dict[str, TableCheck] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    gone_on: list[int] = field(default_factory=list)
    newer_in: list[str] = field(default_factory=list)
    store: Account = field(default_factory=Account)


@dataclass(frozen=True)
class VerifyRequest:
    """The export and its stores, by default those it was made from; `against_store` False leaves them out."""

    out: str
    stores: tuple[str, ...] = ()
    against_store: bool = True

    def run(self, context: SparkContext, on_progress: OnProgress, /) -> Verdict:
        return verify(context, self, on_progress)


def verify(context: SparkContext, request: VerifyRequest, on_progress: OnProgress) -> Verdict:
    """Verify an export. Raises OutputError without an export, StoreError if the store cannot be read."""
    output = open_output(request.out)
    return _Verification(context, request, output, need_manifest(output), on_progress).run()


class _Verification:
    def __init__(
        self,
        context: SparkContext,
        request: VerifyRequest,
        output: Output,
        manifest: Manifest,
        on_progress: OnProgress,
    ) -> None:
        self.context = context
        self.stores = request.stores or manifest.stores
        self.against_store = request.against_store
        self.output = output
        self.manifest = manifest
        self.subject = subject_of_export(manifest)
        self.on_progress = on_progress
        self.verdict = Verdict()
        self.until = {
            int(partition): (at.primary_lease_id, at.sequence_number) for partition, at in manifest.positions.items()
        }

    @cached_property
    def _tables(self) -> Subject:
        """The tables of the store. Unnamed brokers' folders may have been renamed since the export."""
        return tables_of(self.stores).with_brokers(self.stores)

    def run(self) -> Verdict:
        if is_unsettled(self.output):
            self._differ(
                "", MANIFEST, "an export was interrupted while it changed the tables: run it again to finish it"
            )
        checks = self._check_files()
        for name, table in self.manifest.tables.items():
            self.verdict.tables[name] = TableCheck(table.rows, len(table.files), table.bytes)
            self._look_for_others(name)
        # Missing and damaged files are reported already, and their rows need no reports.
        damaged = {check.table for check in checks if check.fault}
        sound = [name for name in self.manifest.tables if name not in damaged]
        for name in sound:
            self._count(name)
        if self.against_store:
            self._compare(checks, sound)
        return self.verdict

    def _differ(self, table: str, where: str, what: str) -> None:
        self.verdict.differences.append(Difference(table, where, what))

    def _shape(self, table: str) -> TableShape:
        file_format = FileFormat(self.manifest.format)
        return TableShape(table, self.subject.schema(table), file_format, self.output, table, self.subject)

    def _check_files(self) -> list[FileCheck]:
        tasks = [
            CheckFile(self._shape(name), file) for name, table in self.manifest.tables.items() for file in table.files
        ]
        checks = run_all(self.context, check_file, tasks, "reading the export", self.on_progress)
        for check in checks:
            if check.fault is not None:
                self._differ(check.table, check.path, check.fault)
        return checks

    def _look_for_others(self, name: str) -> None:
        """Report files that readers of the table would read, but the manifest lacks."""
        known = {file.path for file in self.manifest.tables[name].files}
        if self.manifest.format == FileFormat.DELTA:
            live = live_files(self.output, name)
            for path in sorted(live - known):
                self._differ(name, path, "is in the Delta log, but was not exported")
            for path in sorted(known - live):
                self._differ(name, path, "is no longer in the Delta log")
            return
        for path in sorted(self.output.sizes(name).keys() - known):
            if not path.rpartition("/")[2].startswith((".", "_")):
                self._differ(name, path, "was not exported, but is in the table")

    def _count(self, name: str) -> None:
        self.on_progress(f"counting {name} with Spark", 0, 0)
        rows = count_exported(self.context, self.output, self.manifest, name)
        if rows != self.manifest.tables[name].rows:
            self._differ(
                name, name, f"Spark reads {rows:,} rows, the manifest says {self.manifest.tables[name].rows:,}"
            )

    def _compare(self, checks: list[FileCheck], sound: list[str]) -> None:
        partitions = self._tables.extents(self._options("records"))
        for missing in sorted(self.until.keys() - {partition.partition_id for partition in partitions}):
            self._differ("", self._partition(missing), "was exported, but is not in the store")
        self.verdict.gone_on = [
            partition.partition_id
            for partition in partitions
            if partition.last and partition.last > self.until.get(partition.partition_id, (0, 0))
        ]
        self.verdict.newer_in = [self._partition(number) for number in self.verdict.gone_on]
        floors = self._floors(partitions)
        in_store = self._read_store(dict.fromkeys(sound))
        accounts = {name: Account.total(rows.account for rows in in_store if rows.table == name) for name in sound}
        self.verdict.store = Account.total([self._tables.lost_files(self._options("records")), worst_of(accounts)])
        for name in sound:
            ours, theirs = Sums(), Sums()
            for check in checks:
                if check.table == name and check.path:
                    ours.add_all(check.segments)
            for rows in in_store:
                if rows.table == name:
                    theirs.add_all(rows.segments)
            result = self.verdict.tables[name]
            result.in_store = sum(count for count, _ in theirs.segments.values())
            unlike = _unlike(ours.segments, theirs.segments)
            if unlike:
                self._compare_rows(name, unlike, floors)

    def _floors(self, partitions: Iterable[PartitionExtent]) -> dict[int, tuple[int, int] | None]:
        if self.subject.brokers:
            return {each.partition_id: None if each.first is None else (0, each.first[1]) for each in partitions}
        journals: dict[int, set[str]] = {}
        for part in self._tables.plan(self._options("records")):
            assert isinstance(part, Part)
            journals.setdefault(part.partition_id, set()).update(journal.path for journal in part.journals)
        return {partition: _floor(paths) for partition, paths in journals.items()}

    def _partition(self, number: int) -> str:
        brokers = self.subject.brokers
        return f"broker {brokers[number]}" if number < len(brokers) else f"partition {number}"

    def _options(self, table: str) -> ReadOptions:
        return table_options(self.stores, table, until=self.until, file_sets=FileSets(self.manifest.file_sets))

    def _read_store(self, tables: Mapping[str, frozenset[tuple[int, int, int]] | None]) -> list[Rows]:
        """Read from each table the sums of all rows, or the individual rows of some segments."""
        tasks = []
        subject = self._tables
        for name in sorted(tables, key=subject.order.index):
            options = self._options(name)
            schema = subject.schema(name)
            reads = [partial(read_task, part, options, schema, ()) for part in subject.plan(options)]
            tasks += [ReadRows(name, schema, subject, read, tables[name]) for read in reads]
        return run_all(self.context, read_rows, tasks, "reading the store", self.on_progress)

    def _compare_rows(
        self, name: str, unlike: frozenset[tuple[int, int, int]], floors: dict[int, tuple[int, int] | None]
    ) -> None:
        shape = self._shape(name)
        files = [
            ReadRows(
                name,
                shape.schema,
                self.subject,
                partial(_read_file, self.output, file.path, shape),
                unlike,
            )
            for file in self.manifest.tables[name].files
        ]
        exported, their_hashes = joined(
            run_all(self.context, read_rows, files, "looking for the rows that differ", self.on_progress)
        )
        stored, hashes = joined(self._read_store({name: unlike}))
        order, their_order = np.argsort(stored, order=POSITION.names), np.argsort(exported, order=POSITION.names)
        stored, hashes = stored[order], hashes[order]
        exported, their_hashes = exported[their_order], their_hashes[their_order]
        twice = exported[1:][exported[1:] == exported[:-1]]
        self._name(name, twice, "is in the export more than once")
        missing = stored[~np.isin(stored, exported)]
        self._name(name, missing, "is in the store, but not in the export")
        extra = exported[~np.isin(exported, stored)]
        is_left = np.array([_is_left(position, floors) for position in extra.tolist()], bool)
        self.verdict.tables[name].left += int(is_left.sum())
        self._name(name, extra[~is_left], "is in the export, but not in the store")
        _, here, there = np.intersect1d(stored, exported, return_indices=True)
        self._name(name, stored[here[hashes[here] != their_hashes[there]]], "differs from the store")

    def _name(self, table: str, positions: NDArray[Any], what: str) -> None:
        self.verdict.tables[table].different += len(positions)
        for position in positions[:NAMED_MAX].tolist():
            self._differ(table, self.subject.place(position), what)
        if len(positions) > NAMED_MAX:
            self._differ(table, f"{len(positions) - NAMED_MAX:,} more rows", what)


def _read_file(output: Output, path: str, shape: TableShape, account: Account) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an export's file, which is not part of the store's account."""
    yield from read_table(output, path, shape.file_format, shape.schema)


def _unlike(ours: Segments, theirs: Segments) -> frozenset[tuple[int, int, int]]:
    return frozenset(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))


def _is_left(position: tuple[int, int, int], floors: dict[int, tuple[int, int] | None]) -> bool:
    floor = floors.get(position[0])
    return floor is not None and position[1:] < floor


def _floor(journals: Iterable[str]) -> tuple[int, int] | None:
    """The number from which on a partition's journals have all records; None if they have all."""
    floors = [_rolled_over_at(Path(journal)) for journal in journals]
    known = [floor for floor in floors if floor is not None]
    return min(known) if len(known) == len(floors) and known else None


def _rolled_over_at(journal: Path) -> tuple[int, int] | None:
    """The number of the sync point that ended the rollover into a journal; None without a rollover.

    The journal is not mapped: a broker truncates its files when it stops or rolls over, and access to a truncated page
    kills the process. Raises StoreError if the journal was truncated or removed since it was listed.
    """
    try:
        with FileSource(journal) as source:
            try:
                header = open_file(source.read(0, HEADERS_SIZE_MAX), FileType.JOURNAL).header
            except FormatError:
                return None
            assert isinstance(header, JournalFileHeader)
            offset = header.first_sync_point_after_rollover_offset_words * WORD
            if not offset:
                return None
            record = decode_record(source.read(offset, JOURNAL_RECORD_SIZE))
    except NotAStoreFile as error:
        raise StoreError(f"{error}; the store has changed while it was read: run the command again") from None
    except FormatError:
        raise StoreError(
            f"{journal}: truncated while it was read, or damaged: no sync point at offset {offset}; "
            "run the command again"
        ) from None
    return record.primary_lease_id, record.sequence_number
