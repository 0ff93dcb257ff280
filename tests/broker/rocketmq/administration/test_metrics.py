"""Metrics of a broker, as prometheus_client reads them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.rocketmq.administration.metrics import OFFSETS_PER_PIECE, Metrics
from broker.rocketmq.administration.registration import Nameservers
from broker.rocketmq.config.node import PropertyError, load_rocketmq_config
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.role import BrokerRole
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.rig import Rig

COMMON = {"node_type": "broker", "cluster": "GoldenCluster", "node_id": "broker-g"}
TOPIC = {**COMMON, "topic": "t", "is_system": "false"}
GROUP = {**TOPIC, "consumer_group": "g", "is_retry": "false"}


STORAGE = {**COMMON, "storage_type": "local", "storage_medium": "disk"}
DISK_BYTES = 123_456_789


def read(rig: Rig, disk_bytes: int | None = DISK_BYTES) -> dict[str, list[tuple[dict[str, str], float]]]:
    text = b"".join(metrics(rig, disk_bytes).pieces()).decode()
    families = text_string_to_metric_families(text)
    return {
        sample.name: [(each.labels, each.value) for each in family.samples]
        for family in families
        for sample in family.samples
    }


def metrics(rig: Rig, disk_bytes: int | None = DISK_BYTES) -> Metrics:
    return Metrics(rig.broker.services, lambda: rig.wall_ms, lambda: disk_bytes)


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


def test_the_age_of_the_oldest_message_that_a_group_has_not_confirmed() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(3):
        peer.send(b"x")
        rig.wall_ms += 1000
    for offset, latency_ms in ((0, 3000), (1, 2000), (3, 0)):
        rig.offsets.commit("t", "g", 0, offset)
        rig.groups.find("g", 0)
        assert read(rig)["rocketmq_consumer_lag_latency"] == [(GROUP, latency_ms)]
    # A clock that was set back gives no negative age.
    rig.wall_ms -= 1_000_000
    rig.offsets.commit("t", "g", 0, 0)
    assert read(rig)["rocketmq_consumer_lag_latency"] == [(GROUP, 0)]


def test_the_oldest_of_several_queues_counts() -> None:
    rig = Rig()
    peer = rig.peer()
    rig.topics.put(TopicConfig("t", 2, 2), rig.wall_ms)
    peer.send(b"x", e=1)
    rig.wall_ms += 500
    peer.send(b"x")
    rig.groups.find("g", 0)
    rig.offsets.commit("t", "g", 0, 0)
    rig.offsets.commit("t", "g", 1, 0)
    found = read(rig)
    assert found["rocketmq_consumer_lag_latency"] == [(GROUP, 500)]
    assert found["rocketmq_consumer_lag_messages"] == [(GROUP, 2)]


def test_the_storage() -> None:
    rig = Rig()
    found = read(rig)
    assert found["rocketmq_storage_size"] == [(STORAGE, DISK_BYTES)]
    assert found["rocketmq_storage_flush_behind_bytes"] == [(STORAGE, 0)]
    assert "rocketmq_storage_message_reserve_time" not in found
    rig.peer().send(b"x")
    rig.wall_ms += 7000
    found = read(rig, None)
    assert "rocketmq_storage_size" not in found
    assert found["rocketmq_storage_flush_behind_bytes"] == [(STORAGE, rig.store.log.end)]
    assert found["rocketmq_storage_message_reserve_time"] == [(STORAGE, 7000)]


def test_a_damaged_first_message_leaves_only_its_age_out() -> None:
    rig = Rig()
    rig.peer().send(b"x")
    rig.offsets.commit("t", "g", 0, 0)
    rig.groups.find("g", 0)
    file, place = rig.store.log.files.place(0)
    file.buffer[place + 4 : place + 8] = b"\0\0\0\0"
    found = read(rig)
    assert "rocketmq_storage_message_reserve_time" not in found
    assert found["rocketmq_consumer_lag_messages"] == [(GROUP, 1)]
    assert found["rocketmq_consumer_lag_latency"] == [(GROUP, 0)]


def test_connections_of_clients() -> None:
    rig = Rig()
    found = read(rig)
    assert "rocketmq_producer_connections" not in found
    assert "rocketmq_consumer_connections" not in found
    told = {
        "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [],
            }
        ],
    }
    for name in ("one", "two"):
        answer = rig.peer().call(RequestCode.HEART_BEAT, json.dumps({"clientID": name, **told}).encode())
        assert answer.code == ResponseCode.SUCCESS
    found = read(rig)
    # The peers of the rig speak as 5.4.0.
    known = {**COMMON, "language": "java", "version": "v5_4_0", "protocol_type": "remoting"}
    assert found["rocketmq_producer_connections"] == [(known, 2)]
    consumer = {**known, "consumer_group": "g", "consume_mode": "push", "is_system": "false"}
    assert found["rocketmq_consumer_connections"] == [(consumer, 2)]


def test_messages_that_go_to_the_dead_letters() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"x")
    (record,) = peer.pulled()
    back = partial(
        peer.call, RequestCode.CONSUMER_SEND_MSG_BACK, group="g", offset=record.physical_offset, originTopic="t"
    )
    back(delayLevel=1)
    assert "rocketmq_send_to_dlq_messages_total" not in read(rig)
    for _ in range(2):
        back(delayLevel=-1)
    labels = {name: value for name, value in GROUP.items() if name != "is_retry"}
    assert read(rig)["rocketmq_send_to_dlq_messages_total"] == [(labels, 2)]


def test_a_broker_without_a_role_or_copies_is_not_ready() -> None:
    rig = Rig()
    assert rig.broker.lacks is None
    nameservers = Nameservers(rig.options, rig.topics, ())
    broker = rig.make_broker(nameservers)
    nameservers.is_silent = True
    assert broker.lacks == "this broker waits for its role, and no nameserver knows it yet"
    nameservers.is_silent = False
    assert rig.make_broker(nameservers).lacks is None


@pytest.mark.parametrize(
    ("role", "in_sync", "lacks"),
    [
        (Role.SYNC_MASTER, 1, "too few brokers are in sync for senders: 1"),
        (Role.SYNC_MASTER, 2, None),
        (Role.ASYNC_MASTER, 1, None),
        (Role.SLAVE, 1, None),
    ],
)
def test_a_master_without_copies_is_not_ready(role: Role, in_sync: int, lacks: str | None) -> None:
    rig = Rig()
    rig.role = BrokerRole(ReplicationOptions(role, in_sync_replicas=2), rig.options, lambda: 0, in_sync=lambda: in_sync)
    assert rig.make_broker(Nameservers(rig.options, rig.topics, ())).lacks == lacks


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
    assert b"" in list(metrics(rig).pieces())
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
