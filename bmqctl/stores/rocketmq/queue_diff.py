"""Comparison of the consume queues of two RocketMQ stores, a chunk of entries at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.rocketmq.read.files import QueueFiles, StoreFiles
from bmqctl.stores.rocketmq.read.queues import entry_chunks
from formats.rocketmq.files.consume_queue import FILLER

__all__ = ["QueueDiff", "QueueSide", "compare_queues"]

_NEVER: Final = 1 << 62

Entry = tuple[int, int, int]
"""Log offset, size and tags code."""


class QueueSide(NamedTuple):
    """A queue's messages in one store: the offsets of the first and the next one, and how many only it has."""

    begin: int
    end: int
    alone: int


class QueueDiff(NamedTuple):
    """A queue that differs; a side is None where the queue is missing.

    `different` counts the offsets at which the entries of both differ. `first` is the first difference, with both
    entries.
    """

    topic: str
    queue_id: int
    sides: tuple[QueueSide | None, QueueSide | None]
    different: int
    first: int
    entries: tuple[Entry | None, Entry | None]


class _Entries(NamedTuple):
    """Entries of a queue, with their offsets, in order."""

    numbers: NDArray[np.int64]
    entries: NDArray[Any]

    def where(self, chosen: NDArray[Any] | slice) -> _Entries:
        return _Entries(self.numbers[chosen], self.entries[chosen])


class _Cursor:
    """A queue's entries for messages from a log offset on; `told` is how far they have been read."""

    def __init__(self, queue: QueueFiles | None, log_begin: int) -> None:
        self._chunks = iter(()) if queue is None else _entries_from(queue, log_begin)
        self._rest: _Entries | None = None
        self.told = -1
        self.begin: int | None = None
        self.end = 0
        self.alone = 0

    def advance(self) -> None:
        found = next(self._chunks, None)
        self.told = _NEVER if found is None else int(found.numbers[-1]) + 1
        if found is not None:
            self.begin = int(found.numbers[0]) if self.begin is None else self.begin
            self.end = self.told
            self._rest = found

    def take(self, end: int) -> _Entries | None:
        rest = self._rest
        if rest is None:
            return None
        count = int(np.searchsorted(rest.numbers, end))
        self._rest = rest.where(slice(count, None)) if count < len(rest.numbers) else None
        return rest.where(slice(count)) if count else None


def compare_queues(a: StoreFiles, b: StoreFiles, log_begin: int) -> Iterator[QueueDiff]:
    """Yield the queues that differ for messages from `log_begin` on. Raises `OSError` and `NotAStoreFile`."""
    sides = [{queue[:2]: queue for queue in store.queues()} for store in (a, b)]
    for topic, queue_id in sorted(sides[0].keys() | sides[1].keys()):
        found = _compare(topic, queue_id, [side.get((topic, queue_id)) for side in sides], log_begin)
        if found is not None:
            yield found


def _compare(topic: str, queue_id: int, queues: list[QueueFiles | None], log_begin: int) -> QueueDiff | None:
    cursors = [_Cursor(queue, log_begin) for queue in queues]
    different = 0
    first: tuple[int, tuple[Entry | None, Entry | None]] | None = None
    told = -1
    while told < _NEVER:
        for cursor in cursors:
            if cursor.told <= told:
                cursor.advance()
        told = min(cursor.told for cursor in cursors)
        ours, theirs = (cursor.take(told) for cursor in cursors)
        if ours is not None and theirs is not None:
            _, at_a, at_b = np.intersect1d(ours.numbers, theirs.numbers, assume_unique=True, return_indices=True)
            is_other = ours.entries[at_a] != theirs.entries[at_b]
            different += int(np.count_nonzero(is_other))
            equal_a, equal_b = at_a[~is_other], at_b[~is_other]
            alone = len(ours.numbers) - len(at_a), len(theirs.numbers) - len(at_b)
            ours, theirs = _without(ours, equal_a), _without(theirs, equal_b)
        else:
            alone = _count(ours), _count(theirs)
        for cursor, count in zip(cursors, alone, strict=True):
            cursor.alone += count
        if first is None:
            first = _first(ours, theirs)
    if first is None:
        return None
    a, b = (
        None if queue is None else QueueSide(cursor.begin or 0, cursor.end, cursor.alone)
        for queue, cursor in zip(queues, cursors, strict=True)
    )
    return QueueDiff(topic, queue_id, (a, b), different, *first)


def _count(entries: _Entries | None) -> int:
    return 0 if entries is None else len(entries.numbers)


def _without(entries: _Entries, at: NDArray[Any]) -> _Entries:
    left = np.ones(len(entries.numbers), np.bool_)
    left[at] = False
    return entries.where(left)


def _first(ours: _Entries | None, theirs: _Entries | None) -> tuple[int, tuple[Entry | None, Entry | None]] | None:
    numbers = [int(side.numbers[0]) for side in (ours, theirs) if side is not None and len(side.numbers)]
    if not numbers:
        return None
    first = min(numbers)
    a, b = (
        tuple(side.entries[0].tolist())
        if side is not None and len(side.numbers) and int(side.numbers[0]) == first
        else None
        for side in (ours, theirs)
    )
    return first, (a, b)


def _entries_from(queue: QueueFiles, log_begin: int) -> Iterator[_Entries]:
    """Yield the entries for messages from a log offset on, without the fillers before a queue's begin."""
    for index, entries in entry_chunks(queue):
        is_filler = (entries["physical_offset"] == FILLER.physical_offset) & (entries["size"] == FILLER.size)
        there = np.flatnonzero((entries["physical_offset"] >= log_begin) & (entries["size"] > 0) & ~is_filler)
        if len(there):
            yield _Entries(there + index, entries[there])
