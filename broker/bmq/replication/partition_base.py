# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A partition's state, and the actions common to primary and replica (source: mqbc::StorageManager)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Final, Protocol, TypeVar

from broker.bmq.core.alarms import alarm
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.links.links import HealingLinks
from broker.bmq.links.requests import Choice, Requests
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.copying.copy_records import OutOfStep
from broker.bmq.replication.copying.replica_files import ReplicaFiles
from broker.bmq.replication.healing_pace import HealingPace
from broker.bmq.replication.mending import Mending
from broker.bmq.replication.partition_facts import NO_FACT, Asked, Fact, Receiving, ReplicaProgress
from broker.bmq.replication.partition_states import Event, State
from broker.bmq.replication.positions import NOWHERE, first_sync_point, last_position, on_wire
from broker.bmq.replication.replication import RecordTransfer, ReplicationStream
from broker.bmq.replication.take_over import PartitionRestoring, TakeOver
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    PartitionMessage,
    PrimaryStateRequest,
    PrimaryStateResponse,
    PrimaryStatus,
    PrimaryStatusAdvisory,
    ReplicaStateRequest,
    ReplicaStateResponse,
    Status,
    StatusCategory,
)
from formats.bmq.disk.numbers import RecordNumber

__all__ = [
    "DATA_TIMEOUT_MS",
    "RETRY_MS",
    "STATE_TIMEOUT_MS",
    "PartitionBase",
    "ignore",
]

log: Final = logging.getLogger("broker.partition")

STATE_TIMEOUT_MS: Final = 10_000
# Time limit of a replica's healing; a lost link ends it at once.
DATA_TIMEOUT_MS: Final = 600_000
RETRY_MS: Final = 500

StateMessage = TypeVar(
    "StateMessage", PrimaryStateRequest, PrimaryStateResponse, ReplicaStateRequest, ReplicaStateResponse
)


class PartitionListener(Protocol):
    """The node that a partition reports to, within a step."""

    def on_restore(self, partition_id: int) -> PartitionRestoring:
        """Begin to restore the queues and messages: this node is the primary."""
        ...

    def on_active(self, partition_id: int) -> None: ...

    def on_passive(self, partition_id: int) -> None:
        """Stop serving the partition, whose store is complete until this returns."""
        ...

    def on_primary_status(self, partition_id: int, node_id: int, active: bool) -> None: ...

    def on_outdated(self, partition_id: int, lease_id: int) -> None:
        """Ask for a lease above this one, under which records exist although the current one is not above it."""
        ...

    def on_removed(self, partition_id: int, queue_key: bytes, guid: bytes) -> None: ...

    def on_purged(self, partition_id: int, queue_key: bytes, guids: Sequence[Container[bytes]], heals: bool) -> None:
        """Handle the primary's purge of a queue, see `broker.bmq.replication.copying.replica_files.Purged`."""
        ...

    def describe(self, node_id: int) -> str: ...


