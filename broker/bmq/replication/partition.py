# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""One partition on one node: primary or replica, and the way there.

The state machine is the table in `broker.bmq.replication.partition_table`. This module handles its input: changes of
the primary, and messages and records of peers. An action may fire another event, which follows the current row.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from broker.bmq.core.alarms import alarm
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.messages import Content
from broker.bmq.links.links import HealingLinks
from broker.bmq.links.requests import Requests
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.copying.replica_files import ReplicaFiles
from broker.bmq.replication.healing_pace import HealingPace
from broker.bmq.replication.mending import Mending
from broker.bmq.replication.partition_base import PartitionListener
from broker.bmq.replication.partition_facts import NO_FACT, Asked, Fact, Received
from broker.bmq.replication.partition_states import Event, State
from broker.bmq.replication.partition_table import TABLE
from broker.bmq.replication.positions import NOWHERE, position_at
from broker.bmq.replication.primary_actions import PrimaryActions
from broker.bmq.replication.removals import take_removals
from broker.bmq.store.recovery import Recovered
from broker.common.clock import Now
from broker.common.faults import Inconsistent
from broker.common.timers import Timers
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    PartitionMessage,
    PrimaryStateRequest,
    PrimaryStatus,
    PrimaryStatusAdvisory,
    ReplicaDataRequest,
    ReplicaDataType,
    ReplicaStateRequest,
    StatusCategory,
)
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.event import Frame
from formats.bmq.wire.receipt import Receipt, build_receipt_event
from formats.bmq.wire.recovery import RecoveryChunk
from formats.bmq.wire.storage import iter_storage
from formats.errors import FormatError

__all__ = ["PartitionReport", "ReplicatedPartition", "named"]

log: Final = logging.getLogger("broker.partition")


_DATA_EVENTS: Final = {
    ReplicaDataType.PULL: Event.REPLICA_DATA_RQST_PULL,
    ReplicaDataType.PUSH: Event.REPLICA_DATA_RQST_PUSH,
    ReplicaDataType.DROP: Event.REPLICA_DATA_RQST_DROP,
}


# Events processed while a replica rolls over or indexes its files; all others wait.
_WHILE_BUSY: Final = (Event.LIVE_DATA, Event.REPLICA_DATA_RQST_PULL, Event.STOP_NODE)


class FollowerReport(NamedTuple):
    """A replica's progress as known to the primary; `records_behind` is in the current lease, None before any."""

    node_id: int
    is_live: bool
    position: RecordNumber
    records_behind: int | None


class PartitionReport(NamedTuple):
    """The state of a partition at this node, for people."""

    partition_id: int
    state: State
    primary_id: int | None
    primary_lease_id: int
    position: RecordNumber
    waiting: int
    followers: tuple[FollowerReport, ...]


def named(request: object) -> str:
    """Return the type of a request, with a data request's direction, for the log."""
    name = type(request).__name__
    return f"{name}{request.replica_data_type.name.title()}" if isinstance(request, ReplicaDataRequest) else name


