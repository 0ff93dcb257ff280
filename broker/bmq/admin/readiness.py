"""The readiness of a node for clients: the reason why it is not ready, in one line for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.bmq.core.cluster_view import ClusterView

__all__ = ["ClusterReadiness", "lacks_as_member", "lacks_as_proxy"]


class ClusterReadiness(NamedTuple):
    """A cluster, and its state as this node sees it; `upstream` names the node that a proxy uses, "" for none."""

    name: str
    is_healthy: bool
    upstream: str | None = None


def lacks_as_member(view: ClusterView | None) -> str | None:
    """Return the reason why a node cannot serve its cluster's clients, or None; a cluster of one is always ready.

    Missing nodes do no harm as long as there are a leader and a primary of every partition.
    """
    if view is None:
        return None
    if view.leader_node_id is None:
        there = sum(node.is_connected for node in view.nodes)
        return f"there is no leader in term {view.term}: {there} of {len(view.nodes)} nodes are connected"
    if not view.is_healed:
        return f"the cluster's state is not agreed on yet: this node is {view.state}"
    for partition in view.partitions:
        if partition.primary_node_id is None:
            return f"partition {partition.partition_id} has no primary"
        if not partition.is_active:
            primary = partition.primary_node_id
            return f"partition {partition.partition_id} is not served yet by its primary, node {primary}"
    return None if view.status == "AVAILABLE" else f"this node is {view.status.lower()}"


def lacks_as_proxy(active_by_cluster: Mapping[str, int | None]) -> str | None:
    """Return the reason why a proxy is not ready, given the node in use of each cluster; None if each has one."""
    if not active_by_cluster:
        return "no cluster is known yet"
    missing = [name for name, active in active_by_cluster.items() if active is None]
    return f"no broker of cluster {missing[0]} is in use" if missing else None
