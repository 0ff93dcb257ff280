"""Ways to break the core, each of which the simulator must notice: what an invariant is worth is what it catches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch  # noqa: TID251 (faults are planted in interpreted modules only)

from broker.bmq.consensus import primaries
from broker.bmq.consensus.election import Election
from broker.bmq.consensus.replicated import ReplicatedLedger
from broker.bmq.core.history import History
from broker.bmq.core.messages import Buffer, Message
from broker.bmq.member.queue_upkeep import QueueUpkeep
from broker.bmq.node.durability import Durability
from broker.bmq.partition.records import PartitionRecords
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.delivery import Delivery
from broker.bmq.queue.routing import App, Group
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.replication.copying.replica_files import ReplicaFiles
from broker.bmq.replication.replication import ReplicationStream
from formats.bmq.control.messages import (
    ElectionProposal,
    ElectionResponse,
    ElectorMessage,
    PartitionPrimaryInfo,
    ScoutingRequest,
    ScoutingResponse,
)
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import QueueOpType, RecordType

__all__ = ["ALL_MUTATIONS", "CLUSTER_MUTATIONS", "MUTATIONS", "mutated"]

Make = Callable[[Any], Any]


def _every(number: int, mutant: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The original, and every few calls the mutant."""
    calls = 0

    def either(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return (original if calls % number else mutant)(*args, **kwargs)

    return either


def _lose_a_message(original: Any) -> Any:
    """The journal record of a message is not written: acked, delivered, and gone after the next start."""

    def append(self: StoredPartition, *run: Any) -> bool:
        end, number = self.files.journal_end, self.sequence_number
        is_stored = bool(original(self, *run))
        self.files.journal.buffer[end : self.files.journal_end] = bytes(self.files.journal_end - end)
        self.files.journal_end, self.records.sequence_number = end, number
        return is_stored

    return _every(20, append, original)


def _lose_a_removal(original: Any) -> Any:
    """A deletion record is not written: what was confirmed is there again after the next start."""

    def settle(self: PartitionRecords, key: bytes, app_key: bytes, messages: Sequence[Message], *rest: Any) -> None:
        wanted = [each for each in messages if each.outstanding]
        original(self, key, app_key, wanted, *rest)
        self.due -= len(messages) - len(wanted)

    return _every(20, settle, original)


def _forget_who_confirmed(original: Any) -> Any:
    """One app's confirm is not written: it gets the message again."""

    def settle(self: PartitionRecords, key: bytes, app_key: bytes, messages: Sequence[Message], *rest: Any) -> None:
        gone = [each for each in messages if not each.outstanding]
        original(self, key, app_key, gone, *rest)
        self.due -= len(messages) - len(gone)

    return _every(20, settle, original)


def _take_twice(original: Any) -> Any:
    """A retransmission of what is gone already is taken for a new message."""
    return lambda self, guid: True


def _give_back_nothing(original: Any) -> Any:
    """Give a lost consumer's messages to nobody."""
    return lambda self, lot, wanted=None: None


def _give_back_last(original: Any) -> Any:
    """Deliver waiting messages newest first."""

    def deliver(self: Delivery, app: App) -> None:
        if len(app.pending) > 1:
            app.pending.rotate(1)
        original(self, app)

    return _every(20, deliver, original)


def _ack_without_room(original: Any) -> Any:
    """A partition that is full takes the message, and keeps it in memory only."""

    def append(self: StoredPartition, key: bytes, messages: Sequence[Message], *rest: Any) -> bool:
        try:
            return bool(original(self, key, messages, *rest))
        except Exception:
            messages[0].offset = self.files.data_end - messages[0].size - 16
            return True

    return append


def _spoil_a_payload(original: Any) -> Any:
    """A byte of the payload is written wrong."""

    def append(self: StoredPartition, key: bytes, messages: Any, payloads: Sequence[Buffer], *rest: Any) -> bool:
        spoiled = bytearray(payloads[-1])
        spoiled[-1] ^= 1
        return bool(original(self, key, messages, (*payloads[:-1], bytes(spoiled)), *rest))

    return _every(20, append, original)


def _sync_nothing(original: Any) -> Any:
    """Sync nothing before acknowledgments."""
    return lambda self: []


def _match_all(original: Any) -> Any:
    """Every consumer gets what any of them wants."""
    return lambda self, values: True


def _purge_in_memory(original: Any) -> Any:
    """A purge is not written: what was removed is there again after the next start."""

    def append_queue_op(self: StoredPartition, kind: QueueOpType, *rest: Any) -> None:
        if kind is not QueueOpType.PURGE:
            original(self, kind, *rest)

    return append_queue_op


def _replicate_another(original: Any) -> Any:
    """A replica writes another record than the primary sent."""

    def write_all(self: ReplicaFiles, *rest: Any, **options: Any) -> Any:
        outcome = original(self, *rest, **options)
        files = self.records.files
        journal, at = files.journal.buffer, files.journal_end - JOURNAL_RECORD_SIZE
        if journal[at] >> 4 == RecordType.CONFIRM:
            journal[at + JOURNAL_RECORD_SIZE // 2] ^= 1
        return outcome

    return write_all


def _do_nothing(original: Any) -> Any:
    """Leave the call undone."""
    return lambda self, *rest: None


def _send_nothing(original: Any) -> Any:
    """A hop takes what it has kept for sent."""
    return lambda self, sent: sent()


def _vote_again(original: Any) -> Any:
    """A node promises its vote to all who ask, and votes for each of them, in the same term."""

    def receive(self: Election, node_id: int, message: ElectorMessage) -> None:
        if isinstance(message.choice, ScoutingRequest):
            self._send(node_id, ScoutingResponse(will_vote=True))
            return
        if isinstance(message.choice, ElectionProposal) and message.term == self.term:
            self._send(node_id, ElectionResponse())
        original(self, node_id, message)

    return receive


def _forget_the_term(original: Any) -> Any:
    """A term is not kept: the next process may vote in it again."""

    return lambda self, term: True


def _commit_alone(original: Any) -> Any:
    """The leader commits what nobody has acked."""

    def commit(self: ReplicatedLedger) -> None:
        quorum, self.quorum = self.quorum, 1
        original(self)
        self.quorum = quorum

    return commit


def _reuse_leases(original: Any) -> Any:
    """A partition's new primary gets the lease that the old one had."""

    def assign(count: int, known: Any, leases: Any, stays: Any, candidates: Any) -> tuple[PartitionPrimaryInfo, ...]:
        infos = original(count, known, leases, stays, candidates)
        return tuple(
            PartitionPrimaryInfo(
                partition_id=info.partition_id, primary_node_id=info.primary_node_id, primary_lease_id=1
            )
            for info in infos
        )

    return assign


def _count_only_itself(original: Any) -> Any:
    """The primary waits for no copies of what it acknowledges."""

    def flush(self: ReplicationStream, *, gathers: bool = False) -> None:
        self._partition.kept.copied(self._partition.sequence_number)
        original(self, gathers=gathers)

    return flush


Mutations = dict[str, tuple[Any, str, Make]]

# The name of each: what is replaced, and with what.
MUTATIONS: Mutations = {
    "a message is not written": (StoredPartition, "append", _lose_a_message),
    "a deletion is not written": (PartitionRecords, "settle", _lose_a_removal),
    "a confirm is not written": (PartitionRecords, "settle", _forget_who_confirmed),
    "a retransmission is taken twice": (History, "is_new", _take_twice),
    "a lost consumer's messages are not given back": (App, "give_back", _give_back_nothing),
    "the order is not kept": (Delivery, "deliver", _give_back_last),
    "a full partition takes messages": (StoredPartition, "append", _ack_without_room),
    "a payload is spoiled": (StoredPartition, "append", _spoil_a_payload),
    "the disk is not waited for": (Durability, "unsynced", _sync_nothing),
    "subscriptions are not looked at": (Group, "matches", _match_all),
    "a purge is not written": (StoredPartition, "append_queue_op", _purge_in_memory),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The core is broken in the named way."""
    target, attribute, make = ALL_MUTATIONS[name]
    with patch.object(target, attribute, make(getattr(target, attribute))):
        yield


# Mutations that only a cluster shows.
CLUSTER_MUTATIONS: Mutations = {
    "a node votes twice": (Election, "receive", _vote_again),
    "a term is not kept": (Election, "_keep", _forget_the_term),
    "the ledger is committed alone": (ReplicatedLedger, "_commit", _commit_alone),
    "leases are used again": (primaries, "assign_primaries", _reuse_leases),
    "copies are not waited for": (ReplicationStream, "flush", _count_only_itself),
    "a replica writes something else": (ReplicaFiles, "write_all", _replicate_another),
    "a hop sends nothing again": (RelayQueue, "send_kept", _send_nothing),
    "apps stay as they are": (QueueUpkeep, "_update", _do_nothing),
    "a hop passes nothing on": (Delivery, "broadcast", _do_nothing),
}

ALL_MUTATIONS: Mutations = {**MUTATIONS, **CLUSTER_MUTATIONS}
