"""Requests of administrators to a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.rocketmq.remoting.changes import TOPIC_ATTRIBUTES, altered
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.tables.statistics import Rate
from formats.rocketmq.message_types import TOPIC_TYPES
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GROUPS, GroupConfig
from formats.rocketmq.remoting.bodies.inspection import (
    CONSUMER_CONNECTION,
    GROUP_LIST,
    KEY_VALUE_TABLE,
    PRODUCER_CONNECTION,
)
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIG, TOPIC_CONFIGS, TOPIC_LIST, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame
from tests.broker.rocketmq.rig import Peer, Rig

HEARTBEAT = {
    "clientID": "one",
    "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subString": "*"}]}],
    "producerDataSet": [{"groupName": "p"}],
}


def create(peer: Peer, topic: str, **changes: Any) -> Frame:
    fields: dict[str, Any] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    return peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **{**fields, **changes})


def test_topic_is_made_changed_shown_and_deleted() -> None:
    rig = Rig()
    peer = rig.peer()
    assert create(peer, "new", attributes="+message.type=FIFO").code == ResponseCode.SUCCESS
    version = rig.topics.version
    assert create(peer, "new", attributes="+message.type=FIFO").code == ResponseCode.SUCCESS
    assert rig.topics.version == version
    assert create(peer, "new", perm=4, attributes="-message.type").code == ResponseCode.SUCCESS
    shown = TOPIC_CONFIG.read(peer.call(RequestCode.GET_TOPIC_CONFIG, topic="new").body)
    assert shown == TopicConfig("new", 3, 3, 4)
    everything = peer.call(RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=0)
    assert TOPIC_CONFIGS.read(everything.body).topic_config_table == rig.topics.table
    peer.send(b"one")
    rig.offsets.commit("t", "g", 0, 1)
    assert peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="t").code == ResponseCode.SUCCESS
    assert (rig.topics.get("t"), rig.messages("t"), rig.offsets.get("t", "g", 0)) == (None, [], None)
    assert peer.call(RequestCode.GET_TOPIC_CONFIG, topic="t").code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("topic", "changes", "code"),
    [
        ("a b", {}, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.INVALID_PARAMETER),
        ("new", {"readQueueNums": 1 << 30}, ResponseCode.INVALID_PARAMETER),
        ("new", {"writeQueueNums": -1}, ResponseCode.INVALID_PARAMETER),
        ("new", {"attributes": "+color=red"}, ResponseCode.SYSTEM_ERROR),
        ("new", {"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR),
        ("new", {"attributes": "message.type"}, ResponseCode.SYSTEM_ERROR),
        ("new", {"perm": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_topic_that_cannot_be_is_refused(topic: str, changes: dict[str, object], code: ResponseCode) -> None:
    rig = Rig()
    before = dict(rig.topics.table)
    assert create(rig.peer(), topic, **changes).code == code
    assert rig.topics.table == before


def test_attributes_are_altered() -> None:
    before = {"queue.type": "SimpleCQ", "message.type": "FIFO"}
    changes = "+queue.type=SimpleCQ,-message.type, +lite.topic.expiration=5"
    after = {"queue.type": "SimpleCQ", "lite.topic.expiration": "5"}
    assert altered(TOPIC_ATTRIBUTES, before, changes, is_new=False) == after
    assert altered(TOPIC_ATTRIBUTES, {}, "+reserve.time=-1,+cleanup.policy=DELETE", is_new=True) == {
        "reserve.time": "-1",
        "cleanup.policy": "DELETE",
    }


@pytest.mark.parametrize("kind", [*TOPIC_TYPES, "MIXED", "UNSPECIFIED"])
def test_topics_are_for_each_type_of_messages(kind: str) -> None:
    assert altered(TOPIC_ATTRIBUTES, {}, f"+message.type={kind}", is_new=True) == {"message.type": kind}


@pytest.mark.parametrize(
    ("before", "changes", "words"),
    [
        ({}, "*message.type=FIFO", "format error"),
        ({}, "+message.type=BAD", "value is not in set: [UNSPECIFIED, MIXED, NORMAL"),
        ({}, "+message.type=fifo", "value is not in set"),
        ({}, "+queue.type=BAD", "value is not in set: [BatchCQ, SimpleCQ]"),
        ({}, "+queue.type=BatchCQ", "BatchCQ is not supported: this broker has no batch consume queues"),
        ({}, "+cleanup.policy=BAD", "value is not in set: [DELETE, COMPACTION]"),
        ({}, "+cleanup.policy=COMPACTION", "COMPACTION is not supported"),
        ({}, "+reserve.time=abc", 'For input string: "abc"'),
        ({}, "+reserve.time=-5", "value is not in range(-1, 9223372036854775807)"),
        ({}, "+reserve.time=5", "5 is not supported: fileReservedTime is that of all topics"),
        ({}, "+message.type=FIFO,+message.type=DELAY", "alter duplication key. key: message.type"),
        ({"a": "b"}, "-message.type", "attempt to delete a nonexistent key: message.type"),
        ({"queue.type": "BatchCQ"}, "+queue.type=SimpleCQ", "attempt to update an unchangeable attribute"),
        ({"queue.type": "SimpleCQ"}, "-queue.type", "attempt to update an unchangeable attribute"),
        ({"a": "b"}, "+cleanup.policy=DELETE", "attempt to update an unchangeable attribute"),
    ],
)
def test_attributes_that_cannot_be_are_refused(before: dict[str, str], changes: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        altered(TOPIC_ATTRIBUTES, before, changes, is_new=not before)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert words in refused.value.text


@pytest.mark.parametrize(
    "policy",
    [
        {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 3}},
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 77000]}},
        {"type": "CUSTOMIZED"},
    ],
)
def test_figures_of_a_retry_policy_are_kept_and_shown(policy: dict[str, Any]) -> None:
    rig = Rig()
    body = json.dumps({"groupName": "g", "groupRetryPolicy": policy}).encode()
    assert rig.peer().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == ResponseCode.SUCCESS
    rig.pass_time(100)
    for _ in range(2):
        shown = json.loads(bytes(rig.peer().call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g").body))
        assert shown["groupRetryPolicy"] == policy
        rig.stop()


# Each member that Apache's brokers have, with another value than its default.
WHOLE_GROUP: dict[str, Any] = {
    "groupName": "g",
    "consumeEnable": False,
    "consumeFromMinEnable": False,
    "consumeBroadcastEnable": False,
    "consumeMessageOrderly": True,
    "retryQueueNums": 3,
    "retryMaxTimes": 7,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}},
    "brokerId": 2,
    "whichBrokerWhenConsumeSlowly": 3,
    "notifyConsumerIdsChangedEnable": False,
    "groupSysFlag": 5,
    "consumeTimeoutMinute": 33,
    "subscriptionDataSet": [{"topic": "t", "expressionType": "SQL92", "expression": "a > 1", "version": 4}],
    "attributes": {},
}


def test_each_member_of_a_group_is_kept_and_shown() -> None:
    rig = Rig()
    body = json.dumps(WHOLE_GROUP).encode()
    assert rig.peer().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == ResponseCode.SUCCESS
    rig.pass_time(100)
    for _ in range(2):
        found = rig.peer().call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
        assert json.loads(bytes(found.body)) == WHOLE_GROUP
        rig.stop()


def test_group_is_made_shown_and_deleted() -> None:
    rig = Rig()
    peer = rig.peer()
    body = GROUP_CONFIG.write(GroupConfig("g", retry_max_times=3))
    assert peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == ResponseCode.SUCCESS
    shown = peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
    assert GROUP_CONFIG.read(shown.body).retry_max_times == 3
    everything = GROUPS.read(peer.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq=0).body)
    assert everything.subscription_group_table == rig.groups.table
    rig.offsets.commit("t", "g", 0, 1)
    peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset="true")
    assert ("g" in rig.groups.table, rig.offsets.get("t", "g", 0)) == (False, None)
    bad = GROUP_CONFIG.write(GroupConfig("a b"))
    assert peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, bad).code == ResponseCode.INVALID_PARAMETER


def test_broker_shows_what_it_is_and_does() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(20):
        peer.send(b"x", {"DELAY": "1"})
        rig.pass_time(1_000)
    table = KEY_VALUE_TABLE.read(peer.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert table["brokerVersionDesc"] == "V5_4_0"
    assert table["commitLogMaxOffset"] == str(rig.store.log.end)
    assert table["scheduleMessageOffset_1"] == "20,20"
    assert table["putMessageTimesTotal"] == "40"
    assert float(table["putTps"].split()[0]) == pytest.approx(2, abs=0.3)


def test_rate_is_of_its_time() -> None:
    rate = Rate()
    assert rate.text() == "0.0 0.0 0.0"
    for second in range(100):
        rate.sample(second * 1000)
        rate.add(1 if second < 50 else 3)
    assert [round(float(text), 1) for text in rate.text().split()] == [3.0, 2.6, 2.0]


def test_clients_are_shown() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, json.dumps(HEARTBEAT).encode())
    consumers = CONSUMER_CONNECTION.read(peer.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g").body)
    (connection,) = consumers.connection_set
    assert (connection.client_id, connection.language, connection.version) == ("one", "JAVA", 493)
    assert connection.client_address == str(peer.session.host)
    assert list(consumers.subscription_table) == ["t"]
    producers = PRODUCER_CONNECTION.read(peer.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p").body)
    assert [each.client_id for each in producers.connection_set] == ["one"]
    assert (
        peer.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="x").code == ResponseCode.CONSUMER_NOT_ONLINE
    )
    assert peer.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="x").code == ResponseCode.SYSTEM_ERROR
    rig.offsets.commit("t", "other", 0, 1)
    groups = GROUP_LIST.read(peer.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="t").body)
    assert groups.group_list == ["g", "other"]
    topics = TOPIC_LIST.read(peer.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="other").body)
    assert topics.topic_list == ["t"]


def test_consumer_is_asked_what_it_does() -> None:
    rig = Rig()
    peer, administrator = rig.peer(), rig.peer()
    peer.call(RequestCode.HEART_BEAT, json.dumps(HEARTBEAT).encode())
    opaque = administrator.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="one")
    peer.read()
    (question,) = [each for each in peer.asked if each.code == RequestCode.GET_CONSUMER_RUNNING_INFO]
    assert administrator.answer(opaque) is None
    told = Frame(ResponseCode.SUCCESS, question.opaque, FrameFlag.RESPONSE, body=b'{"properties":{}}')
    peer.session.receive(memoryview(encode_frame(told)))
    answer = administrator.answer(opaque)
    assert answer is not None
    assert bytes(answer.body) == b'{"properties":{}}'
    silent = administrator.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="one")
    rig.pass_time(11_000)
    late = administrator.answer(silent)
    assert late is not None
    assert late.code == ResponseCode.CONSUME_MSG_TIMEOUT
    gone = administrator.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="one")
    rig.broker.disconnected(peer.session)
    assert administrator.answer(gone) is not None
    absent = administrator.call(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="one")
    assert absent.code == ResponseCode.SYSTEM_ERROR


def test_group_is_set_back_to_a_time() -> None:
    rig = Rig()
    peer, consumer = rig.peer(), rig.peer()
    consumer.call(RequestCode.HEART_BEAT, json.dumps(HEARTBEAT).encode())
    for _ in range(10):
        peer.send(b"x")
        rig.wall_ms += 1_000
    fields: dict[str, Any] = {"group": "g", "topic": "t", "isForce": "true"}
    reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    unknown = peer.call(reset, timestamp=0, group="none", topic="t", isForce="true")
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    rig.offsets.commit("t", "g", 0, 9)
    answer = peer.call(reset, timestamp=rig.wall_ms - 3_500, **fields)
    assert list(fastjson.loads(bytes(answer.body).decode())["offsetTable"].values()) == [7]
    assert rig.offsets.get("t", "g", 0) == 7
    consumer.read()
    (told,) = [each for each in consumer.asked if each.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    assert bytes(told.body) == bytes(answer.body)
    peer.call(reset, timestamp=-1, group="g", topic="t", isForce="false")
    assert rig.offsets.get("t", "g", 0) == 7
    peer.call(reset, timestamp=-1, **fields)
    assert rig.offsets.get("t", "g", 0) == 10
    peer.call(reset, timestamp=0, queueId=0, offset=4, **fields)
    assert rig.offsets.get("t", "g", 0) == 4
    assert peer.call(reset, timestamp=0, queueId=0, offset=11, **fields).code == ResponseCode.SYSTEM_ERROR
    assert peer.call(reset, timestamp=0, group="g", topic="none", isForce="true").code == ResponseCode.TOPIC_NOT_EXIST
