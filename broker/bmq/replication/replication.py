# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Replication of a primary's partition: one ordered stream of journal records, each with its data.

Records are read back from the mapped files, so writing them costs no more than in a cluster of one. A live follower
gets each record once, in a STORAGE event that all live followers share. A healing follower gets PARTITION_SYNC events
up to the primary's position when healing began, then STORAGE events, in slices, until it has caught up. A follower
whose link is slower than the writes becomes a healing one: no more is queued than its link can hold.

Confirms and deletions wait briefly for a message to go with, since an event of their own would cost each replica a
step.

A record counts as kept when `copies_wanted` nodes have it. A receipt names the last record that a replica has; only
messages that wait for copies request one (source: mqbs::FileStore::processReceiptEvent).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final

from broker.bmq.links.links import HealingLinks
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.healing_pace import HealingPace
from broker.bmq.replication.positions import NOWHERE, last_position
from broker.bmq.replication.removals import removals_events
from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.codes import StorageFlag, StorageMessageType
from formats.bmq.disk.data import MESSAGE_WORDS_MASK, unpack_sizes
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import (
    ANY_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    SEQUENCE_NUMBER_MASK,
    QueueOpType,
    RecordType,
)
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import parse_queue_record
from formats.bmq.wire.event import EventType, build_event
from formats.bmq.wire.storage import append_storage

__all__ = ["EVENT_BYTES_MAX", "SLICE_BYTES", "Follower", "RecordTransfer", "ReplicationStream", "pack_records"]

# Approximate maximum size of an event (mqbcfg::StorageSyncConfig::partitionSyncEventSize is 4 MiB).
EVENT_BYTES_MAX: Final = 4 << 20

# A healing follower gets slices of this size, one in each step, so that others need not wait long.
SLICE_BYTES: Final = 224 << 10
# It gets the next one when less than this waits on its link.
HEALING_BACKLOG_MAX: Final = 2 << 20

# With more than this waiting on its link, a follower no longer gets each record at once.
BACKLOG_MAX: Final = 64 << 20

# Confirms and deletions wait for a message at most for this time, and until this number of bytes of the journal.
GATHERED_MS_MAX: Final = 2
GATHERED_BYTES_MAX: Final = 512 * JOURNAL_RECORD_SIZE

# Plain integers: this is on the path of every message.
_MESSAGE_TYPE: Final = {
    int(record_type): int(message_type)
    for record_type, message_type in (
        (RecordType.CONFIRM, StorageMessageType.CONFIRM),
        (RecordType.DELETION, StorageMessageType.DELETION),
        (RecordType.JOURNAL_OP, StorageMessageType.JOURNAL_OP),
    )
}
_MAKING: Final = (QueueOpType.CREATION, QueueOpType.ADDITION)
_DATA, _RECEIPT_REQUESTED = int(StorageMessageType.DATA), int(StorageFlag.RECEIPT_REQUESTED)
_MESSAGE: Final = int(RecordType.MESSAGE)
_CONFIRM: Final = int(RecordType.CONFIRM)
_DELETION: Final = int(RecordType.DELETION)
_QUEUE_OP: Final = int(RecordType.QUEUE_OP)

_message_record: Final = MESSAGE_RECORD.partial("sequence_number", "message_offset_dwords").unpack_from
_queue_op_record: Final = QUEUE_OP_RECORD.partial("queue_op_type", "queue_uri_record_offset_words").unpack_from


