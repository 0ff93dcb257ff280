# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The rollover of a partition with very many messages, in slices: other work continues in the old files.

It begins before a file is full, and keeps pace with writes. If a file is full before it ends, the rest is done at once.

If the partition has copies, a replica does the same rollover by itself, and both must do it between the same two
records. So it begins when a file is full, and `holds` the partition: until the new files are in use, posts wait, and
records of confirms and removals are held back (`broker.bmq.partition.held_records`).
"""

from __future__ import annotations

import logging
from typing import Final

from broker.bmq.core.messages import Full, Message
from broker.bmq.core.work import Task, Work
from broker.bmq.partition.rollover_ports import RollingPartition
from broker.bmq.partition.room import SYNC_POINTS, WantedRoom
from broker.bmq.store.moving import Moving
from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.keys import KEY_SIZE

__all__ = ["SlicedRollover"]

log: Final = logging.getLogger("broker.partition")

# Records examined and bytes copied in a unit of work.
ROWS_PER_UNIT: Final = 3
BYTES_PER_UNIT: Final = 4096
PLACED_PER_UNIT: Final = 8

# The last records, processed together with the change of files.
LAST_ROWS: Final = 2


class SlicedRollover:
    """One rollover, which continues by itself after `begin`, unless `complete` is called."""

    def __init__(
        self,
        partition: RollingPartition,
        work: Work,
        fresh: PartitionFiles,
        part_max: float,
        wanted: WantedRoom,
        *,
        holds: bool,
    ) -> None:
        self._partition = partition
        self._work = work
        self._part_max = part_max
        self._wanted = wanted
        self.holds = holds
        self._old = partition.records.files
        self._old_base = partition.records.offsets_from
        self._fresh = fresh
        self._moving: Moving | None = None
        self._purges: list[Task] = []  # to be finished first
        self._written_to = self._old.journal_end
        self.refusal = ""  # the reason if it failed
        self.is_declined = False  # because it was not worthwhile
        self.is_changed = False  # the new files are in use; the offsets of messages are yet to be set
        self.is_over = False
        if not holds:
            self._begin_moving()

    @property
    def old(self) -> tuple[PartitionFiles, int]:
        return self._old, self._old_base

    def removes(self, queue_key: bytes, message: Message) -> None:
        moving = self._moving
        if moving is None or self.is_changed:
            return
        if self.holds:
            moving.outlives(queue_key, message.guid, message)
        else:
            moving.removes(queue_key, message.guid, message.offset)

    def task(self) -> Task:
        work = self._work
        while self._moving is None and not self.is_over:
            self._purges += self._partition.take_purges()
            if not self._purges:
                self._begin_moving()
                break
            yield from self._purges[0]
            self._purges[:1] = []
        while not self.is_over:
            if work.may_go_on():
                self._do_slice(work.left)
            else:
                # It may be over by the next slice, if completed at once.
                yield

    def complete(self) -> None:
        """Do the rest at once. Raises `Full` if the disk is full, or too much is alive for it to be worthwhile."""
        self._finish_purges()
        while not self.is_over:
            self._do_slice(1 << 20)
        if self.refusal:
            raise Full("STORAGE_FAILURE", self.refusal)

    def change(self) -> None:
        """Proceed until the new files are in use. Raises `Full` like `complete`."""
        self._finish_purges()
        while not (self.is_over or self.is_changed):
            self._do_slice(1 << 20)
        if self.refusal:
            raise Full("STORAGE_FAILURE", self.refusal)

    def forget_messages(self) -> None:
        if self._moving is not None:
            self._moving.forget()

    def _finish_purges(self) -> None:
        if self._moving is None:
            for purge in self._purges + self._partition.take_purges():
                self._work.complete(purge)
            self._purges.clear()
            self._begin_moving()

    def _begin_moving(self) -> None:
        partition = self._partition
        if self.holds:
            partition.hold_records()
        # If nothing is to come between, they are as they are now: what is purged meanwhile was alive.
        stores = dict(partition.records.stores) if self.holds else partition.records.stores

        def find(key: bytes) -> Message | None:
            store = stores.get(key[:KEY_SIZE])
            return store.get(key[KEY_SIZE:]) if store is not None else None

        journal = partition.sieve.rows(self._old)
        self._moving = Moving(self._old, self._fresh, find, stores, partition.records.offsets_from, journal=journal)

    def _do_slice(self, units: int) -> None:
        moving = self._moving
        assert moving is not None
        if self.is_changed:
            if not moving.is_placed:
                placed = moving.place(units * PLACED_PER_UNIT, self._partition.records.offsets_from)
                self._work.left -= 1 + placed // PLACED_PER_UNIT
                return
            self._partition.sets.retire(self._old)
            self.is_over = True
            self._partition.rollover_is_over()
            return
        before = moving.fresh.data_end
        rows = self._pace(units * ROWS_PER_UNIT)
        if not moving.advance(rows, max(units, 1) * BYTES_PER_UNIT):
            self.give_up(f"partition {self._partition.partition_id}: no disk space for new files")
            return
        if self._partition.sets.outlives_power:
            # In parts, since flushing everything at the end would take long.
            moving.fresh.data.flush()
        size = moving.fresh.data_end - before
        self._work.left -= 1 + rows // ROWS_PER_UNIT + size // BYTES_PER_UNIT
        if not self._is_worth_it():
            return
        if moving.rows_left <= LAST_ROWS:
            self._change_files()

    def _pace(self, rows: int) -> int:
        """Return the number of records to process so that the rollover ends before the journal is full."""
        if self.holds:
            return rows
        partition, end = self._partition, self._old.journal_end
        written = (end - self._written_to) // JOURNAL_RECORD_SIZE
        self._written_to = end
        room = (partition.room.limits.journal - end) // JOURNAL_RECORD_SIZE - partition.records.due
        assert self._moving is not None
        return max(rows, 2 * written, 2 * written * self._moving.rows_left // max(1, room))

    def _is_worth_it(self) -> bool:
        partition, fresh, wanted, limits = self._partition, self._fresh, self._wanted, self._partition.room.limits
        due = partition.records.due + partition.records.records_held
        for name, kept, size, limit in (
            (
                "journal",
                fresh.journal_end + due * JOURNAL_RECORD_SIZE,
                (wanted.records + SYNC_POINTS) * JOURNAL_RECORD_SIZE,
                limits.journal,
            ),
            ("data", fresh.data_end, wanted.data, limits.data),
        ):
            if kept > limit * self._part_max or kept + size > limit:
                self.is_declined = True
                self.give_up(
                    f"the {name} file of partition {partition.partition_id} is full, {kept} of {limit} bytes in use"
                )
                return False
        return True

    def _change_files(self) -> None:
        partition, moving = self._partition, self._moving
        assert moving is not None
        while moving.rows_left:
            if not moving.advance(moving.rows_left, 1 << 62):
                self.give_up(f"partition {partition.partition_id}: no disk space for new files")
                return
        fresh = moving.fresh
        records = partition.records.due + partition.records.records_held + SYNC_POINTS
        if not (
            fresh.journal.reserve(fresh.journal_end + records * JOURNAL_RECORD_SIZE)
            and fresh.qlist.reserve(fresh.qlist_end + partition.records.qlist_held)
        ):
            self.give_up(f"partition {partition.partition_id}: no disk space for new files")
            return
        self.is_changed = True
        partition.change_files(fresh, moving.finish)

    def give_up(self, reason: str) -> None:
        log.info(
            "Partition [%d]: rollover of %s abandoned: %s", self._partition.partition_id, self._old.journal.name, reason
        )
        self.refusal = reason
        self.is_over = True
        self._fresh.remove()
        self._partition.rollover_is_over()
