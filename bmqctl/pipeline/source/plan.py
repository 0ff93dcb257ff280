"""Tasks of a read, and the division of a table into tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.pipeline.source.names import Names
from bmqctl.pipeline.source.options import FileSets, ReadOptions, Table
from bmqctl.pipeline.source.partitions import (
    Journal,
    MergedPartition,
    Segment,
    file_sets_of,
    find_journals,
    find_partitions,
    find_stores,
)
from bmqctl.pipeline.source.pushdown import Bounds, bounds_of
from bmqctl.pipeline.source.stores import StoreError, find_ledgers
from bmqctl.stores.blazingmq.read.files import read_written
from bmqctl.stores.blazingmq.read.scan import JournalScan
from bmqctl.stores.blazingmq.read.times import CLOCK_SLACK_S
from formats.bmq.disk.columns import sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.stores.queues import Queue, QueueCatalog, read_ledgers

__all__ = [
    "Chunk",
    "FilesPart",
    "Part",
    "PartitionExtent",
    "QueuesPart",
    "Store",
    "open_store",
    "plan",
    "plan_partitions",
    "scan_segments",
    "time_column",
]

RECORDS_PER_CHUNK = 1 << 15
RECORDS_PER_SHARE = 500_000
SHARES_MAX = 4


class Chunk(NamedTuple):
    """Consecutive unchecked records of a journal; the next chunk overwrites them.

    The first is in slot `place` of the journal, at `position` in the partition.
    """

    journal: int
    place: int
    position: int
    records: NDArray[Any]


@dataclass(frozen=True)
class Part(InputPartition):
    """The input of one task: some records of a partition, or one share of all of its messages."""

    partition_id: int
    journals: tuple[Journal, ...]
    segments: tuple[Segment, ...]
    names: Names
    share: int = 0
    shares: int = 1


@dataclass(frozen=True)
class FilesPart(InputPartition):
    """A ledger to read, or a file set (named by its journal) or ledger to check."""

    path: str


@dataclass(frozen=True)
class QueuesPart(InputPartition):
    """The queues of a partition, which planning has already determined for their names."""

    queues: tuple[Queue, ...]


class Store:
    """The partitions in a reader's paths, with their queues.

    `damaged` are journals that could not be opened, with the reasons: nothing is read from them.
    """

    def __init__(
        self, partitions: list[MergedPartition], ledgers: list[Path], damaged: list[tuple[Path, Exception]]
    ) -> None:
        self.partitions = partitions
        self.ledgers = ledgers
        self.damaged = damaged
        self._in_ledgers = read_ledgers(read_written(path) for path in ledgers)

    def queues(self, partition: MergedPartition) -> list[Queue]:
        """The partition's queues; offsets count positions in it, of `JOURNAL_RECORD_SIZE` each."""
        qlists = [b"" if each.qlist is None else read_written(Path(each.qlist)) for each in partition.journals]
        catalog, *others = (QueueCatalog(partition.partition_id, qlist) for qlist in qlists)
        for chunk in scan_segments(partition.journals, partition.segments):
            catalog.feed(chunk.position * JOURNAL_RECORD_SIZE, chunk.records, qlists[chunk.journal])
        found = {queue.queue_key: queue for queue in catalog.queues(self._in_ledgers)}
        for other in others:
            for queue in other.queues({}):
                if queue.queue_key not in found or found[queue.queue_key].uri is None:
                    found[queue.queue_key] = queue
        return list(found.values())

    def first(self, partition: MergedPartition) -> RecordNumber | None:
        """The number of the partition's first sound record; None if it has none."""
        for chunk in scan_segments(partition.journals, partition.segments):
            rows = np.flatnonzero(sound_kinds(chunk.records))
            if len(rows):
                return _number(chunk.records[rows[:1]])
        return None

    def end(self, partition: MergedPartition) -> RecordNumber | None:
        """The number of the partition's last sound record; None if it has none."""
        for segment in reversed(partition.segments):
            for end in range(segment.place + segment.records, segment.place, -RECORDS_PER_CHUNK):
                start = max(segment.place, end - RECORDS_PER_CHUNK)
                last = segment._replace(place=start, records=end - start)
                for chunk in scan_segments(partition.journals, (last,)):
                    rows = np.flatnonzero(sound_kinds(chunk.records))
                    if len(rows):
                        return _number(chunk.records[rows[-1:]])
        return None


class PartitionExtent(NamedTuple):
    """The numbers of a partition's first and last sound records, None if it has none.

    `journal` is the name of the file with the last one.
    """

    partition_id: int
    first: RecordNumber | None
    last: RecordNumber | None
    journal: str
    record_count: int


def plan_partitions(options: ReadOptions) -> list[PartitionExtent]:
    """Return the extent of each partition to read. Raises StoreError."""
    store = open_store(options)
    extents = []
    for partition in store.partitions:
        journal = partition.journals[partition.segments[-1].journal if partition.segments else 0]
        first, last = store.first(partition), store.end(partition)
        extents.append(
            PartitionExtent(partition.partition_id, first, last, Path(journal.path).name, partition.record_count)
        )
    return extents


