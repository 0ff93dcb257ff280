"""The records on the nodes' disks, the number of replicas of each, and their agreement.

Reads what each step has added to a journal, as far as it can; when a node truncates or changes files, all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.bmq.node.node import Node
from broker.bmq.queue.queue import Queue
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import (
    CONFIRM_RECORD,
    DELETION_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    ConfirmReason,
    DeletionRecordFlag,
    QueueOpType,
    RecordType,
)
from formats.bmq.disk.keys import NULL_KEY
from tests.simulator.actors.operator import EXTRA_APP
from tests.simulator.judges.copies import Copies
from tests.simulator.judges.invariants import Violation

__all__ = ["JournalView", "Journals"]

# The parts of a record that nodes must have alike under one number: not the places of payloads, which rollovers move.
_ALIKE = {RecordType.MESSAGE: slice(36, 56), RecordType.CONFIRM: slice(20, 48), RecordType.DELETION: slice(20, 44)}
_ALIKE_PURGE = slice(20, 56)

Number = tuple[int, int]


class Kept(NamedTuple):
    """A message that is not removed: its queue's key, the number of apps that it is for, and the keys of apps that are
    done with it; `unasked` never wanted it.
    """

    queue_key: bytes
    ref_count: int
    confirmed: set[bytes]
    unasked: set[bytes]

    @property
    def is_wanted(self) -> bool:
        """False if all apps are done: a new primary forgets it, one that removes an app has yet to delete it."""
        return len(self.confirmed - self.unasked) < max(1, self.ref_count)


class JournalView:
    """One node's journal, as far as it was read."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Read from its start again."""
        self.name = ""
        self.at = 0
        self.last = b""
        self.position: Number = (0, 0)  # of the last record
        self.numbers: set[Number] = set()
        self.kept: dict[bytes, Kept] = {}
        self.written: dict[bytes, Number] = {}  # by the GUIDs of those, under which numbers
        # The apps that do not want a message, by its GUID: their confirms come before its record.
        self.unasked: dict[bytes, set[bytes]] = {}

    def take(self, kind: RecordType, record: bytes) -> None:
        """Take in what a record says of messages."""
        if kind is RecordType.MESSAGE:
            message = MESSAGE_RECORD.unpack(record)
            unasked = self.unasked.pop(message.guid, set())
            if message.guid not in self.kept:
                self.kept[message.guid] = Kept(message.queue_key, message.ref_count, set(unasked), unasked)
                self.written[message.guid] = message.primary_lease_id, message.sequence_number
        elif kind is RecordType.CONFIRM:
            confirm = CONFIRM_RECORD.unpack(record)
            if confirm.reason == ConfirmReason.AUTO_CONFIRMED:
                self.unasked.setdefault(confirm.guid, set()).add(confirm.app_key)
            elif confirm.guid in self.kept:
                self.kept[confirm.guid].confirmed.add(confirm.app_key)
        elif kind is RecordType.DELETION:
            self.kept.pop(DELETION_RECORD.unpack(record).guid, None)
        elif kind is RecordType.QUEUE_OP:
            operation = QUEUE_OP_RECORD.unpack(record)
            if operation.queue_op_type in (QueueOpType.PURGE, QueueOpType.DELETION):
                self._purge(operation.queue_key, operation.app_key)

    def refused_by(self, record: bytes) -> list[bytes]:
        """The messages that a record is about to remove, and says to have been refused for want of copies."""
        if RecordType(record[0] >> 4) is RecordType.DELETION:
            deletion = DELETION_RECORD.unpack(record)
            return [deletion.guid] if deletion.deletion_flag == DeletionRecordFlag.NO_SC_QUORUM else []
        operation = QUEUE_OP_RECORD.unpack(record)
        start = operation.start_primary_lease_id, operation.start_sequence_number
        if operation.queue_op_type != QueueOpType.PURGE or operation.app_key != NULL_KEY or not start[1]:
            return []
        return [
            guid
            for guid, kept in self.kept.items()
            if kept.queue_key == operation.queue_key and self.written[guid] >= start
        ]

    def purged_by(self, record: bytes) -> list[bytes]:
        """The messages that a record of a queue's purge is about to remove for all apps, without those refused."""
        operation = QUEUE_OP_RECORD.unpack(record)
        refused = self.refused_by(record)
        return [
            guid
            for guid, kept in self.kept.items()
            if kept.queue_key == operation.queue_key and operation.app_key == NULL_KEY and guid not in refused
        ]

    def _purge(self, queue_key: bytes, app_key: bytes) -> None:
        for guid in [guid for guid, kept in self.kept.items() if kept.queue_key == queue_key]:
            if app_key == NULL_KEY:
                del self.kept[guid]
            else:
                self.kept[guid].confirmed.add(app_key)


