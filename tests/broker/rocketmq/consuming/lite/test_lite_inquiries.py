"""The answers to administrators who ask about lite topics."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rocketmq.consuming.lite.sharding import owner
from formats.rocketmq.lite import queue_name
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.bodies.routes import QueueData
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.consuming.lite.lite_rig import PARENT, LiteClient, LiteRig


@pytest.fixture
def client() -> LiteClient:
    """A client that has two of three messages of `a`, the first acknowledged, and none of `b`."""
    rig = LiteRig()
    client = rig.client("one")
    client.subscribe("a", "b")
    for number in range(3):
        client.send(str(number), "a")
        rig.pass_time(1_000)
    assert client.popped(maxMsgNum=2) == ["0", "1"]
    client.acknowledge("a", 0, rig.wall_ms)
    client.send("x", "c")
    return client


def test_broker(client: LiteClient) -> None:
    answer = client.peer.call(RequestCode.GET_BROKER_LITE_INFO)
    info = bodies.BROKER_LITE_INFO.read(answer.body)
    assert info.current_lmq_num == 2
    assert info.lite_subscription_count == 2
    assert info.order_info_count == 1
    assert info.event_map_size == 1
    assert info.offset_table_size == 1
    assert info.topic_meta == {PARENT: 20}
    assert sorted(info.group_meta[PARENT]) == ["all", "anew", "exclusive", "shared"]


def test_parent(client: LiteClient) -> None:
    answer = client.peer.call(RequestCode.GET_PARENT_TOPIC_INFO, topic=PARENT)
    info = bodies.PARENT_TOPIC_INFO.read(answer.body)
    assert (info.topic, info.ttl, info.lmq_num, info.lite_topic_count) == (PARENT, 20, 2, 2)
    assert "shared" in info.groups


def test_lite_topic(client: LiteClient) -> None:
    everything = client.rig.client("two", "all")
    everything.change(bodies.COMPLETE_ADD)
    answer = client.peer.call(RequestCode.GET_LITE_TOPIC_INFO, parentTopic=PARENT, liteTopic="a")
    info = bodies.LITE_TOPIC_INFO.read(answer.body)
    assert info.subscriber == [bodies.ClientGroup("one", "shared"), bodies.ClientGroup("*", "all")]
    assert info.topic_offset == bodies.TopicOffset(3, 0, client.rig.wall_ms - 1_000)
    assert info.sharding_to_broker


def test_lite_topic_of_another_broker(client: LiteClient) -> None:
    here, there = QueueData(client.rig.options.name, 2, 2, 6), QueueData("broker-other", 2, 2, 6)
    client.rig.other_queues[PARENT] = [here, there]
    found = {}
    for name in "abcdefgh":
        answer = client.peer.call(RequestCode.GET_LITE_TOPIC_INFO, parentTopic=PARENT, liteTopic=name)
        found[name] = bodies.LITE_TOPIC_INFO.read(answer.body).sharding_to_broker
    assert found == {name: owner([here, there], name) == here.broker_name for name in "abcdefgh"}
    assert set(found.values()) == {True, False}


def test_client(client: LiteClient) -> None:
    fields: dict[str, Any] = {"parentTopic": PARENT, "group": "shared", "clientId": "one"}
    answer = client.peer.call(RequestCode.GET_LITE_CLIENT_INFO, **fields, maxCount=1)
    info = bodies.LITE_CLIENT_INFO.read(answer.body)
    assert (info.lite_topic_count, info.lite_topic_set) == (2, [queue_name(PARENT, "a")])
    assert info.last_access_time == info.last_consume_time == client.rig.wall_ms
    answer = client.peer.call(RequestCode.GET_LITE_CLIENT_INFO, **{**fields, "clientId": "none"})
    info = bodies.LITE_CLIENT_INFO.read(answer.body)
    assert (info.lite_topic_count, info.lite_topic_set, info.last_access_time) == (-1, None, -1)


def test_group_in_a_lite_topic(client: LiteClient) -> None:
    answer = client.peer.call(RequestCode.GET_LITE_GROUP_INFO, group="shared", liteTopic="a")
    info = bodies.LITE_GROUP_INFO.read(answer.body)
    now_ms = client.rig.wall_ms
    assert (info.total_lag_count, info.earliest_unconsumed_timestamp) == (2, now_ms - 2_000)
    assert info.lite_topic_offset_wrapper == bodies.OffsetWrapper(3, 1, now_ms - 3_000)
    answer = client.peer.call(RequestCode.GET_LITE_GROUP_INFO, group="shared", liteTopic="none")
    assert bodies.LITE_GROUP_INFO.read(answer.body).total_lag_count == -1


def test_group_in_all_lite_topics(client: LiteClient) -> None:
    for number in range(3):
        client.send(str(number), "b")
    assert client.popped() == ["0", "1", "2"]
    answer = client.peer.call(RequestCode.GET_LITE_GROUP_INFO, group="shared", topK=1)
    info = bodies.LITE_GROUP_INFO.read(answer.body)
    now_ms = client.rig.wall_ms
    assert (info.total_lag_count, info.earliest_unconsumed_timestamp) == (5, now_ms - 2_000)
    assert info.lag_count_top_k == [bodies.LiteLag("b", 3, now_ms)]
    assert info.lag_timestamp_top_k == [bodies.LiteLag("a", 2, now_ms - 2_000)]


def test_clients_can_be_had_look_again(client: LiteClient) -> None:
    assert client.popped() == []
    assert client.peer.call(RequestCode.TRIGGER_LITE_DISPATCH, group="shared").code == ResponseCode.SUCCESS
    # Inquiries in progress continue.
    assert client.popped() == []
    client.acknowledge("a", 1, client.rig.wall_ms)
    assert client.popped() == ["2"]


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (RequestCode.GET_PARENT_TOPIC_INFO, {"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        (RequestCode.GET_PARENT_TOPIC_INFO, {"topic": "t"}, ResponseCode.INVALID_PARAMETER),
        (RequestCode.GET_LITE_TOPIC_INFO, {"parentTopic": "t", "liteTopic": "a"}, ResponseCode.INVALID_PARAMETER),
        (
            RequestCode.GET_LITE_CLIENT_INFO,
            {"parentTopic": PARENT, "group": "none", "clientId": "one"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ),
        (RequestCode.GET_LITE_GROUP_INFO, {"group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (RequestCode.GET_LITE_GROUP_INFO, {"group": "TOOLS_CONSUMER"}, ResponseCode.INVALID_PARAMETER),
        (RequestCode.TRIGGER_LITE_DISPATCH, {"group": "TOOLS_CONSUMER"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_questions_about_what_there_is_not_are_refused(
    client: LiteClient, code: RequestCode, fields: dict[str, Any], expected: ResponseCode
) -> None:
    assert client.peer.call(code, **fields).code == expected
