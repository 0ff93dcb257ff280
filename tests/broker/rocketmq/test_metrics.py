"""Metrics of a broker, as prometheus_client reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.rocketmq.assembly.config import PropertyError, load_rocketmq_config
from broker.rocketmq.core.metrics import OFFSETS_PER_PIECE, Metrics
from formats.rocketmq.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.rig import Rig

COMMON = {"node_type": "broker", "cluster": "GoldenCluster", "node_id": "broker-g"}
TOPIC = {**COMMON, "topic": "t", "is_system": "false"}
GROUP = {**TOPIC, "consumer_group": "g", "is_retry": "false"}


def read(rig: Rig) -> dict[str, list[tuple[dict[str, str], float]]]:
    text = b"".join(Metrics(rig.broker.services).pieces()).decode()
    families = text_string_to_metric_families(text)
    return {
        sample.name: [(each.labels, each.value) for each in family.samples]
        for family in families
        for sample in family.samples
    }


def test_messages_in_and_out_and_the_lag() -> None:
    rig = Rig()
    peer = rig.peer()
    assert "rocketmq_messages_in_total" not in read(rig)
    for _ in range(20):
        peer.send(b"x" * 100)
    assert len(peer.pulled(maxMsgNums=7)) == 7
    answer = peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="t", queueId=0, commitOffset=5)
    assert answer.code == ResponseCode.SUCCESS
    found = read(rig)
    assert found["rocketmq_messages_in_total"] == [(TOPIC, 20)]
    assert found["rocketmq_throughput_in_total"] == [(TOPIC, rig.store.log.end)]
    assert found["rocketmq_messages_out_total"] == [(GROUP, 7)]
    ((labels, size),) = found["rocketmq_throughput_out_total"]
    assert (labels, size > 700) == (GROUP, True)
    assert found["rocketmq_consumer_lag_messages"] == [(GROUP, 15)]
    assert found["rocketmq_topic_number"] == [(COMMON, len(rig.topics.table))]
    assert found["rocketmq_consumer_group_number"] == [(COMMON, len(rig.groups.table))]
    assert found["rocketmq_broker_permission"] == [(COMMON, rig.options.permission)]


def test_system_and_retry_topics_are_marked() -> None:
    rig = Rig()
    rig.broker.services.statistics.sent("%RETRY%g", "g", 1, 10)
    rig.broker.services.statistics.sent("SCHEDULE_TOPIC_XXXX", "g", 1, 10)
    rig.broker.services.statistics.sent("t", "CID_RMQ_SYS_TRANS", 1, 10)
    marks = {(each["is_retry"], each["is_system"]) for each, _ in read(rig)["rocketmq_messages_out_total"]}
    assert marks == {("true", "false"), ("false", "true")}


def test_many_offsets_are_read_in_pieces() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"x")
    for number in range(OFFSETS_PER_PIECE + 1):
        rig.groups.find(f"g{number}", 0)
        rig.offsets.commit("t", f"g{number}", 0, 0)
    # A group that was deleted leaves no line, nor does a topic.
    rig.offsets.commit("t", "gone", 0, 0)
    rig.offsets.commit("gone", "g1", 0, 0)
    assert b"" in list(Metrics(rig.broker.services).pieces())
    lags = read(rig)["rocketmq_consumer_lag_messages"]
    assert [value for _, value in lags] == [1.0] * (OFFSETS_PER_PIECE + 1)


def test_the_address_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("metricsExporterType=PROM\nmetricsPromExporterPort=9557\nmetricsPromExporterHost=10.0.0.5\n")
    config = load_rocketmq_config(file)
    assert (config.exports_metrics, config.metrics_host, config.metrics_port) == (True, "10.0.0.5", 9557)
    assert config.properties["metricsExporterType"] == "PROM"
    file.write_text("metricsExporterType=LOG\n")
    config = load_rocketmq_config(file)
    assert (config.exports_metrics, config.metrics_host, config.metrics_port) == (False, "127.0.0.1", 5557)
    file.write_text("metricsExporterType=SOME\n")
    with pytest.raises(PropertyError, match="metricsExporterType: 'SOME' is none of"):
        load_rocketmq_config(file)