class Journals:
    """The journals of one partition at all nodes.

    `refuse` is called for each post that a primary has given up for lack of copies: its producer may post it again.
    """

    def __init__(self, partition_id: int, quorum: int, refuse: Callable[[bytes], None]) -> None:
        self.partition_id = partition_id
        self.quorum = quorum
        self._refuse = refuse
        self.views: dict[int, JournalView] = {}
        self.primaries: dict[int, int] = {}  # by lease id
        # Messages that no quorum can have lost since some time, and under which number first.
        self.safe: dict[bytes, Number] = {}
        self.twice: list[bytes] = []  # the messages that it has had under another number since
        self._refused: set[bytes] = set()
        self._records: dict[Number, bytes] = {}
        self._durable: set[tuple[bytes, bytes]] = set()
        self._purges: dict[Number, list[bytes]] = {}  # the messages that they removed for all apps
        self._copied: dict[Number, bytes] = {}  # what enough nodes have, and may yet be lost
        self.copies = Copies(quorum)
        self.damaged: set[int] = set()  # nodes whose files of this partition are damaged, and not healed yet

    def look(self, node_id: int, node: Node) -> Iterator[tuple[bytes, bytes]]:
        """Check a node after its step; yield the (GUID, app key) of the confirms that became durable by it."""
        partition = node.partitions[self.partition_id]
        if partition.active:
            known = self.primaries.setdefault(partition.primary_lease_id, node_id)
            if known != node_id:
                raise Violation(f"n{known} and n{node_id} are both primary under lease {partition.primary_lease_id}")
        self.damaged.discard(node_id)
        if partition.damage.is_there:
            self.damaged.add(node_id)
        view = self.views.setdefault(node_id, JournalView())
        files = partition.files
        if view.at == files.journal_end and view.name == files.journal.name:
            return
        buffer = files.journal.buffer
        start = view.at - JOURNAL_RECORD_SIZE
        if (
            view.name != files.journal.name
            or view.at > files.journal_end
            or bytes(buffer[start : view.at]) != view.last
        ):
            view.forget()
            view.name = files.journal.name
            view.at = open_file(buffer, FileType.JOURNAL).first_record_offset
        while view.at < files.journal_end:
            record = bytes(buffer[view.at : view.at + JOURNAL_RECORD_SIZE])
            view.at += JOURNAL_RECORD_SIZE
            view.last = record
            self._take(node_id, view, record)
        for number in [number for number in self._copied if self.is_settled(number)]:
            for done in self._settle(number, self._copied.pop(number)):
                if done not in self._durable:
                    self._durable.add(done)
                    yield done

    def _damaged_with(self, number: Number) -> int:
        """Return how many nodes whose files are damaged have had a record."""
        return sum(self.copies.has_held(node_id, number) for node_id in self.damaged)

    def is_settled(self, number: Number) -> bool:
        """Return whether every primary to come has a record.

        A quorum's copies are not enough: where a node without the record has one of a newer lease, a quorum that
        has it in its midst takes that node's journal for the right one.

        A node with damaged files tells nothing before it has all again from a primary
        (`broker.bmq.consensus.coverage`). So a quorum that tells is one of the others, of which it leaves out fewer by
        as many as are damaged. A record that a damaged node has had counts as a copy: each primary that may heal it has
        it. Other records do not count: a primary that has yet to write one may heal the node, which then lacks it
        like any other.
        """
        views = [view for node_id, view in self.views.items() if node_id not in self.damaged]
        having = [view.position for view in views if number in view.numbers]
        without = [view.position for view in views if number not in view.numbers]
        wanted = max(1, self.quorum - self._damaged_with(number))
        return all(sum(position > other for position in having) >= wanted for other in without)

    def _take(self, node_id: int, view: JournalView, record: bytes) -> None:
        """Take in a record."""
        kind = RecordType(record[0] >> 4)
        if kind in (RecordType.DELETION, RecordType.QUEUE_OP):
            for guid in view.refused_by(record):
                self._refused.add(guid)
                self._refuse(guid)
        number = int.from_bytes(record[8:12], "big"), int.from_bytes(record[2:8], "big")
        alike = _ALIKE.get(kind)
        if kind is RecordType.QUEUE_OP and QUEUE_OP_RECORD.unpack(record).queue_op_type == QueueOpType.PURGE:
            self._purges.setdefault(number, view.purged_by(record))
            alike = _ALIKE_PURGE
        view.take(kind, record)
        view.position = number
        if alike is None:
            return
        content = bytes((kind,)) + record[alike]
        known = self._records.setdefault(number, content)
        if known != content:
            raise Violation(f"n{node_id} has another record {number} than others: {content.hex()}, not {known.hex()}")
        view.numbers.add(number)
        self.copies.held(node_id, number)
        sound = sum(number in each.numbers for other, each in self.views.items() if other not in self.damaged)
        if sound >= max(1, self.quorum - self._damaged_with(number)):
            self._copied[number] = record

    def _settle(self, number: Number, record: bytes) -> list[tuple[bytes, bytes]]:
        """Note what a record says that is there to stay; of what it removes the GUIDs and app keys, none for all."""
        kind = RecordType(record[0] >> 4)
        if kind is RecordType.MESSAGE:
            guid = MESSAGE_RECORD.unpack(record).guid
            if self.safe.setdefault(guid, number) != number and guid not in self._refused:
                self.twice.append(guid)
            return []
        if kind is RecordType.CONFIRM:
            confirm = CONFIRM_RECORD.unpack(record)
            return [(confirm.guid, confirm.app_key)]
        if kind is RecordType.QUEUE_OP:
            return [(guid, b"") for guid in self._purges[number]]
        return [] if _refused_by(record) else [(DELETION_RECORD.unpack(record).guid, b"")]

    def check_queue(self, node_id: int, queue: Queue) -> None:
        """Check that a primary's messages of a queue equal those in its journal."""
        kept = {
            guid: each.confirmed
            for guid, each in self.views[node_id].kept.items()
            if each.queue_key == queue.key and (each.is_wanted or guid in queue.messages)
        }
        if kept.keys() != queue.messages.keys():
            (guid, *_) = kept.keys() ^ queue.messages.keys()
            where = "its journal" if guid in kept else "its memory"
            raise Violation(f"n{node_id} has {guid.hex().upper()} of {queue.uri} in {where} alone")
        for message in queue.messages.peek():
            guid = message.guid
            for app in queue.apps.values():
                is_confirmed = app.key in kept[guid]
                if is_confirmed == bool(message.outstanding & app.bit) and app.app_id != EXTRA_APP:
                    says = "is" if is_confirmed else "is not"
                    raise Violation(f"{guid.hex().upper()} {says} confirmed by '{app.app_id}' in n{node_id}'s journal")

    def forget(self, node_id: int) -> None:
        """A process begins on what is on the disk."""
        self.views.setdefault(node_id, JournalView()).forget()


def _refused_by(record: bytes) -> bytes:
    """The GUID of the message that a deletion says was refused for want of copies; empty if it says something else."""
    deletion = DELETION_RECORD.unpack(record)
    return deletion.guid if deletion.deletion_flag == DeletionRecordFlag.NO_SC_QUORUM else b""
