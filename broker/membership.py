"""Putting a cluster's member together from its configuration."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from broker.cluster.admission import Admission, KnownNode
from broker.cluster.agreement import to_features
from broker.cluster.election import ElectionTimes
from broker.cluster.member import Member, MemberConfig
from broker.cluster.origins import Origins
from broker.cluster.peers import Peers
from broker.cluster.view import view_of
from broker.config.cluster_schema import ClusterDefinition, MasterAssignmentAlgorithm
from broker.core.node import Node
from broker.shell.dialing import Place, addresses_of
from broker.shell.server import Server
from broker.shell.term_file import TermFile
from broker.store.recovery import Recovered

__all__ = ["Membership", "cluster_features", "member_config"]


def cluster_features(cluster: ClusterDefinition) -> str:
    """What the other nodes are told of the configuration, to see whether theirs is the same."""
    if len(cluster.nodes) == 1:
        return ""
    partition = cluster.partition_config
    return to_features(
        {
            # By name: where a node is reached may differ, as with relays between them.
            "nodes": "|".join(f"{node.id}@{node.name}" for node in cluster.nodes),
            "masterAssignment": cluster.master_assignment.value,
            "partitionConfig.numPartitions": partition.num_partitions,
            "partitionConfig.maxDataFileSize": partition.max_data_file_size,
            "partitionConfig.maxJournalFileSize": partition.max_journal_file_size,
            "partitionConfig.maxQlistFileSize": partition.max_qlist_file_size,
        }
    )


def member_config(cluster: ClusterDefinition) -> MemberConfig:
    """The election's periods and quorum."""
    elector = cluster.elector
    return MemberConfig(
        quorum=elector.quorum or len(cluster.nodes) // 2 + 1,
        spread=cluster.master_assignment is MasterAssignmentAlgorithm.LEAST_ASSIGNED,
        times=ElectionTimes(
            elector.initial_wait_timeout_ms,
            elector.max_random_wait_timeout_ms,
            elector.scouting_result_timeout_ms,
            elector.election_result_timeout_ms,
            elector.heartbeat_broadcast_period_ms,
            elector.heartbeat_check_period_ms,
            elector.heartbeat_miss_count,
        ),
    )


class Membership:
    """A node's part in a cluster of several: its member, its peers, and the term that it keeps."""

    def __init__(
        self,
        cluster: ClusterDefinition,
        node: Node,
        recovered: Mapping[int, Recovered],
        folder: Path,
    ) -> None:
        self._cluster = cluster
        self._places = {other.id: (other.host, other.port) for other in cluster.nodes}
        self._node = node
        names = {other.id: other.name for other in cluster.nodes}
        self._term_file = TermFile(folder)
        own_id = node.identity.node_id
        self.member = Member(
            node,
            [node_id for node_id in self._places if node_id != own_id],
            member_config(cluster),
            recovered,
            secrets.randbelow,
            self._term_file.read(),
            self._term_file.write,
        )
        self.member.describe = lambda node_id: f"[{names.get(node_id, '')}, {node_id}]"

    def close(self) -> None:
        """The server has ended: keep the term no longer."""
        self._term_file.close()

    def connect(self, server: Server, on_available: Callable[[], None]) -> None:
        """Find the others as soon as the server runs; `on_available` is called when the node takes part."""
        self.member.on_available = on_available

        def dial(node_id: int) -> None:
            host, port = self._places[node_id]
            server.dial(
                Place(host, port),
                lambda address: peers.connected(node_id, address),
                lambda reason: peers.failed(node_id, reason),
            )

        peers = Peers(self._node, self.member, dial, self._admission(server))
        name = self._node.identity.cluster_name
        endpoints = {node_id: f"{host}:{port}" for node_id, (host, port) in self._places.items()}
        self._node.cluster_view = lambda: view_of(self.member, name, endpoints, peers.faults)

        def leave() -> None:
            peers.stop()
            self.member.stop()

        self._node.leave = leave
        self.member.start()
        self._node.timers.at(self._node.now.ms, peers.start)

    def _admission(self, server: Server) -> Admission:
        """Who is let in as one of the other nodes."""
        node = self._node

        def look_up(host: str, done: Callable[[frozenset[str] | str], None]) -> None:
            server.in_thread(lambda: addresses_of(host), done)

        hosts = {node_id: host for node_id, (host, _) in self._places.items()}
        known = {other.id: KnownNode(other.name) for other in self._cluster.nodes}
        return Admission(known, Origins(hosts, node.identity.node_id, node.now, look_up))