def open_store(options: ReadOptions, bounds: Bounds | None = None) -> Store:
    """Open a store. Raises StoreError if there is nothing to read, or (failfast) a journal that cannot be opened."""
    journals: list[Journal] = []
    damaged: list[tuple[Path, Exception]] = []
    for found in find_journals(options.paths, options.file_sets):
        if isinstance(found, Journal):
            if bounds is None or bounds.wants_partition(found.partition_id):
                journals.append(found)
        elif options.failfast:
            raise StoreError(f"{found[0]}: {found[1]}; `bmqctl journal validate` shows what is wrong")
        else:
            damaged.append(found)
    return Store(find_partitions(journals), _ledgers(options), damaged)


def _ledgers(options: ReadOptions) -> list[Path]:
    directories = [path if path.is_dir() else path.parent for path in find_stores(options.paths)]
    return [ledger for directory in dict.fromkeys(directories) for ledger in find_ledgers(directory)]


def time_column(table: Table) -> str:
    """The column by which a table's rows are filtered by time before they are made."""
    if table is Table.RECORDS:
        return "timestamp"
    return "confirm_time" if table is Table.CONFIRMS else "arrival_time"


def plan(options: ReadOptions, filters: Sequence[Filter] = ()) -> list[InputPartition]:
    """Plan the tasks that read a table. Raises StoreError."""
    if options.table is Table.LEDGER:
        return [FilesPart(str(path)) for path in _ledgers(options)]
    if options.table is Table.FAULTS:
        return [*_checks(options)]
    bounds = bounds_of(filters, time_column(options.table))
    store = open_store(options, bounds)
    parts: list[InputPartition] = []
    for partition in store.partitions:
        queues = store.queues(partition)
        if options.table is Table.QUEUES:
            parts.append(QueuesPart(tuple(queues)))
            continue
        names = Names(queues)
        whole = Part(partition.partition_id, partition.journals, partition.segments, names)
        if options.table in (Table.RECORDS, Table.PAYLOADS):
            parts += _ranges(whole, options.records_per_partition, bounds)
        else:
            parts += _shares(whole, options.tasks or _share_count(partition))
    return parts


def _checks(options: ReadOptions) -> Iterator[FilesPart]:
    for path in find_stores(options.paths):
        for directory, files in file_sets_of(path, FileSets.ALL):
            yield FilesPart(str(directory / str(files.journal)))
    yield from (FilesPart(str(path)) for path in _ledgers(options))


def _share_count(partition: MergedPartition) -> int:
    return min(SHARES_MAX, 1 + partition.record_count // RECORDS_PER_SHARE)


def _shares(whole: Part, shares: int) -> Iterator[Part]:
    for share in range(shares):
        yield Part(whole.partition_id, whole.journals, whole.segments, whole.names, share, shares)


def _ranges(whole: Part, records_per_part: int, bounds: Bounds) -> Iterator[Part]:
    """Yield parts of at most `records_per_part` records, without those wholly outside the wanted time."""
    taken: list[Segment] = []
    room = records_per_part
    for segment in whole.segments:
        done = 0
        while done < segment.records:
            count = min(room, segment.records - done)
            taken.append(Segment(segment.journal, segment.place + done, count, segment.position + done))
            done += count
            room -= count
            if not room:
                yield from _wanted(whole, taken, bounds)
                taken, room = [], records_per_part
    yield from _wanted(whole, taken, bounds)


def _wanted(whole: Part, segments: list[Segment], bounds: Bounds) -> Iterator[Part]:
    if not segments:
        return
    if bounds.since is not None or bounds.until is not None:
        first, last = (_time_at(whole, segments[at], at) for at in (0, -1))
        if bounds.since is not None and last is not None and last + CLOCK_SLACK_S < bounds.since:
            return
        if bounds.until is not None and first is not None and first - CLOCK_SLACK_S > bounds.until:
            return
    used = sorted({segment.journal for segment in segments})
    journals = tuple(whole.journals[number] for number in used)
    renumbered = tuple(segment._replace(journal=used.index(segment.journal)) for segment in segments)
    yield Part(whole.partition_id, journals, renumbered, whole.names)


def _time_at(whole: Part, segment: Segment, end: int) -> int | None:
    """Return the time of a segment's first or last record; None if it is not sound."""
    place = segment.place + (segment.records - 1 if end else 0)
    for chunk in scan_segments(whole.journals, (segment._replace(place=place, records=1),)):
        if sound_kinds(chunk.records)[0]:
            return int(ANY_RECORD.column(chunk.records, "timestamp")[0])
    return None


def _number(record: NDArray[Any]) -> RecordNumber:
    lease, number = (int(ANY_RECORD.column(record, name)[0]) for name in RecordNumber._fields)
    return RecordNumber(lease, number)


def scan_segments(
    journals: Sequence[Journal], segments: Sequence[Segment], chunk_records: int = RECORDS_PER_CHUNK
) -> Iterator[Chunk]:
    """Yield the records of `segments`, in order, without blocks of zeros."""
    scans: dict[int, JournalScan] = {}
    try:
        for segment in segments:
            if segment.journal not in scans:
                scans[segment.journal] = JournalScan(Path(journals[segment.journal].path))
            end = segment.place + segment.records
            for chunk in scans[segment.journal].chunks(segment.place, end, min(chunk_records, segment.records)):
                position = segment.position + chunk.first - segment.place
                yield Chunk(segment.journal, chunk.first, position, chunk.records)
    finally:
        for scan in scans.values():
            scan.__exit__(None, None, None)
