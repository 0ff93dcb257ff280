"""Assignment of queues to clients by the broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.rocketmq.consuming.pop.assignments import allocate, allocate_to_pop
from formats.rocketmq.remoting.bodies.clients import MessageQueue
from formats.rocketmq.remoting.bodies.routes import QueueData, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.rig import Peer, Rig

QUEUES = [MessageQueue("b", number, "t") for number in range(8)]


def numbers(queues: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in queues]


def test_queues_are_shared_evenly() -> None:
    clients = ["a", "b", "c"]
    assert [numbers(allocate(QUEUES, clients, each, "AVG")) for each in clients] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    found = [numbers(allocate(QUEUES, clients, each, "AVG_BY_CIRCLE")) for each in clients]
    assert found == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert numbers(allocate(QUEUES[:2], clients, "b", "AVG")) == [1]
    assert allocate(QUEUES[:2], clients, "c", "AVG") == []
    assert allocate(QUEUES, clients, "d", "AVG") == []


def test_popping_client_gets_queues_of_others_too() -> None:
    clients = ["a", "b", "c", "d"]
    assert numbers(allocate_to_pop(QUEUES[:2], clients, "x", "AVG", 0)) == [-1, -1]
    assert numbers(allocate_to_pop(QUEUES, clients, "a", "AVG", 3)) == [-1] * 8
    assert numbers(allocate_to_pop(QUEUES, clients, "d", "AVG", 1)) == [6, 7, 0, 1]
    assert numbers(allocate_to_pop(QUEUES[:3], clients, "d", "AVG", 1)) == [0]
    assert allocate_to_pop(QUEUES, clients, "x", "AVG", 1) == []


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topics.put(TopicConfig("t", 4, 4), rig.wall_ms)
    return rig


def register(rig: Rig, *clients: str) -> Peer:
    """Have clients in group `g`; the last one's connection."""
    for client in clients:
        consumer = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        peer = rig.peer()
        heartbeat = {"clientID": client, "consumerDataSet": [{**consumer, "subscriptionDataSet": []}]}
        assert peer.call(RequestCode.HEART_BEAT, json.dumps(heartbeat).encode()).code == ResponseCode.SUCCESS
    return peer


def query(peer: Peer, **changes: Any) -> list[tuple[str, int, str]] | None:
    wanted = {"topic": "t", "consumerGroup": "g", "clientId": "a", "strategyName": "AVG", "messageModel": "CLUSTERING"}
    answer = peer.call(RequestCode.QUERY_ASSIGNMENT, json.dumps({**wanted, **changes}).encode())
    assert answer.code == ResponseCode.SUCCESS
    found = json.loads(bytes(answer.body)).get("messageQueueAssignments")
    if found is None:
        return None
    return [(each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"], each["mode"]) for each in found]


def set_mode(peer: Peer, **changes: Any) -> int:
    wanted = {"topic": "t", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
    return peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, json.dumps({**wanted, **changes}).encode()).code


def test_queues_are_pulled_unless_an_administrator_says_otherwise(rig: Rig) -> None:
    peer = register(rig, "a", "b")
    assert query(peer) == [("broker-g", 0, "PULL"), ("broker-g", 1, "PULL")]
    assert set_mode(peer) == ResponseCode.SUCCESS
    assert query(peer) == [("broker-g", -1, "POP")]
    assert query(peer, consumerGroup="other") is None
    rig.stop()
    assert query(register(rig, "a")) == [("broker-g", -1, "POP")]


def test_queues_of_other_brokers_are_among_them(rig: Rig) -> None:
    rig.other_queues["t"] = [
        QueueData("broker-x", 2, 2, 6),
        QueueData("broker-g", 9, 9, 6),
        QueueData("closed", 2, 2, 2),
    ]
    peer = register(rig, "a")
    assert query(peer) == [("broker-g", number, "PULL") for number in range(4)] + [
        ("broker-x", number, "PULL") for number in range(2)
    ]
    set_mode(peer)
    assert query(peer) == [("broker-g", -1, "POP"), ("broker-x", -1, "POP")]
    assert query(peer, messageModel="BROADCASTING") == [("broker-g", number, "POP") for number in range(4)] + [
        ("broker-x", number, "POP") for number in range(2)
    ]


def test_nothing_is_said_of_what_is_unknown(rig: Rig) -> None:
    peer = register(rig, "a")
    assert query(peer, topic="none") is None
    assert query(peer, strategyName="NEAREST") is None
    assert query(peer, clientId="x") == []


def test_modes_that_are_refused(rig: Rig) -> None:
    peer = rig.peer()
    assert set_mode(peer, topic="none") == ResponseCode.TOPIC_NOT_EXIST
    assert set_mode(peer, topic="%RETRY%g") == ResponseCode.NO_PERMISSION
    assert set_mode(peer, mode="PUSH") == ResponseCode.INVALID_PARAMETER
    assert set_mode(peer, consumerGroup="!") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "modes" not in rig.files
