"""Requests about many queues, groups or clients: they are answered in full, and hold up nobody."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from broker.rocketmq.tables.offsets import Offsets
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, next_frame
from tests.broker.rocketmq.consuming.test_held_up import check, collector, put
from tests.broker.rocketmq.rig import Peer, Rig

__all__ = ["collector"]

TOPICS, QUEUES = 300, 64
GROUPS = 5_000
Code = RequestCode


@pytest.fixture(scope="module")
def full() -> Rig:
    """A broker with a group that has offsets in many queues, and clients in many groups."""
    rig = Rig()
    rig.put_topics(*(TopicConfig(f"t{number}", QUEUES, QUEUES) for number in range(TOPICS)))
    for group in ("g", "h"):
        rig.groups.put(GroupConfig(group), 0)
    peers = [rig.peer() for _ in range(4)]
    for number in range(TOPICS):
        for queue_id in range(QUEUES):
            rig.offsets.commit(f"t{number}", "g", queue_id, 0)
    subscriptions = [{"topic": f"t{number}", "subString": "*"} for number in range(TOPICS)]
    for each in range(40):
        body = {
            "clientID": f"c{each}",
            "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": subscriptions}],
            "producerDataSet": [{"groupName": f"p{each}-{number}"} for number in range(200)],
        }
        peers[each // 10].call(Code.HEART_BEAT, json.dumps(body).encode())
    while rig.broker.end_step():
        pass
    return rig


ASKED: dict[RequestCode, dict[str, Any]] = {
    Code.GET_CONSUME_STATS: {"consumerGroup": "g"},
    Code.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
    Code.CLONE_GROUP_OFFSET: {"srcGroup": "g", "destGroup": "h"},
    Code.GET_ALL_CONSUMER_OFFSET: {},
    Code.GET_ALL_PRODUCER_INFO: {},
    Code.GET_CONSUMER_CONNECTION_LIST: {"consumerGroup": "g"},
    Code.QUERY_CORRECTION_OFFSET: {"topic": "t1", "compareGroup": "g", "filterGroups": ""},
}


def answers(peer: Peer) -> list[Frame]:
    view, at, found = memoryview(bytes(peer.session.take_output())), 0, []
    while (parsed := next_frame(view, at, len(view))) is not None:
        found.append(parsed[0])
        at = parsed[1]
    return found


def ask(rig: Rig, code: RequestCode, **fields: Any) -> Frame:
    """Ask, and take as many steps as the answer needs."""
    peer = rig.peer()
    put(peer, code, **fields)
    for _ in range(10_000):
        if found := answers(peer):
            return found[0]
        rig.broker.end_step()
    raise AssertionError("no answer")


@pytest.mark.parametrize("code", ASKED)
def test_requests_about_many_things_hold_up_nobody(full: Rig, code: RequestCode) -> None:
    def steps() -> list[Callable[[], object]]:
        for number in range(TOPICS):
            # The requested data has changed.
            full.offsets.commit(f"t{number}", "g", 0, 1 - (full.offsets.get(f"t{number}", "g", 0) or 0))
        peer = full.peer()
        return [lambda: put(peer, code, **ASKED[code]), *[full.broker.end_step] * 200]

    check(code, steps)


def test_requests_about_many_things_are_answered_in_full(full: Rig) -> None:
    stats = fastjson.loads(bytes(ask(full, Code.GET_CONSUME_STATS, consumerGroup="g").body).decode(), fastjson.FILE)
    assert len(stats["offsetTable"]) == TOPICS * QUEUES
    everything = fastjson.loads(
        bytes(ask(full, Code.GET_BROKER_CONSUME_STATS, isOrder="false").body).decode(), fastjson.FILE
    )
    (of_group,) = [each["g"] for each in everything["consumeStatsList"] if "g" in each]
    assert [len(each["offsetTable"]) for each in of_group] == [QUEUES] * TOPICS
    assert list(everything) == ["brokerAddr", "consumeStatsList", "totalDiff", "totalInflightDiff"]
    producers = json.loads(bytes(ask(full, Code.GET_ALL_PRODUCER_INFO).body))["data"]
    assert (len(producers), {len(members) for members in producers.values()}) == (40 * 200, {1})
    members = json.loads(bytes(ask(full, Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g").body))
    assert (len(members["connectionSet"]), len(members["subscriptionTable"])) == (4, TOPICS)


def test_a_topic_that_is_named_many_times_is_looked_at_once(full: Rig) -> None:
    def steps() -> list[Callable[[], object]]:
        peer = full.peer()
        fields = {"consumerGroup": "g", "topicList": "t1;" * 20_000}
        return [lambda: put(peer, Code.GET_CONSUME_STATS, **fields), *[full.broker.end_step] * 3]

    check("topicList", steps)


def test_topics_have_a_bound_on_their_queues() -> None:
    rig = Rig()

    def create(topic: str, queues: int) -> Frame:
        fields: dict[str, Any] = {
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
        }
        more: dict[str, Any] = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        return rig.peer().call(Code.UPDATE_AND_CREATE_TOPIC, topic=topic, **fields, **more)

    assert create("wide", 1_024).code == ResponseCode.SUCCESS
    refused = create("wider", 1_025)
    assert (refused.code, "topicQueueMaxNum" in (refused.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)
    # A topic of before keeps its queues, and can be given fewer.
    rig.put_topics(TopicConfig("old", 5_000, 5_000))
    assert [create("old", queues).code for queues in (5_000, 5_001, 4_000)] == [
        ResponseCode.SUCCESS,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.SUCCESS,
    ]
    group = rig.peer().call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"x","retryQueueNums":100000}')
    assert group.code == ResponseCode.INVALID_PARAMETER


def test_answers_that_are_being_made_have_a_bound(full: Rig) -> None:
    peer = full.peer()
    for _ in range(200):
        put(peer, Code.GET_CONSUME_STATS, consumerGroup="g")
    busy = [each.code for each in answers(peer)]
    assert busy.count(ResponseCode.SYSTEM_BUSY) >= 150
    peer.session.end()
    full.broker.disconnected(peer.session)
    for _ in range(200):
        if not full.broker.end_step():
            break
    else:
        raise AssertionError("answers are made for a connection that is closed")


def test_a_connection_is_in_a_bounded_number_of_groups() -> None:
    peer = Rig().peer()

    def codes(first: int, last: int) -> list[int]:
        bodies = (
            {"clientID": "c", "producerDataSet": [{"groupName": f"p{each}-{number}"} for number in range(256)]}
            for each in range(first, last)
        )
        return [peer.call(Code.HEART_BEAT, json.dumps(body).encode()).code for body in bodies]

    assert codes(0, 16) == [ResponseCode.SUCCESS] * 16
    assert codes(16, 17) == [ResponseCode.SYSTEM_ERROR]
    assert codes(0, 16) == [ResponseCode.SUCCESS] * 16


def test_pulled_offsets_of_many_groups_take_bounded_memory() -> None:
    """Groups without a commit count, too, and the newest are known."""
    offsets = Offsets(b"")
    tracemalloc.start()
    try:
        for number in range(400_000):
            offsets.note_pulled("wide", f"g{number // 1_000}", number % 1_000, 7)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 20 << 20
    assert offsets.pulled("wide", "g399", 999) == 7


@pytest.fixture(scope="module")
def grouped() -> Rig:
    """A broker with as many groups as clients can have it create, each with offsets in a topic."""
    rig = Rig()
    rig.put_topics(*(TopicConfig(f"t{number}", 8, 8) for number in range(10)))
    rig.groups.put_all([GroupConfig(f"g{number}") for number in range(GROUPS)], 0)
    for number in range(GROUPS):
        for queue_id in range(8):
            rig.offsets.commit(f"t{number % 10}", f"g{number}", queue_id, 0)
    while rig.broker.end_step():
        pass
    return rig


@pytest.mark.parametrize(
    "code", [Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_CONSUMER_OFFSET]
)
def test_requests_about_thousands_of_groups_hold_up_nobody(grouped: Rig, code: RequestCode) -> None:
    def steps() -> list[Callable[[], object]]:
        peer = grouped.peer()
        return [lambda: put(peer, code, isOrder="false"), *[grouped.broker.end_step] * 200]

    check(code, steps)


def test_progress_of_thousands_of_groups_is_told_in_full(grouped: Rig) -> None:
    body = bytes(ask(grouped, Code.GET_BROKER_CONSUME_STATS, isOrder="false").body)
    found = fastjson.loads(body.decode(), fastjson.FILE)["consumeStatsList"]
    assert sum(len(each["offsetTable"]) for of_group in found for stats in of_group.values() for each in stats) == (
        8 * GROUPS
    )


def test_one_topic_with_many_queues_is_not_examined_in_one_step() -> None:
    rig = Rig()
    rig.put_topics(TopicConfig("wide", 1_024, 1_024))
    rig.groups.put(GroupConfig("g"), 0)
    peer, steps = rig.peer(), 0
    put(peer, Code.GET_CONSUME_STATS, consumerGroup="g", topic="wide")
    while not (found := answers(peer)):
        rig.broker.end_step()
        steps += 1
    assert steps >= 2
    body = fastjson.loads(bytes(found[0].body).decode(), fastjson.FILE)
    assert len(body["offsetTable"]) == 1_024
