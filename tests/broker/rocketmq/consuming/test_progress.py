"""Progress of groups, administrators' requests to consumers, and the store's upkeep."""

from __future__ import annotations

import json
from typing import Any

from formats.rocketmq.files.record import decode_record
from formats.rocketmq.java import string_hash
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG_LIST, GroupConfig, GroupConfigList
from formats.rocketmq.remoting.bodies.inspection import PRODUCER_TABLE, QUEUE_ENTRIES, TIME_SPANS
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIG_LIST, TopicConfig, TopicConfigList
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame
from tests.broker.rocketmq.rig import Peer, Rig

SUBSCRIPTIONS = [{"topic": "t", "subString": "*"}]


def heartbeat(client_id: str = "one", group: str = "g", **consumer: Any) -> bytes:
    data = {"groupName": group, "subscriptionDataSet": SUBSCRIPTIONS, **consumer}
    return json.dumps(
        {"clientID": client_id, "consumerDataSet": [data], "producerDataSet": [{"groupName": "p"}]}
    ).encode()


def consumer(rig: Rig, client_id: str = "one", **changes: Any) -> Peer:
    peer = rig.peer()
    assert peer.call(RequestCode.HEART_BEAT, heartbeat(client_id, **changes)).code == ResponseCode.SUCCESS
    return peer


def loaded(answer: Frame) -> Any:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return fastjson.loads(bytes(answer.body).decode())


def question(peer: Peer, code: RequestCode) -> Frame:
    peer.read()
    (found,) = [each for each in peer.asked if each.code == code]
    return found


def tell(peer: Peer, asked: Frame, body: bytes, code: int = ResponseCode.SUCCESS) -> None:
    peer.session.receive(memoryview(encode_frame(Frame(code, asked.opaque, FrameFlag.RESPONSE, body=body))))


