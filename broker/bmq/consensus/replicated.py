"""Replication of the ledger: the leader's advisories go to all nodes, and are committed once a quorum has them.

Records are sent as in the ledger's file, one in each CLUSTER_STATE event: advisories and commits from the leader, acks,
which are not recorded, to it. A follower takes part once it has recorded a snapshot of this leader's, newer than all
advisories that it has skipped. The ack of a snapshot covers all before it.

Source: mqbc::IncoreClusterStateLedger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from broker.bmq.core.ledger import Advisory, Ledger, Make
from broker.bmq.core.messages import Full
from broker.bmq.core.received import received
from broker.bmq.links.links import Links
from broker.common.clock import Now
from formats.bmq.codes import EncodingType, EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    LeaderAdvisory,
    LeaderAdvisoryAck,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    PartitionPrimaryAdvisory,
    QueueAssignmentAdvisory,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, parse_ledger_record
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.wire.event import Frame, build_event
from formats.errors import FormatError

__all__ = ["LedgerRole", "ReplicatedLedger"]

log: Final = logging.getLogger("broker.cluster.ledger")

# A leader numbers its advisories consecutively: one further ahead than this is not from a leader.
NUMBER_JUMP_MAX: Final = 1 << 32

ADVISORIES: Final = (
    LeaderAdvisory,
    PartitionPrimaryAdvisory,
    QueueAssignmentAdvisory,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)


class LedgerRole(Enum):
    """The role of this node in the replication of the ledger."""

    RESTING = "no leader is known: no records are accepted"
    FOLLOWING = "records come from the leader"
    LEADING = "records come from this node"


class ReplicatedLedger:
    """One node's part in replicating the ledger.

    `committed` is called with each committed advisory, after the state has changed. `refused` checks whether an
    advisory's primaries contradict what is known here: it is then not recorded. `missed` is called when a follower
    could not record an advisory of the leader, and must start over.
    """

    def __init__(
        self,
        links: Links,
        ledger: Ledger,
        quorum: int,
        now: Now,
        committed: Callable[[LedgerNumber, Advisory], None],
        refused: Callable[[LeaderAdvisory | PartitionPrimaryAdvisory], str | None],
        missed: Callable[[], None],
    ) -> None:
        self.ledger = ledger
        self.quorum = quorum
        self.role = LedgerRole.RESTING
        self.leader_id: int | None = None
        self._links = links
        self._now = now
        self._committed = committed
        self._refused = refused
        self._missed = missed
        # The last number given by this leader, or by the followed one.
        self._last = LedgerNumber(0, 0)
        self._term = 0  # the leader's
        # The nodes that acked each of this leader's uncommitted advisories, by number.
        self._acked: dict[LedgerNumber, set[int]] = {}
        # True if a follower has a snapshot of this leader's, and everything since.
        self._in_step = False
        # This leader's last advisory that a follower has skipped: only a later snapshot covers it.
        self._left_out = LedgerNumber(0, 0)

    def rest(self) -> None:
        self.role = LedgerRole.RESTING
        self.leader_id = None
        self._in_step = False
        self._acked.clear()

    def follow(self, leader_id: int, term: int) -> None:
        self.rest()
        self.role = LedgerRole.FOLLOWING
        self.leader_id = leader_id
        self._term = term
        self._last = max(LedgerNumber(term, 0), self.ledger.number)

    def lead(self, term: int) -> None:
        assert term >= self.ledger.number.term
        self.rest()
        self.role = LedgerRole.LEADING
        self.leader_id = self._links.own_id
        self._last = max(LedgerNumber(term, 0), self.ledger.number)

    def node_down(self, node_id: int) -> None:
        """Forget the acks of a lost node, which may return with another disk."""
        for acked in self._acked.values():
            acked.discard(node_id)

    def advise(self, make: Make) -> LedgerNumber:
        """Record an advisory, send it to all, and return its number. Raises `Full`, without effect, on a full disk."""
        assert self.role is LedgerRole.LEADING
        number = LedgerNumber(self._last.term, self._last.sequence_number + 1)
        advisory = make(_sequence(number))
        kind = LedgerRecordType.SNAPSHOT if isinstance(advisory, LeaderAdvisory) else LedgerRecordType.UPDATE
        record = self._record(kind, number, advisory)
        self.ledger.append(number, advisory, record)
        log.info("'%s' will be applied to cluster state ledger: %s", type(advisory).__name__, tuple(number))
        self._last = number
        self._tell(record)
        self._commit()
        return number

    def set_quorum(self, quorum: int) -> None:
        """Set the quorum, even for waiting advisories."""
        self.quorum = quorum
        self._commit()

    def _commit(self) -> None:
        uncommitted = self.ledger.uncommitted
        while uncommitted and self.role is LedgerRole.LEADING:
            advised = next(iter(uncommitted))
            # Earlier leaders' advisories are committed by the snapshot that includes them.
            if advised.term != self._last.term or 1 + len(self._acked.get(advised, ())) < self.quorum:
                return
            number = LedgerNumber(self._last.term, self._last.sequence_number + 1)
            choice = LeaderAdvisoryCommit(
                sequence_number=_sequence(number), sequence_number_committed=_sequence(advised)
            )
            record = self._record(LedgerRecordType.COMMIT, number, choice)
            advisory = self.ledger.commit(number, advised, record)
            self._last = number
            self._acked.pop(advised, None)
            self._tell(record)
            self._committed(advised, advisory)

    def _tell(self, record: bytes) -> None:
        event = build_event(EventType.CLUSTER_STATE, record)
        for node_id in self._links.other_ids:
            self._links.send(node_id, event)

    def receive(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Raises FormatError for a malformed event."""
        record = parse_ledger_record(data, frame.body)
        if record.end != frame.end:
            raise FormatError("ClusterStateEvent", record.end, f"{frame.end - record.end} bytes after its record")
        choice = received(ClusterMessage, record.body, EncodingType.BER).choice
        kind = LedgerRecordType(record.header.record_type)
        number = LedgerNumber(record.header.elector_term, record.header.sequence_number)
        if _number_of(choice) != number:
            raise FormatError("ClusterStateEvent", frame.body, f"numbered {_number_of(choice)} in its message")
        if self.role is LedgerRole.LEADING:
            if isinstance(choice, LeaderAdvisoryAck) and kind is LedgerRecordType.ACK:
                self._take_ack(node_id, number)
            else:
                log.error("node %d is not the leader, this node is: its %s is ignored", node_id, kind.name)
        elif node_id != self.leader_id:
            log.error("node %d is not the leader: its %s %s is ignored", node_id, kind.name, tuple(number))
        elif number.term != self._term or number.sequence_number - self._last.sequence_number > NUMBER_JUMP_MAX:
            log.error("node %d leads term %d: its %s %s is ignored", node_id, self._term, kind.name, tuple(number))
        elif number <= self._last:
            log.error("%s %s of node %d is stale: %s is known", kind.name, tuple(number), node_id, tuple(self._last))
        elif isinstance(choice, LeaderAdvisoryCommit) and kind is LedgerRecordType.COMMIT:
            self._take_commit(number, choice, bytes(data[frame.body : frame.end]))
        elif isinstance(choice, ADVISORIES) and kind is _kind_of(choice):
            self._take_advisory(node_id, number, choice, bytes(data[frame.body : frame.end]))
        else:
            log.error("node %d is the leader: a %s with %s is ignored", node_id, kind.name, type(choice).__name__)

    def _take_ack(self, node_id: int, number: LedgerNumber) -> None:
        if number.term != self._last.term or number > self._last:
            log.error("node %d acks %s, which this leader has not advised", node_id, tuple(number))
            return
        acked = self.ledger.uncommitted.get(number)
        if acked is None:
            return
        covers_earlier = isinstance(acked.advisory, LeaderAdvisory)
        for each in self.ledger.uncommitted:
            if each == number or (covers_earlier and each < number):
                self._acked.setdefault(each, set()).add(node_id)
        self._commit()

    def _take_advisory(self, node_id: int, number: LedgerNumber, advisory: Advisory, record: bytes) -> None:
        is_snapshot = isinstance(advisory, LeaderAdvisory)
        if not (self._in_step or is_snapshot):
            log.info("advisory %s is ignored: this leader's snapshot has not arrived yet", tuple(number))
            self._left_out = max(self._left_out, number)
            return
        if number <= self._left_out:
            log.error("advisory %s of node %d is stale: %s is known", tuple(number), node_id, tuple(self._left_out))
            return
        if isinstance(advisory, (LeaderAdvisory, PartitionPrimaryAdvisory)):
            fault = self._refused(advisory)
            if fault is not None:
                log.error("advisory %s of node %d is ignored: %s", tuple(number), node_id, fault)
                # Its number is as unreliable as its contents.
                self._fall_out()
                return
        try:
            self.ledger.append(number, advisory, record)
        except Full as full:
            log.error("advisory %s of node %d cannot be recorded: %s", tuple(number), node_id, full)
            self._left_out = max(self._left_out, number)
            self._fall_out()
            return
        self._last = number
        self._in_step = True
        ack = LeaderAdvisoryAck(sequence_number_acked=_sequence(number))
        self._links.send(node_id, build_event(EventType.CLUSTER_STATE, self._record(LedgerRecordType.ACK, number, ack)))

    def _fall_out(self) -> None:
        """Note a skipped advisory, after which no others can be accepted."""
        self._in_step = False
        self._missed()

    def _take_commit(self, number: LedgerNumber, commit: LeaderAdvisoryCommit, record: bytes) -> None:
        advised = _number(commit.sequence_number_committed)
        if not self._in_step or advised not in self.ledger.uncommitted:
            log.info("commit %s is ignored: advisory %s has not arrived", tuple(number), tuple(advised))
            return
        advisory = self.ledger.commit(number, advised, record)
        self._last = number
        self._committed(advised, advisory)

    def _record(
        self, kind: LedgerRecordType, number: LedgerNumber, choice: Advisory | LeaderAdvisoryAck | LeaderAdvisoryCommit
    ) -> bytes:
        body = ber.encode(ClusterMessage(choice=choice))
        return build_ledger_record(kind, number.term, number.sequence_number, self._now.wall_s, body)


def _kind_of(advisory: Advisory) -> LedgerRecordType:
    return LedgerRecordType.SNAPSHOT if isinstance(advisory, LeaderAdvisory) else LedgerRecordType.UPDATE


def _sequence(number: LedgerNumber) -> LeaderMessageSequence:
    return LeaderMessageSequence(elector_term=number.term, sequence_number=number.sequence_number)


def _number(sequence: LeaderMessageSequence) -> LedgerNumber:
    return LedgerNumber(sequence.elector_term, sequence.sequence_number)


def _number_of(choice: object) -> LedgerNumber | None:
    """Return the number in a record's message; None if it has none."""
    if isinstance(choice, LeaderAdvisoryAck):
        return _number(choice.sequence_number_acked)
    if isinstance(choice, (LeaderAdvisoryCommit, *ADVISORIES)):
        return _number(choice.sequence_number)
    return None
