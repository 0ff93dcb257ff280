# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A partition as its primary writes it: one ordered stream of records under (lease id, sequence number).

When a file is full, the partition rolls over: live records move to a new set of files, with their
numbers, and the old set goes to the archive (source: mqbs::FileStore::rollover).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from broker.bmq.core.clocks import HeardRecord
from broker.bmq.core.messages import Full, Held, Message
from broker.bmq.core.payloads import Payloads
from broker.bmq.core.work import Task, Work
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
from broker.bmq.partition.unkept_confirms import UnkeptPurge, unkept_records
from broker.bmq.partition.waiting_posts import WaitingPosts
from broker.bmq.store.damage import Damage, partition_note
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.removals import Removals
from broker.bmq.store.rollover import Rollover, copy_sync_point
from broker.bmq.store.sieve import JournalSieve
from broker.common.clock import Now
from broker.common.faults import Change
from formats.bmq.disk.data import data_record_frame
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, QueueOpType, SyncPointType
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.qlist import build_queue_record
from formats.schema import Buffer

__all__ = ["PartitionState", "StoredPartition"]

log: Final = logging.getLogger("broker.partition")

# A rollover must free at least this part of a file to be worthwhile (mqbs::FileStore, 20 percent).
FREED_PART_MIN: Final = 0.2

# Time from a failed rollover to the next attempt.
RETRY_MS: Final = 1000

_NOTHING_WANTED: Final = WantedRoom()


class PartitionState(NamedTuple):
    """The usage of a partition, for administration; sizes are in bytes."""

    partition_id: int
    primary_lease_id: int
    sequence_number: int
    journal_bytes: int
    data_bytes: int
    messages: int


