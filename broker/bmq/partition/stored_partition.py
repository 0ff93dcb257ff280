# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A partition as its primary writes it: one ordered stream of records under (lease id, sequence number).

Its parts make the decisions, and none knows the partition: `records` has the numbers and ends, `room` what may be
added, `sets` the files' names and removals, `rollovers` when new files replace them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.bmq.core.clocks import HeardRecord
from broker.bmq.core.messages import Full, Message
from broker.bmq.core.payloads import Payloads
from broker.bmq.core.work import Work
from broker.bmq.partition.file_sets import FileSets
from broker.bmq.partition.kept_records import KeptRecords
from broker.bmq.partition.records import PartitionRecords
from broker.bmq.partition.rollovers import Rollovers
from broker.bmq.partition.room import PartitionRoom, WantedRoom
from broker.bmq.partition.unkept_confirms import UnkeptPurge
from broker.bmq.store.damage import Damage, partition_note
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.removals import Removals
from broker.common.clock import Now
from formats.bmq.disk.data import data_record_frame
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, QueueOpType
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.qlist import build_queue_record
from formats.schema import Buffer

__all__ = ["PartitionState", "StoredPartition"]

log: Final = logging.getLogger("broker.partition")


class PartitionState(NamedTuple):
    """The usage of a partition; sizes are in bytes."""

    partition_id: int
    primary_lease_id: int
    sequence_number: int
    journal_bytes: int
    data_bytes: int
    messages: int


