"""Comparison of two commit logs: the first difference, and the records in only one of them.

Replicas have the same bytes at the same offsets. Files are therefore compared by their bytes first. From the first file
that differs on, records are compared by their offsets: the rest of a blank tail, and unwritten bytes, are no
difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.common.regular import next_data, read_into
from bmqctl.stores.blazingmq.read.columns import Row
from bmqctl.stores.rocketmq.dump.rows import rows_of
from bmqctl.stores.rocketmq.read.files import LogFile
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.scan import LogScan, end_of_log

__all__ = ["Beyond", "Difference", "LogDiff", "Replica", "Status", "compare_logs"]

_BLOCK_BYTES: Final = 1 << 21
# Further queues are counted together.
_QUEUES_MAX: Final = 1 << 16

Progress = Callable[[int, int], None]


class Status(StrEnum):
    """The relation between two logs."""

    EQUAL = "equal"
    A_AHEAD = "a-ahead"  # B could catch up by receiving records
    B_AHEAD = "b-ahead"
    DIVERGED = "diverged"  # one of them must drop records before it can catch up
    APART = "apart"  # one begins after the end of the other: they cannot be compared


@dataclass
class Beyond:
    """The records in only one log; `first` and `last` are the offsets of the first and the last one.

    `different` counts those at whose offset the other log has another record, `same` equal ones after the first
    difference. `queues` counts records and bytes by topic and queue, `others` the records of further queues. `samples`
    are the first records.
    """

    samples_max: int
    records: int = 0
    size: int = 0
    different: int = 0
    same: int = 0
    queues: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    others: int = 0
    first: int | None = None
    last: int | None = None
    samples: list[Row] = field(default_factory=list)

    def add(self, records: LogRecords) -> None:
        if not len(records):
            return
        offsets = records.offsets
        self.records += len(records)
        self.size += int(records.sizes.sum())
        self.first = int(offsets[0]) if self.first is None else self.first
        self.last = int(offsets[-1])
        room = self.samples_max - len(self.samples)
        if room > 0:
            self.samples += rows_of(records.where(slice(room)))
        counts: Counter[tuple[bytes, int]] = Counter()
        sizes: Counter[tuple[bytes, int]] = Counter()
        queue_ids = records.front("queue_id").tolist()
        for key, size in zip(zip(records.topics(), queue_ids, strict=True), records.sizes.tolist(), strict=True):
            counts[key] += 1
            sizes[key] += size
        for (topic, queue_id), count in counts.items():
            named = (topic.decode(errors="replace"), queue_id)
            if named not in self.queues and len(self.queues) >= _QUEUES_MAX:
                self.others += count
                continue
            found = self.queues.setdefault(named, [0, 0])
            found[0] += count
            found[1] += sizes[topic, queue_id]


@dataclass
class Replica:
    """A log: its files, its begin, the end of its last record, and places found without a record."""

    files: Sequence[LogFile]
    begin: int
    end: int
    faults: int = 0

    def file_at(self, offset: int) -> Path | None:
        return next((file.path for file in self.files if file.begin <= offset < file.end), None)


class Difference(NamedTuple):
    """The first record that differs, or that the other log lacks.

    `fields` has both values of each field that differs, and `byte` is the record's first byte that does.
    """

    offset: int
    files: tuple[Path | None, Path | None]
    records: tuple[Row | None, Row | None]
    fields: dict[str, tuple[Any, Any]]
    byte: int | None


@dataclass
class LogDiff:
    """The comparison of two logs, which agree from `compared_from` to `common_end`."""

    replicas: tuple[Replica, Replica]
    beyond: tuple[Beyond, Beyond]
    compared_from: int
    common_end: int
    last_common: Row | None = None
    first_difference: Difference | None = None

    @property
    def status(self) -> Status:
        a, b = self.replicas
        if a.files and b.files and (a.end < b.begin or b.end < a.begin):
            return Status.APART
        ours, theirs = self.beyond
        if not ours.records and not theirs.records:
            return Status.EQUAL
        # Appending cannot give the other log the records in between.
        if (ours.records and theirs.records) or ours.same:
            return Status.DIVERGED
        return Status.A_AHEAD if ours.records else Status.B_AHEAD


class _Segment(NamedTuple):
    begin: int
    end: int


def compare_logs(
    a: Sequence[LogFile],
    b: Sequence[LogFile],
    samples_max: int,
    on_progress: Progress = lambda done, total: None,
) -> LogDiff:
    """Compare two logs in one pass and constant memory. Raises `OSError`."""
    replicas = (_replica(a), _replica(b))
    begin = max((replica.begin for replica in replicas if replica.files), default=0)
    found = LogDiff(replicas, (Beyond(samples_max), Beyond(samples_max)), begin, begin)
    if found.status is Status.APART:
        return found
    segments = _segments(replicas, begin)
    total = segments[-1].end - begin if segments else 0
    equal: _Segment | None = None
    for segment in segments:
        on_progress(segment.begin - begin, total)
        if found.first_difference is None:
            is_equal, is_written = _compare_bytes(replicas, segment)
            if is_equal:
                equal = segment if is_written else equal
                continue
        _compare_records(found, segment)
    if equal is not None and (found.last_common is None or int(found.last_common["offset"]) < equal.begin):
        found.last_common = _last_record(replicas[0], equal)
    last = found.last_common
    found.common_end = begin if last is None else int(last["offset"]) + int(last["size"])
    return found


def _replica(files: Sequence[LogFile]) -> Replica:
    return Replica(files, files[0].begin if files else 0, end_of_log(files))


def _segments(replicas: Sequence[Replica], begin: int) -> list[_Segment]:
    bounds = {begin}
    for replica in replicas:
        bounds.update(bound for file in replica.files for bound in (file.begin, file.end) if bound > begin)
    ordered = sorted(bounds)
    return [_Segment(low, high) for low, high in pairwise(ordered)]


def _compare_bytes(replicas: tuple[Replica, Replica], segment: _Segment) -> tuple[bool, bool]:
    a, b = (_file_with(replica, segment) for replica in replicas)
    if a is None or b is None:
        return False, False
    try:
        with a.path.open("rb", buffering=0) as ours, b.path.open("rb", buffering=0) as theirs:
            begins = [segment.begin - a.begin, segment.begin - b.begin]
            return _equal([ours.fileno(), theirs.fileno()], begins, segment.end - segment.begin)
    except FileNotFoundError:
        # A broker deletes its oldest files.
        return False, False


def _file_with(replica: Replica, segment: _Segment) -> LogFile | None:
    return next((file for file in replica.files if file.begin <= segment.begin and segment.end <= file.end), None)


def _equal(descriptors: Sequence[int], begins: Sequence[int], size: int) -> tuple[bool, bool]:
    """Compare `size` bytes of two files; return whether they are equal, and whether any is not zero."""
    buffers = [memoryview(bytearray(min(_BLOCK_BYTES, size))) for _ in descriptors]
    is_written = False
    at = 0
    while at < size:
        data = [next_data(descriptor, begin + at) for descriptor, begin in zip(descriptors, begins, strict=True)]
        places = [place - begin for place, begin in zip(data, begins, strict=True) if place is not None]
        if not places or min(places) >= size:
            break
        at = max(at, min(places))
        asked = min(_BLOCK_BYTES, size - at)
        ours, theirs = (
            np.frombuffer(buffer, np.uint8, read_into(descriptor, buffer[:asked], begin + at))
            for descriptor, begin, buffer in zip(descriptors, begins, buffers, strict=True)
        )
        if len(ours) != asked or not np.array_equal(ours, theirs):
            return False, is_written
        is_written = is_written or bool(ours.any())
        at += asked
    return True, is_written


class _Cursor:
    """The records of a log in a segment, a chunk at a time: `records` are not taken yet."""

    def __init__(self, replica: Replica, segment: _Segment) -> None:
        self._replica = replica
        self._end = segment.end
        files = [file for file in replica.files if file.end > segment.begin]
        reaches = bool(files) and files[0].begin < segment.end
        self._chunks = LogScan(files, segment.begin).chunks() if reaches else iter(())
        self.records: LogRecords | None = None
        self.told = segment.begin

    def advance(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            self.told = self._end
            return
        self._replica.faults += sum(fault.offset < self._end for fault in chunk.faults)
        self.told = min(chunk.end, self._end)
        records = chunk.records
        self.records = records if chunk.end <= self._end else records.where(records.offsets < self._end)

    def take(self, end: int) -> LogRecords | None:
        """Take the records before an offset. Their data is valid until the next chunk is read."""
        records = self.records
        if records is None:
            return None
        count = int(np.searchsorted(records.offsets, end))
        self.records = records.where(slice(count, None)) if count < len(records) else None
        return records.where(slice(count)) if count else None


def _compare_records(found: LogDiff, segment: _Segment) -> None:
    cursors = [_Cursor(replica, segment) for replica in found.replicas]
    told = segment.begin
    while told < segment.end:
        for cursor in cursors:
            if cursor.told <= told:
                cursor.advance()
        told = max(told, min(cursor.told for cursor in cursors))
        a, b = (cursor.take(told) for cursor in cursors)
        _note(found, (a, b))


def _note(found: LogDiff, sides: tuple[LogRecords | None, LogRecords | None]) -> None:
    a, b = sides
    equal: list[NDArray[np.bool_]] = [np.zeros(0 if side is None else len(side), np.bool_) for side in sides]
    if a is not None and b is not None:
        _, ours, theirs = np.intersect1d(a.offsets, b.offsets, assume_unique=True, return_indices=True)
        is_same = _same(a.where(ours), b.where(theirs))
        equal[0][ours[is_same]] = equal[1][theirs[is_same]] = True
        for beyond in found.beyond:
            beyond.different += int(np.count_nonzero(~is_same))
    others = [None if side is None else side.where(~mask) for side, mask in zip(sides, equal, strict=True)]
    if found.first_difference is None and any(other is not None and len(other) for other in others):
        found.first_difference = _difference(found.replicas, others)
    parted = found.first_difference
    if a is not None and equal[0].any():
        _note_equal(found, a.where(equal[0]), parted)
    for beyond, other in zip(found.beyond, others, strict=True):
        if other is not None:
            beyond.add(other)


def _note_equal(found: LogDiff, records: LogRecords, parted: Difference | None) -> None:
    before = len(records) if parted is None else int(np.searchsorted(records.offsets, parted.offset))
    if before:
        found.last_common = rows_of(records.where(slice(before - 1, before)))[0]
    for beyond in found.beyond:
        beyond.same += len(records) - before


def _same(a: LogRecords, b: LogRecords) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = a.sizes == b.sizes
    if not len(a):
        return same
    if same.all():
        size = int(a.ends[-1] - a.starts[0])
        ours, theirs = (np.frombuffer(side.data, np.uint8, size, int(side.starts[0])) for side in (a, b))
        if np.array_equal(ours, theirs):
            return same
    places = zip(a.starts.tolist(), b.starts.tolist(), a.sizes.tolist(), strict=True)
    for number, (ours_at, theirs_at, size) in enumerate(places):
        if same[number]:
            same[number] = bytes(a.data[ours_at : ours_at + size]) == bytes(b.data[theirs_at : theirs_at + size])
    return same


def _difference(replicas: tuple[Replica, Replica], others: Sequence[LogRecords | None]) -> Difference:
    offset = min(int(other.offsets[0]) for other in others if other is not None and len(other))
    records: list[Row | None] = []
    data: list[bytes] = []
    for other in others:
        is_there = other is not None and len(other) and int(other.offsets[0]) == offset
        first = other.where(slice(1)) if is_there and other is not None else None
        records.append(None if first is None else rows_of(first)[0])
        data.append(b"" if first is None else bytes(first.data[int(first.starts[0]) : int(first.ends[0])]))
    ours, theirs = records
    fields: dict[str, tuple[Any, Any]] = {}
    byte = None
    if ours is not None and theirs is not None:
        fields = {
            name: (ours.get(name), theirs.get(name))
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) != theirs.get(name)
        }
        byte = next((at for at, (one, other) in enumerate(zip(*data, strict=False)) if one != other), None)
    a, b = replicas
    return Difference(offset, (a.file_at(offset), b.file_at(offset)), (ours, theirs), fields, byte)


def _last_record(replica: Replica, segment: _Segment) -> Row | None:
    last = None
    for records in _records_in(replica, segment):
        last = rows_of(records.where(slice(len(records) - 1, None)))[0]
    return last


def _records_in(replica: Replica, segment: _Segment) -> Iterator[LogRecords]:
    cursor = _Cursor(Replica(replica.files, 0, 0), segment)
    while cursor.told < segment.end:
        cursor.advance()
        records = cursor.take(segment.end)
        if records is not None:
            yield records
