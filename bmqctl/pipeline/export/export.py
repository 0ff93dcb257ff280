"""The job of `bmqctl spark-export`: Spark's tasks write tables of a store, in full or incrementally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from pyspark import SparkContext

from bmqctl.pipeline.export.accounting import account_of_export
from bmqctl.pipeline.export.delta import log_entry, next_version
from bmqctl.pipeline.export.manifest import (
    Commit,
    Manifest,
    Run,
    Table,
    WrittenFile,
    coming_manifest,
    read_manifest,
    run_directory,
    settle,
)
from bmqctl.pipeline.export.output import Output, OutputError, open_output
from bmqctl.pipeline.export.table_files import FileFormat
from bmqctl.pipeline.export.write_tasks import (
    Pending,
    Rewrite,
    TableShape,
    WritePart,
    Written,
    find_pending,
    run_task,
)
from bmqctl.pipeline.reading import Subject, read_task, tables_of
from bmqctl.pipeline.source.options import BadOption, FileSets, ReadOptions
from bmqctl.pipeline.source.options import Table as Source
from bmqctl.pipeline.spark.run_tasks import OnProgress, quiet, run_all
from bmqctl.stores.blazingmq.read.account import Account
from formats.bmq.disk.numbers import RecordNumber

__all__ = [
    "ExportPlan",
    "ExportRequest",
    "OtherExport",
    "OutputExists",
    "QueueSummary",
    "Summary",
    "export_store",
    "plan_export",
    "table_options",
]

MESSAGES = "messages"
_EVERY_TABLE = ("records", "messages", "confirms", "payloads")


class OutputExists(Exception):
    """Error that an earlier export is in the place of the new one; the message is its path."""


class OtherExport(Exception):
    """Error that the earlier export differs from the request, so that it cannot be extended; one line."""


@dataclass(frozen=True)
class ExportRequest:
    """The user's request for an export; by default the usual `tables` of the system."""

    stores: tuple[str, ...]
    out: str
    format: FileFormat = FileFormat.PARQUET
    tables: tuple[str, ...] = ()
    overwrite: bool = False
    since_last: bool = False
    records_per_task: int = 250_000
    tasks_per_partition: int = 0


@dataclass(frozen=True)
class ExportPlan:
    """A valid request, with the facts found before Spark starts.

    By partition id, `first` has the numbers of the first existing records, and `last` the positions of the last records
    to export. `earlier` is the manifest to extend. `lost` accounts for files that are unreadable.
    """

    request: ExportRequest
    subject: Subject
    output: Output
    first: dict[int, int]
    last: dict[int, RecordNumber]
    journals: dict[int, str]
    record_count: int
    earlier: Manifest | None
    file_sets: FileSets
    lost: Account

    def run(self, context: SparkContext, on_progress: OnProgress, /) -> Summary:
        return export_store(context, self, on_progress=on_progress)

    def replaced(self) -> dict[str, dict[str, int]]:
        if self.request.since_last:
            return {}
        found = {table: self.output.sizes(table) for table in _EVERY_TABLE}
        return {table: files for table, files in found.items() if files}

    @property
    def after(self) -> dict[int, tuple[int, int]]:
        positions = {} if self.earlier is None else self.earlier.positions
        return {int(partition): (at.primary_lease_id, at.sequence_number) for partition, at in positions.items()}


@dataclass(frozen=True)
class QueueSummary:
    """A queue's messages by outcome, and bytes of payload as posted."""

    uri: str
    outcomes: dict[str, int]
    payload_bytes: int

    @property
    def messages(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True)
class Summary:
    """The result of a run: `records` by type, and the new or changed messages by queue.

    `account` covers what was read of the store, damaged and missing.
    """

    manifest: Manifest
    records: dict[str, int]
    queues: list[QueueSummary] = field(default_factory=list)
    account: Account = field(default_factory=Account)

    @property
    def run(self) -> Run:
        return self.manifest.runs[-1]