class StoredPartition:
    """The write side of one partition.

    `kept` are the records that enough nodes have. While there is `damage`, this node may have lost records that it
    acknowledged. `capacity` are the sizes of the files in which it follows another primary.
    """

    # Slots, since every message touches some of them.
    __slots__ = (
        "active",
        "capacity",
        "damage",
        "heard",
        "hears",
        "kept",
        "now",
        "partition_id",
        "payloads",
        "records",
        "rollovers",
        "room",
        "sets",
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
        self.capacity = limits
        self.now = now
        self.records = PartitionRecords(partition_id, node_id, files, now)
        self.room = PartitionRoom(self.records, limits)
        self.kept = KeptRecords(partition_id, now)
        self.sets = FileSets(partition_id, files.directory, now, make_timestamp, outlives_power=outlives_power)
        self.rollovers = Rollovers(self.records, self.room, self.kept, self.sets, now)
        self.payloads = Payloads(partition_id, self.records.stores)
        self.active = False  # this node is its primary, and may write
        self.hears = False  # a live record of the primary came since the last tick
        self.heard: HeardRecord | None = None  # the record that tells the primary's clock best

    @property
    def files(self) -> PartitionFiles:
        return self.records.files

    @property
    def primary_lease_id(self) -> int:
        return self.records.primary_lease_id

    @property
    def sequence_number(self) -> int:
        return self.records.sequence_number

    @property
    def removals(self) -> Removals:
        return self.sets.removals

    def work_with(self, work: Work) -> None:
        self.rollovers.work = self.kept.work = work

    @property
    def work(self) -> Work | None:
        """The long tasks of the node; None if everything is done at once."""
        return self.kept.work

    def begin_lease(self, primary_lease_id: int) -> bool:
        """Write the first record of a lease, a sync point, before messages are restored; return False without room."""
        records = self.records
        if not records.files.journal.reserve(records.files.journal_end + JOURNAL_RECORD_SIZE):
            return False
        # The last record is no longer another primary's.
        self._hear()
        records.primary_lease_id = primary_lease_id
        records.sequence_number = 0
        records.sync_point()
        return True

    def activate(self, primary_lease_id: int) -> None:
        """Become primary under a lease, with new sequence numbers. The first record is a sync point, unless present."""
        records = self.records
        is_begun = primary_lease_id == records.primary_lease_id and records.sequence_number == 1
        assert is_begun or primary_lease_id > records.primary_lease_id, "lease ids only grow"
        records.primary_lease_id = primary_lease_id
        records.sequence_number = records.synced_at = int(is_begun)
        self.kept.begin_lease()
        self.active = True
        records.out = records.files
        if not (self.room.has_room(not is_begun) and self.room.reserve_journal(not is_begun)):
            self.rollovers.make_room_at_start(is_begun=is_begun)
        elif not is_begun:
            records.sync_point()

    def pass_numbers(self, last: int) -> bool:
        """Use up the lease's sequence numbers up to `last` with sync points; return False if there is no room."""
        count = last - self.records.sequence_number
        if count <= 0:
            return True
        if self.records.held is not None or not (self.room.has_room(count) and self.room.reserve_journal(count)):
            return False
        for _ in range(count):
            self.records.sync_point()
        return True

    def give_up_rollover(self) -> None:
        self.rollovers.give_up()

    def unkept_records(self) -> bytes:
        return self.rollovers.unkept_records()

    def unkept_purges(self) -> list[UnkeptPurge]:
        return self.kept.purges.behind(self.kept.kept_number)

    def forget_restored(self) -> None:
        self.records.stores.clear()
        self.records.due = 0

    def deactivate(self) -> None:
        self.rollovers.stop()
        self.records.offsets_from = 0
        self.active = False
        self.heard = HeardRecord(self.records.primary_lease_id, self.now.wall_s, self.now.ms)
        self.kept.forget_awaiting()
        self.forget_restored()
        self.payloads.clear()
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
        if self.active and self.records.held is None and self.room.has_room(1) and self.room.reserve_journal(1):
            self.records.sync_point()

    def _hear(self) -> None:
        """Note the arrival of the primary's last record, if one has come since the last call."""
        if not self.hears:
            return
        self.hears = False
        at = self.records.files.journal_end - JOURNAL_RECORD_SIZE
        # There is no record if the replica has discarded its files since.
        if at >= 0:
            record = ANY_RECORD.unpack(self.records.files.journal.buffer, at)
            heard = HeardRecord(record.primary_lease_id, record.timestamp, self.now.ms)
            self.heard = heard.or_earlier(self.heard)

    def append(
        self,
        queue_key: bytes,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer,
        ref_count: int,
        auto_confirms: Sequence[bytes] = (),
    ) -> bool:
        """Keep messages that `ref_count` apps want; return False, having written nothing, if a run has no room as yet.

        Raises `Full` (STORAGE_FAILURE), having written nothing, if disk or files are full; `Held` while the partition
        rolls over: see `Rollovers.when_open`.
        """
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
                self.rollovers.make_room(total, due)
            elif not self.rollovers.has_room_for(total, due):
                return False
        return records.append(queue_key, messages, parts, total, ref_count, auto_confirms)

    def make_room(self, records: int, qlist: int = 0) -> None:
        """Make room for records that belong together, and bytes of QLIST, so that none is refused, or raise `Full`."""
        if self.room.alarmed or not (self.room.has_room(records) and self.room.has_qlist_room(qlist)):
            self.rollovers.free(WantedRoom(records=records, qlist=qlist))
        if not (self.room.reserve_journal(records) and self.room.reserve_qlist(qlist)):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: the disk is full")

    def append_queue(
        self, uri: str, queue_key: bytes, apps: Iterable[tuple[str, bytes]], kind: QueueOpType = QueueOpType.CREATION
    ) -> None:
        """Record a new queue, or new apps (ADDITION): first in QLIST, then in the journal. Raises `Full`."""
        room, record = self.room, build_queue_record(uri, queue_key, list(apps))
        if not (room.has_room(1) and room.has_qlist_room(len(record))):
            self.rollovers.free(WantedRoom(records=room.spare_records, qlist=len(record)))
        if not (room.reserve_journal(1) and room.reserve_qlist(len(record))):
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
        room = self.room
        frees = kind is QueueOpType.PURGE and app_key == NULL_KEY
        if frees and (room.alarmed or room.tight is not None):
            text = (
                "Partition [%d]: Writing PURGE record for queueKey [%s] to journal despite partition being unavailable"
            )
            log.warning(text, self.partition_id, queue_key.hex().upper())
        elif room.alarmed or not room.has_room(1):
            # It was full. Only a rollover can show whether it still is.
            self.rollovers.free(WantedRoom(records=room.spare_records))
        # The records that a purge makes superfluous leave room for it.
        if not room.reserve_journal(0 if frees and self.records.due else 1):
            raise Full("STORAGE_FAILURE", f"partition {self.partition_id}: the disk is full")
        self.records.append_queue_op(kind, queue_key, app_key, first)
        if kind is QueueOpType.PURGE and self.kept.is_copied:
            purges, messages = self.kept.purges, self.records.stores.get(queue_key, {})
            purges.behind(self.kept.kept_number)
            purges.add(self.records.sequence_number, queue_key, app_key, messages, awaiting)

    def release(self, records: int) -> None:
        self.records.due -= records
        self.room.full = ""

    def forget(self, queue_key: bytes) -> None:
        del self.records.stores[queue_key]

    def register(self, queue_key: bytes, messages: Mapping[bytes, Message]) -> None:
        self.records.stores[queue_key] = messages

    def adopt(self, records_due: int) -> None:
        """Reserve room for the records that a recovered message will need."""
        self.records.due += records_due

    def roll_over(self) -> None:
        self.rollovers.roll_over()

    @property
    def is_rolling_over(self) -> bool:
        return self.records.rolling is not None

    def close(self) -> None:
        self.rollovers.close()
        self.records.files.close()
        self.removals.close(self.now.ms)

    def state(self) -> PartitionState:
        files = self.records.files
        return PartitionState(
            self.partition_id,
            self.records.primary_lease_id,
            self.records.sequence_number,
            files.journal_end,
            files.data_end,
            self.records.message_count,
        )
