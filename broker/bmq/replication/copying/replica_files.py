# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A replica's store of a partition: it writes the primary's records at the same offsets, and indexes the messages.

Records that arrive must fit the ends of journal, DATA and QLIST; others are refused before anything
is written (source: mqbs::FileStore::processStorageEvent, mqbs::FileStoreUtil::writeMessageRecordImpl).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NamedTuple

from broker.bmq.core.alarms import alarm
from broker.bmq.core.cluster_view import CopiedMessage
from broker.bmq.core.messages import Content, Full
from broker.bmq.core.work import Task, Work
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.purges import throw_away
from broker.bmq.replication.copying.copy_rollover import PLACED_PER_UNIT, CopyRollover
from broker.bmq.replication.copying.places import MessagePlaces
from broker.bmq.replication.copying.record_runs import RECORDS_MAX, AppendPoint, RecordRun, follows, parse_run
from broker.bmq.replication.positions import (
    JOURNAL_START,
    NOWHERE,
    last_position,
    offset_behind,
    offset_of,
    position_until,
)
from broker.bmq.store.checksums import Checksums
from broker.bmq.store.cutting import clear_records, ends_at, set_ends
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.recovery import Recovered, recover
from broker.bmq.store.rollover import clear_header, write_header
from broker.common.files import StoreFile
from formats.bmq.codes import StorageFlag, StorageMessageType
from formats.bmq.disk.data import (
    DataHeaderFlags,
    parse_data_record,
)
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import (
    ANY_RECORD,
    JOURNAL_OP_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    RECORD_MAGIC,
    SEQUENCE_NUMBER_MASK,
    TYPE_SHIFT,
    QueueOpType,
    RecordType,
    SyncPointType,
)
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.numbers import LEASE_ID_MAX, RecordNumber
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import parse_queue_record
from formats.bmq.wire.storage import StorageMessage, append_storage, iter_storage, storage_size
from formats.errors import FormatError

__all__ = ["OutOfStep", "ReplicaFiles", "TooSmall", "WrittenRecords"]

log: Final = logging.getLogger("broker.partition")

# The journal's record types by storage message types. Plain integers: this is on the path of every message.
_RECORD_TYPE: Final = {
    int(message_type): int(record_type)
    for message_type, record_type in (
        (StorageMessageType.DATA, RecordType.MESSAGE),
        (StorageMessageType.QLIST, RecordType.QUEUE_OP),
        (StorageMessageType.QUEUE_OP, RecordType.QUEUE_OP),
        (StorageMessageType.CONFIRM, RecordType.CONFIRM),
        (StorageMessageType.DELETION, RecordType.DELETION),
        (StorageMessageType.JOURNAL_OP, RecordType.JOURNAL_OP),
    )
}
_MESSAGE, _QUEUE_OP = int(RecordType.MESSAGE), int(RecordType.QUEUE_OP)
_JOURNAL_OP: Final = int(RecordType.JOURNAL_OP)
_MAKING: Final = (QueueOpType.CREATION, QueueOpType.ADDITION)

_new: Final = tuple.__new__
# The words of records that are looked at: the first has type and number, another the compression beside other bits.
_any_record: Final = ANY_RECORD.partial("sequence_number", "primary_lease_id", "magic").unpack_from
_message_record: Final = MESSAGE_RECORD.partial(
    "compression", "queue_key", "message_offset_dwords", "guid", "crc32c"
).unpack_from
_queue_op_record: Final = QUEUE_OP_RECORD.partial(
    "queue_key", "app_key", "queue_op_type", "queue_uri_record_offset_words"
).unpack_from
_SYNC_POINT_TYPE: Final = JOURNAL_OP_RECORD.offset("sync_point_type")
_RECEIPT_REQUESTED: Final = int(StorageFlag.RECEIPT_REQUESTED)
# More is not cleared in one step: the partition is fetched again, in slices.
CUT_BYTES_MAX: Final = 128 << 20
NO_BOUND: Final = 1 << 62


class OutOfStep(Exception):
    """A record that does not continue this replica's, or for which there is no room."""


class TooSmall(OutOfStep):
    """The files here are smaller than the primary's: larger ones will do."""


class WrittenRecords(NamedTuple):
    """The end of the written records of an event, and the last one that requests a receipt."""

    end: int
    asking: RecordNumber | None


