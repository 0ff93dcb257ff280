# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The rollovers of a partition: when a file is full, live records move to a new set of files, with their numbers.

The old set goes to the archive (source: mqbs::FileStore::rollover). Few messages are copied at once; very many in
slices (`broker.bmq.partition.sliced_rollover`), while posts may have to wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from broker.bmq.core.messages import Full, Held
from broker.bmq.core.work import Task, Work
from broker.bmq.partition.file_sets import FileSets
from broker.bmq.partition.held_records import HeldRecords
from broker.bmq.partition.kept_records import KeptRecords
from broker.bmq.partition.records import PartitionRecords
from broker.bmq.partition.room import (
    EARLY_PART,
    FILE_HEADERS_SIZE_MAX,
    RECORDS_LEFT_MIN,
    SYNC_POINTS,
    PartitionRoom,
    WantedRoom,
)
from broker.bmq.partition.sliced_rollover import SlicedRollover
from broker.bmq.partition.tight import Tight
from broker.bmq.partition.tight_rollover import TightRollover
from broker.bmq.partition.unkept_confirms import unkept_records
from broker.bmq.partition.waiting_posts import WaitingPosts
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.rollover import Rollover, copy_sync_point
from broker.bmq.store.sieve import JournalSieve
from broker.common.clock import Now
from broker.common.faults import Change
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import SyncPointType

__all__ = ["Rollovers"]

log: Final = logging.getLogger("broker.partition")

# A rollover must free at least this part of a file (mqbs::FileStore, 20 percent).
FREED_PART_MIN: Final = 0.2

# Time from a failed rollover to the next attempt.
RETRY_MS: Final = 1000

_NOTHING_WANTED: Final = WantedRoom()


