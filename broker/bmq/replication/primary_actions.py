# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Actions of the partition's table at its primary (source: mqbc::StorageManager's do_ functions)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.bmq.consensus.coverage import covers
from broker.bmq.consensus.primaries import LEASE_TOLD_MAX
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.messages import Full
from broker.bmq.replication.copying.copy_records import OutOfStep
from broker.bmq.replication.divergence import LogComparison, SyncAction, plan_sync
from broker.bmq.replication.partition_base import DATA_TIMEOUT_MS, RETRY_MS, STATE_TIMEOUT_MS, ignore
from broker.bmq.replication.partition_facts import NO_FACT, Fact, Receiving, ReplicaProgress
from broker.bmq.replication.partition_states import Event
from broker.bmq.replication.positions import (
    NOWHERE,
    first_sync_point,
    history,
    last_position,
    mirrored_lease,
    offset_behind,
    on_wire,
)
from broker.bmq.replication.replica_actions import ReplicaActions
from broker.bmq.replication.replication import ReplicationStream
from broker.bmq.replication.take_over import PartitionRestoring, TakeOver
from broker.bmq.store.removals import Unreadable
from formats.bmq.control.messages import (
    PartitionSequenceNumber,
    PrimaryStateResponse,
    PrimaryStatus,
    ReplicaDataRequest,
    ReplicaDataResponse,
    ReplicaDataType,
    ReplicaStateRequest,
    ReplicaStateResponse,
    Status,
    StatusCategory,
)
from formats.bmq.control.printed import printed
from formats.bmq.disk.numbers import RecordNumber
from formats.errors import FormatError

__all__ = ["PrimaryActions"]

log: Final = logging.getLogger("broker.partition")

# No lease begins with more sync points.
MIRRORED_MAX: Final = 4096


