"""Comparison of two replicas of a partition: their journals, merged by (primary lease id, sequence number).

Replicas have the same records under the same numbers. Positions in the other files differ by node and are not compared.
A rolled-over journal lacks messages that were no longer alive. A missing record therefore means nothing before the
first sync point, a copy of the one that ended the previous journal.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from bmqctl.common.regular import open_buffered
from bmqctl.stores.blazingmq.read.files import (
    FileKind,
    NotAStoreFile,
    identify,
    read_blocks,
    read_written,
    recovery_sets,
)
from formats.bmq.disk.files import (
    HEADERS_SIZE_MAX,
    JOURNAL_RECORD_SIZE,
    FileType,
    JournalFileHeader,
    open_file,
    parse_file_name,
)
from formats.bmq.disk.journal import (
    ANY_RECORD,
    JOURNAL_OP_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    RECORD_MAGIC,
    MessageRecord,
    Record,
    RecordType,
    SyncPointType,
    decode_record,
    scan,
)
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import WORD
from formats.bmq.stores.recover import iter_qlist
from formats.errors import FormatError

__all__ = ["Beyond", "PartitionDiff", "Replica", "Status", "compare", "journals_of", "open_replica"]

BLOCK_SIZE = (1 << 20) // JOURNAL_RECORD_SIZE * JOURNAL_RECORD_SIZE
PROGRESS_RECORDS = 1 << 14

Progress = Callable[[int, int], None]


class Status(StrEnum):
    """The relation between two replicas of a partition."""

    EQUAL = "equal"
    A_AHEAD = "a-ahead"  # B could catch up by receiving records
    B_AHEAD = "b-ahead"
    DIVERGED = "diverged"  # one of them must drop records before it can catch up
    ONLY_A = "only-a"  # the other store lacks the partition
    ONLY_B = "only-b"


class _Item(NamedTuple):
    number: RecordNumber
    side: int
    offset: int
    raw: bytes


@dataclass(slots=True)
class Beyond:
    """The records that only one replica has after the last common record; `first` and `last` are in its order.

    `different` counts those whose number belongs to another record in the other replica; `same` counts equal records
    after the divergence. `queues` counts messages; `samples` are the first records.
    """

    samples_max: int
    records: int = 0
    different: int = 0
    same: int = 0
    types: Counter[str] = field(default_factory=Counter)
    queues: Counter[bytes] = field(default_factory=Counter)
    first: RecordNumber | None = None
    last: RecordNumber | None = None
    samples: list[tuple[int, Record]] = field(default_factory=list)

    def add(self, item: _Item, record: Record) -> None:
        self.records += 1
        self.types[RecordType(record.type).name] += 1
        if isinstance(record, MessageRecord):
            self.queues[record.queue_key] += 1
        self.first = self.first or item.number
        self.last = item.number
        if len(self.samples) < self.samples_max:
            self.samples.append((item.offset, record))


@dataclass(slots=True)
class Replica:
    """One node's open journal of a partition. A rollover left out records before `complete_from`.

    After reading, `unreadable` is the number of slots without a record.
    """

    path: Path
    partition_id: int
    first_record_offset: int
    complete_from: RecordNumber
    size: int
    unreadable: int = 0
    queue_names: dict[bytes, str] = field(default_factory=dict)


@dataclass(slots=True)
class PartitionDiff:
    """The comparison of two replicas of a partition; a side without the partition has no replica."""

    partition_id: int
    replicas: tuple[Replica | None, Replica | None]
    beyond: tuple[Beyond, Beyond]
    common: int = 0
    last_common: RecordNumber | None = None
    last_common_offsets: tuple[int, int] | None = None
    last_common_timestamp: int | None = None

    @property
    def status(self) -> Status:
        if self.replicas[1] is None:
            return Status.ONLY_A
        if self.replicas[0] is None:
            return Status.ONLY_B
        a, b = (beyond.records for beyond in self.beyond)
        if not a and not b:
            return Status.EQUAL
        if a and b:
            return Status.DIVERGED
        # Equal records after these also mean divergence: the missing ones lie in between.
        if self.beyond[0].same:
            return Status.DIVERGED
        return Status.A_AHEAD if a else Status.B_AHEAD


def journals_of(path: Path) -> dict[int, Path]:
    """Find each partition's journal in a store, or the one at `path`. Raises NotAStoreFile if there is none."""
    if path.is_dir():
        sets = recovery_sets(path).values()
        return {files.partition_id: path / files.journal for files in sets if files.journal is not None}
    kind = identify(path)
    if kind is not FileKind.JOURNAL:
        raise NotAStoreFile(f"{path} is a {kind}: name a JOURNAL file, or the directory of a store")
    return {open_replica(path).partition_id: path}


def open_replica(path: Path) -> Replica:
    """Open the journal at `path`. Raises NotAStoreFile if its headers are damaged."""
    try:
        with open_buffered(path) as file:
            opened = open_file(file.read(HEADERS_SIZE_MAX), FileType.JOURNAL)
    except FormatError as error:
        raise NotAStoreFile(f"{path}: {error}; see bmqctl journal validate {path}") from None
    assert isinstance(opened.header, JournalFileHeader)
    replica = Replica(
        path, opened.file.partition_id, opened.first_record_offset, RecordNumber(0, 0), path.stat().st_size
    )
    stated = opened.header.first_sync_point_after_rollover_offset_words * WORD
    if stated > opened.first_record_offset:
        with open_buffered(path) as file:
            file.seek(stated)
            raw = file.read(JOURNAL_RECORD_SIZE)
        try:
            record = decode_record(raw)
        except FormatError as error:
            raise NotAStoreFile(f"{path}: no sync point at {stated}, the place given in the header: {error}") from None
        replica.complete_from = RecordNumber.of(record)
    named = parse_file_name(path.name)
    qlist = None if named is None else path.with_name(str(named._replace(file_type=FileType.QLIST)))
    if qlist is not None and qlist.is_file():
        with suppress(FormatError):  # without names, queues are shown by key
            replica.queue_names = {entry.queue_key: entry.uri for entry in iter_qlist(read_written(qlist))}
    return replica


