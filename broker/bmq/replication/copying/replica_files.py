# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A replica's store of a partition: it writes the primary's records at the same offsets, and indexes the messages.

Records, index and rollovers change together here: as records come, and when the copy is truncated, received from
scratch, or left by its primary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple

from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.copying.copy_index import CopyIndex
from broker.bmq.replication.copying.copy_records import CopyRecords, OutOfStep
from broker.bmq.replication.copying.copy_rollovers import CopyRollovers
from broker.bmq.replication.copying.record_runs import RecordRun, follows
from broker.bmq.replication.positions import JOURNAL_START, NOWHERE, offset_behind, offset_of, position_until
from broker.bmq.store.cutting import clear_records, ends_at, set_ends
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import Recovered, recover
from broker.bmq.store.rollover import clear_header, write_header
from formats.bmq.codes import StorageFlag, StorageMessageType
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
)
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.wire.storage import StorageMessage, append_storage, iter_storage, storage_size
from formats.errors import FormatError

__all__ = ["ReplicaFiles", "WrittenRecords"]

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


class WrittenRecords(NamedTuple):
    """The end of the written records of an event, and the last one that requests a receipt."""

    end: int
    asking: RecordNumber | None


# Called with the queue's key and the GUID of a message that the primary has removed.
Removed = Callable[[bytes, bytes], None]
# Called with the key of a purged queue, the messages that the purge removes from the copy, and True if the record heals
# it: messages posted after the purge may then be known already.
Purged = Callable[[bytes, Sequence[Container[bytes]], bool], None]