class PrimaryActions(ReplicaActions):
    """The primary's actions: it heals itself from a majority, then its replicas, and then serves the partition.

    Those of a replica are inherited, since mypyc compiles classes with one base only.
    """

    def store_replica(self, event: Event, fact: Fact) -> None:
        self.progress[fact.node_id] = ReplicaProgress(fact.end, fact.sync_point)
        self.damaged.discard(fact.node_id)

    def note_damaged(self, event: Event, fact: Fact) -> None:
        self.progress.pop(fact.node_id, None)
        self.damaged.add(fact.node_id)

    def forget_damaged(self, node_id: int) -> None:
        """Forget a node, if it is a damaged one: it never reported the position from which it is healed."""
        if node_id in self.damaged:
            self.damaged.discard(node_id)
            self.progress.pop(node_id, None)

    def ask_damaged(self, event: Event, fact: Fact) -> None:
        for node_id in self.damaged:
            self.ask_replica(node_id)

    def send_to_damaged(self, event: Event, fact: Fact) -> None:
        self.progress[fact.node_id] = ReplicaProgress(NOWHERE, NOWHERE)
        self._send_to(fact.node_id)

    def forget_replica(self, event: Event, fact: Fact) -> None:
        self.progress.pop(fact.node_id, None)
        self.healed.discard(fact.node_id)
        if self.stream is not None:
            self.stream.forget(fact.node_id)
        self.ask_replica_later(event, fact)

    def check_positions(self, event: Event, fact: Fact) -> None:
        told, damaged = len(self._told), len(self.damaged) + self.stored.damage.is_there
        nodes = 1 + len(self.links.other_ids)
        wanted = min(self.majority, self.stored.kept.copies_wanted)  # as far as this node knows
        if told >= self.quorum or covers(told, damaged, nodes, wanted):
            self.fire(Event.QUORUM_REPLICA_SEQ)

    def find_highest(self, event: Event, fact: Fact) -> None:
        own_id = self.links.own_id
        highest_id = max(self._told, key=lambda node_id: (self.progress[node_id].position, node_id == own_id))
        highest = self.progress[highest_id].position
        if highest.primary_lease_id > self.primary_lease_id:
            # The cluster has lost its leases. No node accepts records of a lease above the primary's.
            self._want_lease_above(highest.primary_lease_id)
            return
        if highest == NOWHERE:
            # Nothing was ever acknowledged.
            self.stored.damage.heal(synced=self.stored.sets.outlives_power)
            highest_id = own_id
        if highest_id == own_id:
            self.fire(Event.SELF_HIGHEST_SEQ)
        else:
            position, sync_point = self.progress[highest_id]
            self.fire(Event.REPLICA_HIGHEST_SEQ, Fact(node_id=highest_id, end=position, sync_point=sync_point))

    # -- the primary and how far replicas are

    def ask_replicas(self, event: Event, fact: Fact) -> None:
        for node_id in self.links.other_ids:
            self.ask_replica(node_id)

    def ask_replica(self, node_id: int) -> None:
        if not self.links.is_up(node_id):
            return

        def answered(answer: object) -> None:
            if isinstance(answer, ReplicaStateResponse) and self.believes(node_id, answer.latest_sequence_number):
                end = RecordNumber.of(answer.latest_sequence_number)
                sync_point = RecordNumber.of(answer.first_sync_point_after_rollover_sequence_number)
                self.fire(Event.REPLICA_STATE_RSPN, Fact(node_id=node_id, end=end, sync_point=sync_point))
            elif isinstance(answer, Status) and answer.code == ClusterError.STORAGE_FAILURE:
                self.fire(Event.DAMAGED_REPLICA_STATE_RSPN, Fact(node_id=node_id))
            else:
                self.fire(Event.FAIL_REPLICA_STATE_RSPN, Fact(node_id=node_id))

        request = self._state_message(ReplicaStateRequest, self._own_progress())
        self._ask(node_id, request, answered, STATE_TIMEOUT_MS)

    def believes(self, node_id: int, end: PartitionSequenceNumber) -> bool:
        """Return True if a replica's position is possible: its lease is one that a leader can reach."""
        if end.primary_lease_id <= max(self.primary_lease_id, LEASE_TOLD_MAX):
            return True
        log.error(
            "Partition [%d]: implausible report of node %d ignored: it claims records of lease %d, this node has %d",
            self.stored.partition_id,
            node_id,
            end.primary_lease_id,
            self.primary_lease_id,
        )
        return False

    def ask_replica_later(self, event: Event, fact: Fact) -> None:
        def ask() -> None:
            follows = self.stream is not None and fact.node_id in self.stream.followers
            if not self.is_replica and not follows:
                self.ask_replica(fact.node_id)

        self._later(RETRY_MS, ask)

    def answer_replica(self, event: Event, fact: Fact) -> None:
        assert fact.asked is not None
        self._answer(fact.asked, self._state_message(PrimaryStateResponse, self.progress[self.links.own_id]))

    # -- the primary heals itself

    def start_over_if_rolled_over(self, event: Event, fact: Fact) -> None:
        own = self.progress[self.links.own_id]
        if own.sync_point != fact.sync_point or own.position == NOWHERE or self._starts_over:
            self._start_over_as_primary()

    def _start_over_as_primary(self) -> None:
        self._starts_over = False
        self.copy.settle()
        try:
            self.copy.start_over()
        except OutOfStep as error:
            log.error("Partition [%d]: cannot be fetched again: %s", self.stored.partition_id, error)
            self._starts_over = True
            self.reapply_primary_later(Event.WATCHDOG, Fact())
            return
        self.progress[self.links.own_id] = ReplicaProgress(NOWHERE, NOWHERE)

    def reapply_primary_later(self, event: Event, fact: Fact) -> None:
        """Begin healing again after a while, unless it has continued otherwise.

        A primary that serves under a lease cannot begin under it again.
        """

        def retry() -> None:
            if not self.stored.active and self.taking_over is None:
                self.reapply_as_primary(event, fact)

        self._later(RETRY_MS, retry)

    def start_over(self, event: Event, fact: Fact) -> None:
        """Receive everything from the replica ahead, which lacks this node's last records.

        Only records that it lacks were never acknowledged, and this node does not know where the two part. It keeps its
        files until it has received all: if the replica fails, a quorum may need them.
        """
        # The text is the reference's: programs wait for it in the log.
        log.warning(
            "Partition [%d]: Replica %s reported irreconcilable data on self primary. Removing entire storage and "
            "requesting it from replica.",
            self.stored.partition_id,
            self.listener.describe(fact.node_id),
        )
        self._start_over_as_primary()

    def go_back(self, event: Event, fact: Fact) -> None:
        """Return to this node's own files if a replica's records were being received into new ones.

        Without them this node would count towards a quorum, but lack records that it acknowledged.
        """
        if self.copy.records.is_fresh:
            self.copy.settle()
        self.progress[self.links.own_id] = self._own_progress()

    def pull(self, event: Event, fact: Fact) -> None:
        if self.copy.rollovers.is_busy:
            # The remaining records are indexed in slices. Another replica may then be ahead.
            self.reapply_as_primary(event, fact)
            return
        if self._starts_over:
            return  # too little disk space: retried after a while
        node_id = fact.node_id
        begin = self.progress[self.links.own_id].position
        if begin == NOWHERE and not self.copy.records.is_fresh:
            return  # too little room for new files: retried
        receiving = self._receiving = Receiving(node_id, begin, fact.end, fact.sync_point, None)

        def answered(answer: object) -> None:
            if isinstance(answer, ReplicaDataResponse):
                complete = self._receiving is receiving and self.copy.records.position == fact.end
                self.fire(Event.REPLICA_DATA_RSPN_PULL if complete else Event.ERROR_RECEIVING_DATA_CHUNKS, fact)
            elif isinstance(answer, Status) and answer.code == ClusterError.IRRECONCILABLE_DATA:
                self.fire(Event.IRRECONCILABLE_REPLICA_DATA_RSPN_PULL, fact)
            elif isinstance(answer, Status) and answer.category is StatusCategory.NOT_CONNECTED:
                self.fire(Event.CRASH_REPLICA_DATA_RSPN_PULL, Fact(node_id=node_id))
            else:
                self.fire(Event.FAIL_REPLICA_DATA_RSPN_PULL, Fact(node_id=node_id))

        self._ask_data(node_id, self._data_request(ReplicaDataType.PULL, begin, fact.end), answered, DATA_TIMEOUT_MS)

    def _ask_data(
        self, node_id: int, request: ReplicaDataRequest, answered: Callable[[object], None], timeout_ms: int
    ) -> None:
        """Send a data request, logged in the reference's form."""
        sent = self._ask(node_id, request, answered, timeout_ms)
        to = self.listener.describe(node_id)
        log.info("Sending request to '%s' [request: %s, timeout: %d]", to, printed(sent), timeout_ms // 1000)

    def _data_request(self, kind: ReplicaDataType, begin: RecordNumber, end: RecordNumber) -> ReplicaDataRequest:
        return ReplicaDataRequest(
            partition_id=self.stored.partition_id,
            primary_lease_id=self.primary_lease_id,
            replica_data_type=kind,
            begin_sequence_number=on_wire(begin),
            end_sequence_number=on_wire(end),
        )

    # -- the primary heals its replicas

    def begin_lease(self, event: Event, fact: Fact) -> None:
        """Write the lease's first record, up to which others are healed.

        Once a majority has it, no node that lacks the records before it can become primary. Copies of older records do
        not ensure that: another primary may have written under a lease in between, and would win when this node is
        gone.
        """
        if self._is_begun or self.primary_lease_id <= self.copy.records.position.primary_lease_id:
            return
        written_s = self.copy.written_s
        if self.copy.begin_lease(self.primary_lease_id):
            self._lease_begun, self._restored_s = self.primary_lease_id, written_s

    @property
    def _is_begun(self) -> bool:
        """Return True if this process has written the lease's first record, and no other exists."""
        lease_id = self._lease_begun
        return lease_id == self.primary_lease_id and self.copy.records.position == RecordNumber(lease_id, 1)

    def open(self, event: Event, fact: Fact) -> None:
        self.stream = stream = ReplicationStream(self.stored, self.links, self._pace, self.majority)
        self.stored.rollovers.before = self._before_rollover
        self.stored.rollovers.after = stream.after_rollover

    def _before_rollover(self) -> None:
        assert self.stream is not None
        for node_id in self.stream.before_rollover():
            log.warning("Partition [%d]: node %d was left behind by a rollover", self.stored.partition_id, node_id)
            self.drop_behind(node_id, NOWHERE)

    def send_to_replicas(self, event: Event, fact: Fact) -> None:
        for node_id in self.progress:
            if node_id != self.links.own_id:
                self._send_to(node_id)

    def send_to_replica(self, event: Event, fact: Fact) -> None:
        self._send_to(fact.node_id)

    def _send_to(self, node_id: int) -> None:
        stream = self.stream
        if stream is None:
            return
        files = self.stored.files
        position, sync_point = self.progress[node_id]
        plan = plan_sync(LogComparison(history(files), first_sync_point(files), position, sync_point))
        log.info("Partition [%d]: node %d at %s: %s", self.stored.partition_id, node_id, position, plan.case)
        self.healed.discard(node_id)
        start = offset_behind(files, plan.begin)
        if plan.action is not SyncAction.SEND or start is None:
            stream.forget(node_id)
            self.drop_behind(node_id, plan.begin if plan.action is SyncAction.TRUNCATE else NOWHERE)
            return
        end = stream.follow(node_id, position, start)

        def answered(answer: object) -> None:
            if isinstance(answer, ReplicaDataResponse):
                self.fire(Event.REPLICA_DATA_RSPN_PUSH, Fact(node_id=node_id, end=end))
            else:
                self.fire(Event.FAIL_REPLICA_DATA_RSPN_PUSH, Fact(node_id=node_id))

        self._ask_data(node_id, self._data_request(ReplicaDataType.PUSH, position, end), answered, DATA_TIMEOUT_MS)

    def drop_behind(self, node_id: int, begin: RecordNumber) -> None:
        """Make a replica truncate after `begin`; the reference's drops everything. It then asks again."""
        request = self._data_request(ReplicaDataType.DROP, begin, last_position(self.stored.files))
        self._ask_data(node_id, request, ignore, STATE_TIMEOUT_MS)

    def count_own(self, event: Event, fact: Fact) -> None:
        self.healed.add(self.links.own_id)

    def count_replica(self, event: Event, fact: Fact) -> None:
        self.healed.add(fact.node_id)
        if self.stream is not None:
            self.stream.has(fact.node_id, fact.end)

    def check_healed(self, event: Event, fact: Fact) -> None:
        if len(self.healed) >= self.quorum:
            self.fire(Event.QUORUM_REPLICA_DATA_RSPN)

    def activate(self, event: Event, fact: Fact) -> None:
        stored = self.stored
        if self.primary_lease_id <= self.copy.records.position.primary_lease_id and not self._is_begun:
            # The lease's numbers may have been used for records that this node has lost: only a newer lease is safe.
            self._want_lease_above(self.copy.records.position.primary_lease_id)
            return
        if not self._is_begun and not self.copy.records.is_full:
            log.error("Partition [%d]: cannot be served: no disk space for its first record", stored.partition_id)
            self.reapply_primary_later(event, fact)
            return
        # The age of messages follows from the last record that another primary has written.
        newest_s = self._restored_s if self._is_begun else self.copy.written_s
        restoration = self.listener.on_restore(stored.partition_id)
        self.taking_over = TakeOver(stored, restoration, newest_s, self._serve, self._cannot_restore)
        self.taking_over.begin()

    def _want_lease_above(self, lease_id: int) -> None:
        """Request a higher lease from the leader, and heal again: under that lease, or to repeat the request."""
        log.error(
            "Partition [%d]: records were already written under lease %d",
            self.stored.partition_id,
            self.primary_lease_id,
        )
        self.listener.on_outdated(self.stored.partition_id, lease_id)
        self.reapply_primary_later(Event.WATCHDOG, NO_FACT)

    def _cannot_restore(self, error: FormatError | Unreadable) -> None:
        """Handle files that cannot be restored.

        Corrupted files are received from other nodes. Files that cannot be opened for now are waited for, since without
        them retried posts would be taken for new ones.
        """
        assert self.taking_over is not None
        self.taking_over.give_up()
        self.taking_over = None
        self.stored.forget_restored()
        if isinstance(error, Unreadable):
            text = "Partition [%d]: cannot be served: %s, which lists the removed messages, cannot be opened: %s"
            log.error(text, self.stored.partition_id, error.filename, error.strerror)
            self.reapply_primary_later(Event.WATCHDOG, Fact())
            return
        self.copy.index.note_rot(error)
        self.stored.damage.note(str(error))
        self._starts_over = True
        # Replicas have the lease's first record, and send their records when they learn of another lease.
        self.listener.on_outdated(self.stored.partition_id, self.primary_lease_id)
        self.reapply_primary_later(Event.WATCHDOG, Fact())

    def _serve(self, restoration: PartitionRestoring) -> None:
        self.taking_over = None
        stored = self.stored
        for node_id in self.links.other_ids:
            self._say(node_id, PrimaryStatus.ACTIVE)
        restoration.end()
        try:
            stored.activate(self.primary_lease_id)
        except Full as full:
            log.error("Partition [%d]: cannot be served: %s", stored.partition_id, full)
            self.listener.on_passive(stored.partition_id)
            stored.deactivate()
            self.reapply_primary_later(Event.WATCHDOG, Fact())
            return
        self._pass_mirrored()
        self.copy.index.let_go()
        self.listener.on_active(stored.partition_id)

    def _pass_mirrored(self) -> None:
        """Skip the sequence numbers under which a replica of the reference would mistake a record for an older one."""
        last = mirrored_lease(self.stored.files, self.primary_lease_id)
        if last > MIRRORED_MAX or not self.stored.pass_numbers(last):
            log.warning(
                "Partition [%d]: no room for sync points up to number %d: C++ replicas may take records for older ones",
                self.stored.partition_id,
                last,
            )

    # -- corrupted payloads

    def fetch_record(self, node_id: int, begin: RecordNumber, end: RecordNumber, answered: Callable[[], None]) -> None:
        """Request from a replica the record at `end`, the one after that at `begin`."""
        request = self._data_request(ReplicaDataType.PULL, begin, end)
        self._ask_data(node_id, request, lambda answer: answered(), STATE_TIMEOUT_MS)

    def who_has(self, position: RecordNumber) -> list[int]:
        followers = self.stream.followers.values() if self.stream is not None else ()
        return sorted(each.node_id for each in followers if each.is_live and self.links.is_up(each.node_id))

    def mend(self, event: Event, fact: Fact) -> None:
        assert fact.received is not None
        self.mending.take(*fact.received)

    def say_active(self, event: Event, fact: Fact) -> None:
        if self.stored.active:
            self._say(fact.node_id, PrimaryStatus.ACTIVE)