class ReplicatedPartition(PrimaryActions):
    """One partition at this node.

    When this node becomes the active primary, `listener` restores the queues and messages, the lease begins with a sync
    point, and then the partition is active.
    """

    def __init__(
        self,
        stored: StoredPartition,
        recovered: Recovered,
        links: HealingLinks,
        requests: Requests,
        now: Now,
        timers: Timers,
        quorum: int,
        pace: HealingPace,
        listener: PartitionListener,
        watchdog_ms: int = 30_000,
    ) -> None:
        partition_id = stored.partition_id
        copy = ReplicaFiles(
            stored, recovered, partial(listener.on_removed, partition_id), partial(listener.on_purged, partition_id)
        )
        super().__init__(stored, copy, links, requests, now, timers, quorum, pace, watchdog_ms, listener)
        self.state = State.UNKNOWN
        self.mending = Mending(stored, self.who_has, self.fetch_record, self._later)
        self._events: deque[tuple[Event, Fact]] = deque()
        self._is_firing = False
        self._deferred: deque[tuple[Event, Fact]] = deque()  # until a rollover is finished
        self._receipt_sent = NOWHERE

    @property
    def partition_id(self) -> int:
        return self.stored.partition_id

    @property
    def position(self) -> RecordNumber:
        if self.stored.active:
            return RecordNumber(self.stored.primary_lease_id, self.stored.sequence_number)
        return self.copy.records.position

    @property
    def is_primary(self) -> bool:
        return self.state is State.PRIMARY_HEALED and self.stored.active

    @property
    def is_healed(self) -> bool:
        return self.is_primary or self.state is State.REPLICA_HEALED

    def has_fallen_behind(self, node_id: int) -> bool:
        """Return True if a replica that counts as healed gets records late: pushes would overtake them."""
        return self.stream is not None and self.stream.has_fallen_behind(node_id)

    @property
    def is_served(self) -> bool:
        """Return True if this node serves the partition, or has a complete copy from an active primary."""
        return self.stored.active or (self.state is State.REPLICA_HEALED and self.primary_is_active)

    @property
    def heals(self) -> bool:
        """Return True if the caller must call `heal`: there is more to send to a healing node."""
        return self.transfer is not None or (self.stream is not None and self.stream.heals)

    @property
    def busy(self) -> bool:
        """Return True if the caller should call `heal` as soon as the links have sent."""
        sending = self.stream or self.transfer
        return sending is not None and sending.busy

    @property
    def _is_busy(self) -> bool:
        """Return True if this node cannot report its position yet, and will be able to without further input."""
        return self.copy.rollovers.is_busy or self._writing is not None

    def fire(self, event: Event, fact: Fact = NO_FACT) -> None:
        if self._is_busy and event not in _WHILE_BUSY:
            # This node can report its position only once its new files are complete and indexed.
            self._deferred.append((event, fact))
            return
        if self._deferred and event is Event.LIVE_DATA:
            return  # the replica heals again, and gets it then
        self._events.append((event, fact))
        if self._is_firing:
            return
        self._is_firing = True
        try:
            while self._events:
                event, fact = self._events.popleft()
                row = TABLE.get((self.state, event))
                if row is None:
                    continue
                if row.state is not self.state:
                    log.info(
                        "Partition [%d]: %s, %s -> %s", self.partition_id, event.name, self.state.name, row.state.name
                    )
                self.state = row.state
                for action in row.actions:
                    action(self, event, fact)
        except FormatError:
            raise
        except Exception as error:
            raise Inconsistent(f"partition {self.partition_id}: {event.name} in {self.state.name}", error) from error
        finally:
            self._is_firing = False
            # Events are left only after a fault.
            self._events.clear()

    def set_quorum(self, quorum: int) -> None:
        self.quorum = quorum
        if self.state is State.PRIMARY_HEALING_STG1:
            self.check_positions(Event.REPLICA_STATE_RSPN, NO_FACT)
        elif self.state is State.PRIMARY_HEALING_STG2:
            self.check_healed(Event.REPLICA_DATA_RSPN_PUSH, NO_FACT)

    def set_copies_wanted(self, count: int) -> None:
        """Set the number of nodes, including this one, that must have a message of strong consistency.

        It applies to waiting messages, too.
        """
        self.stored.kept.copies_wanted = count
        if self.stored.active and self.stream is not None:
            self.stream.count()

    def primary_changed(self, primary_id: int | None, primary_lease_id: int) -> None:
        """Handle the assignment of a primary, perhaps the same under a new lease, or its loss (None)."""
        if primary_id is None:
            self.fire(Event.RST_UNKNOWN)
        elif (primary_id, primary_lease_id) != self._assigned:
            own = primary_id == self.links.own_id
            fact = Fact(primary_id=primary_id, lease_id=primary_lease_id)
            self.fire(Event.DETECT_SELF_PRIMARY if own else Event.DETECT_SELF_REPLICA, fact)

    @property
    def _assigned(self) -> tuple[int | None, int]:
        for event, fact in reversed(self._deferred):
            if event in (Event.RST_UNKNOWN, Event.DETECT_SELF_PRIMARY, Event.DETECT_SELF_REPLICA):
                return fact.primary_id, fact.lease_id
        return self.primary_id, self.primary_lease_id

    def node_up(self, node_id: int) -> None:
        if self.state in (State.PRIMARY_HEALING_STG1, State.PRIMARY_HEALING_STG2):
            self.ask_replica(node_id)
        elif node_id == self.primary_id and self.is_replica:
            # Whatever was in flight is lost.
            self.fire(Event.REAPPLY_SELF_REPLICA, Fact(primary_id=node_id, lease_id=self.primary_lease_id))
        elif self.is_primary:
            # A node with damaged files waits for this before it reports anything.
            self._say(node_id, PrimaryStatus.ACTIVE)

    def node_down(self, node_id: int) -> None:
        """Handle the loss of the link to a node; call `Requests.node_down` as well."""
        if self.stream is not None:
            self.stream.forget(node_id)
        self.healed.discard(node_id)
        self.forget_damaged(node_id)
        self._told_active.pop(node_id, None)

    def stop(self) -> None:
        self.write_all_buffered()
        self.fire(Event.STOP_NODE)

    def on_control(self, node_id: int, message: ControlMessage) -> bool:
        choice = message.choice
        if not isinstance(choice, ClusterMessage):
            return False
        if isinstance(choice.choice, PrimaryStatusAdvisory):
            self._on_advisory(node_id, choice.choice)
            return True
        if not isinstance(choice.choice, PartitionMessage) or message.r_id is None:
            return False
        request = choice.choice.choice
        asked = Asked(node_id, message)
        match request:
            case PrimaryStateRequest():
                self._on_primary_state_request(asked, request)
            case ReplicaStateRequest():
                if self._is_of_primary(asked, request.primary_lease_id):
                    is_damaged = self.stored.damage.is_there
                    self.fire(
                        Event.DAMAGED_STATE_RQST if is_damaged else Event.REPLICA_STATE_RQST,
                        Fact(
                            node_id=node_id,
                            asked=asked,
                            end=RecordNumber.of(request.latest_sequence_number),
                            sync_point=RecordNumber.of(request.first_sync_point_after_rollover_sequence_number),
                        ),
                    )
            case ReplicaDataRequest():
                event = _DATA_EVENTS.get(request.replica_data_type)
                if event is not None and self._is_of_primary(asked, request.primary_lease_id):
                    begin, end = (
                        RecordNumber.of(request.begin_sequence_number),
                        RecordNumber.of(request.end_sequence_number),
                    )
                    self.fire(event, Fact(node_id=node_id, asked=asked, begin=begin, end=end))
            case _:
                return False
        return True

    def _on_primary_state_request(self, asked: Asked, request: PrimaryStateRequest) -> None:
        if self.primary_id == self.links.own_id and request.primary_lease_id != self.primary_lease_id:
            # One of the two nodes has yet to learn of the newer lease.
            self.refuse(asked, StatusCategory.REFUSED, ClusterError.NOT_PRIMARY, "Not a primary under that lease")
            return
        if not self.believes(asked.node_id, request.latest_sequence_number):
            text = "No leader has reached that lease"
            self.refuse(asked, StatusCategory.REFUSED, ClusterError.STORAGE_FAILURE, text)
            return
        self.fire(
            Event.PRIMARY_STATE_RQST,
            Fact(
                node_id=asked.node_id,
                asked=asked,
                end=RecordNumber.of(request.latest_sequence_number),
                sync_point=RecordNumber.of(request.first_sync_point_after_rollover_sequence_number),
            ),
        )

    def _is_of_primary(self, asked: Asked, lease_id: int) -> bool:
        if (asked.node_id, lease_id) == (self.primary_id, self.primary_lease_id):
            return True
        choice = asked.message.choice
        assert isinstance(choice, ClusterMessage)
        assert isinstance(choice.choice, PartitionMessage)
        log.warning(
            "Partition [%d]: Received %s from node %d, but self's perceived primary is %s under lease %d. "
            "Sending failure response",
            self.partition_id,
            named(choice.choice.choice),
            asked.node_id,
            self.primary_id,
            self.primary_lease_id,
        )
        text = "Source node is not recognized as the primary"
        self.refuse(asked, StatusCategory.REFUSED, ClusterError.SOURCE_NOT_PRIMARY, text)
        return False

    def _on_advisory(self, node_id: int, advisory: PrimaryStatusAdvisory) -> None:
        is_active = advisory.status is PrimaryStatus.ACTIVE
        self._told_active.pop(node_id, None)
        if is_active:
            self._told_active[node_id] = advisory.primary_lease_id
        if (node_id, advisory.primary_lease_id) == (self.primary_id, self.primary_lease_id) and self.is_replica:
            self.primary_is_active = is_active
            self.listener.on_primary_status(self.partition_id, node_id, is_active)
            if self.state is State.REPLICA_WAITING and self.stored.damage.is_there and not self._asked_numbers:
                # It has all records, and may know now that this node needs them.
                self.ask_primary(Event.DETECT_SELF_REPLICA, NO_FACT)

    def on_storage(self, node_id: int, data: memoryview, frame: Frame) -> None:
        if node_id == self.primary_id:
            if self.stored.damage.is_there:
                # Its first record may be the first sign that it serves the partition.
                for message in islice(iter_storage(data, frame.body, frame.end), 1):
                    self._told_active[node_id] = position_at(message.record).primary_lease_id
            self.fire(Event.LIVE_DATA, Fact(node_id=node_id, received=Received(data, frame.body, frame.end)))

    def on_sync(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Handle a PARTITION_SYNC event of the primary, or of the replica that heals this primary."""
        self.fire(Event.RECOVERY_DATA, Fact(node_id=node_id, received=Received(data, frame.body, frame.end)))

    def on_recovery(self, node_id: int, chunk: RecoveryChunk) -> None:
        """Handle removals in a RECOVERY event of the node that heals this one. Raises FormatError if malformed."""
        if self.copy.records.is_fresh and self._receiving is not None and self._receiving.node_id == node_id:
            take_removals(self.stored, chunk)

    def on_receipt(self, node_id: int, receipt: Receipt, at: int) -> None:
        # A receipt of an earlier lease does not show what its node has kept since.
        if self.stream is not None and self.is_primary and receipt.primary_lease_id == self.primary_lease_id:
            position = RecordNumber(self.primary_lease_id, receipt.sequence_number)
            if position > self.position:
                raise FormatError("ReplicationReceipt", at, f"of {position}, the last record is {self.position}")
            self.stream.has(node_id, position)

    @property
    def gathers(self) -> bool:
        """Return True if records wait for others to go with: the caller must call `flush` before long."""
        return self.stream is not None and self.stream.gathers

    def flush(self, *, gathers: bool = False) -> None:
        """Send written records and requested receipts, and ask for damaged payloads; called after each step.

        `gathers`: see `ReplicationStream.flush`.
        """
        if self.stored.payloads.wanted:
            self.mending.look()
        if self.stream is not None:
            self.stream.flush(gathers=gathers)
        if self.copy.rollovers.fault:
            self._roll_over_failed()
        while self._deferred and not self._is_busy:
            self.fire(*self._deferred.popleft())
        if self.receipt_due is not None and self.primary_id is not None:
            self._send_receipt(self.primary_id, self.receipt_due)

    def _send_receipt(self, primary_id: int, due: RecordNumber) -> None:
        """Send a receipt for the records kept: until a rollover is finished, those before it."""
        position = min(due, self.copy.rollovers.kept)
        if position == due:
            self.receipt_due = None
        if position != self._receipt_sent or position == due:
            self._receipt_sent = position
            self.links.send(primary_id, build_receipt_event(self.partition_id, *position))

    def _roll_over_failed(self) -> None:
        log.error("Partition [%d]: a rollover is abandoned: %s", self.partition_id, self.copy.rollovers.fault)
        self._starts_over = True
        self._buffered.clear()
        self._writing = None
        self.fire(Event.ISSUE_LIVESTREAM)
        if self.copy.rollovers.is_rolling:
            # This node is no longer a replica that could be healed.
            self.copy.settle()

    def heal(self) -> None:
        if self.stream is not None:
            self.stream.heal()
        if self.transfer is not None and self.transfer.flush():
            self.transfer = None

    def read(self, queue_key: bytes, guid: bytes) -> Content | None:
        """Read a message at a replica; None if it is missing or corrupted: then all is received from scratch."""
        content = self.copy.index.read(queue_key, guid)
        if content is None and self.copy.index.is_rotten and not self._starts_over and self.is_replica:
            self._starts_over = True
            alarm(
                log,
                "STORAGE",
                f"Partition [{self.partition_id}]: the payload of message {guid.hex().upper()} does not match its "
                "checksum, the disk may be failing. The partition is fetched again from its primary, "
                f"node {self.primary_id}; after that its damaged files are set aside",
            )
            # Not in the step that wanted it.
            self._later(0, lambda: self.reapply_as_replica(Event.ISSUE_LIVESTREAM, NO_FACT))
        return content

    def report(self) -> PartitionReport:
        own = self.position
        followers = tuple(
            FollowerReport(
                each.node_id,
                each.is_live,
                each.position,
                _behind(own, each.position),
            )
            for each in (self.stream.followers.values() if self.stream is not None else ())
        )
        return PartitionReport(
            self.partition_id,
            self.state,
            self.primary_id,
            self.primary_lease_id,
            own,
            len(self.stored.kept.awaiting),
            followers,
        )


def _behind(own: RecordNumber, other: RecordNumber) -> int | None:
    """Return the number of records that a follower at `other` lacks; None if its last is of another lease."""
    if other.primary_lease_id != own.primary_lease_id:
        return None
    return own.sequence_number - other.sequence_number