def pack_records(
    out: bytearray,
    files: PartitionFiles,
    partition_id: int,
    start: int,
    end: int,
    awaited: Container[int] = (),
    bytes_max: int = EVENT_BYTES_MAX,
) -> int:
    """Append the records from `start` to an event's body, up to `end` or until it is full; return the next offset.

    Messages whose sequence number is in `awaited` request a receipt.
    """
    journal, data, qlist = files.journal.buffer, files.data.buffer, files.qlist.buffer
    at = start
    while at < end and len(out) < bytes_max:
        record = journal[at : at + JOURNAL_RECORD_SIZE]
        kind = record[0] >> 4
        if kind == _MESSAGE:
            word, place = _message_record(record)
            offset = place * DWORD
            size = (unpack_sizes(data, offset)[0] & MESSAGE_WORDS_MASK) * WORD
            flags = _RECEIPT_REQUESTED if word & SEQUENCE_NUMBER_MASK in awaited else 0
            append_storage(out, _DATA, partition_id, at // WORD, record, data[offset : offset + size], flags)
        elif kind != _QUEUE_OP:
            append_storage(out, _MESSAGE_TYPE[kind], partition_id, at // WORD, record)
        elif (queue_op := _queue_op_record(record))[0] in _MAKING:
            offset = queue_op[1] * WORD
            queue = qlist[offset : parse_queue_record(qlist, offset).end]
            append_storage(out, StorageMessageType.QLIST, partition_id, at // WORD, record, queue)
        else:
            append_storage(out, StorageMessageType.QUEUE_OP, partition_id, at // WORD, record)
        at += JOURNAL_RECORD_SIZE
    return at


class Follower:
    """A replica that gets the stream. `at` is the next offset; records before `healing_end` are sent as PARTITION_SYNC.

    `position` is the last record that it is known to have. `removals` are events that go before the first record.
    """

    __slots__ = ("at", "healing_end", "is_live", "node_id", "position", "removals")

    def __init__(self, node_id: int, at: int, healing_end: int, position: RecordNumber) -> None:
        self.node_id = node_id
        self.at = at
        self.healing_end = healing_end
        self.position = position
        self.is_live = False
        self.removals: Iterator[bytes] = iter(())


class RecordTransfer:
    """The records that this replica sends to a primary that lacks them: from `at` to its journal's end.

    A primary without records, if it `begins`, also gets earlier removals.
    """

    def __init__(
        self,
        stored: StoredPartition,
        links: HealingLinks,
        node_id: int,
        at: int,
        done: Callable[[], None],
        *,
        begins: bool = False,
    ) -> None:
        self._removals = _removals(stored, links, node_id) if begins else iter(())
        self._partition = stored
        self._links = links
        self._node_id = node_id
        self._at = at
        self._end = stored.files.journal_end
        self._done = done

    @property
    def busy(self) -> bool:
        return self._links.backlog(self._node_id) < HEALING_BACKLOG_MAX

    def flush(self) -> bool:
        stored, links = self._partition, self._links
        if links.backlog(self._node_id) < HEALING_BACKLOG_MAX and (event := next(self._removals, None)) is not None:
            links.send(self._node_id, event)
            return False
        if self._at < self._end and links.backlog(self._node_id) < HEALING_BACKLOG_MAX:
            body = bytearray()
            self._at = pack_records(body, stored.files, stored.partition_id, self._at, self._end, bytes_max=SLICE_BYTES)
            links.send(self._node_id, build_event(EventType.PARTITION_SYNC, body))
        if self._at < self._end:
            return False
        self._done()
        return True


class ReplicationStream:
    """The followers of one partition and their progress.

    `heals` is True while a follower lacks existing records: it is checked after each step.
    """

    def __init__(self, stored: StoredPartition, links: HealingLinks, pace: HealingPace, majority: int) -> None:
        self._partition = stored
        self._links = links
        self._pace = pace
        self._majority = majority
        self._sent = stored.files.journal_end  # live followers have the records before this offset
        self._sent_number = 0  # of the last record that they have
        self._gathered = self._sent  # all records from there to here are confirms and deletions
        self._gathered_ms = 0  # time at which the first of them was found
        self.followers: dict[int, Follower] = {}
        self.heals = False

    def has_fallen_behind(self, node_id: int) -> bool:
        """Return True if a healed replica has not yet received everything written since."""
        follower = self.followers.get(node_id)
        return follower is not None and not follower.is_live and follower.at >= follower.healing_end

    def _look(self) -> None:
        """Update `heals`: to be called when a follower comes or goes, or becomes live or not."""
        self.heals = not all(follower.is_live for follower in self.followers.values())

    @property
    def busy(self) -> bool:
        """Return True if a follower may get a slice at once, and its link has room."""
        return self._pace.goes_on and any(
            not follower.is_live and self._links.backlog(node_id) < HEALING_BACKLOG_MAX
            for node_id, follower in self.followers.items()
        )

    def follow(self, node_id: int, position: RecordNumber, start: int) -> RecordNumber:
        """Send a replica everything after `position`, whose next record is at `start`; return the end of healing."""
        self.flush()
        files = self._partition.files
        follower = self.followers[node_id] = Follower(node_id, start, files.journal_end, position)
        follower.is_live = start == files.journal_end
        if position == NOWHERE:
            follower.removals = _removals(self._partition, self._links, node_id)
        self._look()
        return last_position(files)

    def forget(self, node_id: int) -> None:
        """Remove a replica that is lost, or must start over."""
        self.followers.pop(node_id, None)
        self._look()

    # -- sending

    def heal(self) -> None:
        """Send slices to healing replicas, as far as the pace allows: first to the one that has waited longest."""
        for node_id, follower in list(self.followers.items()):
            if not follower.is_live and self._pace.may_send:
                self.followers[node_id] = self.followers.pop(node_id)
                self._send_slice(follower)

    @property
    def gathers(self) -> bool:
        return self._sent != self._partition.files.journal_end

    def _may_gather(self, end: int) -> bool:
        journal, now_ms = self._partition.files.journal.buffer, self._partition.now.ms
        if self._gathered == self._sent:
            self._gathered_ms = now_ms
        for at in range(self._gathered, end, JOURNAL_RECORD_SIZE):
            kind = journal[at] >> 4
            if kind != _CONFIRM and kind != _DELETION:
                return False
        self._gathered = end
        return end - self._sent < GATHERED_BYTES_MAX and now_ms - self._gathered_ms < GATHERED_MS_MAX

    def flush(self, *, gathers: bool = False) -> None:
        """Send new records to the followers that have all earlier ones.

        With `gathers`, confirms and deletions may wait for a message: call it without, too, before long.
        """
        stored, links = self._partition, self._links
        end = stored.files.journal_end
        if self._sent == end or (gathers and self._may_gather(end)):
            return
        self._pace.written()
        live = []
        for follower in self.followers.values():
            if not follower.is_live:
                continue
            if links.backlog(follower.node_id) < BACKLOG_MAX:
                live.append(follower.node_id)
            else:
                follower.is_live = False
                follower.at = follower.healing_end = self._sent
                self.heals = True
        at = self._sent
        awaited = self._awaited(self._sent_number) if live else ()
        while live and at < end:
            body = bytearray()
            at = pack_records(body, stored.files, stored.partition_id, at, end, awaited)
            event = build_event(EventType.STORAGE, body)
            for node_id in live:
                links.send(node_id, event)
        self._sent = self._gathered = end
        # Held records are yet to be sent.
        self._sent_number = last_position(stored.files).sequence_number

    def _may_await(self) -> range:
        """Return the sequence numbers of messages that wait for copies."""
        awaiting = self._partition.kept.awaiting
        return range(awaiting[0].sequence_number, awaiting[-1].sequence_number + 1) if awaiting else range(0)

    def _awaited(self, behind: int) -> set[int]:
        """Return the sequence numbers, after `behind`, of messages that wait for copies."""
        numbers: set[int] = set()
        for waiting in reversed(self._partition.kept.awaiting):
            if waiting.sequence_number <= behind:
                break
            numbers.add(waiting.sequence_number)
        return numbers

    def _send_slice(self, follower: Follower) -> None:
        stored, links = self._partition, self._links
        if follower.at < self._sent and links.backlog(follower.node_id) < HEALING_BACKLOG_MAX:
            if (event := next(follower.removals, None)) is not None:
                links.send(follower.node_id, event)
                self._pace.sent(len(event))
                return
            body = bytearray()
            heals = follower.at < follower.healing_end
            end, awaited = (follower.healing_end, ()) if heals else (self._sent, self._may_await())
            follower.at = pack_records(body, stored.files, stored.partition_id, follower.at, end, awaited, SLICE_BYTES)
            links.send(follower.node_id, build_event(EventType.PARTITION_SYNC if heals else EventType.STORAGE, body))
            self._pace.sent(len(body))
        follower.is_live = follower.at == self._sent
        self._look()

    def before_rollover(self) -> list[int]:
        """Send the contents of files about to be replaced; return the replicas for which that would be too much."""
        self.flush()
        behind = [node_id for node_id, follower in self.followers.items() if not follower.is_live]
        for node_id in behind:
            del self.followers[node_id]
        self._look()
        return behind

    def after_rollover(self, start: int) -> None:
        """Continue in the new files for all followers at `start`, with their first sync point."""
        self._sent = self._gathered = start
        for follower in self.followers.values():
            follower.at = follower.healing_end = start

    # -- receipts

    def has(self, node_id: int, position: RecordNumber) -> None:
        follower = self.followers.get(node_id)
        # A healed replica may have had everything before: its receipts for that were lost with its link.
        if follower is None or position < follower.position:
            return
        follower.position = position
        self.count()

    def count(self) -> None:
        stored = self._partition
        if not stored.kept.awaiting:
            return
        lease_id, others = stored.primary_lease_id, stored.kept.copies_wanted - 1
        numbers = [
            each.position.sequence_number
            for each in self.followers.values()
            if each.position.primary_lease_id == lease_id
        ]
        numbers.sort(reverse=True)
        # An operator may want fewer copies than guarantee that the next primary has one, or more.
        if len(numbers) >= self._majority - 1:
            stored.kept.kept_number = numbers[self._majority - 2] if self._majority > 1 else stored.sequence_number
        if len(numbers) >= others:
            stored.kept.copied(numbers[others - 1] if others > 0 else stored.sequence_number, stored.kept.kept_number)


def _removals(stored: StoredPartition, links: HealingLinks, node_id: int) -> Iterator[bytes]:
    if not links.takes_removals(node_id):
        return iter(())
    journal = stored.files.journal.buffer
    return removals_events(stored, ANY_RECORD.unpack(journal, stored.files.journal_end - JOURNAL_RECORD_SIZE).timestamp)
