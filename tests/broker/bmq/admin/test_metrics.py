"""Metrics of a node, as prometheus_client reads them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.bmq.admin.metrics import Metrics
from broker.bmq.admin.queue_metrics import QUEUES_PER_PIECE
from broker.bmq.admin.readiness import ClusterReadiness
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.statistics import SNAPSHOT_MS, SNAPSHOTS_KEPT
from broker.bmq.node.node import Node
from broker.bmq.store.partition_files import PartitionLimits
from tests.broker.bmq.admin.conftest import Administered, start_with
from tests.broker.bmq.rig import ACK, WRITE, guid, start

FANOUT, PRIORITY = "bmq://fanout.~lab/q", "bmq://priority/q"

Found = dict[str, dict[frozenset[tuple[str, str]], float]]

HOST = {"Instance": "one", "DataType": "host-data"}
GLOBAL = {"Instance": "one", "DataType": "global-data", "Cluster": "local"}


@pytest.fixture
def node() -> Administered:
    return start_with(
        DomainConfig("fanout.~lab", Mode.FANOUT, ("bar", "foo"), queue_messages_max=100, queue_bytes_max=1000),
        DomainConfig("priority", Mode.PRIORITY, domain_messages_max=500, domain_bytes_max=6000),
    )


def read(node: Node, cluster: ClusterReadiness | None = None) -> Found:
    """The metrics, each value by its labels; the parser refuses what Prometheus would."""
    health = cluster or ClusterReadiness("local", True)
    pieces = Metrics(node, "one", lambda: [health], lambda: {"brkr_system_mem_res": 7}).pieces()
    text = b"".join(pieces).decode()
    found: Found = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.name not in found, "all lines of a metric are together"
        found[family.name] = {}
        for sample in family.samples:
            key = frozenset(sample.labels.items())
            assert key not in found[family.name]
            found[family.name][key] = sample.value
    return found


def labels(queue: str, domain: str, tier: str = "", **others: str) -> dict[str, str]:
    named = {"Cluster": "local", "Domain": domain, "Tier": tier, "Queue": queue, "Role": "PRIMARY"}
    return {**HOST, **named, **others}


FANOUT_LABELS = labels("q", "fanout", "lab")
PRIORITY_LABELS = labels("q", "priority")


def value(found: Found, name: str, of: Mapping[str, str]) -> float:
    return found[name][frozenset(of.items())]


def values(found: Found, of: Mapping[str, str], *names: str) -> list[float]:
    return [value(found, f"queue_{name}", of) for name in names]


def test_an_empty_node(node: Administered) -> None:
    found = read(node.rig.node)
    assert value(found, "brkr_summary_queues_count", HOST) == 0
    assert value(found, "brkr_summary_clients_count", HOST) == 0
    assert value(found, "brkr_system_mem_res", HOST) == 7
    assert value(found, "cluster_healthiness", {**HOST, "Cluster": "local", "Role": "MEMBER"}) == 1
    assert not any(name.startswith("queue_") for name in found)


def test_queues_and_their_apps(node: Administered) -> None:
    producer = node.producer(FANOUT, [10] * 20)
    producer.open(2, PRIORITY, WRITE | ACK)
    consumer = node.rig.connect()
    consumer.read(1, FANOUT, "foo", 1)
    node.rig.wait(1000)
    consumer.confirm(1, *map(guid, range(5)), sub_id=1)
    found = read(node.rig.node)
    assert value(found, "brkr_summary_queues_count", HOST) == 2
    assert value(found, "brkr_summary_clients_count", HOST) == 2
    assert values(found, FANOUT_LABELS, "heartbeat", "producers_count", "consumers_count") == [0, 1, 1]
    assert values(found, FANOUT_LABELS, "put_msgs", "put_msgs_delta", "put_bytes", "put_bytes_delta") == [
        *(20, 20, 200, 200)
    ]
    assert values(found, FANOUT_LABELS, "push_msgs", "push_msgs_delta", "push_bytes", "push_bytes_delta") == [
        *(20, 20, 200, 200)
    ]
    assert values(found, FANOUT_LABELS, "ack_msgs", "ack_msgs_delta", "nack_msgs", "nack_msgs_delta") == [20, 20, 0, 0]
    assert values(found, FANOUT_LABELS, "confirm_msgs", "confirm_time_avg") == [5, 1e9]
    assert values(found, FANOUT_LABELS, "cfg_msgs", "cfg_bytes") == [100, 1000]
    assert values(found, FANOUT_LABELS, "msgs_utilization_max", "bytes_utilization_max") == [20, 20]
    assert values(found, FANOUT_LABELS, "content_msgs_max", "content_bytes_max") == [20, 200]
    foo, bar = ({**FANOUT_LABELS, "AppId": app} for app in ("foo", "bar"))
    assert values(found, foo, "confirm_time_max", "content_msgs_max", "content_bytes_max") == [1e9, 20, 200]
    assert values(found, bar, "confirm_time_max", "queue_time_max", "content_msgs_max") == [0, 0, 20]
    # The highest times of a queue whose apps are shown are theirs; all others are the queue's.
    assert frozenset(FANOUT_LABELS.items()) not in found["queue_confirm_time_max"]
    assert values(found, PRIORITY_LABELS, "confirm_time_max", "queue_time_max", "cfg_msgs") == [0, 0, 0]
    assert frozenset(foo.items()) not in found["queue_put_msgs"]


def test_the_window_ends_and_totals_stay(node: Administered) -> None:
    node.producer(PRIORITY, [10] * 3)
    for _ in range(SNAPSHOTS_KEPT + 1):
        node.rig.wait(SNAPSHOT_MS)
    found = read(node.rig.node)
    assert values(found, PRIORITY_LABELS, "put_msgs", "put_msgs_delta", "ack_msgs", "ack_msgs_delta") == [3, 0, 3, 0]


def test_domains_and_partitions(node: Administered) -> None:
    node.producer(PRIORITY, [10])
    found = read(node.rig.node)
    domain = {"Cluster": "local", "Domain": "priority", "Tier": "", "DataType": "global-data"}
    assert [value(found, f"domain_{name}", domain) for name in ("cfg_msgs", "cfg_bytes", "queue_count")] == [
        *(500, 6000, 1)
    ]
    partition = node.rig.node.partitions[0]
    assert value(found, "cluster_partition0_journal_offset_bytes", GLOBAL) == partition.files.journal_end > 0
    assert value(found, "cluster_partition0_data_offset_bytes", GLOBAL) == partition.files.data_end > 0
    assert value(found, "cluster_partition0_sequence_number", GLOBAL) == partition.sequence_number > 0
    assert value(found, "cluster_partition_cfg_journal_bytes", GLOBAL) == partition.room.limits.journal
    assert value(found, "cluster_csl_offset_bytes", GLOBAL) == node.rig.node.ledger.end


def test_the_health_of_a_proxy_names_its_upstream(node: Administered) -> None:
    for upstream, shown in (("far", "far"), ("", "_none_")):
        found = read(node.rig.node, ClusterReadiness("c", bool(upstream), upstream))
        of = {**HOST, "Cluster": "c", "Role": "PROXY", "RemoteHost": shown}
        assert value(found, "cluster_healthiness", of) == (1 if upstream else 2)


def test_many_queues_are_read_in_pieces() -> None:
    rig = start(limits=PartitionLimits(journal=1 << 20, data=1 << 20, qlist=1 << 20), ledger_size=1 << 20)
    client = rig.connect()
    for number in range(QUEUES_PER_PIECE + 1):
        client.open(number, f"bmq://priority/q{number}", WRITE | ACK)
    metrics = Metrics(rig.node, "one", list, dict)
    for _ in range(2):
        pieces = list(metrics.pieces())
        assert b"" in pieces
        assert b"".join(pieces).count(b"queue_heartbeat{") == QUEUES_PER_PIECE + 1