def test_client_whose_id_cannot_be_told_to_others_joins_no_group() -> None:
    rig = Rig()
    one, hostile = consumer(rig), rig.peer()
    assert hostile.call(RequestCode.HEART_BEAT, heartbeat("\ud800")).code == ResponseCode.SYSTEM_ERROR
    assert loaded(one.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")) == {"consumerIdList": ["one"]}


def test_progress_has_what_was_pulled_and_the_rate() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(10):
        peer.send(b"x")
    peer.pulled(maxMsgNums=6)
    rig.offsets.commit("t", "g", 0, 2)
    stats = loaded(peer.call(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topic="t"))
    (progress,) = stats["offsetTable"].values()
    assert progress == {
        "brokerOffset": 10,
        "consumerOffset": 2,
        "pullOffset": 6,
        "lastTimestamp": rig.store.stored_ms("t", 0, 1),
    }
    assert stats["consumeTps"] > 0
    everything = loaded(peer.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"))
    assert (everything["totalDiff"], everything["totalInflightDiff"]) == (8, 4)
    by_group = {group: found for each in everything["consumeStatsList"] for group, found in each.items()}
    assert set(by_group) == set(rig.groups.table)
    assert [len(found["offsetTable"]) for found in by_group["g"]] == [1]
    ordered = loaded(peer.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true"))
    assert ordered["totalDiff"] == 0


def test_topic_that_consumers_left_is_not_in_the_progress_of_all() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"x")
    rig.offsets.commit("t", "g", 0, 0)
    rig.groups.find("g", rig.wall_ms)
    assert loaded(peer.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"))["totalDiff"] == 1
    consumer(rig, subscriptionDataSet=[{"topic": "other", "subString": "*"}])
    assert loaded(peer.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"))["totalDiff"] == 0


def test_reset_takes_back_what_was_pulled() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(10):
        peer.send(b"x")
    peer.pulled()
    reset: dict[str, Any] = {"group": "g", "topic": "t", "isForce": "true", "timestamp": 0}
    assert peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset).code == ResponseCode.SUCCESS
    assert rig.offsets.pulled("t", "g", 0) == 0


def test_time_spans_of_a_group() -> None:
    rig = Rig()
    peer = rig.peer()
    begin = rig.wall_ms
    for _ in range(3):
        peer.send(b"x")
        rig.wall_ms += 1_000
    rig.offsets.commit("t", "g", 0, 1)
    spans = TIME_SPANS.read(peer.call(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="t", group="g").body)
    (times,) = spans.consume_time_span_set
    assert times[1:] == (begin, begin + 2_000, begin, 2_000)
    rig.offsets.commit("t", "g", 0, 3)
    (times,) = TIME_SPANS.read(
        peer.call(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="t", group="g").body
    ).consume_time_span_set
    assert times[1:] == (begin, begin + 2_000, begin + 2_000, 0)
    absent = peer.call(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="none", group="g")
    assert absent.code == ResponseCode.TOPIC_NOT_EXIST


def test_offsets_are_compared_and_cloned() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(5):
        peer.send(b"x")
    rig.offsets.commit("t", "a", 0, 5)
    rig.offsets.commit("t", "b", 0, 3)
    correct = RequestCode.QUERY_CORRECTION_OFFSET
    assert loaded(peer.call(correct, compareGroup="b", topic="t"))["correctionOffsets"] == {0: 3}
    assert loaded(peer.call(correct, compareGroup="a", topic="t"))["correctionOffsets"] == {0: 3}
    ahead = loaded(peer.call(correct, compareGroup="b", topic="t", filterGroups="b"))
    assert ahead["correctionOffsets"] == {0: (1 << 63) - 1}
    assert rig.offsets.get("t", "b", 0) == 3
    clone = RequestCode.CLONE_GROUP_OFFSET
    assert peer.call(clone, srcGroup="a", destGroup="c", topic="t", offline="false").code == ResponseCode.SUCCESS
    assert rig.offsets.get("t", "c", 0) == 5
    consumer(rig, group="a", subscriptionDataSet=[{"topic": "other", "subString": "*"}])
    peer.call(clone, srcGroup="a", destGroup="d", topic="", offline="false")
    assert rig.offsets.get("t", "d", 0) is None
    peer.call(clone, srcGroup="a", destGroup="d", topic="", offline="true")
    assert rig.offsets.get("t", "d", 0) == 5


def test_subscription_of_a_group_is_shown() -> None:
    rig = Rig()
    consumer(rig)
    peer = rig.peer()
    asked = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    assert loaded(peer.call(asked, group="g", topic="t"))["subscriptionData"]["subString"] == "*"
    assert loaded(peer.call(asked, group="g", topic="u")) == {"group": "g", "topic": "u"}


def test_all_producers_are_listed() -> None:
    rig = Rig()
    peer = consumer(rig)
    (producer,) = PRODUCER_TABLE.read(rig.peer().call(RequestCode.GET_ALL_PRODUCER_INFO).body).data["p"]
    assert producer == ("one", f"/{peer.session.host}", "JAVA", 493, rig.wall_ms)


def test_consumer_consumes_a_message_because_it_is_told_to() -> None:
    rig = Rig()
    client, peer = consumer(rig), rig.peer()
    sent = peer.send(b"the body")
    message_id = (sent.ext_fields or {})["msgId"]
    fields: dict[str, Any] = {"consumerGroup": "g", "clientId": "one", "topic": "t"}
    opaque = peer.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=message_id, **fields)
    asked = question(client, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    record = decode_record(asked.body, 0)
    assert bytes(getattr(record, "body", b"")) == b"the body"
    assert (asked.ext_fields or {})["brokerName"] == "broker-g"
    tell(client, asked, b'{"consumeResult":"CR_SUCCESS"}')
    answer = peer.answer(opaque)
    assert answer is not None
    assert bytes(answer.body) == b'{"consumeResult":"CR_SUCCESS"}'
    for wrong in ("", "xyz", str(OffsetId(rig.options.address, 5)), str(OffsetId(rig.options.address, -1))):
        assert peer.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=wrong, **fields).code == ResponseCode.SYSTEM_ERROR
    absent = peer.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=message_id, consumerGroup="g", clientId="two")
    assert absent.remark == "The Consumer <g> <two> not online"


def test_offsets_that_consumers_have_are_gathered() -> None:
    rig = Rig()
    one, two, peer = consumer(rig), consumer(rig, "two"), rig.peer()
    gather = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    opaque = peer.ask(gather, topic="t", group="g")
    queue = '{"brokerName":"broker-g","queueId":0,"topic":"t"}'
    asked = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    tell(one, question(one, asked), f'{{"messageQueueTable":{{{queue}:5}}}}'.encode())
    assert peer.answer(opaque) is None
    tell(two, question(two, asked), b'{"messageQueueTable":[]}')
    answer = peer.answer(opaque)
    assert answer is not None
    table = loaded(answer)["consumerTable"]
    assert {client: list(offsets.values()) for client, offsets in table.items()} == {"one": [5]}
    one.asked.clear()
    opaque = peer.ask(gather, topic="t", group="g", clientAddr="one")
    rig.pass_time(11_000)
    answer = peer.answer(opaque)
    assert answer is not None
    assert loaded(answer)["consumerTable"] == {}
    assert peer.call(gather, topic="t", group="none").code == ResponseCode.SYSTEM_ERROR


def test_consume_queue_is_looked_into() -> None:
    rig = Rig()
    consumer(
        rig, subscriptionDataSet=[{"topic": "t", "subString": "A", "tagsSet": ["A"], "codeSet": [string_hash("A")]}]
    )
    peer = rig.peer()
    for tag in ("A", "B", "A"):
        peer.send(b"x", {"TAGS": tag})
    query = RequestCode.QUERY_CONSUME_QUEUE
    found = QUEUE_ENTRIES.read(peer.call(query, topic="t", queueId=0, index=1, count=5, consumerGroup="g").body)
    assert (found.min_queue_index, found.max_queue_index) == (0, 3)
    assert [each.is_wanted for each in found.queue_data or []] == [False, True]
    assert found.subscription_data is not None
    first = QUEUE_ENTRIES.read(peer.call(query, topic="t", queueId=0, index=0, count=1).body)
    assert [each.physical_offset for each in first.queue_data or []] == [0]
    offline = QUEUE_ENTRIES.read(peer.call(query, topic="t", queueId=0, index=9, count=1, consumerGroup="x").body)
    assert (offline.queue_data, offline.filter_data) == (None, "x@t is not online!")
    assert peer.call(query, topic="t", queueId=7, index=0, count=1).remark == "7@t is not exist!"


def test_queues_without_a_topic_are_removed() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"x")
    peer.send(b"x", topic="orphan")
    rig.topics.delete("orphan", rig.wall_ms)
    assert peer.call(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    assert {topic for topic, _ in rig.store.queues} == {"t"}


def test_queues_keep_their_ends_when_they_are_cleaned() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"x")
    assert peer.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == ResponseCode.SUCCESS
    assert rig.store.span("t", 0) == (0, 1)


