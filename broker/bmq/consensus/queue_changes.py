"""Changes of queues by the leader at the nodes' request: assignment, unassignment and change of apps.

A request for a queue is answered when its assignment is committed, even if the leader changes in between. Source:
mqbblp::ClusterQueueHelper, mqbc::ClusterUtil.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.bmq.consensus.assigning import new_app_infos, place
from broker.bmq.consensus.replicated import ReplicatedLedger
from broker.bmq.core.alarms import alarm
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.config import DomainConfig
from broker.bmq.core.ledger import Advisory, ClusterState, Make
from broker.bmq.core.messages import Full
from broker.bmq.links.requests import Requests
from broker.bmq.node.changes import room_for_queue
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.handles import Refusal
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    LeaderAdvisory,
    QueueAssignmentAdvisory,
    QueueAssignmentRequest,
    QueueInfo,
    QueueInfoUpdate,
    QueueUnAssignmentAdvisory,
    QueueUnassignmentRequest,
    QueueUpdateAdvisory,
    Status,
    StatusCategory,
)
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["Assigned", "Changed", "QueueChanges"]

log: Final = logging.getLogger("broker.cluster")

ASSIGNMENT_TIMEOUT_MS: Final = 15_000
RETRY_MS: Final = 500

# Called with a queue, or the reason why there is none.
Assigned = Callable[[QueueInfo | Refusal], None]
# Called with the reason why a change was not made, or None.
Changed = Callable[[Refusal | None], None]


# Errors with which the leader will never assign the queue.
FINAL: Final = frozenset({ClusterError.LIMIT, ClusterError.CSL_FAILURE, ClusterError.UNKNOWN})


class Waiter(NamedTuple):
    config: DomainConfig
    done: Assigned


class QueueChanges:
    """Changes requested by this node and, at the leader, by others."""

    def __init__(
        self,
        requests: Requests,
        replicated: ReplicatedLedger,
        now: Now,
        timers: Timers,
        partition_count: int,
        resolve_domain: Callable[[str], DomainConfig | None],
        has_primary: Callable[[], set[int]],
    ) -> None:
        self._requests = requests
        self._replicated = replicated
        self._ledger = replicated.ledger
        self._now = now
        self._timers = timers
        self._resolve_domain = resolve_domain
        self._has_primary = has_primary
        self._partitions = range(partition_count)
        # The leader, once healed; this node's own id when it leads.
        self._leader_id: int | None = None
        self._leads = False
        self._stopping = False
        # Before that, the contents of the ledger's file may never have been committed.
        self._was_healed = False
        self._waiting: dict[str, list[Waiter]] = {}
        self._asked: dict[str, int] = {}
        self._changes: dict[LedgerNumber, Changed] = {}
        self._queue_keys: set[bytes] = set()
        self._counts: dict[int, int] = {}

    def resume(self, leader_id: int, *, leads: bool) -> None:
        self._leader_id, self._leads = leader_id, leads
        self._was_healed = True
        for uri in list(self._waiting):
            self._complete(uri)
            if uri in self._waiting:
                self._pursue(uri)

    def pause(self) -> None:
        """Pause without a leader: requests wait for another; the outcome of changes is unknown."""
        self._leader_id, self._leads = None, False
        for number in self._asked.values():
            self._requests.cancel(number)
        self._asked.clear()
        changes, self._changes = self._changes, {}
        for done in changes.values():
            done(Refusal(StatusCategory.CANCELED, "Leadership was lost", ClusterError.NOT_LEADER))

    def stop(self) -> None:
        self._stopping = True

    def assign(self, uri: str, config: DomainConfig, done: Assigned) -> None:
        info = self._ledger.state.queues.get(uri)
        if info is not None and self._was_healed and not self._is_unassigning(uri):
            done(info)
            return
        self._waiting.setdefault(uri, []).append(Waiter(config, done))
        self._pursue(uri)

    def _pursue(self, uri: str) -> None:
        if self._leads:
            refusal = self._propose(uri, self._waiting[uri][0].config)
            if refusal is not None:
                self._refuse(uri, refusal)
        elif self._leader_id is not None and uri not in self._asked:
            request = ClusterMessage(choice=QueueAssignmentRequest(queue_uri=uri))
            self._asked[uri] = self._requests.send(
                self._leader_id, request, lambda choice: self._answered(uri, choice), ASSIGNMENT_TIMEOUT_MS
            )

    def _answered(self, uri: str, choice: object) -> None:
        """Handle the leader's answer; the queue itself comes with the commit."""
        self._asked.pop(uri, None)
        if uri not in self._waiting or not isinstance(choice, Status):
            return
        if choice.category is StatusCategory.SUCCESS:
            # A leader answers a repeated request that it is in progress; this is for a commit that does not come.
            self._try_again(uri, ASSIGNMENT_TIMEOUT_MS)
        elif choice.category is StatusCategory.REFUSED and choice.code in FINAL:
            self._refuse(uri, Refusal(choice.category, choice.message, choice.code))
        else:
            self._try_again(uri, RETRY_MS)

    def _try_again(self, uri: str, delay_ms: int) -> None:
        def again() -> None:
            if uri in self._waiting:
                self._pursue(uri)

        self._timers.at(self._now.ms + delay_ms, again)

    def _refuse(self, uri: str, refusal: Refusal) -> None:
        for waiter in self._waiting.pop(uri, []):
            waiter.done(refusal)

    def _propose(self, uri: str, config: DomainConfig) -> Refusal | None:
        if self._stopping:
            return Refusal(StatusCategory.REFUSED, "Leader is stopping", ClusterError.STOPPING)
        pending = self._pending()
        if uri in pending or (uri in self._ledger.state.queues and not self._is_unassigning(uri)):
            return None
        if config.queues_max and uri not in self._ledger.state.queues:
            names = [*self._ledger.state.queues, *pending]
            count = sum(parse_uri(each).qualified_domain == config.name for each in names)
            if not room_for_queue(DomainInUse(config), count):
                return Refusal(StatusCategory.REFUSED, "maximum number of queues reached", ClusterError.LIMIT)
        self._take_census(pending)
        info = place(uri, config, self._salt(), self._queue_keys, self._counts, self._has_primary())
        self._queue_keys.add(info.key)
        self._counts[info.partition_id] += 1
        try:
            self._replicated.advise(lambda number: QueueAssignmentAdvisory(sequence_number=number, queues=(info,)))
        except Full as full:
            # The counts are recomputed, as they do not agree with the ledger now.
            return Refusal(StatusCategory.REFUSED, f"CSL failure: {full}", ClusterError.CSL_FAILURE)
        return None

    def _pending(self) -> dict[str, QueueInfo]:
        """Return the queues whose assignment is advised, not committed, and not revoked later."""
        pending: dict[str, QueueInfo] = {}
        for advisory, _ in self._ledger.uncommitted.values():
            if isinstance(advisory, QueueAssignmentAdvisory):
                pending.update((info.uri, info) for info in advisory.queues)
            elif isinstance(advisory, QueueUnAssignmentAdvisory):
                for info in advisory.queues:
                    pending.pop(info.uri, None)
            elif isinstance(advisory, LeaderAdvisory):
                known = self._ledger.state.queues
                pending = {info.uri: info for info in advisory.queues if info.uri not in known}
        return pending

    def _is_unassigning(self, uri: str) -> bool:
        uncommitted = [advisory for advisory, _ in self._ledger.uncommitted.values()]
        return any(
            isinstance(advisory, QueueUnAssignmentAdvisory) and any(info.uri == uri for info in advisory.queues)
            for advisory in uncommitted
        )

    def _take_census(self, pending: dict[str, QueueInfo]) -> None:
        """Compute the keys in use and each partition's number of queues, if others have changed them."""
        known = self._ledger.state.queues
        if len(self._queue_keys) != len(known) + len(pending) or not self._counts:
            infos = [*known.values(), *pending.values()]
            self._queue_keys = {info.key for info in infos}
            self._counts = dict.fromkeys(self._partitions, 0)
            for info in infos:
                if info.partition_id in self._counts:
                    self._counts[info.partition_id] += 1

    def _salt(self) -> int:
        """Return a salt for keys of the same name, different with every record of the ledger."""
        number = self._ledger.number
        return self._now.wall_s << 32 | (number.term & 0xFFF) << 20 | number.sequence_number & 0xF_FFFF

    def unassign(self, info: QueueInfo, done: Changed) -> None:
        """Unassign an unused queue: its primary has decided so."""
        if self._leader_id is None:
            done(Refusal(StatusCategory.REFUSED, "There is no leader", ClusterError.NOT_LEADER))
            return
        if self._leads:
            self._propose_unassignment(info.uri, info.key, self._leader_id, done)
            return
        request = QueueUnassignmentRequest(queue_uri=info.uri, partition_id=info.partition_id, queue_key=info.key)

        def answered(choice: object) -> None:
            failed = isinstance(choice, Status) and choice.category is not StatusCategory.SUCCESS
            done(Refusal(choice.category, choice.message, choice.code) if failed else None)  # type: ignore[attr-defined]

        self._requests.send(self._leader_id, ClusterMessage(choice=request), answered, ASSIGNMENT_TIMEOUT_MS)

    def _propose_unassignment(self, uri: str, key: bytes, node_id: int, done: Changed) -> None:
        """Advise the removal of a queue at the request of a node, which must be its primary."""
        info = self._recorded(uri)
        if info is None or info.key != key:
            # Another request came first.
            done(None)
            return
        primary = self._ledger.state.primaries.get(info.partition_id)
        if primary is None or primary.primary_node_id != node_id:
            text = f"Node {node_id} is not the primary of partition {info.partition_id}"
            done(Refusal(StatusCategory.REFUSED, text, ClusterError.NOT_PRIMARY))
            return
        self._advise(
            lambda number: QueueUnAssignmentAdvisory(
                sequence_number=number,
                partition_id=info.partition_id,
                primary_lease_id=primary.primary_lease_id,
                primary_node_id=primary.primary_node_id,
                queues=(info,),
            ),
            done,
        )

    def update_apps(self, uri: str, domain: str, added: Iterable[str], removed: Iterable[str], done: Changed) -> None:
        """Change a queue's apps, as the leader; those already present, or absent, are left out."""
        if not self._leads:
            done(Refusal(StatusCategory.REFUSED, "Not an active leader", ClusterError.NOT_LEADER))
            return
        info = self._recorded(uri)
        if info is None:
            done(Refusal(StatusCategory.REFUSED, f"Queue '{uri}' does not exist", ClusterError.UNKNOWN_QUEUE))
            return
        known = {app.app_id: app for app in info.app_ids}
        new = [app_id for app_id in added if app_id not in known]
        gone = tuple(known[app_id] for app_id in removed if app_id in known)
        if not (new or gone):
            done(None)
            return
        update = QueueInfoUpdate(
            uri=info.uri,
            key=info.key,
            partition_id=info.partition_id,
            added_app_ids=new_app_infos(new, self._salt(), [app.app_key for app in info.app_ids]),
            removed_app_ids=gone,
            domain=domain,
        )
        self._advise(lambda number: QueueUpdateAdvisory(sequence_number=number, queue_updates=(update,)), done)

    def _recorded(self, uri: str) -> QueueInfo | None:
        """Return a queue in its state once everything recorded is committed."""
        info = self._ledger.state.queues.get(uri)
        state = ClusterState(queues={} if info is None else {uri: info})
        for advisory, _ in self._ledger.uncommitted.values():
            state.apply(ClusterMessage(choice=advisory))
        return state.queues.get(uri)

    def _advise(self, make: Make, done: Changed) -> None:
        try:
            number = self._replicated.advise(make)
        except Full as full:
            done(Refusal(StatusCategory.REFUSED, f"CSL failure: {full}", ClusterError.CSL_FAILURE))
            return
        if number in self._ledger.uncommitted:
            self._changes[number] = done
        else:
            done(None)

    def on_request(self, node_id: int, message: ControlMessage, choice: object) -> None:
        if not self._leads:
            self._respond(
                node_id, message, Refusal(StatusCategory.REFUSED, "Not an active leader", ClusterError.NOT_LEADER)
            )
        elif self._stopping:
            self._respond(
                node_id, message, Refusal(StatusCategory.REFUSED, "Leader is stopping", ClusterError.STOPPING)
            )
        elif isinstance(choice, QueueAssignmentRequest):
            self._respond(node_id, message, self._propose_for_peer(choice.queue_uri))
        elif isinstance(choice, QueueUnassignmentRequest):
            self._propose_unassignment(
                choice.queue_uri, choice.queue_key, node_id, lambda refusal: self._respond(node_id, message, refusal)
            )

    def _propose_for_peer(self, uri: str) -> Refusal | None:
        try:
            parsed = parse_uri(uri)
            config = self._resolve_domain(parsed.qualified_domain) if parsed.canonical == uri else None
        except (FormatError, ValueError) as error:
            log.error("queue '%s' cannot be assigned: %s", uri, error)
            config = None
        if config is not None and config.incompatible:
            alarm(log, "STORAGE", f"queue '{uri}' cannot be assigned: {config.incompatible}.")
            return Refusal(StatusCategory.REFUSED, config.incompatible, ClusterError.UNKNOWN)
        if config is None:
            return Refusal(StatusCategory.REFUSED, "failed to create domain", ClusterError.UNKNOWN)
        return self._propose(uri, config)

    def _respond(self, node_id: int, message: ControlMessage, refusal: Refusal | None) -> None:
        done = Status(category=StatusCategory.SUCCESS, code=0, message="")
        self._requests.respond(node_id, message, refusal.status if refusal else done)

    def committed(self, number: LedgerNumber, advisory: Advisory) -> None:
        done = self._changes.pop(number, None)
        if done is not None:
            done(None)
        if isinstance(advisory, (LeaderAdvisory, QueueAssignmentAdvisory)):
            waiting = self._waiting if len(self._waiting) < len(advisory.queues) else [q.uri for q in advisory.queues]
            for uri in list(waiting):
                self._complete(uri)
        elif isinstance(advisory, QueueUnAssignmentAdvisory):
            for info in advisory.queues:
                if info.uri in self._waiting:
                    self._pursue(info.uri)

    def _complete(self, uri: str) -> None:
        info = self._ledger.state.queues.get(uri)
        if info is None or uri not in self._waiting or self._is_unassigning(uri):
            return
        number = self._asked.pop(uri, None)
        if number is not None:
            self._requests.cancel(number)
        for waiter in self._waiting.pop(uri):
            waiter.done(info)
