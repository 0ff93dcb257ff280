# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A partition as its primary writes it: one ordered stream of records under (lease id, sequence number).

Room is reserved ahead: `due` counts the confirm and deletion records that the messages stored here will still need,
and a message is taken only if they and it fit. A full partition thus refuses messages, and consuming goes on.

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
from broker.bmq.partition.sliced_rollover import SYNC_POINTS, SYNC_POINTS_KEPT, SlicedRollover, WantedRoom
from broker.bmq.partition.tight import Tight
from broker.bmq.partition.tight_rollover import TightRollover
from broker.bmq.partition.unkept_confirms import UnkeptPurge, unkept_records
from broker.bmq.partition.waiting_posts import WaitingPosts
from broker.bmq.store.damage import Damage, partition_note
from broker.bmq.store.finding import find_message
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.removals import Removals
from broker.bmq.store.rollover import Rollover, copy_sync_point
from broker.bmq.store.sieve import JournalSieve
from broker.common.clock import Now
from broker.common.faults import Change, Inconsistent
from formats.bmq.disk.data import (
    HEADER_WORDS_SHIFT,
    OPTIONS_WORDS_SHIFT,
    data_record_frame,
    unpack_sizes,
)
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, ConfirmReason, DeletionRecordFlag, QueueOpType, SyncPointType
from formats.bmq.disk.journal_packing import (
    pack_confirm,
    pack_deletion,
    pack_message,
    pack_queue_op,
    pack_sync_point,
)
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import build_queue_record
from formats.schema import Buffer

__all__ = ["PartitionState", "StoredPartition"]

log: Final = logging.getLogger("broker.partition")

# Room for sync points and queue operations beyond what is due.
SPARE_RECORDS_MAX: Final = 64
SPARE_PART_MAX: Final = 1 / 16  # of a small journal

# The reference's primary rolls over when a journal has no room for this many records: one, its two sync points, and 16
# purges (mqbs::FileStore, k_REQUESTED_JOURNAL_SPACE). This exceeds the spare room in very small journals only.
RECORDS_LEFT_MIN: Final = 19

# A rollover must free at least this part of a file to be worthwhile (mqbs::FileStore, 20 percent).
FREED_PART_MIN: Final = 0.2

# Used part of a file at which a rollover begins if there are very many messages, since it takes long.
EARLY_PART: Final = 7 / 8
# From this size on, a write to the file costs less than one to its mapping, whose pages the kernel clears first.
WRITTEN_BYTES_MIN: Final = 8 << 10

# Time from a failed rollover to the next attempt.
RETRY_MS: Final = 1000

# Maximum number of operations on queues held back during a rollover.
HELD_OPERATIONS_MAX: Final = 1 << 16

# Maximum size of the headers at the start of a file.
FILE_HEADERS_SIZE_MAX: Final = 64

_NOTHING_WANTED: Final = WantedRoom()

