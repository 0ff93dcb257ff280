"""Assembly of nodes from their parts, for the program, the tests' rigs and the simulator alike.

Members of a cluster and proxies import their parts when they are made, so that other nodes start faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.bmq.assembly.opening import open_ledger, open_partitions
from broker.bmq.core.ledger import Ledger
from broker.bmq.node.node import Basis, Node
from broker.bmq.node.role import ClosedDoor, Door
from broker.bmq.node.single import SingleNode
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.proxy.limits import BridgeLimits
from broker.bmq.relay.guests import Guests
from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.recovery import Recovered
from broker.common.clock import Now
from broker.common.files import Directory

if TYPE_CHECKING:
    from broker.bmq.config.cluster_schema import PartitionConfig
    from broker.bmq.member.config import MemberConfig
    from broker.bmq.member.role import MemberRole
    from broker.bmq.proxy.node import ProxyNode
    from broker.bmq.proxy.proxy import Proxy, UpstreamCluster

__all__ = ["NodeStore", "StoreSettings", "make_member", "make_node", "make_proxy", "open_store", "store_settings"]


class StoreSettings(NamedTuple):
    """The place and the sizes of a node's store; `ledger_size_max` in bytes."""

    folder: Path
    archive: Path
    archived_file_sets_max: int
    num_partitions: int
    limits: PartitionLimits
    ledger_size_max: int
    flush_at_shutdown: bool


def store_settings(partition: PartitionConfig) -> StoreSettings:
    return StoreSettings(
        Path(partition.location),
        Path(partition.archive_location),
        partition.max_archived_file_sets,
        partition.num_partitions,
        PartitionLimits(
            journal=partition.max_journal_file_size,
            data=partition.max_data_file_size,
            qlist=partition.max_qlist_file_size,
        ),
        partition.max_csl_file_size,
        partition.flush_at_shutdown,
    )


class NodeStore(NamedTuple):
    """The partitions of a node and its ledger, open. `recovered` may be cleared once the node is made."""

    partitions: dict[int, StoredPartition]
    ledger: Ledger
    recovered: dict[int, Recovered]


def open_store(
    directory: Directory,
    num_partitions: int,
    node_id: int,
    limits: PartitionLimits,
    ledger_size_max: int,
    now: Now,
    make_timestamp: Callable[[str], str],
    *,
    outlives_power: bool = False,
    heals: bool = False,
) -> NodeStore:
    """Open a node's store; see `open_partitions` and `open_ledger`, also for errors."""
    opened = open_partitions(
        directory, num_partitions, node_id, limits, now, make_timestamp, outlives_power=outlives_power, heals=heals
    )
    ledger = open_ledger(
        directory, ledger_size_max, now, make_timestamp, opened, outlives_power=outlives_power, heals=heals
    )
    partitions = {partition.partition_id: partition for partition, _ in opened}
    return NodeStore(partitions, ledger, {partition.partition_id: recovered for partition, recovered in opened})


def make_node(basis: Basis, store: NodeStore, make_door: Callable[[Node], Door] | None = Guests) -> Node:
    """Make a cluster of one, primary of all partitions; without `make_door` it has no proxies."""

    def make_role(node: Node) -> SingleNode:
        return SingleNode(node, ClosedDoor() if make_door is None else make_door(node))

    node = Node(basis, store.ledger, store.partitions, make_role)
    node.start(store.recovered)
    return node


def make_member(
    basis: Basis,
    store: NodeStore,
    other_ids: Iterable[int],
    config: MemberConfig,
    random_below: Callable[[int], int],
    term: int = 0,
    keep_term: Callable[[int], None] = lambda term: None,
    describe: Callable[[int], str] | None = None,
    on_available: Callable[[], None] = lambda: None,
) -> tuple[Node, MemberRole]:
    from broker.bmq.member.member import Member, described
    from broker.bmq.member.role import MemberRole

    def make_role(node: Node) -> MemberRole:
        shown = describe or described
        return MemberRole(
            node,
            Member(node, other_ids, config, store.recovered, random_below, term, keep_term, shown, on_available),
        )

    node = Node(basis, store.ledger, store.partitions, make_role)
    assert isinstance(node.role, MemberRole)
    return node, node.role


def make_proxy(
    basis: Basis,
    clusters: Iterable[UpstreamCluster],
    data_center: str,
    limits: BridgeLimits,
    random_below: Callable[[int], int],
    on_available: Callable[[], None] = lambda: None,
) -> tuple[ProxyNode, Proxy]:
    from broker.bmq.proxy.node import ProxyNode
    from broker.bmq.proxy.proxy import Proxy

    node = ProxyNode(basis, lambda node: Proxy(node, clusters, data_center, limits, random_below, on_available))
    assert isinstance(node.role, Proxy)
    return node, node.role