class PartitionBase(ABC):
    """The partition's data, and the actions common to primary and replica.

    `standings` are those of the nodes that have reported their positions; `healed` are the nodes that have all records
    that the primary had when it opened; both include this one. `damaged` are other nodes that may have lost
    acknowledged records: they count only once healed. `stream` exists while this node is a primary that needs nothing
    from others.
    """

    state: State
    mending: Mending

    def __init__(
        self,
        stored: StoredPartition,
        copy: ReplicaFiles,
        links: HealingLinks,
        requests: Requests,
        now: Now,
        timers: Timers,
        quorum: int,
        pace: HealingPace,
        watchdog_ms: int,
        listener: PartitionListener,
    ) -> None:
        self.listener = listener
        self.stored = stored
        self.copy = copy
        self.links = links
        self.requests = requests
        self.quorum = quorum  # nodes that must be available for a primary to heal
        self.majority = quorum
        stored.kept.copies_wanted = quorum
        stored.kept.is_copied = bool(links.other_ids)
        self._now = now
        self._timers = timers
        self._pace = pace
        self._watchdog_ms = watchdog_ms
        self.primary_id: int | None = None
        self.primary_lease_id = 0
        self.primary_is_active = False  # the primary is another node, which reports that it serves the partition
        # The lease under which each node reported that. The report may precede this node's knowledge of the primary,
        # and the lease may have ended since.
        self._told_active: dict[int, int] = {}
        self.progress: dict[int, ReplicaProgress] = {}
        self.damaged: set[int] = set()
        self.healed: set[int] = set()
        self.stream: ReplicationStream | None = None
        self.transfer: RecordTransfer | None = None  # records for a primary that heals itself from this node
        self.receipt_due: RecordNumber | None = None
        self._primary_sync_point = NOWHERE
        self._receiving: Receiving | None = None
        self._starts_over = False  # the primary wants all records dropped, or the files are too small, or corrupted
        self._buffered: deque[memoryview] = deque()  # records that wait to be written by a healed replica
        self._writing: object | None = None
        self._asked_numbers: set[int] = set()
        self.taking_over: TakeOver | None = None
        self._lease_begun = 0  # the last lease whose first record this process has written
        self._restored_s = 0  # the time of the last record before that
        self._generation = 0  # counts the attempts to heal
        self._watchdog_generation = 0

    @abstractmethod
    def fire(self, event: Event, fact: Fact = NO_FACT) -> None:
        """Carry out the row of the table for an event; within one, once its actions are done."""

    @property
    def is_replica(self) -> bool:
        return self.state in (State.REPLICA_WAITING, State.REPLICA_HEALING, State.REPLICA_HEALED)

    # -- asking and answering

    def _state_message(self, kind: type[StateMessage], progress: ReplicaProgress) -> StateMessage:
        return kind(
            partition_id=self.stored.partition_id,
            primary_lease_id=self.primary_lease_id,
            latest_sequence_number=on_wire(progress.position),
            first_sync_point_after_rollover_sequence_number=on_wire(progress.sync_point),
        )

    def _ask(self, node_id: int, choice: object, answered: Callable[[object], None], timeout_ms: int) -> ControlMessage:
        def take(answer: Choice) -> None:
            self._asked_numbers.discard(number)
            if isinstance(answer, ClusterMessage) and isinstance(answer.choice, PartitionMessage):
                answered(answer.choice.choice)
            else:
                answered(answer)

        message = ClusterMessage(choice=PartitionMessage(choice=choice))  # type: ignore[arg-type]
        number = self.requests.send(node_id, message, take, timeout_ms)
        self._asked_numbers.add(number)
        return ControlMessage(r_id=number, choice=message)

    def _answer(self, asked: Asked, choice: object) -> None:
        message = ClusterMessage(choice=PartitionMessage(choice=choice))  # type: ignore[arg-type]
        self.requests.respond(asked.node_id, asked.message, message)

    def refuse(self, asked: Asked | None, category: StatusCategory, code: int, text: str) -> None:
        if asked is not None:
            self.requests.respond(asked.node_id, asked.message, Status(category=category, code=code, message=text))

    def cancel_requests(self, event: Event, fact: Fact) -> None:
        for number in self._asked_numbers:
            self.requests.cancel(number)
        self._asked_numbers.clear()

    def _later(self, ms: int, action: Callable[[], None]) -> None:
        """Run an action after a delay, unless healing starts over first."""
        generation = self._generation
        self._timers.at(self._now.ms + ms, lambda: action() if generation == self._generation else None)

    # -- roles

    def set_primary(self, event: Event, fact: Fact) -> None:
        self.primary_id = fact.primary_id
        self.primary_lease_id = fact.lease_id
        self.copy.records.lease_id_max = fact.lease_id
        self.primary_is_active = False
        self._starts_over = self.copy.index.is_rotten

    def clear_primary(self, event: Event, fact: Fact) -> None:
        self.primary_id, self.primary_lease_id, self.primary_is_active = None, 0, False
        self._starts_over = self.copy.index.is_rotten

    def clean_up(self, event: Event, fact: Fact) -> None:
        """Forget the other nodes' answers; a primary resigns."""
        self._generation += 1
        stored = self.stored
        if stored.active:
            stored.give_up_rollover()
            if self.stream is not None:
                self.stream.flush()
            for node_id in self.links.other_ids:
                self._say(node_id, PrimaryStatus.PASSIVE)
        self.stream = self.transfer = self._receiving = self.receipt_due = None
        if self.taking_over is not None:
            self.taking_over.give_up()
            self.taking_over = None
            stored.forget_restored()
        stored.rollovers.before = nothing
        stored.rollovers.after = ignore
        self.mending.clear()
        if stored.active:
            self.listener.on_passive(stored.partition_id)
            stored.deactivate()
            self.copy = ReplicaFiles(stored, removed=self.copy.removed, purged=self.copy.purged)
            self.copy.end_event()
        else:
            self.copy.settle()
        self.progress.clear()
        self.damaged.clear()
        self.healed.clear()
        self._buffered.clear()
        self._writing = None

    def _say(self, node_id: int, status: PrimaryStatus) -> None:
        advisory = PrimaryStatusAdvisory(
            partition_id=self.stored.partition_id, primary_lease_id=self.primary_lease_id, status=status
        )
        self.requests.advise(node_id, ClusterMessage(choice=advisory))

    def reapply_event(self, event: Event, fact: Fact) -> None:
        self.fire(event, fact)

    def reapply_as_primary(self, event: Event, fact: Fact) -> None:
        self.fire(Event.REAPPLY_SELF_PRIMARY, Fact(primary_id=self.primary_id, lease_id=self.primary_lease_id))

    def reapply_as_replica(self, event: Event, fact: Fact) -> None:
        self.fire(Event.REAPPLY_SELF_REPLICA, Fact(primary_id=self.primary_id, lease_id=self.primary_lease_id))

    def reapply_later(self, event: Event, fact: Fact) -> None:
        def retry() -> None:
            # The primary may have retried before.
            if self.state is not State.REPLICA_HEALED:
                self.reapply_as_replica(event, fact)

        self._later(RETRY_MS, retry)

    def start_watchdog(self, event: Event, fact: Fact) -> None:
        self._watchdog_generation += 1
        generation = self._watchdog_generation

        def bark() -> None:
            if generation == self._watchdog_generation:
                log.error("Partition [%d]: not healed in %d ms", self.stored.partition_id, self._watchdog_ms)
                self._tell_what_is_missing()
                self.fire(Event.WATCHDOG, Fact())

        self._timers.at(self._now.ms + self._watchdog_ms, bark)

    def _tell_what_is_missing(self) -> None:
        if self.is_replica and self.stored.damage.is_there:
            waits_for = f"node {self.primary_id}, its primary, to serve it and to send it"
        elif not self.is_replica and (self.damaged or self.stored.damage.is_there):
            told = ", ".join(map(str, sorted(self._told))) or "none"
            waits_for = f"{self.quorum} nodes with sound files to report their positions (so far: {told})"
        else:
            return
        own = (
            f"; the files of this node are damaged, see {self.stored.damage.name}"
            if self.stored.damage.is_there
            else ""
        )
        others = f"; those of nodes {', '.join(map(str, sorted(self.damaged)))} are damaged" if self.damaged else ""
        alarm(
            log,
            "RECOVERY",
            f"Partition [{self.stored.partition_id}] waits for {waits_for}{own}{others}. Start the missing nodes. "
            "If they are lost for good, set a smaller election quorum; records that only they had are then lost",
        )

    @property
    def _told(self) -> list[int]:
        is_sound = not self.stored.damage.is_there
        return [
            node_id
            for node_id in self.progress
            # A node that is being healed from here has a position, too.
            if node_id not in self.damaged and (is_sound or node_id != self.links.own_id)
        ]

    def stop_watchdog(self, event: Event, fact: Fact) -> None:
        self._watchdog_generation += 1

    # -- standings

    def store_own(self, event: Event, fact: Fact) -> None:
        # The damage may have been found while this node indexed the records left after truncation.
        self._starts_over |= self.copy.index.is_rotten
        if self.is_replica and self._starts_over and self.copy.records.position != NOWHERE:
            self.copy.settle()
            try:
                self.copy.start_over()
            except OutOfStep as error:
                log.error("Partition [%d]: cannot be fetched again: %s", self.stored.partition_id, error)
                self.reapply_later(event, fact)
        self.progress[self.links.own_id] = self._own_progress()

    def _own_progress(self) -> ReplicaProgress:
        if self.stored.active:
            return ReplicaProgress(last_position(self.stored.files), first_sync_point(self.stored.files))
        if self.copy.records.is_fresh:
            return ReplicaProgress(NOWHERE, NOWHERE)
        return ReplicaProgress(self.copy.records.position, first_sync_point(self.stored.files))

    def store_primary(self, event: Event, fact: Fact) -> None:
        self._primary_sync_point = fact.sync_point

    # -- refusals

    def refuse_as_no_primary(self, event: Event, fact: Fact) -> None:
        self.refuse(fact.asked, StatusCategory.REFUSED, ClusterError.NOT_PRIMARY, "Not a primary")

    def refuse_as_primary(self, event: Event, fact: Fact) -> None:
        self.refuse(fact.asked, StatusCategory.REFUSED, ClusterError.NOT_REPLICA, "Not a replica")

    def refuse_as_damaged(self, event: Event, fact: Fact) -> None:
        text = "Partition is damaged"
        self.refuse(fact.asked, StatusCategory.REFUSED, ClusterError.STORAGE_FAILURE, text)

    def refuse_while_waiting(self, event: Event, fact: Fact) -> None:
        text = "Self replica waiting for PrimaryStateResponse"
        self.refuse(fact.asked, StatusCategory.REFUSED, ClusterError.REPLICA_WAITING, text)


def nothing() -> None:
    """Do nothing."""


def ignore(value: object) -> None:
    """Ignore an answer."""
