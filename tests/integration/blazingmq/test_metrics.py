"""Metrics and probes of real nodes, read by prometheus_client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeProcess, ProxyProcess, RocketProcess
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.config_files import spoil, write_config
from tests.rigs.official import Connect, queue_name
from tests.rigs.pages import get, metrics
from tests.waiting import WAIT_S, eventually


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def watched(tmp_path: Path, metrics_port: int) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "store", options=("--metrics-port", str(metrics_port))) as node:
        yield node


def test_a_node(watched: NodeProcess, metrics_port: int, connect: Connect) -> None:
    assert get(metrics_port, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
    assert get(metrics_port, "/readyz")[::2] == (200, "ready\n")
    assert get(metrics_port, "/")[::2] == (404, "the pages are /metrics, /healthz, /readyz\n")
    client, uri = connect(watched), queue_name()
    client.open(uri, read=True, write=True)
    client.post_all(uri, [b"x" * 100] * 50)
    client.wait_for_messages(50)
    found = metrics(metrics_port)
    (labels, puts), *others = found["queue_put_msgs"]
    assert (puts, others) == (50.0, [])
    assert labels["Queue"] == uri.rpartition("/")[2]
    assert labels["Role"] == "PRIMARY"
    assert found["queue_put_bytes"] == [(labels, 5000.0)]
    assert found["queue_push_msgs"] == found["queue_ack_msgs"] == [(labels, 50.0)]
    assert found["brkr_summary_clients_count"][0][1] == 1
    assert found["brkr_system_mem_res"][0][1] > 10 << 20


def test_a_cluster_and_a_proxy(tmp_path: Path, metrics_port: int, connect: Connect) -> None:
    cluster = ClusterProcesses(tmp_path / "cluster")
    first = cluster.nodes[1]
    first.options = ("--metrics-port", str(metrics_port))
    below = free_port()
    proxy = ProxyProcess(tmp_path / "proxy", [first.address], options=("--metrics-port", str(below)))
    try:
        # Alone, a node lives and cannot serve.
        cluster.start(1)
        assert get(metrics_port, "/healthz")[0] == 200
        status, _, reason = get(metrics_port, "/readyz")
        assert status == 503
        assert re.fullmatch(r"there is no leader in term \d+: 1 of 3 nodes are connected\n", reason)
        assert metrics(metrics_port)["cluster_healthiness"][0][1] == 2
        proxy.start()
        assert get(below, "/readyz")[0] == 503
        cluster.start(2)
        cluster.start(3)
        cluster.wait_available()
        proxy.wait_available()
        eventually(lambda: get(metrics_port, "/readyz")[0] == 200, WAIT_S)
        eventually(lambda: get(below, "/readyz")[0] == 200, WAIT_S)
        client, uri = connect(proxy), queue_name()
        client.open(uri, read=True, write=True)
        client.post_all(uri, [b"x"] * 30)
        client.wait_for_messages(30)
        found, seen = metrics(below), metrics(metrics_port)
        (labels, puts), *others = found["queue_put_msgs"]
        assert (puts, others, labels["Role"]) == (30.0, [], "PROXY")
        (health, value), *others = found["cluster_healthiness"]
        assert (value, others, health["Role"], health["RemoteHost"]) == (1.0, [], "PROXY", HOST)
        ((labels, puts),) = seen["queue_put_msgs"]
        assert puts == 30.0
        assert labels["Role"] in ("PRIMARY", "REPLICA")
        assert seen["cluster_healthiness"][0][0]["Role"] == "MEMBER"
    finally:
        proxy.close()
        cluster.close()


def test_a_broker_of_rocketmq(tmp_path: Path, metrics_port: int) -> None:
    with RocketProcess(tmp_path / "store", options=("--metrics-port", str(metrics_port))) as broker:
        assert get(metrics_port, "/healthz")[::2] == (200, "ok\n")
        assert get(metrics_port, "/readyz")[::2] == (200, "ready\n")
        found = metrics(metrics_port)
        (labels, topics), *others = found["rocketmq_topic_number"]
        assert (topics > 1, others, labels["node_type"]) == (True, [], "broker")
        assert broker.stop() == 0


def test_the_statistics_file(tmp_path: Path, connect: Connect) -> None:
    config, file = write_config(tmp_path / "config"), tmp_path / "stat"
    spoil(config, "bmqbrkrcfg.json", "appConfig", "stats", value={"printer": {"file": str(file), "printInterval": 1}})
    written = Path(f"{file}.json")
    with NodeProcess(tmp_path / "store", config_dir=config) as node:
        client, uri = connect(node), "bmq://bmq.test.mem.priority/written"
        client.open(uri, write=True)
        client.post_all(uri, [b"x"] * 30)

        def puts() -> list[str]:
            lines = map(json.loads, written.read_text().splitlines()) if written.exists() else ()
            return [
                line["queue_put_msgs_abs"] for line in lines if line["stat"] == "queue" and "queue_put_msgs_abs" in line
            ]

        eventually(lambda: len(puts()) > 1, WAIT_S)
        assert puts()[-1] == "30"
    kinds = {json.loads(line)["stat"] for line in written.read_text().splitlines()}
    assert {"queue", "cluster", "cluster_partition"} <= kinds