class StoredPartition:
    """The write side of one partition.

    `kept` are the records that enough nodes have. With `outlives_power`, new files are flushed to the disk before
    they replace others. While there is `damage`, this node may have lost records that it has acknowledged. `capacity`
    are the sizes of the files in which it follows another primary.
    """

    # Slots, since an object with so many attributes is slower with a dictionary.
    __slots__ = (
        "_declined_at",
        "_is_sifting",
        "_not_before_ms",
        "_purges",
        "_waiting",
        "_work",
        "active",
        "after_rollover",
        "before_rollover",
        "capacity",
        "damage",
        "heard",
        "hears",
        "kept",
        "make_timestamp",
        "now",
        "outlives_power",
        "partition_id",
        "payloads",
        "records",
        "removals",
        "room",
        "sieve",
    )

    def __init__(
        self,
        partition_id: int,
        node_id: int,
        files: PartitionFiles,
        limits: PartitionLimits,
        now: Now,
        make_timestamp: Callable[[str], str],
        *,
        outlives_power: bool = False,
        damage: Damage | None = None,
    ) -> None:
        self.damage = damage or Damage(files.directory, partition_note(partition_id))
        self.partition_id = partition_id
        self.records = PartitionRecords(partition_id, node_id, files, now)
        self.room = PartitionRoom(self.records, limits)
        self.capacity = limits
        self.now = now
        self.make_timestamp = make_timestamp
        self.outlives_power = outlives_power
        self.removals = Removals(files.directory, partition_id, make_timestamp)
        self.sieve = JournalSieve()
        self._is_sifting = False  # in a task
        self._purges: list[Task] = []
        self._work: Work | None = None
        self._waiting = WaitingPosts(self)  # for a rollover
        self._not_before_ms = self.now.ms  # time before which no rollover begins by itself
        self._declined_at = 0  # number of messages alive when a rollover was not worthwhile
        self.payloads = Payloads(partition_id, self.records.stores)
        self.kept = KeptRecords(partition_id, now)
        self.active = False  # True if this node is its primary, and may write
        self.hears = False  # True if a live record of the primary came since the last tick
        self.heard: HeardRecord | None = None  # the last such record
        # Called when the old files have all records; when the new ones are complete, with their offset for replicas.
        self.before_rollover: Callable[[], None] = lambda: None
        self.after_rollover: Callable[[int], None] = lambda start: None

    @property
    def files(self) -> PartitionFiles:
        return self.records.files

    @property
    def primary_lease_id(self) -> int:
        return self.records.primary_lease_id

    @property
    def sequence_number(self) -> int:
        return self.records.sequence_number

    # -- leases and sync points

    def begin_lease(self, primary_lease_id: int) -> bool:
        """Write the first record of a lease, a sync point, before messages are restored; return False without room."""
        files = self.records.files
        if not files.journal.reserve(files.journal_end + JOURNAL_RECORD_SIZE):
            return False
        # The last record is no longer another primary's.
        self._hear()
        self.records.primary_lease_id = primary_lease_id
        self.records.sequence_number = 0
        self.records.sync_point()
        return True

    def activate(self, primary_lease_id: int) -> None:
        """Become primary under a lease, with new sequence numbers. The first record is a sync point, unless present."""
        is_begun = primary_lease_id == self.records.primary_lease_id and self.records.sequence_number == 1
        assert is_begun or primary_lease_id > self.records.primary_lease_id, "lease ids only grow"
        self.records.primary_lease_id = primary_lease_id
        self.records.sequence_number = self.records.synced_at = int(is_begun)
        self.kept.begin_lease()
        self.active = True
        self.records.out = self.records.files
        if self.room.has_room(not is_begun) and self.room.reserve_journal(not is_begun):
            if not is_begun:
                self.records.sync_point()
            return
        if self.room.exceeds_limits():
            with suppress(Full), self.rollover_change():
                self._move(_NOTHING_WANTED, part_max=1.0)
                return
            # More is alive than fits. Replicas that hold the files until here need not hold a byte more.
            self.room.widen_limits()
        least, limit = self.room.least, self.room.limits.journal
        if least > limit:
            # No need to walk over all that is there, while others wait.
            if self.records.rolling is not None:
                self.records.rolling.complete()
            reason = f"the journal file of partition {self.partition_id} is full, {least} of {limit} bytes reserved"
            self._begin_tight(reason, is_begun=is_begun)
            return
        try:
            with self.rollover_change():
                self._move(_NOTHING_WANTED, part_max=1.0)
        except Full as full:
            if self.room.has_room(not is_begun):
                raise  # there is no disk
            self._begin_tight(str(full), is_begun=is_begun)

    def pass_numbers(self, last: int) -> bool:
        """Use up the lease's sequence numbers up to `last` with sync points; return False if there is no room."""
        records = last - self.records.sequence_number
        if records <= 0:
            return True
        if self.records.held is not None or not (self.room.has_room(records) and self.room.reserve_journal(records)):
            return False
        for _ in range(records):
            self.records.sync_point()
        return True

    def _begin_tight(self, reason: str, *, is_begun: bool) -> None:
        """Serve a partition left without reserved room by its previous primary, one of the reference."""
        if not is_begun:
            end = self.records.files.journal_end + JOURNAL_RECORD_SIZE
            if end > self.room.limits.journal or not self.records.files.journal.reserve(end):
                raise Full("STORAGE_FAILURE", reason)
            self.records.sync_point()
        self.room.tell_full(reason)
        self.room.revoke()
        self.room.tight = tight = Tight(self)
        tight.begin()

    def end_tight(self) -> bool:
        """Take messages again if everything due has room, and disk; return True if so."""
        if not self.room.reserve_due():
            return False
        self.room.tight = None
        self.room.full = ""
        self.room.alarmed = self.room.closed = False
        log.info("Partition [%d]: has room for all reserved records", self.partition_id)
        return True

    def give_up_rollover(self) -> None:
        """Write the records held back for a rollover, since this node will soon stop being primary."""
        rolling = self.records.rolling
        if rolling is not None and not rolling.is_changed:
            rolling.give_up("another node becomes primary")
        tight, self.room.tight = self.room.tight, None
        if tight is not None:
            tight.give_up()

    def unkept_records(self) -> bytes:
        """Return the last records of this lease that too few nodes are known to have."""
        records, kept = self.records, self.kept
        return unkept_records(records.files, records.primary_lease_id, kept.kept_number, kept.unkept_before)

    def unkept_purges(self) -> list[UnkeptPurge]:
        """Return the purges of this lease that too few nodes are known to have."""
        return self.kept.purges.behind(self.kept.kept_number)

    def forget_restored(self) -> None:
        """Forget state restored for a lease that does not begin here."""
        self.records.stores.clear()
        self.records.due = 0

    def deactivate(self) -> None:
        """Stop being primary: drop waiting posts and queues."""
        self.give_up_rollover()
        if self.records.rolling is not None:
            self.records.rolling.forget_messages()
        self.records.offsets_from = 0
        self._waiting.clear()
        self.active = False
        self.heard = HeardRecord(self.now.wall_s, self.now.ms)
        self.kept.forget_awaiting()
        self.records.stores.clear()
        self._purges.clear()
        self.payloads.clear()
        self.records.due = 0
        self.room.clear()

    def tick(self) -> None:
        """Write a sync point if anything was written since the last one; called once a second."""
        self._hear()
        if not self.active:
            return
        self.room.full = ""
        if self.room.tight is not None:
            self.room.tight.tick()
            return
        if self.records.sequence_number != self.records.synced_at:
            self.sync()

    def sync(self) -> None:
        """Write a sync point as primary, if there is room for it."""
        if self.active and self.records.held is None and self.room.has_room(1) and self.room.reserve_journal(1):
            self.records.sync_point()

    def _hear(self) -> None:
        """Note the arrival of the primary's last record, if one has come since the last call."""
        if not self.hears:
            return
        self.hears = False
        at = self.records.files.journal_end - JOURNAL_RECORD_SIZE
        # There is no record if the replica has begun anew since.
        if at >= 0:
            self.heard = HeardRecord(ANY_RECORD.unpack(self.records.files.journal.buffer, at).timestamp, self.now.ms)

    # -- records

    def append(
        self,
        queue_key: bytes,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer,
        ref_count: int,
        auto_confirms: Sequence[bytes] = (),
    ) -> bool:
        """Keep messages that `ref_count` apps want. Raises `Full` (STORAGE_FAILURE), having written nothing, if disk or
        files are full; `Held` while the partition rolls over: see `when_open`.

        Return False, having written nothing, if a run of several has no room without making some."""
        records, room = self.records, self.room
        parts: list[Buffer] = []
        count = total = 0
        for message in messages:
            size, head, padding = data_record_frame(message.size, message.has_properties, message.schema_id, options)
            parts += (head, payloads[count], padding)
            message.offset = total
            total += size
            count += 1
        files, due = records.files, records.due + count * (ref_count + 1 + len(auto_confirms))
        if (
            files.data_end + total > room.data_granted
            or files.journal_end + (due + room.spare_records) * JOURNAL_RECORD_SIZE > room.journal_granted
        ):
            if count == 1:
                self._make_room(total, due)
            elif self.is_closed_to_posts or self._waiting or not room.has_room_for(total, due):
                return False
        return records.append(queue_key, messages, parts, total, ref_count, auto_confirms)

    def make_room(self, records: int, qlist: int = 0) -> None:
        """Make room for records that belong together, and bytes of QLIST, so that none is refused, or raise `Full`."""
        if self.room.alarmed or not (self.room.has_room(records) and self.room.has_qlist_room(qlist)):
            self._roll_over(WantedRoom(records=records, qlist=qlist))
        if not (self.room.reserve_journal(records) and self.room.reserve_qlist(qlist)):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: the disk is full")

    def append_queue(
        self, uri: str, queue_key: bytes, apps: Iterable[tuple[str, bytes]], kind: QueueOpType = QueueOpType.CREATION
    ) -> None:
        """Record a new queue, or new apps (ADDITION): first in QLIST, then in the journal.

        May raise `Full`.
        """
        record = build_queue_record(uri, queue_key, list(apps))
        if not (self.room.has_room(1) and self.room.has_qlist_room(len(record))):
            self._roll_over(WantedRoom(records=self.room.spare_records, qlist=len(record)))
        if not (self.room.reserve_journal(1) and self.room.reserve_qlist(len(record))):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no room for queue {uri}")
        self.records.append_queue(record, queue_key, kind)

    def append_queue_op(
        self,
        kind: QueueOpType,
        queue_key: bytes,
        app_key: bytes = NULL_KEY,
        first: Message | None = None,
        awaiting: Container[bytes] = (),
    ) -> None:
        """Record the purge or deletion of a queue or of one of its apps.

        `first` is the oldest message concerned by an app's purge, or the first of those `awaiting` copies for a queue's
        purge. A whole queue can be purged even in a full journal, since that makes room. Raises `Full` otherwise.
        """
        frees = kind is QueueOpType.PURGE and app_key == NULL_KEY
        if frees and (self.room.alarmed or self.room.tight is not None):
            text = (
                "Partition [%d]: Writing PURGE record for queueKey [%s] to journal despite partition being unavailable"
            )
            log.warning(text, self.partition_id, queue_key.hex().upper())
        elif self.room.alarmed or not self.room.has_room(1):
            # It was full; whether it still is, a rollover finds out.
            self._roll_over()
        # What a purge makes superfluous leaves it room.
        if not self.room.reserve_journal(0 if frees and self.records.due else 1):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: the disk is full")
        self.records.append_queue_op(kind, queue_key, app_key, first)
        if kind is QueueOpType.PURGE and self.kept.is_copied:
            purges, messages = self.kept.purges, self.records.stores.get(queue_key, {})
            purges.behind(self.kept.kept_number)
            purges.add(self.records.sequence_number, queue_key, app_key, messages, awaiting)

    def begin_purge(self, task: Task) -> None:
        """Remove messages of a recorded purge in slices, by `task`."""
        self._purges.append(task)

    def take_purges(self) -> list[Task]:
        """Take the unfinished purges. A restart or a replica counts their messages as removed, so a rollover must not
        carry them over.
        """
        purges, self._purges = self._purges, []
        return purges

    def _finish_purges(self) -> None:
        for task in self.take_purges():
            assert self._work is not None, "purges are long tasks"
            self._work.complete(task)

    def release(self, records: int) -> None:
        """Release the room of `records` records that a purge has made superfluous."""
        self.records.due -= records
        self.room.full = ""

    def forget(self, queue_key: bytes) -> None:
        """Forget a removed queue."""
        del self.records.stores[queue_key]

    def register(self, queue_key: bytes, messages: Mapping[bytes, Message]) -> None:
        """Register the messages of a queue in this partition, for rollovers."""
        self.records.stores[queue_key] = messages

    def adopt(self, records_due: int) -> None:
        """Reserve room for the records that a recovered message will need."""
        self.records.due += records_due

    # -- room

    def _make_room(self, size: int, due: int) -> None:
        """Reserve disk for a message of `size` bytes in DATA and everything then due; roll over if a file is full."""
        if not self.room.available:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is disabled")
        if self.room.tight is not None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is full and has to be drained")
        if self.is_closed_to_posts:
            raise Held
        files = self.records.files
        records = due + self.room.spare_records
        if (
            self.room.closed
            or files.data_end + size > self.room.limits.data
            or files.journal_end + records * JOURNAL_RECORD_SIZE > self.room.limits.journal
        ):
            if FILE_HEADERS_SIZE_MAX + size > self.room.limits.data:
                raise Full(
                    "STORAGE_FAILURE", f"{size} bytes do not fit into a DATA file of {self.room.limits.data} bytes"
                )
            self.room.closed = True
            # So that the next message asks for room, too.
            self.room.revoke()
            wanted = WantedRoom(data=size, records=records - self.records.due)
            if self.kept.is_copied and not self.room.full and self._may_slice():
                self._begin_slices(1 - FREED_PART_MIN, wanted)
                raise Held
            self._roll_over(wanted)
            self.room.closed = False
        elif files.journal_end > self.room.journal_late:
            self._roll_over_early(records - self.records.due)
        # As long as posts wait, each asks for room, so that none overtakes them.
        self.room.reserve(size, due, grants=not self._waiting)
        files = self.records.files
        journal_end = files.journal_end + records * JOURNAL_RECORD_SIZE
        if (
            (
                files.data_end > self.room.limits.data * EARLY_PART
                or (
                    journal_end > self.room.limits.journal * EARLY_PART
                    and (self.records.message_count + self.records.due) * JOURNAL_RECORD_SIZE
                    < self.room.limits.journal * (1 - FREED_PART_MIN)
                )
            )
            and not self.kept.is_copied
            and self.now.ms >= self._not_before_ms
            and self._may_slice()
        ):
            with suppress(Full):
                self._begin_slices(1 - FREED_PART_MIN)

    def _roll_over_early(self, records: int) -> None:
        """Roll over as early as the reference does, if the new files then have room for as much, and for `records`."""
        if self.now.ms < self._not_before_ms or self.records.rolling is not None or self._may_slice():
            return
        try:
            with self.rollover_change():
                self._move(WantedRoom(records=max(records, RECORDS_LEFT_MIN - self.records.due)))
        except Full:
            self._not_before_ms = self.now.ms + RETRY_MS

    def roll_over(self) -> None:
        """Roll over, however little that frees; with very many messages in slices, so that it finishes later.

        Raises `Full` if there is no disk for them.
        """
        if self.records.rolling is not None:
            return
        if self.room.tight is not None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is full and rolls over when it is drained")
        self._declined_at = 0
        if self._may_slice():
            self._begin_slices(1.0)
            return
        with self.rollover_change():
            self._move(WantedRoom(), part_max=1.0)

    def rollover_change(self) -> Change:
        """Return the change of a rollover, which must not be continued after a partial failure."""
        return Change(f"the rollover of partition {self.partition_id}", Full)

    # -- rolling over in slices

    def work_with(self, work: Work) -> None:
        """Do long tasks in slices from now on."""
        self._work = self.kept.work = work

    @property
    def work(self) -> Work | None:
        """The long tasks of the node; None if everything is done at once."""
        return self._work

    def sift(self) -> None:
        """Look for what a rollover can leave out; called a few times a second, so that little is left at its start."""
        if not self._is_sifting and self.sieve.advance(self.records.files) and self._work is not None:
            self._is_sifting = True
            self._work.add(self._sift(self._work))

    def _sift(self, work: Work) -> Task:
        while self.sieve.advance(self.records.files):
            work.left = 0
            yield
        self._is_sifting = False

    def _may_slice(self) -> bool:
        """Return True if a rollover can be made in slices, and is large enough."""
        if self._work is None or self.records.rolling is not None:
            return False
        count = self.records.message_count
        return count > self._work.amount and not self._is_declined(count)

    def _is_declined(self, count: int) -> bool:
        """Return True if a rollover was not worthwhile, and few messages have been removed since."""
        return count > self._declined_at * (1 - FREED_PART_MIN / 2) > 0

    def _begin_slices(self, part_max: float, wanted: WantedRoom = _NOTHING_WANTED) -> None:
        """Begin a rollover in slices. Raises `Full` if there is no disk for its files."""
        assert self._work is not None
        with self.rollover_change():
            try:
                fresh = self.create_files()
            except Full:
                self._not_before_ms = self.now.ms + RETRY_MS
                raise
            log.info("Partition [%d]: Initiating rollover of %s", self.partition_id, self.records.files.journal.name)
            holds = self.kept.is_copied
            self.records.rolling = SlicedRollover(self, self._work, fresh, part_max, wanted, holds=holds)
            if holds:
                # So that the next message asks for room.
                self.room.revoke()
            self._work.add(self.records.rolling.task())

    def roll_slowly(self, rolling: TightRollover) -> None:
        """Begin the rollover of `Tight`."""
        self.records.rolling = rolling
        if self._work is not None:
            self._work.add(rolling.task())

    def create_files(self) -> PartitionFiles:
        """Make files to roll over to. Raises `Full` if there is no disk for them."""
        try:
            timestamp = self.make_timestamp(f"bmq_{self.partition_id}.")
            fresh = PartitionFiles.create(self.records.files.directory, self.partition_id, timestamp, self.room.limits)
        except OSError as error:
            log.error("Partition [%d]: no new files: %s", self.partition_id, error.strerror)
            fresh = None
        if fresh is None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no disk space for new files")
        return fresh

    def rollover_is_over(self) -> None:
        """Finish a rollover in slices, whether it succeeded or not."""
        rolling, self.records.rolling = self.records.rolling, None
        if not isinstance(rolling, SlicedRollover):
            self._let_posts_in()
            return
        self._declined_at = self.records.message_count if rolling.is_declined else 0
        if not rolling.refusal:
            return
        self._not_before_ms = self.now.ms + RETRY_MS
        if self.room.closed:
            self.room.tell_full(rolling.refusal)
        if self.records.held is not None:
            self.records.release_held(self.records.held.number)
        self._let_posts_in()

    # -- what waits for a rollover

    @property
    def is_closed_to_posts(self) -> bool:
        """Return True if posts have to wait: for a rollover, or for earlier posts."""
        return self.is_copying or self._waiting.are_first

    @property
    def is_copying(self) -> bool:
        """Return True if a rollover is copying messages alive now, even if they are removed meanwhile."""
        rolling = self.records.rolling
        return rolling is not None and rolling.holds and not rolling.is_changed

    @property
    def is_rolling_over(self) -> bool:
        """Return True while a rollover is under way."""
        return self.records.rolling is not None

    def when_open(self, post: Callable[[], None], size: int) -> None:
        """Call `post`, which takes `size` bytes of memory, when messages are taken again, in the order of the calls.

        `Full` if too many wait already.
        """
        self._waiting.add(post, size)

    def hold_records(self) -> None:
        """Stop adding to the files: further records follow when the rollover is over."""
        self.records.hold_in(HeldRecords(self.room.held_max, self.room.limits.qlist, self.records.sequence_number))

    def _let_posts_in(self) -> None:
        if self._waiting and self._work is not None:
            self._work.add(self._waiting.let_in(self._work))

    # -- rolling over at once

    def _roll_over(self, wanted: WantedRoom | None = None) -> None:
        """Roll over at once, with room for `wanted` beyond what is due.

        Raises `Full`, the old files still in use, if that would not help or there is no disk. It takes a walk over the
        whole journal to find out, so that once refused, the next try waits for the next tick.
        """
        if self.room.full or self.room.tight is not None:
            raise Full("STORAGE_FAILURE", self.room.full or f"partition {self.partition_id} is full")
        wanted = wanted or WantedRoom(records=self.room.spare_records)
        try:
            with self.rollover_change():
                if isinstance(self.records.rolling, SlicedRollover) and not self.records.rolling.is_changed:
                    self.records.rolling.change()
                    self.room.check(wanted)
                elif self._is_declined(self.records.message_count):
                    reason = f"partition {self.partition_id} is full, and a rollover would free too little"
                    raise Full("STORAGE_FAILURE", reason)
                else:
                    self._move(wanted)
        except Full as full:
            self.room.tell_full(str(full))
            raise
        self.room.alarmed = False

    def _move(self, wanted: WantedRoom, part_max: float = 1 - FREED_PART_MIN) -> None:
        """Copy to new files, of which at most `part_max` of the limits may be in use."""
        if self.records.rolling is not None:
            self.records.rolling.complete()
        self._finish_purges()
        alive = {key + guid: message for key, store in self.records.stores.items() for guid, message in store.items()}
        for message in alive.values() if self.records.offsets_from else ():
            message.offset -= self.records.offsets_from
        self.records.offsets_from = 0
        plan = Rollover(self.records.files, alive, set(self.records.stores), self.sieve.rows(self.records.files))
        for name, kept, size, limit, kept_part_max in (
            (
                "journal",
                plan.journal_bytes + self.records.due * JOURNAL_RECORD_SIZE,
                (wanted.records + SYNC_POINTS) * JOURNAL_RECORD_SIZE,
                self.room.limits.journal,
                part_max,
            ),
            ("data", plan.data_bytes, wanted.data, self.room.limits.data, part_max),
            ("qlist", plan.qlist_bytes, wanted.qlist, self.room.limits.qlist, 1.0),
        ):
            if kept > limit * kept_part_max or FILE_HEADERS_SIZE_MAX + kept + size > limit:
                reason = f"the {name} file of partition {self.partition_id} is full, {kept} of {limit} bytes in use"
                raise Full("STORAGE_FAILURE", reason)
        old = self.records.files
        log.info("Partition [%d]: Initiating rollover of %s", self.partition_id, old.journal.name)
        try:
            timestamp = self.make_timestamp(f"bmq_{self.partition_id}.")
        except OSError as error:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no new files: {error.strerror}") from None
        fresh = plan.copy(self.partition_id, timestamp, self.room.limits, records_due=self.records.due + SYNC_POINTS)
        if fresh is None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no disk space for new files")
        self.change_files(fresh, lambda first_sync_point: plan.finish(fresh, first_sync_point), offsets_from=0)
        self.retire(old)

    def retire(self, old: PartitionFiles) -> None:
        """Take old files out of service. They are not needed: another process finds the newer ones whole."""
        name = old.journal.name

        def note(error: Exception) -> None:
            reason = error.strerror if isinstance(error, OSError) else error
            log.error("Partition [%d]: %s cannot be archived: %s", self.partition_id, name, reason)

        old.retire(note)

    def change_files(
        self, fresh: PartitionFiles, write_header: Callable[[int], None], offsets_from: int | None = None
    ) -> None:
        """Write to new files from now on, which have all that is alive; `write_header` gets their first sync point.

        That is a copy of the one that ends the old files, which replicas write by themselves. They are sent what is
        behind it: the first is a sync point of the new files.
        """
        old, held = self.records.files, self.records.held
        if held is not None:
            self.records.sequence_number = held.number
        is_ended = old.journal.reserve(old.journal_end + JOURNAL_RECORD_SIZE)
        if is_ended:
            self.records.sync_point(SyncPointType.ROLLOVER)
        self.before_rollover()
        if self.kept.is_copied:
            self.kept.unkept_before = self.unkept_records()
        self.records.files = fresh
        self.records.offsets_from = self.records.offsets_from + old.data_end if offsets_from is None else offsets_from
        self.room.revoke()
        first_sync_point = fresh.journal_end
        if is_ended:
            copy_sync_point(fresh, old.journal.buffer[old.journal_end - JOURNAL_RECORD_SIZE : old.journal_end])
        else:
            self.records.sync_point()
        self.room.closed = self.room.alarmed = False
        self.keep_removals(old)
        self.finish(fresh, lambda: write_header(first_sync_point))
        # Not before: by anything behind the first sync point a next process would take the new files for whole.
        self.after_rollover(fresh.journal_end)
        self.records.sync_point()
        self.records.release_held(self.records.sequence_number)
        log.info("Partition [%d]: ROLLOVER COMPLETE to %s", self.partition_id, fresh.journal.name)
        self._let_posts_in()

    def keep_removals(self, old: PartitionFiles) -> None:
        """Keep the removals of a journal whose files are about to be retired."""
        self.removals.give_up(old, self.now.ms, synced=self.outlives_power)

    def finish(self, fresh: PartitionFiles, write_header: Callable[[], None]) -> None:
        """Make `fresh` the files that a next process goes on with: those before it can go then.

        The header says that all is there, so that it follows all else to the disk, the names of the new files, too; and
        nothing goes before it is there.
        """
        if self.outlives_power:
            fresh.flush()
            fresh.directory.flush()
        write_header()
        if self.outlives_power:
            fresh.journal.flush()

    def close(self) -> None:
        """Truncate the files to their written parts, when the node stops."""
        if self.records.rolling is not None and self.records.rolling.is_changed:
            self.records.rolling.complete()
        elif self.records.rolling is not None:
            self.records.rolling.give_up("the node stops")
        if self.room.tight is not None:
            self.room.tight.give_up()
        self.records.files.close()
        self.removals.close(self.now.ms)

    def state(self) -> PartitionState:
        """Return the usage of the partition."""
        files = self.records.files
        return PartitionState(
            self.partition_id,
            self.records.primary_lease_id,
            self.records.sequence_number,
            files.journal_end,
            files.data_end,
            self.records.message_count,
        )
