"""The ledgers of all nodes: what a number stands for, who has recorded it, and what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.bmq.core.ledger import ClusterState, Ledger
from broker.bmq.node.node import Node
from formats.bmq.control import ber
from formats.bmq.control.messages import ClusterMessage, LeaderAdvisoryCommit, PartitionPrimaryInfo, QueueInfo
from formats.bmq.disk.ledger import LedgerRecord, LedgerRecordType, open_ledger, parse_ledger_record
from tests.simulator.judges.invariants import Violation

__all__ = ["LedgerView"]

Number = tuple[int, int]
State = tuple[Mapping[str, QueueInfo], Mapping[int, PartitionPrimaryInfo]]


class LedgerView:
    """The invariants: a number names one record, and one state, which is all that was recorded up to it; a quorum
    has recorded what is committed; nobody records what the leader of an older term than its own says.
    """

    def __init__(self, quorum: int) -> None:
        self._quorum = quorum
        self._read: dict[int, tuple[str, int]] = {}
        self._records: dict[Number, bytes] = {}
        self._states: dict[Number, State] = {}
        self._numbers: dict[int, Number] = {}  # by node: the last of its ledger
        # By node: what it has ever recorded, and the last snapshot, which holds all before it.
        self._recorded: dict[int, set[Number]] = {}
        self._snapshots: dict[int, Number] = {}

    def look(self, node_id: int, node: Node, term: int) -> None:
        """Check a node's ledger after its step; `term` is what it knew before."""
        ledger = node.ledger
        if ledger.file is None:
            return
        number = ledger.number
        if number != self._numbers.get(node_id):
            if node_id in self._numbers and number.term < term:
                raise Violation(f"n{node_id} records {tuple(number)} in its ledger, and knew term {term} before")
            self._numbers[node_id] = number
            self._check_state(node_id, number, ledger.recorded)
        name, at = self._read.get(node_id, ("", 0))
        if name != ledger.file.name or at != ledger.end:
            self._read_on(node_id, ledger, at if name == ledger.file.name and at < ledger.end else 0)

    def _check_state(self, node_id: int, number: Number, recorded: ClusterState) -> None:
        state = recorded.queues, recorded.primaries
        known = self._states.setdefault(number, state)
        if known != state:
            differs = _difference(state, known)
            raise Violation(f"n{node_id} has another state than others had at {tuple(number)}: {differs}")

    def _read_on(self, node_id: int, ledger: Ledger, at: int) -> None:
        """Read what was written after `at`, or all of a new file, which must contain all that the node knows."""
        assert ledger.file is not None
        buffer = ledger.file.buffer
        is_begun = not at and node_id in self._read
        if not at:
            at = open_ledger(buffer)[1]
            first = parse_ledger_record(buffer, at)
            if first.header.record_type == LedgerRecordType.SNAPSHOT:
                # Under the number that was current when the file was begun.
                self._note_snapshot(node_id, _number_of(first))
            if is_begun:
                self._check_file(node_id, ledger, at)
            at = first.end
        while at < ledger.end:
            record = parse_ledger_record(buffer, at)
            self._take(node_id, record)
            at = record.end
        self._read[node_id] = ledger.file.name, at

    def _check_file(self, node_id: int, ledger: Ledger, at: int) -> None:
        """Check after a rollover that the new file alone gives the node's state."""
        assert ledger.file is not None
        state = ClusterState()
        while at < ledger.end:
            record = parse_ledger_record(ledger.file.buffer, at)
            state.apply(ber.decode(ClusterMessage, record.body))
            at = record.end
        recorded = ledger.recorded
        says, knows = (state.queues, state.primaries), (recorded.queues, recorded.primaries)
        if says != knows:
            raise Violation(f"n{node_id} has a new ledger that does not say what it knows: {_difference(says, knows)}")

    def _take(self, node_id: int, record: LedgerRecord) -> None:
        number, kind = _number_of(record), record.header.record_type
        content = bytes((kind,)) + bytes(record.body)
        is_new = number not in self._records
        known = self._records.setdefault(number, content)
        if known != content:
            raise Violation(f"n{node_id} has another record {number} in its ledger than others")
        if kind != LedgerRecordType.COMMIT:
            self._recorded.setdefault(node_id, set()).add(number)
            if kind == LedgerRecordType.SNAPSHOT:
                self._note_snapshot(node_id, number)
        elif is_new:
            choice = ber.decode(ClusterMessage, record.body).choice
            assert isinstance(choice, LeaderAdvisoryCommit)
            committed = choice.sequence_number_committed
            self._check_commit(node_id, (committed.elector_term, committed.sequence_number))

    def _note_snapshot(self, node_id: int, number: Number) -> None:
        self._snapshots[node_id] = max(self._snapshots.get(node_id, (0, 0)), number)

    def _check_commit(self, node_id: int, number: Number) -> None:
        """The leader commits a record: a quorum has it, or a snapshot that holds it."""
        nodes = [each for each, numbers in self._recorded.items() if number in numbers]
        nodes += [each for each, last in self._snapshots.items() if last >= number and each not in nodes]
        if len(nodes) < self._quorum:
            raise Violation(f"n{node_id} commits {number}, which only {sorted(nodes)} have in their ledgers")

    def forget(self, node_id: int) -> None:
        """The node restarts: read all that it has."""
        self._read.pop(node_id, None)
        self._numbers.pop(node_id, None)


def _number_of(record: LedgerRecord) -> Number:
    return record.header.elector_term, record.header.sequence_number


def _difference(state: State, other: State) -> str:
    """The first thing in which two states differ."""
    return _first_difference(state[0], other[0]) or _first_difference(state[1], other[1])


def _first_difference(has: Mapping[Any, object], had: Mapping[Any, object]) -> str:
    for key in [*has, *had]:
        if has.get(key) != had.get(key):
            return f"{key} is {has.get(key)}, not {had.get(key)}"
    return ""
