"""The cluster's shared state: primaries with their leases, queues with their keys and apps.

`Metadata` walks the cluster state machine (`cluster_table`) and drives the replicated ledger. Its owner reports elected
leaders, reachable nodes, and peers' messages to it.

Source: mqbc::ClusterFSM, mqbc::ClusterStateManager, mqbblp::ClusterOrchestrator.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.bmq.consensus.cluster_table import FOLLOWING, HEALED, LEADING, TRANSITIONS, Action, Event, State
from broker.bmq.consensus.exchange import Exchange
from broker.bmq.consensus.known_queues import KnownQueues, QueueChange
from broker.bmq.consensus.metadata_ports import MetadataListener
from broker.bmq.consensus.primaries import Primaries
from broker.bmq.consensus.queue_changes import Assigned, Changed, QueueChanges
from broker.bmq.consensus.replicated import ReplicatedLedger
from broker.bmq.consensus.state_exchange import NOBODY, ExchangeCause, StateExchange
from broker.bmq.core.alarms import alarm
from broker.bmq.core.config import DomainConfig
from broker.bmq.core.ledger import Advisory, ClusterState, Ledger
from broker.bmq.core.messages import Full
from broker.bmq.links.links import Links
from broker.bmq.links.requests import Requests
from broker.common.clock import Now
from broker.common.faults import Change
from broker.common.timers import Timers
from formats.bmq.control.messages import (
    ClusterMessage,
    ClusterStateFSMMessage,
    ControlMessage,
    FollowerClusterStateRequest,
    FollowerLSNRequest,
    LeaderAdvisory,
    NodeStatus,
    PartitionPrimaryAdvisory,
    PrimaryStatus,
    PrimaryStatusAdvisory,
    QueueAssignmentRequest,
    QueueInfo,
    QueueUnassignmentRequest,
    RegistrationRequest,
)
from formats.bmq.disk.numbers import LEASE_ID_MAX, LedgerNumber
from formats.bmq.wire.event import Frame
from formats.errors import FormatError

__all__ = ["Metadata", "QueueChange"]

log: Final = logging.getLogger("broker.cluster")

WATCHDOG_MS: Final = 10_000


class Metadata(StateExchange):
    """One node's part in the cluster's state, whose changes are reported to `listener`."""

    def __init__(
        self,
        links: Links,
        requests: Requests,
        ledger: Ledger,
        now: Now,
        timers: Timers,
        listener: MetadataListener,
        *,
        quorum: int,
        partition_count: int,
        resolve_domain: Callable[[str], DomainConfig | None],
        spread: bool = False,
        leases: Mapping[int, int] | None = None,
        watchdog_ms: int = WATCHDOG_MS,
    ) -> None:
        self.fsm_state = State.UNKNOWN
        self.leader_id: int | None = None
        self.term = 0
        self.ledger = ledger
        self.partition_count = partition_count
        self._listener = listener
        self._links = links
        self._exchange = Exchange(requests)
        self._now = now
        self._timers = timers
        self._watchdog_ms = watchdog_ms
        self._watchdog: object | None = None
        self._known_queues = KnownQueues(ledger.state.queues)
        self._primaries = Primaries(links, partition_count, leases or {}, self._tell_primary, spread=spread)
        self._numbers: dict[int, LedgerNumber] = {}
        self._damaged: set[int] = set()
        self._events: deque[tuple[Event, ExchangeCause]] = deque()
        self._pulled: ClusterState | None = None
        self._is_state_due = False  # as the leader, to a follower for which it could not be recorded
        # The term in which this node assigned primaries.
        self._assigned_term = 0
        self.replicated = ReplicatedLedger(
            links, ledger, quorum, now, self._committed, self._primaries.fault_of, self._missed
        )
        self._queues = QueueChanges(
            requests, self.replicated, now, timers, partition_count, resolve_domain, lambda: self._primaries.served
        )
        self._actions: dict[Action, Callable[[Event, ExchangeCause], None]] = {
            Action.START_WATCHDOG: self._start_watchdog,
            Action.STOP_WATCHDOG: self._stop_watchdog,
            Action.TRIGGER_WATCHDOG: self._trigger_watchdog,
            Action.STORE_SELF_LSN: self._store_own_number,
            Action.STORE_FOLLOWER_LSN: self._store_number,
            Action.REMOVE_FOLLOWER_LSN: self._remove_number,
            Action.NOTE_DAMAGED: self._note_damaged,
            Action.CHECK_LSN_QUORUM: self._check_quorum,
            Action.CLEANUP_LSNS: self._cleanup_numbers,
            Action.FIND_HIGHEST_LSN: self._find_highest,
            Action.SEND_FOLLOWER_LSN_REQUESTS: self._ask_numbers,
            Action.SEND_FOLLOWER_LSN_RESPONSE: self._tell_number,
            Action.REFUSE_FOLLOWER_LSN: self._refuse_number,
            Action.SEND_FOLLOWER_CLUSTER_STATE_REQUEST: self._ask_state,
            Action.SEND_FOLLOWER_CLUSTER_STATE_RESPONSE: self._tell_state,
            Action.REFUSE_FOLLOWER_CLUSTER_STATE: self._refuse_state,
            Action.SEND_REGISTRATION_REQUEST: self._register,
            Action.SEND_REGISTRATION_RESPONSE: self._confirm_registration,
            Action.REFUSE_REGISTRATION: self._refuse_registration,
            Action.APPLY_STATE: self._advise_state,
            Action.UPDATE_PRIMARIES: self._update_primaries,
            Action.STOP_PARTITIONS: self._stop_partitions,
            Action.CANCEL_REQUESTS: lambda event, cause: self._exchange.cancel(),
            Action.REAPPLY: self._apply_again,
            Action.REAPPLY_SELECT_LEADER: lambda event, cause: self._apply(
                Event.REAPPLY_LDR, ExchangeCause(self._own_id)
            ),
            Action.REAPPLY_SELECT_FOLLOWER: lambda event, cause: self._apply(
                Event.REAPPLY_FOL, ExchangeCause(self.leader_id)
            ),
            Action.ABORT: self._abort,
        }

    @property
    def state(self) -> ClusterState:
        """The committed state known to this node, which may be outdated until it is `healed`."""
        return self.ledger.state

    @property
    def number(self) -> LedgerNumber:
        """The highest number in this node's ledger. The next election's term must be above its term."""
        return self.ledger.number

    @property
    def healed(self) -> bool:
        """True if this node is part of the agreement: it leads, or has the leader's state."""
        return self.fsm_state in HEALED

    @property
    def is_active_leader(self) -> bool:
        return self.fsm_state is State.LDR_HEALED

    def primary_of(self, partition_id: int) -> tuple[int | None, int]:
        """Return a partition's primary, None when it is lost, and its lease id, 0 when it never had one."""
        return self._primaries.get(partition_id)

    # -- requests

    def set_quorum(self, quorum: int) -> None:
        """Set the number of nodes that must agree."""
        self.replicated.set_quorum(quorum)
        if self.fsm_state is State.LDR_HEALING_STG1:
            self._check_quorum(Event.FOL_LSN_RSPN, NOBODY)

    def assign_queue(self, uri: str, config: DomainConfig, done: Assigned) -> None:
        """Find or assign a queue's partition; `done` is called with it once that is committed, or with a refusal."""
        self._queues.assign(uri, config, done)

    def unassign(self, info: QueueInfo, done: Changed) -> None:
        self._queues.unassign(info, done)

    def update_apps(self, uri: str, domain: str, added: Iterable[str], removed: Iterable[str], done: Changed) -> None:
        """Change a queue's apps; for the active leader only."""
        self._queues.update_apps(uri, domain, added, removed, done)

    # -- events

    def leader_changed(self, leader_id: int | None, term: int) -> None:
        """Handle the end of an election, or the loss of the leader (None)."""
        if (leader_id, term) == (self.leader_id, self.term) and self.fsm_state is not State.UNKNOWN:
            return
        self._lose_leader()
        self.leader_id, self.term = leader_id, term
        self._select()

    def _select(self) -> None:
        if self.leader_id is None or self.fsm_state is not State.UNKNOWN:
            return
        if self.leader_id != self._own_id:
            self.replicated.follow(self.leader_id, self.term)
            self._apply(Event.SLCT_FOL, ExchangeCause(self.leader_id))
        elif self.term < self.ledger.number.term:
            alarm(
                log, "CLUSTER_STATE", f"elected for term {self.term}, the ledger is at term {self.ledger.number.term}"
            )
        else:
            self.replicated.lead(self.term)
            self._is_state_due = False
            self._primaries.lead()
            self._apply(Event.SLCT_LDR, ExchangeCause(self._own_id))

    def _lose_leader(self) -> None:
        self.replicated.rest()
        self._queues.pause()
        if self.fsm_state not in (State.UNKNOWN, State.STOPPED):
            self._apply(Event.RST_UNKNOWN)

    def node_up(self, node_id: int) -> None:
        self._primaries.silent.discard(node_id)
        self._primaries.statuses[node_id] = NodeStatus.UNKNOWN
        self._primaries.back(node_id, self.state)
        if node_id == self.leader_id:
            if self.fsm_state in FOLLOWING:
                self._apply(Event.REAPPLY_FOL, ExchangeCause(node_id))
            else:
                self._select()

    def node_down(self, node_id: int) -> None:
        """Handle the loss of a link, with its outstanding requests."""
        self._primaries.statuses[node_id] = NodeStatus.UNAVAILABLE
        self.replicated.node_down(node_id)
        self._damaged.discard(node_id)
        self._lose_primaries(node_id)
        if node_id == self.leader_id:
            self._lose_leader()
        elif node_id in self._numbers:
            self._apply(Event.DISCONNECT_FOL_LSN, ExchangeCause(node_id))
        self._reassign_lost()

    def _lose_primaries(self, node_id: int) -> None:
        if self.fsm_state in LEADING:
            self._primaries.spend(node_id, self.ledger.recorded)
        lost = self._primaries.of(node_id)
        if lost:
            self._apply(Event.RST_PRIMARY, ExchangeCause(node_id, partition_ids=lost))

    def node_status(self, node_id: int, status: NodeStatus) -> None:
        self._primaries.statuses[node_id] = status
        if node_id == self._own_id and status is NodeStatus.STOPPING:
            self._queues.stop()
        if status is NodeStatus.UNAVAILABLE:
            # The node is reachable but serves nothing.
            self._lose_primaries(node_id)
        if status in (NodeStatus.STOPPING, NodeStatus.UNAVAILABLE):
            self._reassign_lost()

    def node_silent(self, node_id: int) -> None:
        """Reassign a silent leader's partitions before its link is lost. A slow leader can acknowledge nothing more."""
        self._primaries.silent.add(node_id)

    def node_heard(self, node_id: int) -> None:
        self._primaries.silent.discard(node_id)

    def stop(self) -> None:
        self.replicated.rest()
        self._queues.pause()
        self._apply(Event.STOP_NODE)

    def on_cluster_state(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Raises FormatError for a malformed event."""
        if self.fsm_state in (State.LDR_HEALING_STG1, State.LDR_HEALING_STG2, State.STOPPED):
            # An ack of an advisory from before the new term: the state to be advised covers it.
            return
        with Change(f"a cluster-state message of node {node_id}", FormatError):
            self.replicated.receive(node_id, data, frame)

    def on_control(self, node_id: int, message: ControlMessage) -> bool:
        if not isinstance(message.choice, ClusterMessage):
            return False
        choice = message.choice.choice
        if isinstance(choice, (QueueAssignmentRequest, QueueUnassignmentRequest)):
            if message.r_id is not None:
                self._queues.on_request(node_id, message, choice)
            return True
        if not isinstance(choice, ClusterStateFSMMessage):
            return False
        if message.r_id is None:
            return True
        match choice.choice:
            case FollowerLSNRequest():
                self._apply(Event.FOL_LSN_RQST, ExchangeCause(node_id, message))
            case RegistrationRequest(sequence_number=number):
                self._apply(Event.REGISTRATION_RQST, ExchangeCause(node_id, message, self._reported(number)))
            case FollowerClusterStateRequest():
                self._apply(Event.FOL_CSL_RQST, ExchangeCause(node_id, message))
            case _:
                log.info("node %d: unexpected response ignored: %s", node_id, type(choice.choice).__name__)
        return True

    # -- the machine

    def _apply(self, event: Event, cause: ExchangeCause = NOBODY) -> None:
        """Apply an event to the state; events raised meanwhile follow in order."""
        self._events.append((event, cause))
        if len(self._events) > 1:
            return
        try:
            while self._events:
                self._step(*self._events[0])
                self._events.popleft()
        finally:
            # Events are left only after a fault.
            self._events.clear()

    def _step(self, event: Event, cause: ExchangeCause) -> None:
        transition = TRANSITIONS.get((self.fsm_state, event))
        if transition is None:
            return
        old, self.fsm_state = self.fsm_state, transition.state
        if old is not self.fsm_state:
            log.info("Cluster FSM on Event '%s', transition: State '%s' => State '%s'", *_names(event, old, transition))
            if self.healed:
                self._listener.on_agreed()
        for action in transition.actions:
            self._actions[action](event, cause)
        if old is not self.fsm_state and self.healed:
            self._heal()

    def _heal(self) -> None:
        assert self.leader_id is not None
        leads = self.is_active_leader
        if leads and self._is_state_due:
            self._apply(Event.CSL_CMT_FAIL)
        self._reassign_lost()
        self._queues.resume(self.leader_id, leads=leads)
        self._listener.on_healed(leads)

    def _apply_again(self, event: Event, cause: ExchangeCause) -> None:
        self._apply(event, cause)

    def _abort(self, event: Event, cause: ExchangeCause) -> None:
        raise AssertionError(f"{event.name} in {self.fsm_state.name}")

    # -- the watchdog

    def _start_watchdog(self, event: Event, cause: ExchangeCause) -> None:
        if self._watchdog is None:
            self._arm_watchdog(self._watchdog_ms)

    def _stop_watchdog(self, event: Event, cause: ExchangeCause) -> None:
        self._watchdog = None

    def _trigger_watchdog(self, event: Event, cause: ExchangeCause) -> None:
        # Not at once: the obstacle to healing, a full disk for instance, may last.
        self._arm_watchdog(self._watchdog_ms // 10)

    def _arm_watchdog(self, delay_ms: int) -> None:
        token = self._watchdog = object()

        def bark() -> None:
            if self._watchdog is token:
                self._watchdog = None
                alarm(log, "RECOVERY", f"the cluster's state is not healed yet ({self._what_is_missing}): trying again")
                self._apply(Event.WATCHDOG)

        self._timers.at(self._now.ms + delay_ms, bark)

    @property
    def _what_is_missing(self) -> str:
        if self.is_active_leader:
            return "a follower waits for a state that could not be recorded"
        if self.fsm_state in FOLLOWING and self.ledger.damage.is_there:
            return f"{self.fsm_state.value}; the ledger of this node is damaged"
        if self._damaged:
            nodes, known = ", ".join(map(str, sorted(self._damaged))), len(self._numbers)
            quorum = self.replicated.quorum
            return f"{self.fsm_state.value}; {known} of {quorum} are known, the ledgers of nodes {nodes} are damaged"
        return self.fsm_state.value

    def _advise_state(self, event: Event, cause: ExchangeCause) -> None:
        if cause.snapshot is not None:
            self._pulled = ClusterState()
            self._pulled.apply(ClusterMessage(choice=cause.snapshot))
        recorded = self._pulled or self.ledger.recorded
        if self._assigned_term == self.term:
            # Another node's state may have more partitions, from another time or by mistake.
            known = range(self.partition_count)
            partitions = tuple(each for each in recorded.primaries.values() if each.partition_id in known)
        else:
            partitions = self._primaries.assign(recorded, self._primaries.serves)
        try:
            self.replicated.advise(
                lambda number: LeaderAdvisory(
                    sequence_number=number, partitions=partitions, queues=tuple(recorded.queues.values())
                )
            )
        except Full as full:
            log.error("the cluster's state cannot be recorded: %s", full)
            self._is_state_due = True
            self._apply(Event.CSL_CMT_FAIL)
        else:
            self._is_state_due = False
            self._pulled = None
            self._assigned_term = self.term

    def lease_outdated(self, partition_id: int, lease_id: int) -> None:
        """Request a lease above this one, of which a partition has records although its primary, this node, has none.

        A majority that has lost its disks knows no leases. The leader assigns one; other nodes ask it for one.
        """
        if self.leader_id == self._own_id:
            self._outdate(partition_id, lease_id)
        elif self.leader_id is not None and lease_id < LEASE_ID_MAX:
            self._exchange.advise(self.leader_id, _lease_wanted(partition_id, lease_id + 1))

    def lease_wanted(self, node_id: int, advisory: PrimaryStatusAdvisory) -> None:
        info = self.ledger.recorded.primaries.get(advisory.partition_id)
        if advisory.status is not PrimaryStatus.PASSIVE or info is None or info.primary_node_id != node_id:
            return
        if info.primary_lease_id < advisory.primary_lease_id:
            self._outdate(advisory.partition_id, advisory.primary_lease_id - 1)

    def _outdate(self, partition_id: int, lease_id: int) -> None:
        if self.is_active_leader:
            self._primaries.outdate(partition_id, lease_id)
            self._reassign_lost()

    def _reassign_lost(self) -> None:
        if not self.is_active_leader or self._primaries.statuses.get(self._own_id) is NodeStatus.STOPPING:
            return
        recorded = self.ledger.recorded
        if all(map(self._primaries.holds, recorded.primaries.values())):
            return
        partitions = self._primaries.assign(recorded, self._primaries.holds)
        try:
            self.replicated.advise(
                lambda number: PartitionPrimaryAdvisory(sequence_number=number, partitions=partitions)
            )
        except Full as full:
            alarm(log, "CLUSTER", f"primaries cannot be reassigned: {full}")
            self._timers.at(self._now.ms + self._watchdog_ms // 10, self._reassign_lost)

    # -- committed changes

    def _missed(self) -> None:
        """Start over after a while: this follower lacks the leader's advisories."""

        def again() -> None:
            if self.fsm_state in FOLLOWING:
                self._apply(Event.REAPPLY_FOL, ExchangeCause(self.leader_id))

        self._timers.at(self._now.ms + self._watchdog_ms // 10, again)

    def _committed(self, number: LedgerNumber, advisory: Advisory) -> None:
        changed = self._primaries.changed_by(advisory)
        change = self._known_queues.change(advisory, self.state)
        if change != QueueChange():
            self._listener.on_queues(change)
        self._apply(Event.CSL_CMT_SUCCESS, ExchangeCause(partition_ids=changed))
        self._queues.committed(number, advisory)

    def _update_primaries(self, event: Event, cause: ExchangeCause) -> None:
        for partition_id in cause.partition_ids:
            if event is Event.RST_PRIMARY:
                self._primaries.lose(partition_id)
            else:
                info = self.state.primaries[partition_id]
                self._primaries.tell(partition_id, info.primary_node_id, info.primary_lease_id)

    def _stop_partitions(self, event: Event, cause: ExchangeCause) -> None:
        for partition_id in self._primaries.all:
            self._primaries.lose(partition_id)

    def _tell_primary(self, partition_id: int, node_id: int | None, lease_id: int) -> None:
        self._listener.on_primary(partition_id, node_id, lease_id)


def _lease_wanted(partition_id: int, lease_id: int) -> PrimaryStatusAdvisory:
    """Make a primary's advisory that it is passive until it has a lease this high, which no leader has assigned yet.

    Members without this feature ignore it, since its lease is not the partition's.
    """
    return PrimaryStatusAdvisory(partition_id=partition_id, primary_lease_id=lease_id, status=PrimaryStatus.PASSIVE)


def _names(event: Event, old: State, transition: tuple[State, tuple[Action, ...]]) -> tuple[str, str, str]:
    return event.name, old.name, transition[0].name
