# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A member's view of its cluster, for administration: nodes, leader, partitions and problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ClusterView", "CopiedMessage", "NodeView", "PartitionView", "ProxyView", "ReplicaView"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. `endpoint` is HOST:PORT, as the other nodes dial it; empty in a cluster of one.

    `status` is the node's own report, UNAVAILABLE while it is unreachable for the reason `fault`.
    """

    node_id: int
    endpoint: str
    is_self: bool
    is_connected: bool
    status: str
    fault: str


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica: the number of records that it lacks according to the primary, None if unknown."""

    node_id: int
    is_live: bool
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition. `state` is this node's; `lease_id` and `sequence_number` are those of its last record here.

    Only the primary knows `waiting`, the messages that do not have enough replicas yet, and `replicas`.
    """

    partition_id: int
    primary_node_id: int | None
    primary_lease_id: int
    is_active: bool
    state: str
    lease_id: int
    sequence_number: int
    waiting: int
    replicas: tuple[ReplicaView, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster. `role` is this node's in the election; `state` is that of the cluster's state machine here.

    `quorum` nodes elect a leader; `copies_wanted` nodes must have a record before it counts as stored.
    """

    name: str
    node_id: int
    status: str
    role: str
    leader_node_id: int | None
    term: int
    quorum: int
    copies_wanted: int
    state: str
    is_healed: bool
    ledger_term: int
    ledger_sequence_number: int
    nodes: tuple[NodeView, ...]
    partitions: tuple[PartitionView, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        found = [
            f"node {node.node_id} is not connected" + (f": {node.fault}" if node.fault else "")
            for node in self.nodes
            if not node.is_connected
        ]
        there = sum(node.is_connected for node in self.nodes)
        if self.leader_node_id is None:
            if there < self.quorum:
                found.append(
                    f"there is no leader: {there} of {len(self.nodes)} nodes are connected, {self.quorum} are needed"
                )
            else:
                found.append(f"there is no leader: an election is under way in term {self.term}")
        elif not self.is_healed:
            found.append(f"the cluster's state is not agreed on yet: this node is {self.state}")
        found += [
            f"node {node.node_id} is {node.status.lower()}"
            for node in self.nodes
            if node.is_connected and node.status != "AVAILABLE"
        ]
        for partition in self.partitions:
            found += partition_problems(partition)
        return tuple(found)


def partition_problems(partition: PartitionView) -> list[str]:
    name = f"partition {partition.partition_id}"
    if partition.primary_node_id is None:
        return [f"{name} has no primary"]
    if not partition.is_active:
        return [f"{name} is not served yet: node {partition.primary_node_id}, its primary, heals it"]
    return [
        f"node {replica.node_id} is not a live replica of {name}"
        for replica in partition.replicas
        if not replica.is_live
    ]


class CopiedMessage(NamedTuple):
    """A message that this node has a copy of; `arrived_s` is since the epoch."""

    guid: bytes
    size: int
    arrived_s: int


@dataclass(frozen=True, slots=True)
class ProxyView:
    """A proxy's view of a cluster: its nodes by id with their statuses, and the one in use.

    `queue_ids` are its queues' ids, by URI; `posts` counts its unacknowledged posts.
    """

    name: str
    active_node_id: int | None
    statuses: tuple[tuple[int, str], ...]
    connected_ids: tuple[int, ...]
    queue_ids: tuple[tuple[str, int], ...]
    posts: int