# Looking up an enumeration's member costs as much as writing a record.
_AUTO: Final = ConfirmReason.AUTO_CONFIRMED
_NO_FLAG: Final = DeletionRecordFlag.NONE


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
    they replace others. While there is `damage`, this node may have lost records that it has acknowledged. `limits` are
    those that a primary fills its files to; `capacity` are the sizes of the files in which it follows another primary.
    """

    # Slots, since an object with so many attributes is slower with a dictionary.
    __slots__ = (
        "_alarmed",
        "_closed",
        "_data_granted",
        "_declined_at",
        "_full",
        "_held",
        "_is_sifting",
        "_journal_granted",
        "_limits",
        "_not_before_ms",
        "_out",
        "_purges",
        "_rolling",
        "_spare_records",
        "_synced_at",
        "_waiting",
        "_work",
        "active",
        "after_rollover",
        "available",
        "before_rollover",
        "capacity",
        "damage",
        "due",
        "files",
        "heard",
        "hears",
        "kept",
        "make_timestamp",
        "node_id",
        "now",
        "offsets_from",
        "outlives_power",
        "partition_id",
        "payloads",
        "primary_lease_id",
        "removals",
        "sequence_number",
        "sieve",
        "stores",
        "tight",
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
        self.node_id = node_id
        self.files = files
        self.limits = self.capacity = limits
        self.now = now
        self.make_timestamp = make_timestamp
        self.outlives_power = outlives_power
        self.removals = Removals(files.directory, partition_id, make_timestamp)
        self.sieve = JournalSieve()
        self._is_sifting = False  # in a task
        self.primary_lease_id = 0
        self.sequence_number = 0
        self.due = 0
        self._purges: list[Task] = []
        # Offsets of messages in DATA are relative to this: after a rollover in slices, those in older files are below.
        self.offsets_from = 0
        self._work: Work | None = None
        self._rolling: SlicedRollover | TightRollover | None = None
        self._held: HeldRecords | None = None  # the records held while nothing may be added to the files
        self._out: PartitionFiles | HeldRecords = files  # destination of records of confirms and removals
        self.tight: Tight | None = None  # set while there is no room for the reserved records
        self._waiting = WaitingPosts(self)  # for a rollover
        self._not_before_ms = self.now.ms  # time before which no rollover begins by itself
        self._declined_at = 0  # number of messages alive when a rollover was not worthwhile
        self.stores: dict[bytes, Mapping[bytes, Message]] = {}  # by queue key: its messages, owned by the queue
        self.payloads = Payloads(partition_id, self.stores)
        self._journal_granted = 0
        self._data_granted = 0
        self._synced_at = 0  # sequence number of the last sync point
        self._full = ""  # reason for which the last rollover was refused, until the next tick
        self._alarmed = False  # True if the alarm that it is full has been raised
        self._closed = False  # a message had no room: all are refused until a rollover frees some
        self.available = True  # True if new messages are admitted
        self.kept = KeptRecords(partition_id, now)
        self.active = False  # True if this node is its primary, and may write
        self.hears = False  # True if a live record of the primary came since the last tick
        self.heard: HeardRecord | None = None  # the last such record
        # Called when the old files have all records; when the new ones are complete, with their offset for replicas.
        self.before_rollover: Callable[[], None] = lambda: None
        self.after_rollover: Callable[[int], None] = lambda start: None

    @property
    def limits(self) -> PartitionLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: PartitionLimits) -> None:
        self._limits = limits
        records = int(limits.journal // JOURNAL_RECORD_SIZE * SPARE_PART_MAX)
        self._spare_records = max(SYNC_POINTS_KEPT, min(SPARE_RECORDS_MAX, records))

    # -- leases and sync points

    def begin_lease(self, primary_lease_id: int) -> bool:
        """Write the first record of a lease, a sync point, before messages are restored; return False without room."""
        files = self.files
        if not files.journal.reserve(files.journal_end + JOURNAL_RECORD_SIZE):
            return False
        # The last record is no longer another primary's.
        self._hear()
        self.primary_lease_id = primary_lease_id
        self.sequence_number = 0
        self._sync_point(SyncPointType.REGULAR)
        return True

    def activate(self, primary_lease_id: int) -> None:
        """Become primary under a lease, with new sequence numbers. The first record is a sync point, unless present."""
        is_begun = primary_lease_id == self.primary_lease_id and self.sequence_number == 1
        assert is_begun or primary_lease_id > self.primary_lease_id, "lease ids only grow"
        self.primary_lease_id = primary_lease_id
        self.sequence_number = self._synced_at = int(is_begun)
        self.kept.begin_lease()
        self.active = True
        self._out = self.files
        if self._has_room(not is_begun) and self._reserve_journal(not is_begun):
            if not is_begun:
                self._sync_point(SyncPointType.REGULAR)
            return
        if self._exceeds_limits():
            with suppress(Full), self.rollover_change():
                self._move(_NOTHING_WANTED, part_max=1.0)
                return
            # More is alive than fits. Replicas that hold the files until here need not hold a byte more.
            files, limits = self.files, self.limits
            records = self.due + self._spare_records + SYNC_POINTS
            self.limits = PartitionLimits(
                journal=max(limits.journal, files.journal_end + records * JOURNAL_RECORD_SIZE),
                data=max(limits.data, files.data_end),
                qlist=max(limits.qlist, files.qlist_end),
            )
        limits = self.limits
        least = FILE_HEADERS_SIZE_MAX + (self.message_count + self.due + SYNC_POINTS) * JOURNAL_RECORD_SIZE
        if least > limits.journal:
            # No need to walk over all that is there, while others wait.
            if self._rolling is not None:
                self._rolling.complete()
            reason = (
                f"the journal file of partition {self.partition_id} is full, {least} of {limits.journal} bytes reserved"
            )
            self._begin_tight(reason, is_begun=is_begun)
            return
        try:
            with self.rollover_change():
                self._move(_NOTHING_WANTED, part_max=1.0)
        except Full as full:
            if self._has_room(not is_begun):
                raise  # there is no disk
            self._begin_tight(str(full), is_begun=is_begun)

    def _exceeds_limits(self) -> bool:
        """Return True if the files were filled under larger limits: this node's earlier ones, or another primary's."""
        files, limits = self.files, self.limits
        return files.journal_end > limits.journal or files.data_end > limits.data or files.qlist_end > limits.qlist

    def pass_numbers(self, last: int) -> bool:
        """Use up the lease's sequence numbers up to `last` with sync points; return False if there is no room."""
        records = last - self.sequence_number
        if records <= 0:
            return True
        if self._held is not None or not (self._has_room(records) and self._reserve_journal(records)):
            return False
        for _ in range(records):
            self._sync_point(SyncPointType.REGULAR)
        return True

    def _begin_tight(self, reason: str, *, is_begun: bool) -> None:
        """Serve a partition left without reserved room by its previous primary, one of the reference."""
        if not is_begun:
            end = self.files.journal_end + JOURNAL_RECORD_SIZE
            if end > self.limits.journal or not self.files.journal.reserve(end):
                raise Full("STORAGE_FAILURE", reason)
            self._sync_point(SyncPointType.REGULAR)
        self._tell_full(reason)
        self._journal_granted = self._data_granted = 0
        self.tight = Tight(self)
        self.tight.begin()

    def end_tight(self) -> bool:
        """Take messages again if everything due has room, and disk; return True if so."""
        records = self.due + self._spare_records
        files = self.files
        if not (self.has_room_for_due and files.journal.reserve(files.journal_end + records * JOURNAL_RECORD_SIZE)):
            return False
        self.tight = None
        self._full = ""
        self._alarmed = self._closed = False
        log.info("Partition [%d]: has room for all reserved records", self.partition_id)
        return True

    @property
    def would_have_room(self) -> bool:
        """Return True if the journal would have room with nothing but messages in it."""
        records = self.message_count + self.due + self._spare_records + SYNC_POINTS
        return FILE_HEADERS_SIZE_MAX + records * JOURNAL_RECORD_SIZE <= self.limits.journal

    @property
    def has_room_for_due(self) -> bool:
        """Return True if the journal has room for all records that outstanding messages will still need."""
        records = self.due + self._spare_records
        return self.files.journal_end + records * JOURNAL_RECORD_SIZE <= self.limits.journal

    def give_up_rollover(self) -> None:
        """Write the records held back for a rollover, since this node will soon stop being primary."""
        rolling = self._rolling
        if rolling is not None and not rolling.is_changed:
            rolling.give_up("another node becomes primary")
        tight, self.tight = self.tight, None
        if tight is not None:
            tight.give_up()

    def unkept_records(self) -> bytes:
        """Return the last records of this lease that too few nodes are known to have."""
        return unkept_records(self.files, self.primary_lease_id, self.kept.kept_number, self.kept.unkept_before)

    def unkept_purges(self) -> list[UnkeptPurge]:
        """Return the purges of this lease that too few nodes are known to have."""
        return self.kept.purges.behind(self.kept.kept_number)

    def forget_restored(self) -> None:
        """Forget state restored for a lease that does not begin here."""
        self.stores.clear()
        self.due = 0

    def deactivate(self) -> None:
        """Stop being primary: drop waiting posts and queues."""
        self.give_up_rollover()
        if self._rolling is not None:
            self._rolling.forget_messages()
        self.offsets_from = 0
        self._waiting.clear()
        self.active = False
        self.heard = HeardRecord(self.now.wall_s, self.now.ms)
        self.kept.forget_awaiting()
        self.stores.clear()
        self._purges.clear()
        self.payloads.clear()
        self.due = 0
        self._full = ""
        self._alarmed = self._closed = False
        self._journal_granted = self._data_granted = 0

    def tick(self) -> None:
        """Write a sync point if anything was written since the last one; called once a second."""
        self._hear()
        if not self.active:
            return
        self._full = ""
        if self.tight is not None:
            self.tight.tick()
            return
        if self.sequence_number != self._synced_at:
            self.sync()

    def sync(self) -> None:
        """Write a sync point as primary, if there is room for it."""
        if self.active and self._held is None and self._has_room(1) and self._reserve_journal(1):
            self._sync_point(SyncPointType.REGULAR)

    def _hear(self) -> None:
        """Note the arrival of the primary's last record, if one has come since the last call."""
        if not self.hears:
            return
        self.hears = False
        at = self.files.journal_end - JOURNAL_RECORD_SIZE
        # There is no record if the replica has begun anew since.
        if at >= 0:
            self.heard = HeardRecord(ANY_RECORD.unpack(self.files.journal.buffer, at).timestamp, self.now.ms)

    def _sync_point(self, kind: SyncPointType) -> None:
        files = self.files
        self.sequence_number += 1
        pack_sync_point(
            files.journal.buffer,
            files.journal_end,
            self.primary_lease_id,
            self.sequence_number,
            self.now.wall_s,
            kind,
            self.primary_lease_id,
            self.sequence_number,
            self.node_id,
            files.data_end // DWORD,
            files.qlist_end // WORD,
        )
        files.journal_end += JOURNAL_RECORD_SIZE
        self._synced_at = self.sequence_number

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

        Return False, having written nothing, if a run of several has no room without making some.
        A message comes after the confirms of apps that do not want it, so that recovery never assigns it to them.
        """
        files = self.files
        parts: list[Buffer] = []
        count = total = 0
        for message in messages:
            size, head, padding = data_record_frame(message.size, message.has_properties, message.schema_id, options)
            parts += (head, payloads[count], padding)
            message.offset = total
            total += size
            count += 1
        due = self.due + count * (ref_count + 1 + len(auto_confirms))
        if (
            files.data_end + total > self._data_granted
            or files.journal_end + (due + self._spare_records) * JOURNAL_RECORD_SIZE > self._journal_granted
        ):
            if count == 1:
                self._make_room(total, due)
                files = self.files
            elif not self._has_room_for(total, due):
                return False
        try:
            start = files.data_end
            # DATA first: a record in the journal must find its message there.
            data = b"".join(parts)
            if count == 1 or total < WRITTEN_BYTES_MIN:
                files.data.buffer[start : start + total] = data
            elif not files.data.write(start, data):
                return False
            buffer, at, number = files.journal.buffer, files.journal_end, self.sequence_number
            lease_id, timestamp, offsets_from = self.primary_lease_id, self.now.wall_s, self.offsets_from
            for message in messages:
                guid, offset = message.guid, start + message.offset
                for app_key in auto_confirms:
                    number += 1
                    pack_confirm(buffer, at, lease_id, number, timestamp, _AUTO, queue_key, app_key, guid)
                    at += JOURNAL_RECORD_SIZE
                number += 1
                pack_message(
                    buffer,
                    at,
                    lease_id,
                    number,
                    timestamp,
                    ref_count,
                    message.compression,
                    queue_key,
                    offset // DWORD,
                    guid,
                    message.checksum,
                )
                at += JOURNAL_RECORD_SIZE
                message.offset = offsets_from + offset
            files.data_end = start + total
            files.journal_end = at
            self.sequence_number = number
            self.due += count * ref_count
        except Exception as error:
            raise Inconsistent(f"writing messages to partition {self.partition_id}", error) from error
        return True

    def _has_room_for(self, size: int, due: int) -> bool:
        """Return True if several messages have room, reserved if need be, and no rollover has to make some, or might.

        Their records in DATA are of `size` bytes together, and with them `due` records are due.
        """
        files, limits = self.files, self.limits
        data_end = files.data_end + size
        journal_end = files.journal_end + (due + self._spare_records) * JOURNAL_RECORD_SIZE
        if (
            not self.available
            or self.tight is not None
            or self.is_closed_to_posts
            or self._closed
            or self._waiting
            or data_end > limits.data * EARLY_PART
            or journal_end > min(limits.journal * EARLY_PART, self._journal_late)
        ):
            return False
        if journal_end <= self._journal_granted:
            if size < WRITTEN_BYTES_MIN:
                if not files.data.reserve(data_end):
                    return False
                self._data_granted = files.data.granted
            return True
        if size < WRITTEN_BYTES_MIN and data_end > self._data_granted:
            # On a nearly full disk it matters which of the files gets the last of it, and for which message.
            return False
        if not files.journal.reserve(journal_end):
            return False
        self._journal_granted = min(
            files.journal.granted, self._journal_late + self._spare_records * JOURNAL_RECORD_SIZE
        )
        return True

    def settle(
        self,
        queue_key: bytes,
        app_key: bytes,
        messages: Sequence[Message],
        reason: ConfirmReason = ConfirmReason.CONFIRMED,
    ) -> None:
        """Record that an app is done with messages: a confirm, or the deletion of one that no app wants any more.

        The room of these records was reserved with the messages.
        """
        files, rolling = self._out, self._rolling
        buffer, at, number = files.journal.buffer, files.journal_end, self.sequence_number
        lease_id, timestamp = self.primary_lease_id, self.now.wall_s
        for message in messages:
            number += 1
            if message.outstanding:
                pack_confirm(buffer, at, lease_id, number, timestamp, reason, queue_key, app_key, message.guid)
            else:
                if rolling is not None:
                    rolling.removes(queue_key, message)
                pack_deletion(buffer, at, lease_id, number, timestamp, _NO_FLAG, queue_key, message.guid)
            at += JOURNAL_RECORD_SIZE
        files.journal_end = at
        self.sequence_number = number
        self.due -= len(messages)

    def remove(self, queue_key: bytes, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Record a message's deletion, which replaces the confirms that are due."""
        if self._rolling is not None:
            self._rolling.removes(queue_key, message)
        files = self._out
        self.sequence_number += 1
        pack_deletion(
            files.journal.buffer,
            files.journal_end,
            self.primary_lease_id,
            self.sequence_number,
            self.now.wall_s,
            flag,
            queue_key,
            message.guid,
        )
        files.journal_end += JOURNAL_RECORD_SIZE
        self.due -= message.outstanding.bit_count() or 1

    def make_room(self, records: int, qlist: int = 0) -> None:
        """Make room for records that belong together, and bytes of QLIST, so that none is refused, or raise `Full`."""
        if self._alarmed or not (self._has_room(records) and self._has_qlist_room(qlist)):
            self._roll_over(WantedRoom(records=records, qlist=qlist))
        if not (self._reserve_journal(records) and self._reserve_qlist(qlist)):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: the disk is full")

    def append_queue(
        self, uri: str, queue_key: bytes, apps: Iterable[tuple[str, bytes]], kind: QueueOpType = QueueOpType.CREATION
    ) -> None:
        """Record a new queue, or new apps (ADDITION): first in QLIST, then in the journal.

        May raise `Full`.
        """
        record = build_queue_record(uri, queue_key, list(apps))
        if not (self._has_room(1) and self._has_qlist_room(len(record))):
            self._roll_over(WantedRoom(records=self._spare_records, qlist=len(record)))
        files = self._out
        end = files.qlist_end + len(record)
        if not (self._reserve_journal(1) and self._reserve_qlist(len(record))):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no room for queue {uri}")
        with Change(f"writing a queue to partition {self.partition_id}"):
            files.qlist.buffer[files.qlist_end : end] = record
            self.sequence_number += 1
            pack_queue_op(
                files.journal.buffer,
                files.journal_end,
                self.primary_lease_id,
                self.sequence_number,
                self.now.wall_s,
                kind,
                queue_key,
                queue_uri_record_offset_words=files.qlist_end // WORD,
            )
            files.journal_end += JOURNAL_RECORD_SIZE
            files.qlist_end = end

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
        if frees and (self._alarmed or self.tight is not None):
            text = (
                "Partition [%d]: Writing PURGE record for queueKey [%s] to journal despite partition being unavailable"
            )
            log.warning(text, self.partition_id, queue_key.hex().upper())
        elif self._alarmed or not self._has_room(1):
            # It was full; whether it still is, a rollover finds out.
            self._roll_over()
        # What a purge makes superfluous leaves it room.
        if not self._reserve_journal(0 if frees and self.due else 1):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: the disk is full")
        lease_id, number = self._position(first) if first is not None else (0, 0)
        files = self._out
        with Change(f"writing an operation on a queue to partition {self.partition_id}"):
            self.sequence_number += 1
            pack_queue_op(
                files.journal.buffer,
                files.journal_end,
                self.primary_lease_id,
                self.sequence_number,
                self.now.wall_s,
                kind,
                queue_key,
                app_key,
                start_primary_lease_id=lease_id,
                start_sequence_number=number,
            )
            files.journal_end += JOURNAL_RECORD_SIZE
        if kind is QueueOpType.PURGE and self.kept.is_copied:
            purges, messages = self.kept.purges, self.stores.get(queue_key, {})
            purges.behind(self.kept.kept_number)
            purges.add(self.sequence_number, queue_key, app_key, messages, awaiting)

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
        self.due -= records
        self._full = ""

    def _position(self, message: Message) -> tuple[int, int]:
        """Return the lease id and sequence number of a message's record."""
        record = find_message(*self.place_of(message))
        return record.primary_lease_id, record.sequence_number

    def forget(self, queue_key: bytes) -> None:
        """Forget a removed queue."""
        del self.stores[queue_key]

    def register(self, queue_key: bytes, messages: Mapping[bytes, Message]) -> None:
        """Register the messages of a queue in this partition, for rollovers."""
        self.stores[queue_key] = messages

    def adopt(self, records_due: int) -> None:
        """Reserve room for the records that a recovered message will need."""
        self.due += records_due

    def read(self, message: Message) -> memoryview:
        """Return a message's properties and payload, in the mapped file: valid until the next step."""
        files, offset = self.place_of(message)
        buffer = files.data.buffer
        lengths, options = unpack_sizes(buffer, offset)
        start = offset + ((lengths >> HEADER_WORDS_SHIFT) + (options >> OPTIONS_WORDS_SHIFT)) * WORD
        return buffer[start : start + message.size]

    def place_of(self, message: Message) -> tuple[PartitionFiles, int]:
        """Return the files that have a message, and the offset of its record in DATA."""
        files, offset = self.files, message.offset - self.offsets_from
        if offset < 0 and self._rolling is not None:
            files, offsets_from = self._rolling.old
            offset = message.offset - offsets_from
        return files, offset

    # -- room

    def _has_room(self, records: int) -> bool:
        """Return True if `records` more leave room in the journal for what is due."""
        if self.tight is not None:
            return False
        records += self.due + self.records_held + SYNC_POINTS_KEPT
        return self.files.journal_end + records * JOURNAL_RECORD_SIZE <= self.limits.journal

    def _has_qlist_room(self, size: int) -> bool:
        return self.files.qlist_end + self.qlist_held + size <= self.limits.qlist

    def _reserve_journal(self, records: int) -> bool:
        out, size = self._out, (self.due + records) * JOURNAL_RECORD_SIZE
        if not out.journal.reserve(out.journal_end + size):
            return False
        held = self._held_for_files
        return held is None or self.files.journal.reserve(self.files.journal_end + held.journal_end + size)

    def _reserve_qlist(self, size: int) -> bool:
        out = self._out
        if not out.qlist.reserve(out.qlist_end + size):
            return False
        held = self._held_for_files
        return held is None or self.files.qlist.reserve(self.files.qlist_end + held.qlist_end + size)

    @property
    def _held_for_files(self) -> HeldRecords | None:
        """The records that these files get after all if a rollover is given up: disk is reserved for them here, too."""
        return self._held if self.tight is None else None

    def _make_room(self, size: int, due: int) -> None:
        """Reserve disk for a message of `size` bytes in DATA and everything then due; roll over if a file is full."""
        if not self.available:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is disabled")
        if self.tight is not None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id} is full and has to be drained")
        if self.is_closed_to_posts:
            raise Held
        files = self.files
        records = due + self._spare_records
        if (
            self._closed
            or files.data_end + size > self.limits.data
            or files.journal_end + records * JOURNAL_RECORD_SIZE > self.limits.journal
        ):
            if FILE_HEADERS_SIZE_MAX + size > self.limits.data:
                raise Full("STORAGE_FAILURE", f"{size} bytes do not fit into a DATA file of {self.limits.data} bytes")
            self._closed = True
            # So that the next message asks for room, too.
            self._journal_granted = self._data_granted = 0
            wanted = WantedRoom(data=size, records=records - self.due)
            if self.kept.is_copied and not self._full and self._may_slice():
                self._begin_slices(1 - FREED_PART_MIN, wanted)
                raise Held
            self._roll_over(wanted)
            self._closed = False
            files = self.files
        elif files.journal_end > self._journal_late:
            self._roll_over_early(records - self.due)
            files = self.files
        journal_end = files.journal_end + records * JOURNAL_RECORD_SIZE
        if not (files.data.reserve(files.data_end + size) and files.journal.reserve(journal_end)):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: the disk is full")
        if not self._waiting:
            # As long as posts wait, each asks for room, so that none overtakes them.
            self._data_granted = files.data.granted
            self._journal_granted = min(
                files.journal.granted, self._journal_late + self._spare_records * JOURNAL_RECORD_SIZE
            )
        if (
            (
                files.data_end > self.limits.data * EARLY_PART
                or (
                    journal_end > self.limits.journal * EARLY_PART
                    and (self.message_count + self.due) * JOURNAL_RECORD_SIZE
                    < self.limits.journal * (1 - FREED_PART_MIN)
                )
            )
            and not self.kept.is_copied
            and self.now.ms >= self._not_before_ms
            and self._may_slice()
        ):
            with suppress(Full):
                self._begin_slices(1 - FREED_PART_MIN)

    @property
    def _journal_late(self) -> int:
        """The offset in the journal beyond which a rollover is due, if it is worthwhile."""
        return self.limits.journal - max(RECORDS_LEFT_MIN, self._spare_records) * JOURNAL_RECORD_SIZE

    def _roll_over_early(self, records: int) -> None:
        """Roll over as early as the reference does, if the new files then have room for as much, and for `records`."""
        if self.now.ms < self._not_before_ms or self._rolling is not None or self._may_slice():
            return
        try:
            with self.rollover_change():
                self._move(WantedRoom(records=max(records, RECORDS_LEFT_MIN - self.due)))
        except Full:
            self._not_before_ms = self.now.ms + RETRY_MS

    def set_available(self, available: bool) -> None:
        """Accept or refuse new messages; existing ones can still be confirmed and removed."""
        self.available = available
        # So that the next message asks for room.
        self._journal_granted = self._data_granted = 0
        log.info("Partition [%d]: status changed to %s", self.partition_id, "AVAILABLE" if available else "UNAVAILABLE")

    def roll_over(self) -> None:
        """Roll over, however little that frees; with very many messages in slices, so that it finishes later.

        Raises `Full` if there is no disk for them.
        """
        if self._rolling is not None:
            return
        if self.tight is not None:
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
        if not self._is_sifting and self.sieve.advance(self.files) and self._work is not None:
            self._is_sifting = True
            self._work.add(self._sift(self._work))

    def _sift(self, work: Work) -> Task:
        while self.sieve.advance(self.files):
            work.left = 0
            yield
        self._is_sifting = False

    @property
    def message_count(self) -> int:
        """Number of messages alive."""
        return sum(map(len, self.stores.values()))

    def _may_slice(self) -> bool:
        """Return True if a rollover can be made in slices, and is large enough."""
        if self._work is None or self._rolling is not None:
            return False
        count = self.message_count
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
            log.info("Partition [%d]: Initiating rollover of %s", self.partition_id, self.files.journal.name)
            holds = self.kept.is_copied
            self._rolling = SlicedRollover(self, self._work, fresh, part_max, wanted, holds=holds)
            if holds:
                # So that the next message asks for room.
                self._journal_granted = self._data_granted = 0
            self._work.add(self._rolling.task())

    def roll_slowly(self, rolling: TightRollover) -> None:
        """Begin the rollover of `Tight`."""
        self._rolling = rolling
        if self._work is not None:
            self._work.add(rolling.task())

    def create_files(self) -> PartitionFiles:
        """Make files to roll over to. Raises `Full` if there is no disk for them."""
        try:
            timestamp = self.make_timestamp(f"bmq_{self.partition_id}.")
            fresh = PartitionFiles.create(self.files.directory, self.partition_id, timestamp, self.limits)
        except OSError as error:
            log.error("Partition [%d]: no new files: %s", self.partition_id, error.strerror)
            fresh = None
        if fresh is None:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no disk space for new files")
        return fresh

    def rollover_is_over(self) -> None:
        """Finish a rollover in slices, whether it succeeded or not."""
        rolling, self._rolling = self._rolling, None
        if not isinstance(rolling, SlicedRollover):
            self._let_posts_in()
            return
        self._declined_at = self.message_count if rolling.is_declined else 0
        if not rolling.refusal:
            return
        self._not_before_ms = self.now.ms + RETRY_MS
        if self._closed:
            self._tell_full(rolling.refusal)
        if self._held is not None:
            self._release_held(self._held.number)
        self._let_posts_in()

    # -- what waits for a rollover

    @property
    def is_closed_to_posts(self) -> bool:
        """Return True if posts have to wait: for a rollover, or for earlier posts."""
        return self.is_copying or self._waiting.are_first

    @property
    def is_copying(self) -> bool:
        """Return True if a rollover is copying messages alive now, even if they are removed meanwhile."""
        rolling = self._rolling
        return rolling is not None and rolling.holds and not rolling.is_changed

    @property
    def is_rolling_over(self) -> bool:
        """Return True while a rollover is under way."""
        return self._rolling is not None

    def when_open(self, post: Callable[[], None], size: int) -> None:
        """Call `post`, which takes `size` bytes of memory, when messages are taken again, in the order of the calls.

        `Full` if too many wait already.
        """
        self._waiting.add(post, size)

    def hold_records(self) -> None:
        """Stop adding to the files: further records follow when the rollover is over."""
        self.hold_in(HeldRecords(self.held_max, self.limits.qlist, self.sequence_number))

    @property
    def held_max(self) -> int:
        """Maximum number of records that may have to be held."""
        return self.due + self._spare_records + HELD_OPERATIONS_MAX

    def hold_in(self, held: HeldRecords) -> None:
        """Add records to `held` from now on; those that it has follow the last one written."""
        self._out = self._held = held
        self.sequence_number = held.number + held.journal_end // JOURNAL_RECORD_SIZE

    def take_held(self) -> bytes:
        """Take the held records back, as if they had not been made."""
        held, self._held = self._held, None
        self._out = self.files
        if held is None:
            return b""
        self.sequence_number = held.number
        return bytes(held.journal.buffer[: held.journal_end])

    @property
    def records_held(self) -> int:
        """Number of records that follow when the rollover is over."""
        return self._held.journal_end // JOURNAL_RECORD_SIZE if self._held is not None else 0

    @property
    def qlist_held(self) -> int:
        """Bytes of QLIST that follow when the rollover is over."""
        return self._held.qlist_end if self._held is not None else 0

    def _release_held(self, number: int) -> None:
        """Write the held records after the record with that number, the last of the files in use."""
        held, self._held = self._held, None
        self._out = self.files
        if held is not None:
            self.sequence_number = held.append_to(self.files, number)

    def _let_posts_in(self) -> None:
        if self._waiting and self._work is not None:
            self._work.add(self._waiting.let_in(self._work))

    # -- rolling over at once

    def _roll_over(self, wanted: WantedRoom | None = None) -> None:
        """Roll over at once, with room for `wanted` beyond what is due.

        Raises `Full`, the old files still in use, if that would not help or there is no disk. It takes a walk over the
        whole journal to find out, so that once refused, the next try waits for the next tick.
        """
        if self._full or self.tight is not None:
            raise Full("STORAGE_FAILURE", self._full or f"partition {self.partition_id} is full")
        wanted = wanted or WantedRoom(records=self._spare_records)
        try:
            with self.rollover_change():
                if isinstance(self._rolling, SlicedRollover) and not self._rolling.is_changed:
                    self._rolling.change()
                    self._check_room(wanted)
                elif self._is_declined(self.message_count):
                    reason = f"partition {self.partition_id} is full, and a rollover would free too little"
                    raise Full("STORAGE_FAILURE", reason)
                else:
                    self._move(wanted)
        except Full as full:
            self._tell_full(str(full))
            raise
        self._alarmed = False

    def _tell_full(self, reason: str) -> None:
        self._full = reason
        if not self._alarmed:
            log.error("PANIC [PARTITION_READONLY] Partition [%d]: is full: %s", self.partition_id, reason)
            self._alarmed = True

    def _move(self, wanted: WantedRoom, part_max: float = 1 - FREED_PART_MIN) -> None:
        """Copy to new files, of which at most `part_max` of the limits may be in use."""
        if self._rolling is not None:
            self._rolling.complete()
        self._finish_purges()
        alive = {key + guid: message for key, store in self.stores.items() for guid, message in store.items()}
        for message in alive.values() if self.offsets_from else ():
            message.offset -= self.offsets_from
        self.offsets_from = 0
        plan = Rollover(self.files, alive, set(self.stores), self.sieve.rows(self.files))
        for name, kept, size, limit, kept_part_max in (
            (
                "journal",
                plan.journal_bytes + self.due * JOURNAL_RECORD_SIZE,
                (wanted.records + SYNC_POINTS) * JOURNAL_RECORD_SIZE,
                self.limits.journal,
                part_max,
            ),
            ("data", plan.data_bytes, wanted.data, self.limits.data, part_max),
            ("qlist", plan.qlist_bytes, wanted.qlist, self.limits.qlist, 1.0),
        ):
            if kept > limit * kept_part_max or FILE_HEADERS_SIZE_MAX + kept + size > limit:
                reason = f"the {name} file of partition {self.partition_id} is full, {kept} of {limit} bytes in use"
                raise Full("STORAGE_FAILURE", reason)
        old = self.files
        log.info("Partition [%d]: Initiating rollover of %s", self.partition_id, old.journal.name)
        try:
            timestamp = self.make_timestamp(f"bmq_{self.partition_id}.")
        except OSError as error:
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: no new files: {error.strerror}") from None
        fresh = plan.copy(self.partition_id, timestamp, self.limits, records_due=self.due + SYNC_POINTS)
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
        old, held = self.files, self._held
        if held is not None:
            self.sequence_number = held.number
        is_ended = old.journal.reserve(old.journal_end + JOURNAL_RECORD_SIZE)
        if is_ended:
            self._sync_point(SyncPointType.ROLLOVER)
        self.before_rollover()
        if self.kept.is_copied:
            self.kept.unkept_before = self.unkept_records()
        self.files = fresh
        self.offsets_from = self.offsets_from + old.data_end if offsets_from is None else offsets_from
        self._journal_granted = self._data_granted = 0
        first_sync_point = fresh.journal_end
        if is_ended:
            copy_sync_point(fresh, old.journal.buffer[old.journal_end - JOURNAL_RECORD_SIZE : old.journal_end])
        else:
            self._sync_point(SyncPointType.REGULAR)
        self._closed = self._alarmed = False
        self.keep_removals(old)
        self.finish(fresh, lambda: write_header(first_sync_point))
        # Not before: by anything behind the first sync point a next process would take the new files for whole.
        self.after_rollover(fresh.journal_end)
        self._sync_point(SyncPointType.REGULAR)
        self._release_held(self.sequence_number)
        log.info("Partition [%d]: ROLLOVER COMPLETE to %s", self.partition_id, fresh.journal.name)
        self._let_posts_in()

    def _check_room(self, wanted: WantedRoom) -> None:
        """Raise `Full` if `wanted` does not fit the files in use."""
        files, limits = self.files, self.limits
        if (
            files.data_end + wanted.data > limits.data
            or files.qlist_end + wanted.qlist > limits.qlist
            or files.journal_end + (self.due + wanted.records) * JOURNAL_RECORD_SIZE > limits.journal
        ):
            raise Full("STORAGE_FAILURE", f"the files of partition {self.partition_id} are full after a rollover")

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
        if self._rolling is not None and self._rolling.is_changed:
            self._rolling.complete()
        elif self._rolling is not None:
            self._rolling.give_up("the node stops")
        if self.tight is not None:
            self.tight.give_up()
        self.files.close()
        self.removals.close(self.now.ms)

    def state(self) -> PartitionState:
        """Return the usage of the partition."""
        files = self.files
        return PartitionState(
            self.partition_id,
            self.primary_lease_id,
            self.sequence_number,
            files.journal_end,
            files.data_end,
            self.message_count,
        )
