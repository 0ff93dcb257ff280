"""Assembly of a cluster's member from its configuration."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from broker.bmq.assembly.nodes import NodeStore, make_member
from broker.bmq.assembly.process import OutgoingSecurity, monitor_limits
from broker.bmq.assembly.term_file import TermFile
from broker.bmq.config import NodeConfig
from broker.bmq.config.cluster_schema import ClusterDefinition, ClusterNode, MasterAssignmentAlgorithm
from broker.bmq.config.links import needs_proof
from broker.bmq.consensus.election import ElectionTimes
from broker.bmq.core.state_monitor import Observed, StateMonitor
from broker.bmq.links.admission import Admission, KnownNode
from broker.bmq.links.agreement import to_features
from broker.bmq.links.origins import Origins
from broker.bmq.member.config import MemberConfig
from broker.bmq.member.peers import Peers
from broker.bmq.member.view import observed
from broker.bmq.node.node import Basis
from broker.bmq.session.authentication import basic_principal
from broker.shell.connections.dialing import addresses_of
from broker.shell.loop.server import Server

__all__ = ["ClusterMember", "cluster_features", "member_config"]


def cluster_features(cluster: ClusterDefinition) -> str:
    partition = cluster.partition_config
    return to_features(
        {
            # By name: a node's address may differ, for example with relays between nodes.
            "nodes": "|".join(f"{node.id}@{node.name}" for node in cluster.nodes),
            "masterAssignment": cluster.master_assignment.value,
            "partitionConfig.numPartitions": partition.num_partitions,
            "partitionConfig.maxDataFileSize": partition.max_data_file_size,
            "partitionConfig.maxJournalFileSize": partition.max_journal_file_size,
            "partitionConfig.maxQlistFileSize": partition.max_qlist_file_size,
        }
    )


def member_config(cluster: ClusterDefinition) -> MemberConfig:
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


class ClusterMember:
    """A node that is a member of a cluster of several: its peers, and its stored term.

    `on_available` is called when the node begins to take part.
    """

    def __init__(
        self,
        cluster: ClusterDefinition,
        basis: Basis,
        store: NodeStore,
        folder: Path,
        on_available: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        names = {other.id: other.name for other in cluster.nodes}
        self._term_file = TermFile(folder)
        own_id = basis.identity.node_id
        self.node, self._role = make_member(
            basis,
            store,
            [node_id for node_id in names if node_id != own_id],
            member_config(cluster),
            secrets.randbelow,
            self._term_file.read(),
            self._term_file.write,
            lambda node_id: f"[{names.get(node_id, '')}, {node_id}]",
            on_available,
        )
        self.member = self._role.member
        if self.member.election.term > self._term_file.read():
            # The file was removed, but the ledger has a term: later votes must be stored in a new file.
            self._term_file.write(self.member.election.term)

    def close(self) -> None:
        """Close the file of the term, after the server has ended."""
        self._term_file.close()

    def connect(self, config: NodeConfig, outgoing: OutgoingSecurity, server: Server) -> None:
        """Connect to the other nodes; the server must be running."""
        places = outgoing.places(self._cluster)

        def dial(node_id: int) -> None:
            server.dial(
                places[node_id],
                lambda address: peers.connected(node_id, address),
                lambda reason: peers.failed(node_id, reason),
            )

        admission = self._admission(config, server)
        peers = Peers(self.node, self.member, dial, admission, outgoing.credentials(server))
        endpoints = {node_id: f"{place.host}:{place.port}" for node_id, place in places.items()}
        self._role.attach(peers, endpoints)
        self.member.start()
        monitor = StateMonitor(
            self._cluster.name, monitor_limits(self._cluster), self.node.now, self.node.timers, self._observed
        )
        self.node.timers.at(self.node.now.ms, monitor.start)
        self.node.timers.at(self.node.now.ms, peers.start)

    def _observed(self) -> Observed | None:
        view = None if self.node.stopping else self._role.cluster_view()
        return None if view is None else observed(view, self.member.queues.reopening)

    def _admission(self, config: NodeConfig, server: Server) -> Admission:
        node = self.node

        def look_up(host: str, done: Callable[[frozenset[str] | str], None]) -> None:
            server.look_up(lambda: addresses_of(host), done)

        own_id, nodes = node.identity.node_id, self._cluster.nodes
        hosts = {other.id: other.host for other in nodes}
        known = {other.id: KnownNode(other.name, _principals(other)) for other in nodes}
        tls = next(other.tls for other in nodes if other.id == own_id)
        proof = needs_proof(config.broker.app_config, tls=tls)
        return Admission(known, Origins(hosts, own_id, node.now, look_up), needs_proof=proof)


def _principals(node: ClusterNode) -> frozenset[str]:
    """Return the principals that a node may authenticate as: the configured one, or those of its name."""
    return frozenset((node.principal,) if node.principal else (node.name, basic_principal(node.name)))