def table_options(
    stores: Iterable[str],
    table: str,
    *,
    after: Mapping[int, tuple[int, int]] | None = None,
    until: Mapping[int, tuple[int, int]] | None = None,
    records_per_task: int = 250_000,
    tasks_per_partition: int = 0,
    file_sets: FileSets = FileSets.CURRENT,
) -> ReadOptions:
    return ReadOptions(
        paths=tuple(stores),
        table=Source(table),
        file_sets=file_sets,
        after=dict(after or {}),
        until=dict(until or {}),
        records_per_partition=records_per_task,
        tasks=tasks_per_partition,
    )


def plan_export(request: ExportRequest) -> ExportPlan:
    """Examine the store and the place for its tables.

    Raises StoreError if the store cannot be read; OutputError if the place is unusable; OutputExists if it has tables
    that may not be replaced or extended; OtherExport if they are of another kind.
    """
    output = open_output(request.out)
    subject = tables_of(request.stores).with_brokers(request.stores)
    request = _with_tables(request, subject)
    earlier = coming_manifest(output)
    if request.since_last:
        # A rollover may leave unexported records in earlier file sets: read these while they exist.
        file_sets = FileSets.ALL if earlier is None else FileSets(earlier.file_sets)
    else:
        file_sets = FileSets.CURRENT
    partitions = subject.extents(table_options(request.stores, "records", file_sets=file_sets))
    _check_place(request, subject, output, earlier)
    return ExportPlan(
        request,
        subject,
        output,
        {each.partition_id: each.first.sequence_number for each in partitions if each.first is not None},
        {partition.partition_id: partition.last for partition in partitions if partition.last is not None},
        {partition.partition_id: partition.journal for partition in partitions},
        sum(partition.record_count for partition in partitions),
        earlier if request.since_last else None,
        file_sets,
        subject.lost_files(table_options(request.stores, "records", file_sets=file_sets)),
    )


def _with_tables(request: ExportRequest, subject: Subject) -> ExportRequest:
    """The request with its tables. Raises BadOption for one that the system's exports lack."""
    tables = request.tables or subject.usual
    for name in tables:
        if name not in subject.order:
            known = (*subject.usual, *(each for each in subject.order if each not in subject.usual))
            raise BadOption(f"--tables {','.join(tables)}: {name!r} is none of {', '.join(known)}")
    if "payloads" in tables and request.format in (FileFormat.JSON, FileFormat.CSV):
        raise BadOption(f"--format {request.format}: has no bytes, which payloads are; use parquet or delta")
    return replace(request, tables=tables)


def _check_place(request: ExportRequest, subject: Subject, output: Output, earlier: Manifest | None) -> None:
    """Raise OutputExists or OtherExport if existing tables must not be changed in this way."""
    if not request.since_last:
        for table in _EVERY_TABLE:
            if output.sizes(table) and not request.overwrite:
                raise OutputExists(output.url(table))
        return
    if earlier is None:
        for table in _EVERY_TABLE:
            if output.sizes(table):
                raise OtherExport(f"{output.url(table)} has no manifest: it was not written by this command")
        return
    for name, before, now in (
        ("format", earlier.format, request.format.value),
        ("tables", ",".join(sorted(earlier.tables)), ",".join(sorted(request.tables))),
        ("stores", ", ".join(earlier.stores), ", ".join(request.stores)),
        ("brokers", ", ".join(earlier.brokers), ", ".join(subject.brokers)),
    ):
        if before != now:
            raise OtherExport(
                f"{output.uri} was exported with {name} {before}, not {now}: use the same, or another --out"
            )


def export_store(context: SparkContext, plan: ExportPlan, *, on_progress: OnProgress = quiet) -> Summary:
    """Carry out the plan. The tables change when everything is written; an interrupted run leaves no trace in them.

    Finishes a run that was interrupted while it changed them. Raises OutputBusy if another export writes.
    """
    with plan.output.locked():
        on_progress("reading the existing export", 0, 0)
        settle(plan.output)
        # Another export may have run since the plan was made.
        earlier = read_manifest(plan.output)
        _check_place(plan.request, plan.subject, plan.output, earlier)
        if earlier is not None and plan.request.since_last:
            last = {
                partition: max(at, earlier.positions.get(str(partition), at)) for partition, at in plan.last.items()
            }
            plan = replace(plan, earlier=earlier, last=last)
        return _Export(context, plan, on_progress).run()


