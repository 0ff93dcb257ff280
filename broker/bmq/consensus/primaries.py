"""The primaries of partitions known to this node, and the nodes that can be primary by their statuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.bmq.consensus.assigning import assign_primaries
from broker.bmq.core.alarms import alarm
from broker.bmq.core.ledger import ClusterState
from broker.bmq.links.links import Links
from formats.bmq.control.messages import LeaderAdvisory, NodeStatus, PartitionPrimaryAdvisory, PartitionPrimaryInfo
from formats.bmq.disk.numbers import LEASE_ID_MAX

__all__ = ["LEASE_TOLD_MAX", "Primaries", "Told"]

log: Final = logging.getLogger("broker.cluster")

# Leases are numbered consecutively. One further ahead than this is not from a leader, and would exhaust the numbers.
LEASE_JUMP_MAX: Final = 1 << 24
# Claims of records under unknown leases are believed up to this lease id, however often repeated: leases lost with the
# ledger are found again, and enough higher ones remain for a node that knows none.
LEASE_TOLD_MAX: Final = LEASE_JUMP_MAX >> 1

# Called with a partition, its primary (None when it is lost) and the lease id.
Told = Callable[[int, int | None, int], None]


class Primaries:
    """The primaries; `told` is called on each change. `leases` are the highest lease ids in partitions' files."""

    def __init__(
        self, links: Links, partition_count: int, leases: Mapping[int, int], told: Told, *, spread: bool
    ) -> None:
        self._links = links
        self._count = partition_count
        self._leases = dict(leases)
        self._told = told
        self._spread = spread
        self._known: dict[int, tuple[int | None, int]] = {}
        self.statuses: dict[int, NodeStatus] = {}
        # Silent leaders whose links are up, for long enough that another was elected, or will be.
        self.silent: set[int] = set()
        # Leases, by partition, whose nodes were lost while this one led: they may come back as other processes.
        self._spent: set[tuple[int, int]] = set()

    def get(self, partition_id: int) -> tuple[int | None, int]:
        """Return a partition's primary, None when it is lost, and its lease id, 0 when it never had one."""
        return self._known.get(partition_id, (None, 0))

    def tell(self, partition_id: int, node_id: int | None, lease_id: int) -> None:
        if self._known.get(partition_id) != (node_id, lease_id):
            self._known[partition_id] = (node_id, lease_id)
            self._told(partition_id, node_id, lease_id)

    def lose(self, partition_id: int) -> None:
        self.tell(partition_id, None, self.get(partition_id)[1])

    def of(self, node_id: int) -> tuple[int, ...]:
        return tuple(partition_id for partition_id, (primary, _) in self._known.items() if primary == node_id)

    @property
    def served(self) -> set[int]:
        return {partition_id for partition_id, (node_id, _) in self._known.items() if node_id is not None}

    @property
    def all(self) -> list[int]:
        return list(self._known)

    def back(self, node_id: int, state: ClusterState) -> None:
        """Restore the leases of a node that is reachable again, which no leader has taken away."""
        for partition_id, info in state.primaries.items():
            if info.primary_node_id == node_id and self._known.get(partition_id) == (None, info.primary_lease_id):
                self.tell(partition_id, node_id, info.primary_lease_id)

    def changed_by(self, advisory: object) -> tuple[int, ...]:
        """Return the partitions for which an advisory names another primary or lease."""
        if not isinstance(advisory, (LeaderAdvisory, PartitionPrimaryAdvisory)):
            return ()
        infos = [info for info in advisory.partitions if self._known.get(info.partition_id) != _pair(info)]
        return tuple(info.partition_id for info in infos)

    def fault_of(self, advisory: LeaderAdvisory | PartitionPrimaryAdvisory) -> str | None:
        """Return an advisory's contradiction, if any: a lease must not decrease, nor pass to another node."""
        nodes = {self._links.own_id, *self._links.other_ids}
        for info in advisory.partitions:
            if not 0 <= info.partition_id < self._count:
                return f"there is no partition {info.partition_id}"
            if info.primary_node_id not in nodes:
                return f"there is no node {info.primary_node_id}"
            primary, lease_id = self.get(info.partition_id)
            same = primary in (None, info.primary_node_id)
            if info.primary_lease_id < lease_id or (info.primary_lease_id == lease_id and not same):
                return f"partition {info.partition_id}: lease {info.primary_lease_id}, last known is {lease_id}"
        return self.excess(advisory.partitions)

    def excess(self, partitions: Iterable[PartitionPrimaryInfo]) -> str | None:
        """Return the fault of a lease that no leader can have reached, if any."""
        for info in partitions:
            known = max(self.get(info.partition_id)[1], self._leases.get(info.partition_id, 0))
            if info.primary_lease_id > known + LEASE_JUMP_MAX:
                return f"partition {info.partition_id}: lease {info.primary_lease_id} is too far beyond {known}"
        return None

    # -- as the leader

    def lead(self) -> None:
        self._spent.clear()

    def spend(self, node_id: int, recorded: ClusterState) -> None:
        """End the leases of a lost node, committed or not, even if it returns soon."""
        infos = recorded.primaries.values()
        self._spent |= {(each.partition_id, each.primary_lease_id) for each in infos if each.primary_node_id == node_id}

    def outdate(self, partition_id: int, lease_id: int) -> None:
        """Note a lease of which a partition has records: the next one must be above it."""
        known = max(self.get(partition_id)[1], self._leases.get(partition_id, 0))
        if lease_id > max(known, LEASE_TOLD_MAX):
            log.error(
                "partition %d: implausible records of lease %d ignored, last known is %d", partition_id, lease_id, known
            )
            return
        self._leases[partition_id] = max(known, lease_id)
        self._spent |= {(partition_id, self.get(partition_id)[1])}

    def assign(
        self, known: ClusterState, stays: Callable[[PartitionPrimaryInfo], bool]
    ) -> tuple[PartitionPrimaryInfo, ...]:
        """Assign all primaries: nodes that `stays` approves keep theirs; the others go to this node, or are spread."""
        candidates = [self._links.own_id]
        if self._spread:
            candidates += [node_id for node_id in self._links.other_ids if self.is_usable(node_id)]
        infos = assign_primaries(self._count, known.primaries, self._leases, stays, candidates)
        for info in infos:
            if info.primary_lease_id == LEASE_ID_MAX and not self.holds(info):
                alarm(
                    log,
                    "CLUSTER",
                    f"partition {info.partition_id} gets no other primary than node {info.primary_node_id}: no lease "
                    f"is left after {LEASE_ID_MAX}; a leader has used them up. Create a new cluster from a replay of "
                    "its messages",
                )
        return infos

    def serves(self, info: PartitionPrimaryInfo) -> bool:
        """Return True if a primary has served without interruption, and still does."""
        return self.holds(info) and self.statuses.get(info.primary_node_id) is NodeStatus.AVAILABLE

    def holds(self, info: PartitionPrimaryInfo) -> bool:
        return (info.partition_id, info.primary_lease_id) not in self._spent and self.is_usable(info.primary_node_id)

    def is_usable(self, node_id: int) -> bool:
        """Return True if a node can be primary, now or soon."""
        gone = (NodeStatus.STOPPING, NodeStatus.UNAVAILABLE)
        return self._is_there(node_id) and node_id not in self.silent and self.statuses.get(node_id) not in gone

    def _is_there(self, node_id: int) -> bool:
        return node_id == self._links.own_id or self._links.is_up(node_id)


def _pair(info: PartitionPrimaryInfo) -> tuple[int, int]:
    return info.primary_node_id, info.primary_lease_id
