"""Three real nodes: they find each other, elect one leader, and another when it is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bmqctl.testing import NodeFailed
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import ElectorMessage, LeaderHeartbeat
from formats.bmq.wire.event import build_schema_event
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.config_files import spoil
from tests.rigs.raw import Raw, node_identity
from tests.waiting import eventually


def test_three_nodes_elect_a_leader_and_another_when_it_is_killed(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        first = cluster.leader()
        first_term = cluster.role(first)[1]
        cluster.kill(first)
        second = cluster.leader()
        assert second != first
        second_term = cluster.role(second)[1]
        assert second_term > first_term
        cluster.start(first)
        assert cluster.leader() == second  # one that comes back unseats nobody
        assert cluster.role(second)[1] == second_term


def test_terms_only_grow_over_a_restart_of_all(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        term = cluster.role(cluster.leader())[1]
        for number in list(cluster.nodes):
            cluster.kill(number)
        for number in cluster.nodes:
            cluster.start(number)
        assert cluster.role(cluster.leader())[1] > term


def test_a_term_file_that_cannot_be_read_keeps_its_node_from_starting(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        cluster.leader()
        cluster.kill(3)
        file = cluster.nodes[3].data_dir / "elector.term"
        sound = file.read_bytes()
        file.write_bytes(sound[:7])
        with pytest.raises(NodeFailed) as failure:
            cluster.start(3)
        assert failure.value.exit_code == 1
        (line,) = [each for each in failure.value.output.splitlines() if each.startswith("bmqctl: ")]
        assert line.startswith(f"bmqctl: {file}: has 7 bytes, not 30; ")
        # The remedy that the line names.
        file.unlink()
        cluster.start(3)
        assert cluster.leader() in cluster.nodes
        assert len(file.read_bytes()) == len(sound)


def test_a_term_that_no_election_comes_to_is_neither_taken_nor_kept(tmp_path: Path) -> None:
    """An impostor on the nodes' own host loses its link, and the nodes find each other again."""
    cluster = ClusterProcesses(tmp_path)
    for folder in ("node1", "node2", "node3"):
        for index, node in enumerate(cluster.nodes.values()):
            endpoint = ("myClusters", 0, "nodes", index, "transport", "tcp", "endpoint")
            spoil(tmp_path / folder, "clusters.json", *endpoint, value=f"tcp://localhost:{node.port}")
    with cluster:
        cluster.wait_available()
        cluster.leader()
        heartbeat = ElectorMessage(term=(1 << 64) - 1, choice=LeaderHeartbeat())
        for number, node in cluster.nodes.items():
            pretended = 1 if number != 1 else 2
            with Raw(node, identified=False) as raw:
                raw.send(node_identity(pretended))
                raw.send(build_schema_event(ber.encode(heartbeat), EventType.ELECTOR))
                raw.rest()
            node.wait_for("18446744073709551615 is too far beyond this node's term")
        assert cluster.leader() in cluster.nodes
        for node in cluster.nodes.values():
            term = int((node.data_dir / "elector.term").read_bytes()[:20])
            assert term < 1_000


def test_a_minority_has_no_leader(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        first = cluster.leader()
        others = [number for number in cluster.nodes if number != first]
        for number in others:
            cluster.kill(number)
        cluster.nodes[first].wait_for("is waiting")
        eventually(lambda: cluster.role(first)[2] == "None")
        cluster.start(others[0])
        assert cluster.leader() in (first, others[0])


def test_a_node_that_is_configured_otherwise_does_not_join(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    file = tmp_path / "node3" / "clusters.json"
    definition = json.loads(file.read_text())
    definition["myClusters"][0]["partitionConfig"]["numPartitions"] = 2
    file.write_text(json.dumps(definition))
    with cluster:
        line = cluster.nodes[3].wait_for("#CLUSTER_DISAGREEMENT")
        assert "partitionConfig.numPartitions is 4 there and 2 here" in line
        cluster.nodes[1].wait_for("partitionConfig.numPartitions is 4 there and 2 here")