class Rollovers:
    """Decides when a partition rolls over, and changes its files.

    `before` is called when the old files have all records; `after` when the new ones are complete, with their offset
    for replicas. Long tasks are done with `work`, at once without it.
    """

    __slots__ = (
        "_declined_at",
        "_is_sifting",
        "_kept",
        "_not_before_ms",
        "_purges",
        "_waiting",
        "after",
        "before",
        "now",
        "partition_id",
        "records",
        "room",
        "sets",
        "sieve",
        "work",
    )

    def __init__(
        self, records: PartitionRecords, room: PartitionRoom, kept: KeptRecords, sets: FileSets, now: Now
    ) -> None:
        self.partition_id = records.partition_id
        self.records = records
        self.room = room
        self.sets = sets
        self.now = now
        self.work: Work | None = None
        self.sieve = JournalSieve()
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[int], None] = lambda start: None
        self._kept = kept
        self._is_sifting = False  # in a task
        self._purges: list[Task] = []
        self._waiting = WaitingPosts(self)
        self._not_before_ms = now.ms  # no rollover begins by itself before
        self._declined_at = 0  # number of messages alive when a rollover was not worthwhile

    def change(self) -> Change:
        """Return the change of a rollover, which must not be continued after a partial failure."""
        return Change(f"the rollover of partition {self.partition_id}", Full)

    # -- making room

    def make_room(self, size: int, due: int) -> None:
        """Reserve disk for a message of `size` bytes in DATA and everything then due; roll over if a file is full.

        Raises `Full` (STORAGE_FAILURE), or `Held` while posts have to wait.
        """
        records, room = self.records, self.room
        if not room.available:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is disabled")
        if room.tight is not None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is full and has to be drained")
        if self.is_closed_to_posts:
            raise Held
        files, limits = records.files, room.limits
        count = due + room.spare_records
        if (
            room.closed
            or files.data_end + size > limits.data
            or files.journal_end + count * JOURNAL_RECORD_SIZE > limits.journal
        ):
            if FILE_HEADERS_SIZE_MAX + size > limits.data:
                raise Full("STORAGE_FAILURE", f"{size} bytes do not fit into a DATA file of {limits.data} bytes")
            room.closed = True
            # So that the next message asks for room, too.
            room.revoke()
            wanted = WantedRoom(data=size, records=count - records.due)
            if self._kept.is_copied and not room.full and self._may_slice():
                self._begin_slices(1 - FREED_PART_MIN, wanted)
                raise Held
            self.free(wanted)
            room.closed = False
        elif files.journal_end > room.journal_late:
            self._roll_over_early(count - records.due)
        # While posts wait, each asks for room, so that none overtakes them.
        room.reserve(size, due, grants=not self._waiting)
        files = records.files
        journal_end = files.journal_end + count * JOURNAL_RECORD_SIZE
        if (
            (
                files.data_end > limits.data * EARLY_PART
                or (
                    journal_end > limits.journal * EARLY_PART
                    and (records.message_count + records.due) * JOURNAL_RECORD_SIZE
                    < limits.journal * (1 - FREED_PART_MIN)
                )
            )
            and not self._kept.is_copied
            and self.now.ms >= self._not_before_ms
            and self._may_slice()
        ):
            with suppress(Full):
                self._begin_slices(1 - FREED_PART_MIN)

    def has_room_for(self, size: int, due: int) -> bool:
        return not (self.is_closed_to_posts or self._waiting) and self.room.has_room_for(size, due)

    def make_room_at_start(self, *, is_begun: bool) -> None:
        """Make room for a lease in files that have none; unless it `is_begun`, its first record is yet to be written.

        Serves a partition that its previous primary, one of the reference, has left without reserved room (`Tight`).
        """
        room = self.room
        if room.exceeds_limits():
            with suppress(Full), self.change():
                self._move(_NOTHING_WANTED, part_max=1.0)
                return
            # More is alive than fits. Replicas that hold the files until here need not hold a byte more.
            room.widen_limits()
        least, limit = room.least, room.limits.journal
        if least > limit:
            # Without a walk over all records, while others wait.
            if self.records.rolling is not None:
                self.records.rolling.complete()
            reason = f"the journal file of partition {self.partition_id} is full, {least} of {limit} bytes reserved"
        else:
            try:
                with self.change():
                    self._move(_NOTHING_WANTED, part_max=1.0)
                return
            except Full as full:
                if room.has_room(not is_begun):
                    raise  # the disk is full
                reason = str(full)
        journal = self.records.files.journal
        if not is_begun:
            end = self.records.files.journal_end + JOURNAL_RECORD_SIZE
            if end > room.limits.journal or not journal.reserve(end):
                raise Full("STORAGE_FAILURE", reason)
            self.records.sync_point()
        room.tell_full(reason)
        room.revoke()
        room.tight = tight = Tight(self)
        tight.begin()

    def _roll_over_early(self, records: int) -> None:
        """Roll over as early as the reference does, if the new files then have room for as much, and for `records`."""
        if self.now.ms < self._not_before_ms or self.records.rolling is not None or self._may_slice():
            return
        try:
            with self.change():
                self._move(WantedRoom(records=max(records, RECORDS_LEFT_MIN - self.records.due)))
        except Full:
            self._not_before_ms = self.now.ms + RETRY_MS

    def free(self, wanted: WantedRoom) -> None:
        """Roll over at once, with room for `wanted` beyond what is due.

        Raises `Full`, the old files still in use, if that would not help or the disk is full. Finding out takes a walk
        over the whole journal, so the next try waits for the next tick.
        """
        records, room = self.records, self.room
        if room.full or room.tight is not None:
            raise Full("STORAGE_FAILURE", room.full or f"partition {self.partition_id} is full")
        try:
            with self.change():
                if isinstance(records.rolling, SlicedRollover) and not records.rolling.is_changed:
                    records.rolling.change()
                    room.check(wanted)
                elif self._is_declined(records.message_count):
                    reason = f"partition {self.partition_id} is full, and a rollover would free too little"
                    raise Full("STORAGE_FAILURE", reason)
                else:
                    self._move(wanted)
        except Full as full:
            room.tell_full(str(full))
            raise
        room.alarmed = False

    def roll_over(self) -> None:
        """Roll over, even if that frees little; finish later if there are very many messages.

        Raises `Full` if the disk has no room for them.
        """
        if self.records.rolling is not None:
            return
        if self.room.tight is not None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is full and rolls over when it is drained")
        self._declined_at = 0
        if self._may_slice():
            self._begin_slices(1.0)
            return
        with self.change():
            self._move(_NOTHING_WANTED, part_max=1.0)

    # -- in slices

    def sift(self) -> None:
        """Look for what a rollover can leave out; called a few times a second, so that little is left at its start."""
        if not self._is_sifting and self.sieve.advance(self.records.files) and self.work is not None:
            self._is_sifting = True
            self.work.add(self._sift(self.work))

    def _sift(self, work: Work) -> Task:
        while self.sieve.advance(self.records.files):
            work.left = 0
            yield
        self._is_sifting = False

    def _may_slice(self) -> bool:
        if self.work is None or self.records.rolling is not None:
            return False
        count = self.records.message_count
        return count > self.work.amount and not self._is_declined(count)

    def _is_declined(self, count: int) -> bool:
        return count > self._declined_at * (1 - FREED_PART_MIN / 2) > 0

    def _begin_slices(self, part_max: float, wanted: WantedRoom = _NOTHING_WANTED) -> None:
        """Begin a rollover in slices. Raises `Full` if there is no disk for its files."""
        assert self.work is not None
        with self.change():
            try:
                fresh = self.sets.create(self.room.limits)
            except Full:
                self._not_before_ms = self.now.ms + RETRY_MS
                raise
            log.info("Partition [%d]: Initiating rollover of %s", self.partition_id, self.records.files.journal.name)
            holds = self._kept.is_copied
            self.records.rolling = SlicedRollover(self, self.work, fresh, part_max, wanted, holds=holds)
            if holds:
                # So that the next message asks for room.
                self.room.revoke()
            self.work.add(self.records.rolling.task())

    def roll_slowly(self, rolling: TightRollover) -> None:
        self.records.rolling = rolling
        if self.work is not None:
            self.work.add(rolling.task())

    def rollover_is_over(self) -> None:
        records = self.records
        rolling, records.rolling = records.rolling, None
        if isinstance(rolling, SlicedRollover):
            self._declined_at = records.message_count if rolling.is_declined else 0
            if not rolling.refusal:
                return
            self._not_before_ms = self.now.ms + RETRY_MS
            if self.room.closed:
                self.room.tell_full(rolling.refusal)
            if records.held is not None:
                records.release_held(records.held.number)
        self._let_posts_in()

    def hold_records(self) -> None:
        self.records.hold_in(HeldRecords(self.room.held_max, self.room.limits.qlist, self.records.sequence_number))

    # -- what waits for a rollover

    @property
    def is_closed_to_posts(self) -> bool:
        """True if posts have to wait: for a rollover, or for earlier posts."""
        return self.is_copying or self._waiting.are_first

    @property
    def is_copying(self) -> bool:
        """True if a rollover is copying messages alive now, even if they are removed meanwhile."""
        rolling = self.records.rolling
        return rolling is not None and rolling.holds and not rolling.is_changed

    def when_open(self, post: Callable[[], None], size: int) -> None:
        """Call `post`, which takes `size` bytes of memory, when messages are taken again, in the order of the calls.

        Raises `Full` if too many wait already.
        """
        self._waiting.add(post, size)

    def _let_posts_in(self) -> None:
        if self._waiting and self.work is not None:
            self.work.add(self._waiting.let_in(self.work))

    def begin_purge(self, task: Task) -> None:
        self._purges.append(task)

    def take_purges(self) -> list[Task]:
        """Take the unfinished purges, whose messages must not be carried over: a restart counts them as removed."""
        purges, self._purges = self._purges, []
        return purges

    # -- changing files

    def _move(self, wanted: WantedRoom, part_max: float = 1 - FREED_PART_MIN) -> None:
        """Copy to new files, of which at most `part_max` of the limits may be in use."""
        records, limits = self.records, self.room.limits
        if records.rolling is not None:
            records.rolling.complete()
        for task in self.take_purges():
            assert self.work is not None, "purges are long tasks"
            self.work.complete(task)
        alive = {key + guid: message for key, store in records.stores.items() for guid, message in store.items()}
        for message in alive.values() if records.offsets_from else ():
            message.offset -= records.offsets_from
        records.offsets_from = 0
        old = records.files
        plan = Rollover(old, alive, set(records.stores), self.sieve.rows(old))
        for name, kept, size, limit, kept_part_max in (
            (
                "journal",
                plan.journal_bytes + records.due * JOURNAL_RECORD_SIZE,
                (wanted.records + SYNC_POINTS) * JOURNAL_RECORD_SIZE,
                limits.journal,
                part_max,
            ),
            ("data", plan.data_bytes, wanted.data, limits.data, part_max),
            ("qlist", plan.qlist_bytes, wanted.qlist, limits.qlist, 1.0),
        ):
            if kept > limit * kept_part_max or FILE_HEADERS_SIZE_MAX + kept + size > limit:
                reason = f"the {name} file of partition {self.partition_id} is full, {kept} of {limit} bytes in use"
                raise Full("STORAGE_FAILURE", reason)
        log.info("Partition [%d]: Initiating rollover of %s", self.partition_id, old.journal.name)
        try:
            timestamp = self.sets.timestamp()
        except OSError as error:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no new files: {error.strerror}") from None
        fresh = plan.copy(self.partition_id, timestamp, limits, records_due=records.due + SYNC_POINTS)
        if fresh is None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no disk space for new files")
        self.change_files(fresh, lambda first_sync_point: plan.finish(fresh, first_sync_point), offsets_from=0)
        self.sets.retire(old)

    def change_files(
        self, fresh: PartitionFiles, write_header: Callable[[int], None], offsets_from: int | None = None
    ) -> None:
        """Write to new files, which have all that is alive; `write_header` gets the offset of their first sync point.

        That is a copy of the one that ends the old files, and replicas write it by themselves. They are sent what
        follows: first, a sync point of the new files.
        """
        records, room = self.records, self.room
        old, held = records.files, records.held
        if held is not None:
            records.sequence_number = held.number
        is_ended = old.journal.reserve(old.journal_end + JOURNAL_RECORD_SIZE)
        if is_ended:
            records.sync_point(SyncPointType.ROLLOVER)
        self.before()
        if self._kept.is_copied:
            self._kept.unkept_before = self.unkept_records()
        records.files = fresh
        records.offsets_from = records.offsets_from + old.data_end if offsets_from is None else offsets_from
        room.revoke()
        first_sync_point = fresh.journal_end
        if is_ended:
            copy_sync_point(fresh, old.journal.buffer[old.journal_end - JOURNAL_RECORD_SIZE : old.journal_end])
        else:
            records.sync_point()
        room.closed = room.alarmed = False
        self.sets.keep_removals(old)
        self.sets.finish(fresh, lambda: write_header(first_sync_point))
        # Not before: anything after the first sync point marks the new files as whole.
        self.after(fresh.journal_end)
        records.sync_point()
        records.release_held(records.sequence_number)
        log.info("Partition [%d]: ROLLOVER COMPLETE to %s", self.partition_id, fresh.journal.name)
        self._let_posts_in()

    def unkept_records(self) -> bytes:
        """Return the last records of this lease that too few nodes are known to have."""
        records, kept = self.records, self._kept
        return unkept_records(records.files, records.primary_lease_id, kept.kept_number, kept.unkept_before)

    def give_up(self) -> None:
        """Write the records held back for a rollover: this node will soon stop being primary."""
        rolling = self.records.rolling
        if rolling is not None and not rolling.is_changed:
            rolling.give_up("another node becomes primary")
        tight, self.room.tight = self.room.tight, None
        if tight is not None:
            tight.give_up()

    def stop(self) -> None:
        self.give_up()
        if self.records.rolling is not None:
            self.records.rolling.forget_messages()
        self._waiting.clear()
        self._purges.clear()

    def close(self) -> None:
        rolling, tight = self.records.rolling, self.room.tight
        if rolling is not None and rolling.is_changed:
            rolling.complete()
        elif rolling is not None:
            rolling.give_up("the node stops")
        if tight is not None:
            tight.give_up()
