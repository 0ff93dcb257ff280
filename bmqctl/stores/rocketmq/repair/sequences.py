"""The numbers of messages in their queues: where some are missing, and which of them are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bmqctl.stores.rocketmq.check.queues import QueueCheck
from bmqctl.stores.rocketmq.read.derived import Rows
from bmqctl.stores.rocketmq.repair.parts import Note, Patch

__all__ = ["Hole", "Sequences"]

_NUMBER_AT = 20


class Hole(NamedTuple):
    """Numbers of a queue that are missing, from `begin` to before `end`: between two offsets of the log."""

    key: int
    begin: int
    end: int
    low: int
    high: int


@dataclass
class _Last:
    """The number and the offset of the last message of a queue."""

    number: int
    offset: int


class Sequences:
    """The numbers of all queues, of records that come in the order of the log; `queues` are the store's.

    A number that contradicts the queue's entry is corrected. Where numbers go back, the queue was removed and made
    again.
    """

    def __init__(self, queues: QueueCheck) -> None:
        self._queues = queues
        self._last: dict[int, _Last] = {}
        self.holes: list[Hole] = []
        self.patches: list[Patch] = []
        self.restored: list[Note] = []

    def records(self, rows: Rows) -> None:
        """Take the next records."""
        if not len(rows.queues):
            return
        ordered = rows.where(np.argsort(rows.queues, kind="stable"))
        begins = np.append(0, np.flatnonzero(np.diff(ordered.queues)) + 1).tolist()
        for begin, end in zip(begins, [*begins[1:], len(ordered.queues)], strict=True):
            self._queue(int(ordered.queues[begin]), ordered.where(slice(begin, end)))

    def _queue(self, key: int, rows: Rows) -> None:
        last = self._last.get(key)
        first = int(rows.numbers[0]) if last is None else last.number + 1
        if (rows.numbers == np.arange(first, first + len(rows.numbers))).all():
            self._last[key] = _Last(int(rows.numbers[-1]), int(rows.offsets[-1]))
            return
        for number, offset, size in zip(rows.numbers.tolist(), rows.offsets.tolist(), rows.sizes.tolist(), strict=True):
            self._record(key, number, offset, size)

    def _record(self, key: int, number: int, offset: int, size: int) -> None:
        last = self._last.get(key)
        if last is None or number == last.number + 1:
            self._last[key] = _Last(number, offset)
            return
        wanted = last.number + 1
        if self._queues.entry_offset(key, wanted) == offset:
            topic, queue_id = self._queues.name(key)
            self.patches.append(Patch(offset + _NUMBER_AT, wanted.to_bytes(8, "big")))
            self.restored.append(Note(offset, size, "number", f"said to be {number}", topic, queue_id, wanted))
            number = wanted
        elif self._queues.entry_offset(key, number) not in (None, offset):
            # The entry names another record: this one belongs elsewhere.
            return
        elif number > wanted:
            self.holes.append(Hole(key, wanted, number, last.offset, offset))
        self._last[key] = _Last(number, offset)
