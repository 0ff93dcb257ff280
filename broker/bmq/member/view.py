"""A member's view of its cluster, assembled from its machines."""

from __future__ import annotations

from collections.abc import Mapping

from broker.bmq.core.cluster_view import ClusterView, NodeView, PartitionView, ReplicaView
from broker.bmq.core.state_monitor import Observed
from broker.bmq.member.member import Member
from broker.bmq.replication.partition import ReplicatedPartition
from formats.bmq.control.messages import NodeStatus

__all__ = ["observed", "view_of"]


def view_of(member: Member, name: str, endpoints: Mapping[int, str], faults: Mapping[int, str]) -> ClusterView:
    """Return the current view; `faults` are the reasons why nodes cannot be connected to."""
    links, election, metadata = member.links, member.election, member.metadata
    own_id = links.own_id
    nodes = [NodeView(own_id, endpoints[own_id], True, True, member.status.name, "")]
    for node_id in links.other_ids:
        is_up = links.is_up(node_id)
        status = member.statuses.get(node_id, NodeStatus.UNKNOWN) if is_up else NodeStatus.UNAVAILABLE
        nodes.append(
            NodeView(node_id, endpoints[node_id], False, is_up, status.name, "" if is_up else faults.get(node_id, ""))
        )
    number = metadata.number
    return ClusterView(
        name=name,
        node_id=own_id,
        status=member.status.name,
        role=election.role.value,
        leader_node_id=election.leader_id,
        term=election.term,
        quorum=election.quorum,
        copies_wanted=member.replication_quorum,
        state=metadata.fsm_state.value,
        is_healed=metadata.healed,
        ledger_term=number.term,
        ledger_sequence_number=number.sequence_number,
        nodes=tuple(sorted(nodes, key=lambda node: node.node_id)),
        partitions=tuple(_partition(member, partition) for _, partition in sorted(member.partitions.items())),
    )


def observed(view: ClusterView, reopening: int) -> Observed:
    return Observed(
        has_leader=view.leader_node_id is not None and view.is_healed,
        partitions={each.partition_id: each.is_active for each in view.partitions},
        nodes={node.node_id: not node.is_connected or node.status == "AVAILABLE" for node in view.nodes},
        reopening=reopening,
        problems=view.problems,
    )


def _partition(member: Member, partition: ReplicatedPartition) -> PartitionView:
    report = partition.report()
    primary_id, lease_id = member.metadata.primary_of(partition.partition_id)
    is_own = primary_id == member.links.own_id
    return PartitionView(
        partition_id=partition.partition_id,
        primary_node_id=primary_id,
        primary_lease_id=lease_id,
        is_active=primary_id is not None and (partition.is_primary if is_own else partition.primary_is_active),
        state=report.state.name,
        lease_id=report.position.primary_lease_id,
        sequence_number=report.position.sequence_number,
        waiting=report.waiting,
        replicas=tuple(
            ReplicaView(each.node_id, each.is_live, each.records_behind) for each in sorted(report.followers)
        ),
    )