def compare(a: Replica, b: Replica, samples_max: int, on_progress: Progress) -> PartitionDiff:
    """Compare both journals in one pass and constant memory."""
    found = PartitionDiff(a.partition_id, (a, b), (Beyond(samples_max), Beyond(samples_max)))
    start = _skip_common(found, on_progress)
    complete_from = max(a.complete_from, b.complete_from)
    total = a.size + b.size
    parted = False
    merged = heapq.merge(_items(a, 0, start), _items(b, 1, start), key=attrgetter("number"))
    for count, (number, group) in enumerate(groupby(merged, key=attrgetter("number"))):
        items = list(group)
        if count % PROGRESS_RECORDS == 0:
            on_progress(items[0].offset * 2, total)
        if len(items) == 2 and _same(items[0].raw, items[1].raw, ends_rollover=number == complete_from):
            if parted:
                for beyond in found.beyond:
                    beyond.same += 1
            else:
                _note_common(found, items[0].raw, (items[0].offset, items[1].offset))
            continue
        sides = {item.side for item in items}
        if len(sides) == 1 and number < complete_from:
            continue
        parted = True
        for item in items:
            found.beyond[item.side].add(item, decode_record(item.raw))
            found.beyond[item.side].different += len(sides) == 2
    return found


def _note_common(found: PartitionDiff, raw: bytes, offsets: tuple[int, int], count: int = 1) -> None:
    record = decode_record(raw)
    found.common += count
    found.last_common = RecordNumber.of(record)
    found.last_common_offsets = offsets
    found.last_common_timestamp = record.timestamp


def _skip_common(found: PartitionDiff, on_progress: Progress) -> int:
    """Return the offset of the first different block; equal bytes need no merging."""
    a, b = found.replicas
    assert a is not None
    assert b is not None
    offset = a.first_record_offset
    if b.first_record_offset != offset:
        return 0
    with open_buffered(a.path) as file_a, open_buffered(b.path) as file_b:
        file_a.seek(offset)
        file_b.seek(offset)
        while True:
            block = file_a.read(BLOCK_SIZE)
            if len(block) != BLOCK_SIZE or block != file_b.read(BLOCK_SIZE):
                return offset
            if not _readable(block):
                return offset
            end = offset + BLOCK_SIZE - JOURNAL_RECORD_SIZE
            _note_common(found, block[-JOURNAL_RECORD_SIZE:], (end, end), BLOCK_SIZE // JOURNAL_RECORD_SIZE)
            offset += BLOCK_SIZE
            on_progress(offset * 2, a.size + b.size)


def _readable(block: bytes) -> bool:
    records = scan(block, 0, len(block) // JOURNAL_RECORD_SIZE)
    kinds = ANY_RECORD.column(records, "type")
    known = (kinds >= RecordType.MESSAGE) & (kinds <= RecordType.JOURNAL_OP)
    numbered = (records["primary_lease_id"] != 0) & (ANY_RECORD.column(records, "sequence_number") != 0)
    return bool((known & numbered & (records["magic"] == RECORD_MAGIC)).all())


def _items(replica: Replica, side: int, start: int) -> Iterator[_Item]:
    """Yield the records from `start` on (0: from the first), and count unreadable ones."""
    for offset, block in read_blocks(replica.path, start or replica.first_record_offset, BLOCK_SIZE):
        for at in range(0, len(block) // JOURNAL_RECORD_SIZE * JOURNAL_RECORD_SIZE, JOURNAL_RECORD_SIZE):
            raw = block[at : at + JOURNAL_RECORD_SIZE]
            try:
                record = decode_record(raw)
            except FormatError:
                replica.unreadable += any(raw)
                continue
            yield _Item(RecordNumber.of(record), side, offset + at, raw)


_PLACELESS: dict[int, Callable[[bytes], Record]] = {
    RecordType.MESSAGE: lambda raw: MESSAGE_RECORD.unpack(raw)._replace(message_offset_dwords=0),
    RecordType.QUEUE_OP: lambda raw: QUEUE_OP_RECORD.unpack(raw)._replace(queue_uri_record_offset_words=0),
    RecordType.JOURNAL_OP: lambda raw: JOURNAL_OP_RECORD.unpack(raw)._replace(
        data_file_offset_dwords=0, qlist_file_offset_words=0
    ),
}


def _same(a: bytes, b: bytes, *, ends_rollover: bool) -> bool:
    """Return True if two records of one number are equal, or are sync points that end the same rollover.

    The old journal ends with one; each replica's new journal begins with a copy, to which the reference's primary gives
    a new time.
    """
    if a == b:
        return True
    if ends_rollover and a[0] >> 4 == b[0] >> 4 == RecordType.JOURNAL_OP:
        a, b = (
            JOURNAL_OP_RECORD.pack(
                JOURNAL_OP_RECORD.unpack(each)._replace(timestamp=0, sync_point_type=SyncPointType.REGULAR)
            )
            for each in (a, b)
        )
    placeless = _PLACELESS.get(a[0] >> 4)
    return placeless is not None and a[0] >> 4 == b[0] >> 4 and placeless(a) == placeless(b)
