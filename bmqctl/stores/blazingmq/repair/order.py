"""The order in which the records of a damaged journal were written.

A slot has a record if its magic, type and numbers say so. Records are ordered by number (lease id, sequence number),
with these rules:

- The longest chain of slots with ascending numbers, the backbone, is as written.
- Other records whose numbers fill a gap in it are in another record's slot and are moved. As a damaged number might
  fill a
  gap by chance, this requires two such records in a row, or a neighbour.
- A single record whose number fits nowhere has a damaged number: its slot implies the original one.
- Other records are left out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, RECORD_MAGIC, RecordType
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.stores.source import Source, scan_source

__all__ = ["CHUNK_RECORDS", "Order", "Run", "find_order"]

CHUNK_RECORDS = 1 << 16


class Run(NamedTuple):
    """`length` slots from `start` on, with consecutive numbers from (`lease_id`, `sequence_number`) on."""

    start: int
    length: int
    lease_id: int
    sequence_number: int

    @property
    def first(self) -> RecordNumber:
        return RecordNumber(self.lease_id, self.sequence_number)

    @property
    def last(self) -> RecordNumber:
        return RecordNumber(self.lease_id, self.sequence_number + self.length - 1)

    @property
    def end(self) -> int:
        return self.start + self.length

    def is_followed_by(self, other: Run) -> bool:
        return other.first == (self.lease_id, self.sequence_number + self.length)


@dataclass(slots=True)
class Order:
    """The result: `runs` in the order of their numbers; `places` is the number of slots in the journal.

    `without_magic` are slots of records that lack only the magic, `renumbered` those whose number was damaged, with the
    original one; `misfits` are runs that fit nowhere, `unreadable` ranges of slots (start, end) with data but no
    record. `end` is after the last record, `moved` are runs that were elsewhere.
    """

    places: int
    end: int = 0
    runs: list[Run] = field(default_factory=list)
    without_magic: set[int] = field(default_factory=set)
    renumbered: dict[int, RecordNumber] = field(default_factory=dict)
    misfits: list[Run] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    moved: list[Run] = field(default_factory=list)


def find_order(journal: Source, first_record_offset: int, on_progress: Callable[[int, int], None]) -> Order:
    order = Order(max(0, journal.size - first_record_offset) // JOURNAL_RECORD_SIZE)
    runs: list[Run] = []
    for index in range(0, order.places, CHUNK_RECORDS):
        count = min(CHUNK_RECORDS, order.places - index)
        for run in _runs(scan_source(journal, first_record_offset, index, count), index, order):
            if runs and runs[-1].end == run.start and runs[-1].is_followed_by(run):
                runs[-1] = runs[-1]._replace(length=runs[-1].length + run.length)
            else:
                runs.append(run)
        on_progress(index + count, order.places)
    runs = _drop_tail(runs, order)
    order.end = runs[-1].end if runs else 0
    order.runs = runs if _rises(runs) else _sort(runs, order)
    return order


def _runs(records: NDArray[Any], index: int, order: Order) -> Iterator[Run]:
    kinds = ANY_RECORD.column(records, "type")
    leases = ANY_RECORD.column(records, "primary_lease_id").astype(np.int64)
    numbers = ANY_RECORD.column(records, "sequence_number").astype(np.int64)
    readable = (kinds >= RecordType.MESSAGE) & (kinds <= RecordType.JOURNAL_OP) & (leases != 0) & (numbers != 0)
    with_magic = records["magic"] == RECORD_MAGIC
    order.without_magic.update((np.flatnonzero(readable & ~with_magic) + index).tolist())
    _note_unreadable(records, readable, index, order)
    places = np.flatnonzero(readable)
    if not len(places):
        return
    leases, numbers = leases[places], numbers[places]
    steps = (np.diff(places) != 1) | (np.diff(leases) != 0) | (np.diff(numbers) != 1)
    starts = np.concatenate([[0], np.flatnonzero(steps) + 1])
    counts = np.diff(np.append(starts, len(places)))
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        yield Run(index + int(places[start]), count, int(leases[start]), int(numbers[start]))


def _note_unreadable(records: NDArray[Any], readable: NDArray[Any], index: int, order: Order) -> None:
    places = np.flatnonzero(~readable) + index
    if not len(places):
        return
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    for part in np.split(places, breaks):
        start, end = int(part[0]), int(part[-1]) + 1
        if order.unreadable and order.unreadable[-1][1] == start:
            start = order.unreadable.pop()[0]
        order.unreadable.append((start, end))


def _drop_tail(runs: list[Run], order: Order) -> list[Run]:
    """Remove runs after the last record with a magic, which is written last: they were never finished."""
    while runs:
        run = runs[-1]
        count = run.length
        while count and run.start + count - 1 in order.without_magic:
            count -= 1
        if count:
            runs[-1] = run._replace(length=count)
            break
        runs.pop()
    end = runs[-1].end if runs else 0
    order.without_magic = {place for place in order.without_magic if place < end}
    order.unreadable = [(start, behind) for start, behind in order.unreadable if start < end]
    return runs


def _rises(runs: list[Run]) -> bool:
    return all(before.last < after.first for before, after in pairwise(runs))


def _sort(runs: list[Run], order: Order) -> list[Run]:
    usual = _usual_distances(runs)
    in_backbone = _backbone(runs, usual)
    backbone = [run for run, chosen in zip(runs, in_backbone, strict=True) if chosen]
    kept = list(backbone)
    left = sorted((run for run, chosen in zip(runs, in_backbone, strict=True) if not chosen), key=lambda run: run.first)
    # A neighbour may be elsewhere too: go in both directions.
    for _ in range(2):
        rest = []
        for run in left:
            if _fills_hole(run, kept, usual):
                insort(kept, run, key=lambda each: each.first)
                order.moved.append(run)
            else:
                rest.append(run)
        left = rest[::-1]
    for run in left:
        number = _number_of_place(run, backbone, kept) if run.length == 1 else None
        if number is None:
            order.misfits.append(run)
        else:
            order.renumbered[run.start] = number
            insort(kept, Run(run.start, 1, *number), key=lambda each: each.first)
    order.misfits.sort()
    return kept


Distance = tuple[int, int]
"""Lease id, and the distance between numbers and slots."""


def _distance(run: Run) -> Distance:
    return run.lease_id, run.sequence_number - run.start


def _usual_distances(runs: list[Run]) -> set[Distance]:
    """The distances of more than one record: records with one of them have their original number and slot."""
    usual = {_distance(run) for run in runs if run.length > 1}
    return usual | {_distance(after) for before, after in pairwise(runs) if _distance(before) == _distance(after)}


def _backbone(runs: list[Run], usual: set[Distance]) -> list[bool]:
    """Mark the runs in the ascending chain of numbers with the most records.

    Of equal chains, prefer the one with the usual distances.
    """
    bounds = sorted({run.last for run in runs})
    best: list[tuple[int, int]] = [(0, -1)] * (len(bounds) + 1)  # Fenwick tree of (weight, run), by last number
    previous: list[int] = []
    top = (0, -1)
    for index, run in enumerate(runs):
        at = bisect_left(bounds, run.first)
        found = (0, -1)
        while at:
            found = max(found, best[at])
            at &= at - 1
        previous.append(found[1])
        reached = (found[0] + 2 * run.length + (_distance(run) in usual), index)
        top = max(top, reached)
        at = bisect_left(bounds, run.last) + 1
        while at < len(best):
            best[at] = max(best[at], reached)
            at += at & -at
    chosen = [False] * len(runs)
    at = top[1]
    while at >= 0:
        chosen[at] = True
        at = previous[at]
    return chosen


def _fills_hole(run: Run, kept: list[Run], usual: set[Distance]) -> bool:
    """Return True if no kept record has a number of `run`, and a neighbour or its slot confirms these numbers."""
    at = bisect_left(kept, run.first, key=lambda each: each.first)
    before = kept[at - 1] if at else None
    after = kept[at] if at < len(kept) else None
    if (before is not None and before.last >= run.first) or (after is not None and run.last >= after.first):
        return False
    attached = (before is not None and before.is_followed_by(run)) or (after is not None and run.is_followed_by(after))
    return attached or run.length > 1 or _distance(run) in usual


def _number_of_place(run: Run, backbone: list[Run], kept: list[Run]) -> RecordNumber | None:
    """The original number of the only record of `run`, by its slot in the backbone; None if unclear."""
    at = bisect_left(backbone, run.start, key=lambda each: each.start)
    if not at:
        return None
    before = backbone[at - 1]
    number = RecordNumber(before.lease_id, before.sequence_number + run.start - before.start)
    if at < len(backbone) and backbone[at].first <= number:
        return None
    taken = bisect_left(kept, number, key=lambda each: each.last)
    return None if taken < len(kept) and kept[taken].first <= number else number
