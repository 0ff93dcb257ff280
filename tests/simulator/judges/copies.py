"""Judgement of copies: primaries believe of no node that it has records which it has never had, and none goes on with
files that its next process would leave out.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.bmq.replication.partition import ReplicatedPartition
from broker.bmq.replication.positions import NOWHERE, last_position
from formats.bmq.disk.numbers import RecordNumber
from tests.simulator.judges.invariants import Violation

__all__ = ["Copies"]

Number = tuple[int, int]

# A primary that heals may begin with a replica that it has just lost: it finds out at its next tick.
FORGET_US = 500_000
LOOK_US_MAX = 100_000  # a process that takes no step for longer does not run


class Copies:
    """The copies of one partition. A record counts once a disk has had it: other checks judge later losses."""

    def __init__(self, quorum: int) -> None:
        self._quorum = quorum
        self._holders: dict[Number, int] = {}  # a bit for each node
        self._reached: dict[int, RecordNumber] = {}  # how far each node's journal has been
        self._believed: dict[tuple[int, int], RecordNumber] = {}  # by primary and replica
        # Of nodes that have lost their link: the last look, and how long the primary has run since, in microseconds.
        self._lost: dict[tuple[int, int], tuple[int, int]] = {}
        self._rolling: dict[int, int] = {}  # the leases under which nodes roll over, and are not done with it

    def held(self, node_id: int, number: Number) -> None:
        """A node has a record on its disk."""
        self._holders[number] = self._holders.get(number, 0) | 1 << node_id

    def has_held(self, node_id: int, number: Number) -> bool:
        """Return whether a node has, or has had, a record on its disk."""
        return bool(self._holders.get(number, 0) >> node_id & 1)

    def look(self, node_id: int, partition: ReplicatedPartition, now_us: int) -> None:
        """Check after a node's step that its replicas exist and that none is believed to be further than it was."""
        position = last_position(partition.stored.files)
        if position > self._reached.get(node_id, NOWHERE):
            self._reached[node_id] = position
        if partition.stored.kept.awaiting and not partition.stored.active:
            raise Violation(f"n{node_id} waits for copies under a lease that is over")
        self._check_rolling(node_id, partition)
        if partition.stream is None:
            for each in [each for each in self._lost if each[0] == node_id]:
                del self._lost[each]
            return
        for replica_id, follower in partition.stream.followers.items():
            if partition.links.is_up(replica_id):
                self._lost.pop((node_id, replica_id), None)
            else:
                self._count_lost(node_id, replica_id, now_us)
            believed = follower.position
            if self._believed.get((node_id, replica_id)) == believed:
                continue
            self._believed[node_id, replica_id] = believed
            if believed > self._reached.get(replica_id, NOWHERE):
                raise Violation(f"n{node_id} believes that n{replica_id} has all up to {believed}, which it never had")

    def _check_rolling(self, node_id: int, partition: ReplicatedPartition) -> None:
        """Check that no node goes on with half a rollover: a restart would take the files before it."""
        if not partition.copy.rollovers.is_rolling:
            self._rolling.pop(node_id, None)
            return
        lease_id = self._rolling.setdefault(node_id, partition.primary_lease_id)
        if partition.primary_lease_id != lease_id:
            raise Violation(f"n{node_id} goes on with half a rollover of lease {lease_id}, which is over")

    def _count_lost(self, node_id: int, replica_id: int, now_us: int) -> None:
        last_us, spent_us = self._lost.get((node_id, replica_id), (now_us, 0))
        spent_us += min(now_us - last_us, LOOK_US_MAX)
        if spent_us > FORGET_US:
            raise Violation(f"n{node_id} counts n{replica_id} among its replicas, which it has lost")
        self._lost[node_id, replica_id] = now_us, spent_us

    def check_begun(self, node_id: int, lease_id: int, numbers: Iterable[Number]) -> None:
        """A node begins to serve: a majority has, or has had, each record of older leases that it has."""
        for number in numbers:
            if number[0] < lease_id and self._holders[number].bit_count() < self._quorum:
                raise Violation(f"n{node_id} serves under lease {lease_id}, and too few have its record {number}")
