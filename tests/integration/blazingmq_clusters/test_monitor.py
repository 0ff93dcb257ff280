"""Alarms of a node and a proxy about a cluster that is not well, and the warning about domains eventual by default."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bmqctl.testing import NodeProcess, free_port
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.config_files import spoil, write_proxy_config
from tests.waiting import eventually

AT_ONCE = {
    f"{kind}{subject}": 0 for kind in ("maxTime", "threshold") for subject in ("Leader", "Master", "Node", "Failover")
}


def test_a_node_that_is_alone_raises_the_alarm_and_names_eventual_domains(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    node = cluster.nodes[1]
    assert node.config_dir is not None
    spoil(node.config_dir, "clusters.json", "myClusters", 0, "clusterMonitorConfig", value=AT_ONCE)
    file = node.config_dir / "domains" / "bmq.test.persistent.priority.json"
    domain = json.loads(file.read_bytes())
    del domain["definition"]["parameters"]["consistency"]
    file.write_text(json.dumps(domain))
    with node:
        node.wait_for("give no consistency are eventually consistent: bmq.test.persistent.priority. The loss")
        node.wait_for("PANIC [CLUSTER_STATE_MONITOR]")
        node.wait_for("Partition [0] goes to alarming state")
        node.wait_for("State of the leader goes to alarming state")


def test_a_member_raises_the_alarm_without_a_quorum_and_ends_it_with_one(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    for node in cluster.nodes.values():
        assert node.config_dir is not None
        spoil(node.config_dir, "clusters.json", "myClusters", 0, "clusterMonitorConfig", value=AT_ONCE)
    with cluster:
        cluster.wait_available()
        first = cluster.nodes[1]
        # Without a time of grace, the monitor has looked at the cluster before it had a leader.
        eventually(lambda: _monitored(first)[-1:] == [WELL])
        before = len(_monitored(first))
        cluster.kill(2)
        cluster.kill(3)
        eventually(lambda: len(_monitored(first)) > before)
        assert _monitored(first)[before] == BAD
        assert "State of the leader goes to alarming state" in first.log[first.log.rindex(BAD) :]
        cluster.start(2)
        eventually(lambda: _monitored(first)[-1] == WELL)


BAD = "is in a bad state."
WELL = "is back to healthy state."


def _monitored(node: NodeProcess) -> list[str]:
    """Return what the monitor has said of the cluster, in order."""
    return re.findall(r" broker\.monitor .*'local' (is in a bad state\.|is back to healthy state\.)", node.log)


def test_a_proxy_without_its_cluster_raises_the_alarm(tmp_path: Path) -> None:
    config = write_proxy_config(tmp_path / "etc", [free_port()])
    spoil(config, "clusters.json", "proxyClusters", 0, "clusterMonitorConfig", value=AT_ONCE)
    with NodeProcess(tmp_path / "proxy", config_dir=config) as proxy:
        proxy.wait_for("PANIC [CLUSTER_STATE_MONITOR]")
        proxy.wait_for("State of the leader goes to alarming state")
        proxy.wait_for("no node of cluster mine is in use")


def test_a_cluster_of_one_is_always_well(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "store") as node:
        assert "PANIC" not in node.log
        assert "eventually consistent" not in node.log
