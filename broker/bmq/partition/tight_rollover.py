"""The rollover, in slices, of a partition without room for its reserved records (`broker.bmq.partition.tight`).

It carries over the messages that are alive in the files, as a replica does, and ignores later changes: all records of
such a partition are held in memory meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from typing import Final

from broker.bmq.core.messages import Message
from broker.bmq.core.work import Task, Work
from broker.bmq.partition.rollover_ports import RollingPartition
from broker.bmq.partition.room import SYNC_POINTS, SYNC_POINTS_KEPT
from broker.bmq.store.chunked import Chunked
from broker.bmq.store.moving import Moving
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.sliced_recovery import SlicedRecovery
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.keys import KEY_SIZE

__all__ = ["TightRollover"]

log: Final = logging.getLogger("broker.partition")

# Records examined, bytes copied, and messages updated in a unit of work.
ROWS_PER_UNIT: Final = 3
BYTES_PER_UNIT: Final = 4096
PLACED_PER_UNIT: Final = 4

# Amount done at once when no clients are served meanwhile.
ALL: Final = 1 << 40


class _Place:
    """A message alive in the files: its queue key and GUID, and its offset in DATA."""

    __slots__ = ("key", "offset")

    def __init__(self, key: bytes, offset: int) -> None:
        self.key = key
        self.offset = offset


class TightRollover:
    """One rollover to `fresh` files.

    `change` is called with the files and a function that writes their header, to put them into use; `ended` in any
    case. The rollover is abandoned if it frees no room, or if there is too little disk space (`has_no_disk`).
    """

    holds = False

    def __init__(
        self,
        partition: RollingPartition,
        fresh: PartitionFiles,
        change: Callable[[PartitionFiles, Callable[[int], None]], None],
        ended: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._work: Work | None = partition.work
        self._old = partition.records.files
        self._old_base = partition.records.offsets_from
        self._fresh = fresh
        self._change = change
        self._ended = ended
        self._alive: Chunked[_Place] = Chunked()  # by queue key and GUID
        self._moving: Moving | None = None
        self._units = ALL  # units that the next part may take
        self._parts = self._go()
        self.is_changed = False  # the new files are in use; the offsets of messages are updated after that
        self.is_over = False
        self.has_no_disk = False

    @property
    def old(self) -> tuple[PartitionFiles, int]:
        return self._old, self._old_base

    def removes(self, queue_key: bytes, message: Message) -> None:
        """Ignore a removal: its record waits in memory, and the files do not have it."""

    def task(self) -> Task:
        work = self._work
        assert work is not None
        while not self.is_over:
            while not work.may_go_on():
                yield
            self._units = work.left
            work.left -= next(self._parts, 0)
        # Freeing a million objects takes time, too.
        while self._alive:
            while not work.may_go_on():
                yield
            for _ in range(min(work.left * PLACED_PER_UNIT, len(self._alive))):
                self._alive.popitem()
            work.left = 0

    def complete(self) -> None:
        if self._work is not None:
            self._work.complete(self.task())
        while not self.is_over:
            self._units = ALL
            next(self._parts, 0)

    def give_up(self, reason: str) -> None:
        text = "Partition [%d]: rollover of %s abandoned: %s"
        log.warning(text, self._partition.partition_id, self._old.journal.name, reason)
        self._fresh.remove()
        self._end()

    def forget_messages(self) -> None:
        if self._moving is not None:
            self._moving.forget()

    def _end(self) -> None:
        self.is_over = True
        self._partition.rollover_is_over()
        self._ended()

    # -- the parts of the rollover; each yields the number of units that it took

    def _go(self) -> Iterator[int]:
        for purge in self._partition.take_purges():
            # The files already record the removals of these purges.
            for _ in purge:
                yield self._units
        moving = yield from self._find()
        if not (yield from self._move(moving)):
            self.has_no_disk = True
            self.give_up("no disk space for new files")
            return
        while self._partition.sets.removals.catch_up(self._old, self._partition.now.ms):
            yield self._units
        if not self._makes_room:
            self.give_up("it frees no space")
            return
        end = self._fresh.journal_end + SYNC_POINTS * JOURNAL_RECORD_SIZE
        if not self._fresh.journal.reserve(end):
            self.has_no_disk = True
            self.give_up("no disk space for new files")
            return
        assert len(self._alive) >= self._partition.records.message_count, "every message is in the files"
        self.is_changed = True
        self._change(self._fresh, moving.finish)
        yield self._units
        yield from self._place(moving)
        self._partition.sets.retire(self._old)
        self._end()

    def _find(self) -> Generator[int, None, Moving]:
        recovery = SlicedRecovery(self._old)
        while not recovery.is_read:
            recovery.advance(self._units * ROWS_PER_UNIT)
            yield self._units
        while not recovery.is_told:
            _, keys, _, offsets = recovery.alive(self._units * ROWS_PER_UNIT)
            self._alive.put(keys, map(_Place, keys, offsets.tolist()))
            yield self._units
        self._moving = Moving(self._old, self._fresh, self._alive.get, recovery.queues, 0)
        return self._moving

    def _move(self, moving: Moving) -> Generator[int, None, bool]:
        fresh = self._fresh
        while moving.rows_left:
            before, rows = fresh.data_end, self._units * ROWS_PER_UNIT
            if not moving.advance(rows, self._units * BYTES_PER_UNIT):
                return False
            if self._partition.sets.outlives_power:
                # In parts, since flushing everything at the end would take long.
                fresh.data.flush()
            yield 1 + rows // ROWS_PER_UNIT + (fresh.data_end - before) // BYTES_PER_UNIT
        return True

    @property
    def _makes_room(self) -> bool:
        end = self._fresh.journal_end + (SYNC_POINTS + SYNC_POINTS_KEPT) * JOURNAL_RECORD_SIZE
        return end < min(self._partition.room.limits.journal, self._old.journal_end)

    def _place(self, moving: Moving) -> Iterator[int]:
        """Update the messages' places; for some in the files only the removal is yet to be written."""
        partition = self._partition
        while not moving.is_placed:
            for place, start in moving.take(self._units * PLACED_PER_UNIT):
                assert isinstance(place, _Place)
                self._alive.take(place.key)
                message = partition.records.stores.get(place.key[:KEY_SIZE], {}).get(place.key[KEY_SIZE:])
                # It may have been removed and posted again in the meantime.
                if message is not None and message.offset < partition.records.offsets_from:
                    message.offset = partition.records.offsets_from + start
            yield self._units