class ReplicaFiles:
    """The files that a replica writes: those of its partition, or a second set while it receives that from scratch.

    The journal of the second set gets its header last, so that a node that dies before continues with the first set.
    `removed` and `purged` are called for records that remove messages.
    """

    __slots__ = ("_stored", "index", "purged", "records", "removed", "rollovers")

    def __init__(
        self,
        stored: StoredPartition,
        recovered: Recovered | None = None,
        removed: Removed = lambda queue_key, guid: None,
        purged: Purged = lambda queue_key, guids, heals: None,
    ) -> None:
        self._stored = stored
        self.removed = removed
        self.purged = purged
        self.records = CopyRecords(stored)
        self.index = CopyIndex(stored, self.records, recovered)
        self.rollovers = CopyRollovers(stored, self.records, self.index)

    # -- writing

    def write_all(
        self, data: memoryview, start: int, end: int, *, heals: bool = False, bytes_max: int = NO_BOUND
    ) -> WrittenRecords:
        """Write the records of an event's body, `data[start:end]`.

        Stops after about `bytes_max`, and at a record that begins a rollover while the previous one is unfinished; the
        caller writes the rest once this copy is not busy.

        With `heals`, no record begins a rollover: the sender was still in the old files after it. Raises `OutOfStep` or
        FormatError at the first record that does not fit or is malformed; the ones before it are written.
        """
        records, rollovers = self.records, self.rollovers
        asking = None
        if not rollovers.begin_waiting():
            return WrittenRecords(start, None)
        room_end = start + bytes_max
        while start < end and start < room_end and not rollovers.rolls_again:
            run = records.run(data, start, end)
            if run is not None:
                self._write_run(run)
                asking, start = run.asking or asking, run.end
                continue
            message = next(iter_storage(data, start, end))
            self.write(message, heals=heals)
            start += storage_size(data, start)
            if message.flags & _RECEIPT_REQUESTED:
                asking = records.position
        return WrittenRecords(start, asking)

    def _write_run(self, run: RecordRun) -> None:
        self.records.append(run)
        places = self.index.places
        for key, guid, offset, compression, size in run.changes:
            if size < 0:
                places.take(key, guid)
                self.removed(key, guid)
            else:
                places.add(key, guid, offset, compression, size)

    def write(self, message: StorageMessage, *, heals: bool = False) -> None:
        """Write one record and its data. Raises `OutOfStep`, without effect, if it does not fit."""
        _, message_type, _, offset_words, record, data = message
        records = self.records
        at = records.files.journal_end
        if offset_words * WORD != at or not at:
            self.rollovers.begin_tail(record, offset_words * WORD)
        word, lease_id, magic = _any_record(record)
        kind = word >> TYPE_SHIFT
        if _RECORD_TYPE.get(message_type) != kind or magic != RECORD_MAGIC:
            raise OutOfStep(f"a record of type {kind} in a message of type {message_type}, or a wrong magic")
        position = _new(RecordNumber, (lease_id, word & SEQUENCE_NUMBER_MASK))
        if not follows(records.point, *records.position, *position):
            raise OutOfStep(f"{position} after {records.position}")
        if kind not in (_QUEUE_OP, _JOURNAL_OP):
            self._write_one(message, kind)
            return
        records.reserve_one()
        if kind == _QUEUE_OP:
            self._write_queue(record, data, heals=heals)
        records.append_records(record, position)
        if kind == _JOURNAL_OP:
            self.rollovers.on_sync_point(record[_SYNC_POINT_TYPE], heals=heals)

    def _write_one(self, message: StorageMessage, kind: int) -> None:
        """Write a message, confirm or deletion as a run of one. Raises `OutOfStep` if its data does not fit."""
        flags, message_type, partition_id, offset_words, record, data = message
        body = bytearray()
        append_storage(body, message_type, partition_id, offset_words, record, data, flags)
        run = self.records.run(memoryview(body), 0, len(body))
        if run is None:
            start = _message_record(record)[2] * DWORD
            if kind == _MESSAGE and start != self.records.files.data_end:
                raise OutOfStep(f"a message for {start}, DATA is at {self.records.files.data_end}")
            raise OutOfStep(f"{len(data)} bytes are not a DATA record, or do not match their checksum")
        self._write_run(run)

    def _write_queue(self, record: memoryview, data: memoryview, *, heals: bool) -> None:
        key, app_key, kind, offset_words = _queue_op_record(record)
        if kind in _MAKING:
            self.records.append_queue(offset_words * WORD, data)
        elif kind in (QueueOpType.PURGE, QueueOpType.DELETION) and app_key == NULL_KEY:
            log.info(
                "Partition [%d]: Received QueueOpRecord of type [%s] for queue key [%s]",
                self._stored.partition_id,
                QueueOpType(kind).name,
                key.hex().upper(),
            )
            guids = self.index.places.take_all(key)
            self.purged(key, guids, heals)
            self.index.throw_away(guids)

    def end_event(self) -> None:
        if not self.records.is_fresh:
            stored = self._stored.records
            stored.primary_lease_id, stored.sequence_number = self.records.position

    def settle(self) -> None:
        """Undo an unfinished rollover or reception: this primary sends no more."""
        records = self.records
        if not self.rollovers.undo() and records.is_fresh:
            records.is_fresh = False
            records.files.remove()
            self.index.go_back()
            records.attach(self._stored.files)
        records.find_end()
        self.end_event()

    # -- healing

    def cut(self, position: RecordNumber) -> bool:
        """Truncate the store after `position`, or after the last record before that; return True if done.

        Does nothing if no record would remain, if it would take long, or if the remaining records are corrupted. The
        index of messages is rebuilt in slices.
        """
        files, sets = self.records.files, self._stored.sets
        behind = offset_behind(files, position_until(files, position))
        if behind is None or behind == JOURNAL_START:
            return False
        try:
            ends = ends_at(files, behind)
        except FormatError as error:
            self.index.note_rot(error)
            return False
        if sum(files.ends) - sum(ends) > CUT_BYTES_MAX:
            return False
        clear_records(files.journal.buffer, behind, files.journal_end)
        if sets.outlives_power:
            # Before their payloads are cleared: a journal that still refers to these would look corrupted.
            files.journal.flush()
        set_ends(files, ends)
        sets.removals.cut(files)
        self._stored.rollovers.sieve.cut(files)
        self.records.find_end()
        self.index.rebuild()
        self.end_event()
        return True

    def start_over(self) -> None:
        """Start to receive the whole partition into new files. Raises `OutOfStep` if there is too little disk space."""
        records = self.records
        fresh = records.create()
        clear_header(fresh)
        records.is_fresh = True
        records.attach(fresh)
        records.position = NOWHERE
        self.index.start_over(fresh)

    def complete(self, sync_point: RecordNumber) -> None:
        """Complete the partition; `sync_point` is the first one after the primary's last rollover."""
        records, index, stored = self.records, self.index, self._stored
        if not records.is_fresh:
            return
        files, old = records.files, stored.files
        offset = _find(files, sync_point)
        stored.sets.keep_removals(old)
        stored.sets.finish(files, lambda: write_header(files, stored.partition_id, offset))
        stored.records.files = files
        records.is_fresh = False
        index.complete()
        self.end_event()
        if index.is_rotten:
            index.is_rotten = False
            old.set_aside()
        elif old.journal_end > JOURNAL_START:
            stored.sets.retire(old)
        else:
            old.remove()

    def recover(self) -> Recovered:
        files = self.records.files
        return recover(files, files.ends)

    @property
    def written_s(self) -> int:
        """The time of the last record, in seconds since the epoch; 0 if there is none."""
        files = self.records.files
        if self.records.position == NOWHERE:
            return 0
        return ANY_RECORD.unpack(files.journal.buffer, files.journal_end - JOURNAL_RECORD_SIZE).timestamp

    def begin_lease(self, lease_id: int) -> bool:
        """Write the first record of this node's own lease; return False if there is no room."""
        begins = self._stored.begin_lease(lease_id)
        self.records.find_end()
        return begins


def _find(files: PartitionFiles, position: RecordNumber) -> int:
    if position == NOWHERE:
        return 0
    offset = offset_of(files, position)
    if offset is None:
        raise OutOfStep(f"the primary's sync point {position} is not among the records that it sent")
    return offset
