"""Readiness: a member and a proxy say in one line what they lack."""

from __future__ import annotations

from dataclasses import replace

from broker.bmq.admin.readiness import lacks_as_member, lacks_as_proxy
from broker.bmq.core.cluster_view import ClusterView, NodeView, PartitionView

NODES = tuple(NodeView(number, f"host:{number}", number == 0, True, "AVAILABLE", "") for number in range(3))
PARTITION = PartitionView(0, 1, 5, True, "HEALED", 5, 100, 0, ())
READY = ClusterView("c", 0, "AVAILABLE", "follower", 1, 7, 2, 2, "FOL_HEALED", True, 7, 3, NODES, (PARTITION,))


def test_a_member() -> None:
    assert lacks_as_member(None) is None
    assert lacks_as_member(READY) is None
    # Two of three nodes are enough.
    away = replace(NODES[2], is_connected=False, status="UNAVAILABLE")
    assert lacks_as_member(replace(READY, nodes=(*NODES[:2], away))) is None
    alone = replace(READY, leader_node_id=None, nodes=(NODES[0], replace(away, node_id=1), away))
    assert lacks_as_member(alone) == "there is no leader in term 7: 1 of 3 nodes are connected"
    unhealed = replace(READY, is_healed=False, state="FOL_HEALING")
    assert lacks_as_member(unhealed) == "the cluster's state is not agreed on yet: this node is FOL_HEALING"
    orphan = replace(PARTITION, partition_id=1, primary_node_id=None, is_active=False)
    assert lacks_as_member(replace(READY, partitions=(PARTITION, orphan))) == "partition 1 has no primary"
    healing = replace(READY, partitions=(replace(PARTITION, is_active=False),))
    assert lacks_as_member(healing) == "partition 0 is not served yet by its primary, node 1"
    assert lacks_as_member(replace(READY, status="STOPPING")) == "this node is stopping"


def test_a_proxy() -> None:
    assert lacks_as_proxy({}) == "no cluster is known yet"
    assert lacks_as_proxy({"one": 1, "other": 0}) is None
    assert lacks_as_proxy({"one": 1, "other": None}) == "no broker of cluster other is in use"