def test_replication_of_a_master_is_shown() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"x")
    state = loaded(peer.call(RequestCode.GET_BROKER_HA_STATUS))
    assert (state["master"], state["masterCommitLogMaxOffset"]) == (True, rig.store.log.end)
    assert peer.call(RequestCode.RESET_MASTER_FLUSH_OFFSET, masterFlushOffset=0).code == ResponseCode.SUCCESS


def test_several_topics_are_made_or_none() -> None:
    rig = Rig()
    peer = rig.peer()
    good = TopicConfig("one", 2, 2, attributes={"+message.type": "FIFO"})

    def create(*topics: TopicConfig) -> int:
        body = TOPIC_CONFIG_LIST.write(TopicConfigList(list(topics)))
        return peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body).code

    assert create(good, TopicConfig("a b")) == ResponseCode.INVALID_PARAMETER
    assert rig.topics.get("one") is None
    assert create(good, TopicConfig("two")) == ResponseCode.SUCCESS
    made = rig.topics.get("one")
    assert made == TopicConfig("one", 2, 2, attributes={"message.type": "FIFO"})
    assert rig.topics.get("two") is not None


def test_several_groups_are_made_or_none() -> None:
    rig = Rig()
    peer = rig.peer()

    def create(*groups: GroupConfig) -> int:
        body = GROUP_CONFIG_LIST.write(GroupConfigList(list(groups)))
        return peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body).code

    assert create(GroupConfig("one"), GroupConfig("a b")) == ResponseCode.INVALID_PARAMETER
    assert "one" not in rig.groups.table
    assert create(GroupConfig("one", retry_max_times=2), GroupConfig("two")) == ResponseCode.SUCCESS
    assert (rig.groups.table["one"].retry_max_times, "two" in rig.groups.table) == (2, True)


def test_new_group_of_a_queue_without_messages_misses_none() -> None:
    peer = Rig().peer()

    def ask(queue_id: int, topic: str = "t", **fields: Any) -> Frame:
        query = {"consumerGroup": "new", "topic": topic, "queueId": queue_id}
        return peer.call(RequestCode.QUERY_CONSUMER_OFFSET, b"", **query, **fields)

    assert (ask(0).code, ask(0).ext_fields) == (ResponseCode.SUCCESS, {"offset": "0"})
    # A message that comes before the group has asked for the end is not passed over.
    peer.send(b"first")
    assert ask(0).ext_fields == {"offset": "0"}
    for refused in (ask(1), ask(-1), ask(0, "other"), ask(0, setZeroIfNotFound="false")):
        assert refused.code == ResponseCode.QUERY_NOT_FOUND


def test_a_commit_makes_no_group() -> None:
    rig = Rig()
    peer = rig.peer()
    assert peer.send(b"m").code == ResponseCode.SUCCESS
    queue: dict[str, Any] = {"consumerGroup": "unheard", "topic": "t", "queueId": 0}
    answer = peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **queue)
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group unheard not exist!")
    consumer(rig, group="unheard")
    assert peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **queue).code == ResponseCode.SUCCESS
    assert peer.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue).ext_fields == {"offset": "1"}