class _Export:
    def __init__(self, context: SparkContext, plan: ExportPlan, on_progress: OnProgress) -> None:
        self.context = context
        self.plan = plan
        self.request = plan.request
        self.output = plan.output
        self.on_progress = on_progress
        self.began = datetime.now(UTC)
        self.number = 1 if plan.earlier is None else len(plan.earlier.runs) + 1
        self.staging = run_directory(self.number)
        # All tables of a run end at the same position, however the store grows meanwhile.
        self.until = {partition: (at.primary_lease_id, at.sequence_number) for partition, at in plan.last.items()}

    def run(self) -> Summary:
        pending = self._find_pending()
        tasks = [task for table in self._tables() for task in self._parts(table, pending)]
        written = run_all(self.context, run_task, tasks, "writing", self.on_progress)
        rewrites = self._rewrites(written, pending)
        rewritten = run_all(self.context, run_task, rewrites, "replacing changed rows", self.on_progress)
        self.on_progress("committing", 0, 0)
        commit = self._commit(written, rewritten, frozenset(task.path for task in rewrites))
        unseen = commit.moves.keys() - self.output.sizes(self.staging).keys()
        if unseen:
            where = self.output.url(min(unseen))
            raise OutputError(f"{where} was written but cannot be found: --out must be a place shared by all executors")
        commit.write(self.output)
        settle(self.output)
        return _summary(commit.manifest, written)

    def _tables(self) -> list[str]:
        return sorted(self.request.tables, key=self.plan.subject.order.index)

    def _shape(self, table: str) -> TableShape:
        directory = f"{self.staging}/{table}"
        subject = self.plan.subject
        return TableShape(table, subject.schema(table), self.request.format, self.output, directory, subject)

    def _parts(self, table: str, pending: Pending | None) -> list[WritePart | Rewrite]:
        options = table_options(
            self.request.stores,
            table,
            after=None if table == MESSAGES and self.plan.subject.changes else self.plan.after,
            until=self.until,
            records_per_task=self.request.records_per_task,
            tasks_per_partition=self.request.tasks_per_partition,
            file_sets=self.plan.file_sets,
        )
        shape = self._shape(table)
        parts = self.plan.subject.plan(options)
        return [
            WritePart(
                shape,
                number,
                partial(read_task, part, options, shape.schema, ()),
                self.plan.after,
                pending if table == MESSAGES else None,
            )
            for number, part in enumerate(parts)
        ]

    def _find_pending(self) -> Pending | None:
        """Collect the messages that may have changed since the previous run; None without one."""
        if self.plan.earlier is None or MESSAGES not in self.request.tables or not self.plan.subject.changes:
            return None
        files = [file.path for file in self.plan.earlier.tables[MESSAGES].files if file.pending]
        find = partial(find_pending, self._shape(MESSAGES))
        found = run_all(
            self.context, find, [[path] for path in files], "reading rows that may change", self.on_progress
        )
        return Pending.joined(found)

    def _rewrites(self, written: list[Written], pending: Pending | None) -> list[Rewrite]:
        """Plan rewrites of the files with changed rows, or with messages that left the store unseen."""
        if pending is None or self.plan.earlier is None:
            return []
        seen = np.concatenate([np.zeros(0, pending.positions.dtype), *(task.seen for task in written)])
        changed = np.concatenate([np.zeros(0, pending.positions.dtype), *(task.changed for task in written)])
        here = np.isin(pending.positions["partition_id"], list(self.plan.last))
        gone = ~np.isin(pending.positions, seen) & here
        rewrites = []
        for number, file in enumerate(self.plan.earlier.tables[MESSAGES].files):
            of_file = pending.files == file.path
            replaced: NDArray[np.void] = pending.positions[of_file & np.isin(pending.positions, changed)]
            removed: NDArray[np.void] = pending.positions[of_file & gone]
            if len(replaced) or len(removed):
                rewrites.append(Rewrite(self._shape(MESSAGES), 90_000 + number, file.path, replaced, removed))
        return rewrites

    def _commit(self, written: list[Written], rewritten: list[Written], replaced: frozenset[str]) -> Commit:
        earlier = self.plan.earlier
        manifest = earlier or Manifest(
            str(uuid4()),
            self.request.format.value,
            self.request.stores,
            self.plan.file_sets.value,
            brokers=self.plan.subject.brokers,
        )
        moves: dict[str, str] = {}
        deletes: list[str] = []
        logs: dict[str, str] = {}
        tables: dict[str, Table] = {}
        is_delta = self.request.format is FileFormat.DELTA
        for name in self.request.tables:
            before = manifest.tables.get(name, Table()).files
            new = [
                self._in_place(file, moves)
                for task in [*written, *rewritten]
                if task.table == name
                for file in task.files
            ]
            left = [file for file in before if file.path in replaced]
            tables[name] = Table((*(file for file in before if file.path not in replaced), *new))
            if not is_delta:
                deletes += [file.path for file in left]
            elif new or left or not before:
                version = 0 if earlier is None else next_version(self.output, name)
                entry, text = log_entry(
                    name,
                    version,
                    self._shape(name).schema,
                    new,
                    left,
                    partitions=self.plan.subject.partitions,
                    app=(manifest.export_id, self.number),
                    now_ms=int(self.began.timestamp() * 1000),
                )
                logs[entry] = text
        if earlier is None:
            deletes += [path for table in _EVERY_TABLE for path in self.output.sizes(table)]
        replaced_rows = 0 if earlier is None else sum(len(task.changed) for task in written)
        added = {name: tables[name].rows - manifest.tables.get(name, Table()).rows for name in tables}
        accounts = {name: each.as_json() for name, each in self._accounts(written).items()}
        run = Run(self.number, self.began.isoformat(), added, replaced_rows, self._missed(written), accounts)
        positions = {str(partition): at for partition, at in self.plan.last.items()}
        journals = {str(partition): journal for partition, journal in self.plan.journals.items()}
        manifest = replace(
            manifest,
            tables=tables,
            positions={**manifest.positions, **positions},
            journals={**manifest.journals, **journals},
            runs=(*manifest.runs, run),
        )
        return Commit(manifest, moves, tuple(deletes), logs)

    def _accounts(self, written: list[Written]) -> dict[str, Account]:
        return {
            name: Account.total([self.plan.lost, *(task.account for task in written if task.table == name)])
            for name in self.request.tables
        }

    def _in_place(self, file: WrittenFile, moves: dict[str, str]) -> WrittenFile:
        directory, _, name = file.path.removeprefix(f"{self.staging}/").rpartition("/")
        path = f"{directory}/run-{self.number:06}-{name}"
        moves[file.path] = path
        return replace(file, path=path)

    def _missed(self, written: list[Written]) -> int:
        """Count the records since the last export that the store lacks: within a lease, numbers have no gaps."""
        if self.plan.earlier is None:
            return 0
        if self.plan.subject.brokers:
            return sum(
                max(0, at - self.plan.after.get(broker, (0, at))[1] - 1) for broker, at in self.plan.first.items()
            )
        last: Counter[tuple[int, int]] = Counter()
        count = 0
        for task in written:
            for lease, (rows, number) in task.leases.items():
                last[lease] = max(last[lease], number)
                count += rows
        after = self.plan.after
        expected = sum(
            number - (after[partition][1] if partition in after and after[partition][0] == lease else 0)
            for (partition, lease), number in last.items()
        )
        return expected - count


def _summary(manifest: Manifest, written: list[Written]) -> Summary:
    records: Counter[str] = Counter()
    outcomes: dict[str, Counter[str]] = {}
    payload: Counter[str] = Counter()
    for task in written:
        records.update(task.types)
        for (queue, outcome), (count, size) in task.outcomes.items():
            outcomes.setdefault(queue, Counter())[outcome] += count
            payload[queue] += size
    queues = [QueueSummary(uri, dict(sorted(outcomes[uri].items())), payload[uri]) for uri in sorted(outcomes)]
    return Summary(manifest, dict(sorted(records.items())), queues, account_of_export(manifest))
