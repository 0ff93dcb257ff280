"""Tasks of an export: write a part of the store to files, or rewrite an earlier file without some rows.

Everything here is picklable and runs in executors, in the memory of a few batches.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bmqctl.pipeline.export.checksums import add_checksums, checksum, row_hashes
from bmqctl.pipeline.export.manifest import WrittenFile
from bmqctl.pipeline.export.output import Output
from bmqctl.pipeline.export.table_files import FileFormat, TableFile, directory_of, read_table
from bmqctl.pipeline.reading import POSITION, Subject
from bmqctl.stores.blazingmq.read.account import Account
from formats.bmq.stores.outcomes import MessageOutcome

__all__ = [
    "PENDING",
    "REMOVED",
    "Pending",
    "Rewrite",
    "TableShape",
    "WritePart",
    "Written",
    "find_pending",
    "hashed_columns",
    "run_task",
]

PENDING = (MessageOutcome.OUTSTANDING, MessageOutcome.PARTIALLY_CONFIRMED)
REMOVED = "removed"
"""The outcome of a message that left the store before it could be read again; the files do not show how."""

# Positions in files, which a rollover changes, names of brokers' folders, and epochs, which are lost with files of the
# log.
_PLACES = frozenset(
    {
        "offset",
        "message_offset",
        "queue_uri_record_offset",
        "data_file_offset",
        "qlist_file_offset",
        "journal_offset",
        "message_journal_offset",
        "broker",
        "epoch",
    }
)
_FILES_OPEN_MAX = 64
_DAY_NONE = -(1 << 30)


@dataclass(frozen=True)
class TableShape:
    """A table of the output: the location and contents of its files."""

    name: str
    schema: pa.Schema
    file_format: FileFormat
    output: Output
    directory: str
    subject: Subject


@dataclass(frozen=True)
class Pending:
    """Messages of earlier exports that may have changed, sorted by position: row hashes, and files by path."""

    positions: NDArray[Any]
    hashes: NDArray[Any]
    files: NDArray[Any]

    @classmethod
    def joined(cls, parts: Iterable[Pending]) -> Pending:
        parts = list(parts)
        positions = np.concatenate([np.zeros(0, POSITION), *(part.positions for part in parts)])
        hashes = np.concatenate([np.zeros(0, np.uint64), *(part.hashes for part in parts)])
        files = np.concatenate([np.zeros(0, object), *(part.files for part in parts)])
        order = np.argsort(positions, order=POSITION.names)
        return cls(positions[order], hashes[order], files[order])


@dataclass(frozen=True)
class WritePart:
    """Task to write the rows of one part of the store, as `read` yields them.

    With `pending`, only messages after `after` (by partition id), and pending ones whose rows have changed.
    """

    shape: TableShape
    number: int
    read: Callable[[Account], Iterator[pa.RecordBatch]]
    after: dict[int, tuple[int, int]] = field(default_factory=dict)
    pending: Pending | None = None


@dataclass(frozen=True)
class Rewrite:
    """Task to rewrite a file without the rows at `replaced`; those at `removed` get the outcome `REMOVED`."""

    shape: TableShape
    number: int
    path: str
    replaced: NDArray[Any]
    removed: NDArray[Any]


@dataclass
class Written:
    """The result of a task.

    `seen` and `changed` are positions of the pending messages met. `types` counts records; `leases` has, by partition
    and lease id, the count of records and the last sequence number; `outcomes`, by queue and outcome, the count of
    messages and their bytes of payload. `account` covers what was read of the store.
    """

    table: str
    files: list[WrittenFile] = field(default_factory=list)
    seen: NDArray[Any] = field(default_factory=lambda: np.zeros(0, POSITION))
    changed: NDArray[Any] = field(default_factory=lambda: np.zeros(0, POSITION))
    types: Counter[str] = field(default_factory=Counter)
    leases: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    account: Account = field(default_factory=lambda: Account(compares=True))

    def count(self, batch: pa.RecordBatch) -> None:
        if self.table == "records":
            for value in batch.column("type").value_counts().to_pylist():
                self.types[value["values"]] += value["counts"]
            table = pa.Table.from_batches([batch.select(["partition_id", "primary_lease_id", "sequence_number"])])
            by_lease = table.group_by(["partition_id", "primary_lease_id"])
            for row in by_lease.aggregate([("sequence_number", "count"), ("sequence_number", "max")]).to_pylist():
                lease = row["partition_id"], row["primary_lease_id"]
                rows, last = self.leases.get(lease, (0, 0))
                self.leases[lease] = (
                    rows + row["sequence_number_count"],
                    max(last, row["sequence_number_max"]),
                )
        elif self.table == "messages" and "outcome" not in batch.schema.names:
            by_topic = pa.Table.from_batches([batch.select(["topic", "kind", "body_size"])]).group_by(["topic", "kind"])
            for row in by_topic.aggregate([("body_size", "sum"), ([], "count_all")]).to_pylist():
                rows, size = self.outcomes.get((row["topic"], row["kind"]), (0, 0))
                self.outcomes[row["topic"], row["kind"]] = (rows + row["count_all"], size + row["body_size_sum"])
        elif self.table == "messages":
            queues = pc.coalesce(batch.column("queue_uri"), batch.column("queue_key"))
            table = pa.table({name: batch.column(name) for name in ("outcome", "payload_size")})
            table = table.append_column("queue", queues)
            by_outcome = table.group_by(["queue", "outcome"]).aggregate([("payload_size", "sum"), ([], "count_all")])
            for row in by_outcome.to_pylist():
                outcome = row["queue"], row["outcome"]
                rows, size = self.outcomes.get(outcome, (0, 0))
                self.outcomes[outcome] = (rows + row["count_all"], size + (row["payload_size_sum"] or 0))


def hashed_columns(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name not in _PLACES]


def run_task(task: WritePart | Rewrite) -> Written:
    return _write_part(task) if isinstance(task, WritePart) else _rewrite(task)


def find_pending(shape: TableShape, paths: Iterable[str]) -> Pending:
    found = []
    for path in paths:
        for batch in read_table(shape.output, path, shape.file_format, shape.schema):
            pending = batch.filter(pc.is_in(batch.column("outcome"), pa.array(PENDING)))
            hashes = row_hashes(pending, hashed_columns(shape.schema))
            found.append(Pending(shape.subject.positions(pending), hashes, np.full(len(hashes), path, object)))
    return Pending.joined(found)


class _Files:
    """The files that a task writes: one for each date and domain, of which few are open at a time."""

    def __init__(self, shape: TableShape, number: int) -> None:
        self._shape = shape
        # A task that is repeated, or run twice at a time, must not write to the same files.
        self._stem = f"part-{number:05}-{uuid4().hex[:12]}"
        self._open: OrderedDict[str, tuple[TableFile, list[int]]] = OrderedDict()
        self._columns = hashed_columns(shape.schema)
        self._count = 0
        self.done: list[WrittenFile] = []

    def write(self, directory: str, batch: pa.RecordBatch) -> None:
        if directory not in self._open:
            if len(self._open) >= _FILES_OPEN_MAX:
                self._close(next(iter(self._open)))
            name = f"{self._stem}-{self._count:04}.{self._shape.file_format.extension}"
            self._count += 1
            path = f"{self._shape.directory}/{directory}{name}"
            self._open[directory] = (
                TableFile(self._shape.output, path, self._shape.file_format, self._shape.schema),
                [0, 0],
            )
        self._open.move_to_end(directory)
        file, sums = self._open[directory]
        file.write(batch)
        sums[0] = add_checksums(sums[0], checksum(row_hashes(batch, self._columns)))
        if "outcome" in batch.schema.names:
            sums[1] += pc.sum(pc.is_in(batch.column("outcome"), pa.array(PENDING))).as_py() or 0

    def close(self) -> list[WrittenFile]:
        for directory in list(self._open):
            self._close(directory)
        return self.done

    def _close(self, directory: str) -> None:
        file, (total, pending) = self._open.pop(directory)
        size, digest = file.close()
        self.done.append(WrittenFile(file.name, file.rows, size, digest, total, pending))


def _write_part(task: WritePart) -> Written:
    written = Written(task.shape.name)
    files = _Files(task.shape, task.number)
    seen, changed = [written.seen], [written.changed]
    for batch in task.read(written.account):
        if task.pending is not None:
            batch, found, other = _new_or_changed(task, batch)
            seen.append(found)
            changed.append(other)
        written.count(batch)
        for directory, rows in _by_directory(batch, task.shape):
            files.write(directory, rows)
    written.files = files.close()
    written.seen, written.changed = np.concatenate(seen), np.concatenate(changed)
    return written


def _new_or_changed(task: WritePart, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[Any], NDArray[Any]]:
    assert task.pending is not None
    positions = task.shape.subject.positions(batch)
    new = np.ones(len(positions), bool)
    for partition, (lease, number) in task.after.items():
        here = positions["partition_id"] == partition
        leases, numbers = positions["primary_lease_id"], positions["sequence_number"]
        new &= ~here | (leases > lease) | ((leases == lease) & (numbers > number))
    place = np.searchsorted(task.pending.positions, positions)
    known = np.minimum(place, max(0, len(task.pending.positions) - 1))
    is_pending = np.zeros(len(positions), bool)
    if len(task.pending.positions):
        is_pending = task.pending.positions[known] == positions
    at = np.flatnonzero(is_pending)
    now = row_hashes(batch.take(pa.array(at)), hashed_columns(task.shape.schema))
    is_changed = np.zeros(len(positions), bool)
    is_changed[at] = task.pending.hashes[known[at]] != now
    return batch.filter(pa.array(new | is_changed)), positions[is_pending], positions[is_changed]


def _rewrite(task: Rewrite) -> Written:
    written = Written(task.shape.name)
    files = _Files(task.shape, task.number)
    for batch in read_table(task.shape.output, task.path, task.shape.file_format, task.shape.schema):
        positions = task.shape.subject.positions(batch)
        batch = batch.cast(task.shape.schema) if batch.schema != task.shape.schema else batch
        outcomes = batch.column("outcome")
        gone = pc.if_else(pa.array(np.isin(positions, task.removed)), REMOVED, outcomes)
        batch = batch.set_column(batch.schema.get_field_index("outcome"), batch.schema.field("outcome"), gone)
        kept = batch.filter(pa.array(~np.isin(positions, task.replaced)))
        for directory, rows in _by_directory(kept, task.shape):
            files.write(directory, rows)
    written.files = files.close()
    return written


def _by_directory(batch: pa.RecordBatch, shape: TableShape) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows by date, and by domain if they have one, with the directory of each group."""
    if not batch.num_rows:
        return
    time_column = shape.subject.time_column(shape.name)
    days = batch.column(time_column).cast(pa.date32()).cast(pa.int32()).fill_null(_DAY_NONE).to_numpy()
    has_domain = "domain" in dict(shape.subject.partitions)
    uris = (batch.column("queue_uri") if has_domain else pa.nulls(batch.num_rows, pa.string())).dictionary_encode()
    names = [_domain(uri) for uri in uris.dictionary.to_pylist()]
    domains = sorted({*names, None}, key=lambda name: (name is not None, name))
    numbers = np.array([domains.index(name) for name in names] + [domains.index(None)])
    of_row = numbers[uris.indices.fill_null(len(names)).to_numpy()]
    groups, inverse = np.unique(days.astype(np.int64) * len(domains) + of_row, return_inverse=True)
    for number, group in enumerate(groups.tolist()):
        day, domain = divmod(group, len(domains))
        date = None if day == _DAY_NONE else str(np.datetime64(day, "D"))
        values = {"date": date, "domain": domains[domain]}
        directory = directory_of([(name, values[name]) for name, _ in shape.subject.partitions])
        yield directory, batch if len(groups) == 1 else batch.take(pa.array(np.flatnonzero(inverse == number)))


def _domain(uri: str | None) -> str | None:
    """The domain of `bmq://domain/queue`, including any tier (`domain.~tier`)."""
    if uri is None:
        return None
    return uri.removeprefix("bmq://").partition("/")[0]