# Called with the queue's key and the GUID of a message that the primary has removed.
Removed = Callable[[bytes, bytes], None]
# Called with the key of a purged queue, the messages that the purge removes from the copy, and True if the record heals
# it. Then others may be known already that were posted after the purge.
Purged = Callable[[bytes, Sequence[Container[bytes]], bool], None]


class ReplicaFiles:
    """The files that a replica writes: those of its partition, or a second set while it receives that from scratch.

    The journal of the second set gets its header last, so that a node that dies before continues with the first set.
    `removed` and `purged` are called for records that remove messages. No record has a lease above `lease_id_max`.
    """

    def __init__(
        self,
        stored: StoredPartition,
        recovered: Recovered | None = None,
        removed: Removed = lambda queue_key, guid: None,
        purged: Purged = lambda queue_key, guids, heals: None,
    ) -> None:
        self.stored = stored
        self.removed = removed
        self.purged = purged
        self.lease_id_max = LEASE_ID_MAX
        self._is_anew = False
        self._attach(stored.files)
        self.position = last_position(stored.files)
        self._places = MessagePlaces(stored.files)
        self._places_before: MessagePlaces | None = None  # of the partition's files, while it is fetched again
        self._rolling: CopyRollover | None = None  # until its new files are whole
        self._kept = NOWHERE  # the last record before them
        self._rolls_again = False  # the files end with a record that begins another
        self._finishing: Task | None = None  # what follows a rollover that is finished
        self._checksums = Checksums()
        if recovered is not None:
            self._places.add_recovered(recovered.messages)
        else:
            self._find_places()
        self.is_rotten = False  # a payload does not match its checksum

    def _find_places(self) -> None:
        """Rebuild the index of messages from the files."""
        self._throw_away(self._places.give_up())
        self._places = MessagePlaces(self.files)
        work = self.stored.work
        if work is not None:
            work.start(self._places.find_all(work, self.note_rot))
        else:
            at_once = Work(self.stored.now, 1 << 40)
            at_once.complete(self._places.find_all(at_once, self.note_rot))

    def _create(self) -> PartitionFiles:
        """Make files that hold what the primary's do. Raises `OutOfStep` if there is no disk for them."""
        try:
            return self.stored.sets.create(self.stored.capacity)
        except Full as full:
            raise OutOfStep(str(full)) from None

    def _attach(self, files: PartitionFiles) -> None:
        self.files = files
        self._journal_granted = self._data_granted = 0

    @property
    def is_rolling(self) -> bool:
        """True if a rollover is unfinished: after a restart the store would end with the record before it."""
        return self._rolling is not None

    @property
    def kept(self) -> RecordNumber:
        """The last record that a restart would find."""
        return self.position if self._rolling is None else self._kept

    @property
    def will_roll(self) -> bool:
        """True if a rollover is unfinished and will be finished."""
        return self._rolling is not None and not self._rolling.fault

    @property
    def is_busy(self) -> bool:
        """True if this replica is temporarily not ready for anything else."""
        return self._places.is_finding or self.will_roll

    @property
    def rolls_again(self) -> bool:
        """True if the primary rolls over once more: all further records are for files that do not exist yet."""
        return self._rolls_again

    @property
    def rollover_fault(self) -> str:
        """Return the reason why a rollover was given up."""
        return self._rolling.fault if self._rolling is not None else ""

    @property
    def is_anew(self) -> bool:
        return self._is_anew

    # -- writing

    def write_all(
        self, data: memoryview, start: int, end: int, *, heals: bool = False, bytes_max: int = NO_BOUND
    ) -> WrittenRecords:
        """Write the records of an event's body, `data[start:end]`.

        Returns the end of the written records, and the last one that requests a receipt. Stops after about `bytes_max`,
        and at a record that begins a rollover while the previous one is unfinished; the caller writes the rest once
        this copy is not busy.

        With `heals`, no record begins a rollover: the sender was still in the old files after it. Raises `OutOfStep` or
        FormatError at the first record that does not fit or is malformed; the ones before it are written.
        """
        asking = None
        if self._rolls_again:
            if self._rolling is not None:
                return WrittenRecords(start, None)
            self._rolls_again = False
            self._roll_over()
        room_end = start + bytes_max
        while start < end and start < room_end and not self._rolls_again:
            run = self._run(data, start, end)
            if run is not None:
                self._write_run(run)
                asking, start = run.asking or asking, run.end
                continue
            message = next(iter_storage(data, start, end))
            self.write(message, heals=heals)
            start += storage_size(data, start)
            if message.flags & _RECEIPT_REQUESTED:
                asking = self.position
        return WrittenRecords(start, asking)

    def _append_point(self) -> AppendPoint:
        files = self.files
        return _new(AppendPoint, (self.position, files.journal_end, files.data_end, self._is_anew, self.lease_id_max))

    def _run(self, data: memoryview, start: int, end: int) -> RecordRun | None:
        """Return the next records that can be written together, with room reserved for them.

        None if the next record is not one of a run. Raises `OutOfStep` if there is no room for it.
        """
        files = self.files
        if not files.journal_end:
            # The first record after a rollover says where the files begin.
            return None
        point = self._append_point()
        run = parse_run(data, start, end, point, RECORDS_MAX)
        while run is not None:
            journal_end, data_end = files.journal_end + len(run.records), files.data_end + run.data_size
            full = self._reserve(journal_end, data_end)
            if full is None:
                break
            if len(run.records) == JOURNAL_RECORD_SIZE:
                raise self._no_room(full, journal_end if full is files.journal else data_end)
            run = parse_run(data, start, end, point, len(run.records) // JOURNAL_RECORD_SIZE // 2)
        return run

    def _reserve(self, journal_end: int, data_end: int) -> StoreFile | None:
        """Reserve room up to these ends; return the file that has none."""
        files = self.files
        if journal_end > self._journal_granted:
            if not files.journal.reserve(journal_end):
                return files.journal
            self._journal_granted = files.journal.granted
        if data_end > self._data_granted:
            if not files.data.reserve(data_end):
                return files.data
            self._data_granted = files.data.granted
        return None

    def _write_run(self, run: RecordRun) -> None:
        """Write a run and index it. DATA is written before the journal's records, which refer to it."""
        files = self.files
        buffer, at = files.data.buffer, files.data_end
        for entry in run.entries:
            end = at + len(entry)
            buffer[at:end] = entry
            at = end
        files.data_end = at
        end = files.journal_end + len(run.records)
        files.journal.buffer[files.journal_end : end] = run.records
        files.journal_end = end
        self.position = run.last
        places = self._places
        for key, guid, offset, compression, size in run.changes:
            if size < 0:
                places.take(key, guid)
                self.removed(key, guid)
            else:
                places.add(key, guid, offset, compression, size)

    def write(self, message: StorageMessage, *, heals: bool = False) -> None:
        """Write one record and its data. Raises `OutOfStep`, without effect, if it does not fit."""
        _, message_type, _, offset_words, record, data = message
        files = self.files
        at = files.journal_end
        if offset_words * WORD != at or not at:
            if self._rolling is None or self._rolling.begins is not None:
                raise OutOfStep(f"a record for {offset_words * WORD}, the journal ends at {at}")
            self._begin_tail(self._rolling, record, offset_words * WORD)
            at = files.journal_end
        word, lease_id, magic = _any_record(record)
        kind = word >> TYPE_SHIFT
        if _RECORD_TYPE.get(message_type) != kind or magic != RECORD_MAGIC:
            raise OutOfStep(f"a record of type {kind} in a message of type {message_type}, or a wrong magic")
        position = _new(RecordNumber, (lease_id, word & SEQUENCE_NUMBER_MASK))
        if not follows(self._append_point(), *self.position, *position):
            raise OutOfStep(f"{position} after {self.position}")
        if kind not in (_QUEUE_OP, _JOURNAL_OP):
            self._write_one(message, kind)
            return
        end = at + JOURNAL_RECORD_SIZE
        if (full := self._reserve(end, files.data_end)) is not None:
            raise self._no_room(full, end)
        if kind == _QUEUE_OP:
            self._write_queue(record, data, heals=heals)
        files.journal.buffer[at:end] = record
        files.journal_end = end
        self.position = position
        if kind == _JOURNAL_OP:
            self._on_sync_point(record[_SYNC_POINT_TYPE], heals=heals)

    def _write_one(self, message: StorageMessage, kind: int) -> None:
        """Write a message, confirm or deletion as a run of one. Raises `OutOfStep` if its data is not what it needs."""
        flags, message_type, partition_id, offset_words, record, data = message
        body = bytearray()
        append_storage(body, message_type, partition_id, offset_words, record, data, flags)
        run = self._run(memoryview(body), 0, len(body))
        if run is None:
            start = _message_record(record)[2] * DWORD
            if kind == _MESSAGE and start != self.files.data_end:
                raise OutOfStep(f"a message for {start}, DATA is at {self.files.data_end}")
            raise OutOfStep(f"{len(data)} bytes are not a DATA record, or do not match their checksum")
        self._write_run(run)

    def _write_queue(self, record: memoryview, data: memoryview, *, heals: bool) -> None:
        files = self.files
        key, app_key, kind, offset_words = _queue_op_record(record)
        if kind in _MAKING:
            start = files.qlist_end
            offset = offset_words * WORD
            end = start + len(data)
            try:
                fits = offset == start and parse_queue_record(data, 0).end == len(data)
            except FormatError as error:
                raise OutOfStep(f"no QLIST record: {error}") from error
            if not fits:
                raise OutOfStep(f"a queue of {len(data)} bytes for {offset}, QLIST is at {start}")
            if not files.qlist.reserve(end):
                raise self._no_room(files.qlist, end)
            files.qlist.buffer[start:end] = data
            files.qlist_end = end
        elif kind in (QueueOpType.PURGE, QueueOpType.DELETION) and app_key == NULL_KEY:
            log.info(
                "Partition [%d]: Received QueueOpRecord of type [%s] for queue key [%s]",
                self.stored.partition_id,
                QueueOpType(kind).name,
                key.hex().upper(),
            )
            guids = self._places.take_all(key)
            self.purged(key, guids, heals)
            self._throw_away(guids)

    def _no_room(self, file: StoreFile, end: int) -> OutOfStep:
        """Make the error for a file too small for `end`. A primary with completely filled files has larger ones."""
        if end <= len(file.buffer):
            return OutOfStep(f"no disk space for {end} bytes in {file.name}")
        files, limits = self.files, self.stored.capacity
        self.stored.capacity = PartitionLimits(
            journal=max(limits.journal, 2 * end if file is files.journal else 0),
            data=max(limits.data, 2 * end if file is files.data else 0),
            qlist=max(limits.qlist, 2 * end if file is files.qlist else 0),
        )
        return TooSmall(f"{end} bytes are more than {file.name} holds")

    def end_event(self) -> None:
        """Set the partition's end after the records of an event."""
        if not self.is_anew:
            self.stored.records.primary_lease_id, self.stored.records.sequence_number = self.position

    # -- rollover, together with the primary

    def _on_sync_point(self, kind: int, *, heals: bool) -> None:
        rolling = self._rolling
        if rolling is not None and rolling.is_copied:
            # The first record after it: the primary is in its new files.
            self._end_rollover(rolling)
        if kind == SyncPointType.ROLLOVER and not self.is_anew and not heals:
            if self._rolling is not None:
                self._rolls_again = True
            else:
                self._roll_over()

    def _roll_over(self) -> None:
        """Roll over like the primary, carrying over the same records."""
        old, stored, work = self.files, self.stored, self.stored.work
        fresh = self._create()
        self._kept = self.position
        rolling = self._rolling = CopyRollover(old, fresh, stored.partition_id, stored.rollovers.sieve, stored.removals)
        # Its end is 0, where no record goes, until the start of the tail is known: here, or by the first record.
        self._attach(rolling.tail)
        self._places.go_on_in(rolling.tail)
        if work is not None:
            work.start(self._roll_slowly(rolling, work, self._finishing))
            return
        self._copy_all(rolling)

    def _copy_all(self, rolling: CopyRollover) -> None:
        while not (rolling.is_copied or rolling.fault):
            self._advance(rolling, 1 << 40)
        self._end_rollover(rolling)
        if rolling.fault:
            raise OutOfStep(rolling.fault)

    def _advance(self, rolling: CopyRollover, units: int) -> int:
        try:
            return rolling.advance(units)
        except FormatError as error:
            self.note_rot(error)
            rolling.fault = str(error)
            return units

    def finish_rollover(self) -> None:
        """Finish the rollover at once, when the node stops, or too many records wait for it."""
        try:
            if self._rolling is not None and self.will_roll:
                self._finish_placing()
                self._copy_all(self._rolling)
        except OutOfStep as error:
            log.error("Partition [%d]: a rollover is abandoned: %s", self.stored.partition_id, error)
        self._finish_placing()

    def _finish_placing(self) -> None:
        """Finish the update of the index to the newest files."""
        if self._finishing is not None and self.stored.work is not None:
            self.stored.work.complete(self._finishing)

    def _begin_tail(self, rolling: CopyRollover, record: memoryview, at: int) -> None:
        begins = rolling.tail_before(record, at) if record[0] >> 4 == _JOURNAL_OP else None
        if begins is None:
            raise OutOfStep(f"a record for {at} cannot be the first after a rollover")
        if not rolling.begin_tail(begins):
            raise self._no_room(rolling.tail.journal, at)

    def _roll_slowly(self, rolling: CopyRollover, work: Work, before: Task | None) -> Task:
        if before is not None:
            # Messages are in the files before the last: first the index must be updated to these.
            yield from before
        stored = self.stored
        while not (rolling.is_copied or rolling.is_over):
            if not work.may_go_on():
                yield
                continue
            work.left -= self._advance(rolling, work.left)
            if rolling.fault:
                return
            if stored.sets.outlives_power:
                # In parts, since flushing everything at the end would take long.
                rolling.fresh.data.flush()
        while not rolling.is_over and stored.sets.removals.catch_up(rolling.old, stored.now.ms):
            work.left = 0
            yield
        if not rolling.is_over:
            self._end_rollover(rolling)

    def _end_rollover(self, rolling: CopyRollover) -> None:
        """Complete a rollover: from here on a restart uses the new files."""
        stored, old = self.stored, rolling.old
        if rolling.fault:
            return
        if rolling.begins is None and not rolling.begin_tail(rolling.fresh.ends):
            rolling.fault = f"no disk space for the files after {old.journal.name}"
            return
        if not rolling.check():
            rolling.fault = f"what was carried over ends at {rolling.fresh.ends}, the primary's at {rolling.begins}"
            return
        stored.sets.keep_removals(old)
        stored.sets.finish(rolling.tail, rolling.write_header)
        stored.records.files = rolling.tail
        self._rolling = None
        rolling.is_over = True
        log.info("Partition [%d]: ROLLOVER COMPLETE to %s", stored.partition_id, self.files.journal.name)
        task = self._finishing = self._place_all(rolling, self._places, self._places.current)
        if stored.work is not None:
            stored.work.add(task)
        else:
            for _ in task:
                """At once."""

    def _place_all(self, rolling: CopyRollover, places: MessagePlaces, now_in: int) -> Task:
        """Update the index to the new files, then close the old ones.

        If the places are no longer needed, the messages are still gone through, to free their memory.
        """
        work = self.stored.work
        before = places.before(now_in)
        while not rolling.is_placed:
            while work is not None and not work.may_go_on():
                yield
            count = 1 << 40 if work is None else max(1, work.left) * PLACED_PER_UNIT
            if work is not None:
                work.left = 0
            for moved, start in rolling.take_moved(count):
                if not places.is_given_up:
                    places.move(moved.key, (before, moved.offset), (now_in, start))
        places.let_go(before)
        self.stored.sets.retire(rolling.old)
        self._finishing = None

    def settle(self) -> None:
        """Undo an unfinished rollover, since this primary sends no more."""
        rolling = self._rolling
        self._rolls_again = False
        if rolling is not None:
            self._rolling = None
            rolling.is_over = True
            self._throw_away(rolling.give_up())
            rolling.fresh.remove()
            self._attach(rolling.old)
            if rolling.begins is not None:
                # Later records are gone, and with them removals of earlier messages.
                self._find_places()
            else:
                self._places.go_back()
        elif self.is_anew:
            self._is_anew = False
            self.files.remove()
            self._throw_away(self._places.give_up())
            assert self._places_before is not None
            self._places, self._places_before = self._places_before, None
            self._attach(self.stored.files)
        self.position = last_position(self.files)
        self.end_event()

    def note_rot(self, error: FormatError) -> None:
        """Note corrupted files, which are then received from scratch."""
        self.is_rotten = True
        alarm(log, "STORAGE", f"Partition [{self.stored.partition_id}]: {self.files.journal.name}: {error}")

    # -- healing

    def cut(self, position: RecordNumber) -> bool:
        """Truncate the store after `position`, or after the last record before that; return True if it was done.

        Does nothing if no record would remain, if it would take long, or if the remaining records are corrupted. The
        index of messages is rebuilt in slices.
        """
        files = self.files
        behind = offset_behind(files, position_until(files, position))
        if behind is None or behind == JOURNAL_START:
            return False
        try:
            ends = ends_at(files, behind)
        except FormatError as error:
            self.note_rot(error)
            return False
        if sum(files.ends) - sum(ends) > CUT_BYTES_MAX:
            return False
        clear_records(files.journal.buffer, behind, files.journal_end)
        if self.stored.sets.outlives_power:
            # Before their payloads are cleared: a journal that still refers to these would look corrupted.
            files.journal.flush()
        set_ends(files, ends)
        self.stored.sets.removals.cut(files)
        self.stored.rollovers.sieve.cut(files)
        self.position = last_position(files)
        self._find_places()
        self.end_event()
        return True

    def begin_anew(self) -> None:
        """Start to receive the whole partition into new files. Raises `OutOfStep` if there is too little disk space."""
        fresh = self._create()
        clear_header(fresh)
        self._is_anew = True
        self._attach(fresh)
        self.position = NOWHERE
        self._places, self._places_before = MessagePlaces(fresh), self._places

    def complete(self, sync_point: RecordNumber) -> None:
        """Complete the partition; `sync_point` is the first one after the primary's last rollover."""
        if not self.is_anew:
            return
        files, stored = self.files, self.stored
        old = stored.files
        offset = _find(files, sync_point)
        stored.sets.keep_removals(old)
        stored.sets.finish(files, lambda: write_header(files, stored.partition_id, offset))
        stored.records.files = files
        self._is_anew = False
        assert self._places_before is not None
        self._throw_away(self._places_before.give_up())
        self._places_before = None
        self.end_event()
        if self.is_rotten:
            self.is_rotten = False
            old.set_aside()
        elif old.journal_end > JOURNAL_START:
            stored.sets.retire(old)
        else:
            old.remove()

    # -- reading

    def recover(self) -> Recovered:
        """Recover the partition's state, since this node is about to serve it."""
        return recover(self.files, self.files.ends)

    @property
    def written_s(self) -> int:
        """The time of the last record, in seconds since the epoch; 0 if there is none."""
        files = self.files
        if self.position == NOWHERE:
            return 0
        return ANY_RECORD.unpack(files.journal.buffer, files.journal_end - JOURNAL_RECORD_SIZE).timestamp

    @property
    def is_full(self) -> bool:
        """Return True if the journal has reached its maximum size, regardless of free disk space."""
        return self.files.journal_end + JOURNAL_RECORD_SIZE > len(self.files.journal.buffer)

    def begin_lease(self, lease_id: int) -> bool:
        """Write the first record of this node's own lease; return False if there is no room."""
        begins = self.stored.begin_lease(lease_id)
        self.position = last_position(self.files)
        return begins

    def let_go(self) -> None:
        """Drop the index, since the partition is served from here and its queues locate their messages."""
        self._throw_away(self._places.give_up())

    def _throw_away(self, chunks: Sequence[dict[bytes, Any]]) -> None:
        """Free the memory of unneeded data in slices."""
        if self.stored.work is not None and chunks:
            self.stored.work.start(throw_away(self.stored.work, [*chunks]))

    def totals(self) -> dict[bytes, tuple[int, int]]:
        """Return the number of messages, and their bytes, by queue key."""
        return self._places.stored()

    def listed(self, queue_key: bytes, first: int, count: int) -> list[CopiedMessage]:
        """List `count` messages of a queue from number `first` on, oldest first."""
        return self._places.listed(queue_key, first, count)

    def read(self, queue_key: bytes, guid: bytes) -> Content | None:
        """Read a message as posted; None if it is missing or corrupted. Views are valid until the next step."""
        place = self._places.find(queue_key, guid)
        if place is None:
            return None
        files, offset, compression = place
        buffer = files.data.buffer
        try:
            found = parse_data_record(buffer, offset)
            checksum = found.crc32c(buffer)
        except FormatError:
            self.is_rotten = True
            return None
        if self._checksums.find(files, offset) not in (checksum, None):
            self.is_rotten = True
            return None
        header = found.header
        return Content(
            found.app_data(buffer),
            checksum,
            compression,
            bool(header.flags & DataHeaderFlags.MESSAGE_PROPERTIES),
            header.schema_id,
            found.options(buffer),
        )


def _find(files: PartitionFiles, position: RecordNumber) -> int:
    if position == NOWHERE:
        return 0
    offset = offset_of(files, position)
    if offset is None:
        raise OutOfStep(f"the primary's sync point {position} is not among the records that it sent")
    return offset
