"""Locks of queues: only for queues that exist, and not too many."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from broker.rocketmq.tables.locks import LOCK_MS, Locks
from formats.rocketmq.remoting.bodies.clients import LOCK_ANSWER, MessageQueue
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.consuming.test_held_up import broker_steps, check, collector
from tests.broker.rocketmq.rig import Peer, Rig

__all__ = ["collector"]


def body(topic: str, queues: range, group: str = "g") -> bytes:
    told = [{"brokerName": "broker-g", "queueId": number, "topic": topic} for number in queues]
    return json.dumps({"clientId": "c", "consumerGroup": group, "mqSet": told}).encode()


def lock(peer: Peer, topic: str, queues: range, group: str = "g") -> Frame:
    return peer.call(RequestCode.LOCK_BATCH_MQ, body(topic, queues, group))


def test_only_queues_that_exist_are_locked() -> None:
    rig = Rig()
    rig.put_topics(TopicConfig("wide", 4, 8))
    peer = rig.peer()
    found = LOCK_ANSWER.read(lock(peer, "wide", range(-1, 20)).body)
    assert found.lock_ok_mq_set == [MessageQueue("broker-g", number, "wide") for number in range(8)]
    assert LOCK_ANSWER.read(lock(peer, "other", range(8)).body).lock_ok_mq_set == []


def test_locks_have_a_bound() -> None:
    locks = Locks(10)
    queues = [MessageQueue("broker-g", number, "wide") for number in range(8)]

    def count(group: str, now_ms: int = 0) -> int:
        return len(locks.lock(group, queues, "c", now_ms))

    assert [count(group) for group in ("a", "b", "c", "a")] == [8, 2, 0, 8]
    locks.unlock("a", queues, "c")
    assert [count(group) for group in ("c", "b")] == [8, 2]
    # Nobody takes them again for a minute.
    locks.expire(LOCK_MS + 1)
    assert count("d", LOCK_MS + 1) == 8


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_requests_for_many_locks_hold_up_nobody(code: RequestCode) -> None:
    def steps() -> list[Callable[[], object]]:
        # 900 KB
        return broker_steps(code, body("t", range(14_000)))

    check(code, steps)
    assert Rig().peer().call(code, body("t", range(14_000))).code == ResponseCode.SYSTEM_ERROR
