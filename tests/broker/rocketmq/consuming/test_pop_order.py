"""Popping in order: a queue is blocked while some of what was popped of it is under way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.rocketmq.consuming.pop.order import ILLEGAL, UNCHANGED, Orders
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import Peer, Rig, handles

KEY = ("t", "g", 0)
DAY_MS = 24 * 3_600_000


# -- decisions


def test_queue_is_blocked_until_all_is_acknowledged() -> None:
    orders = Orders(b"")
    assert not orders.is_blocked(KEY, None, 0)
    assert orders.popped(KEY, None, 1_000, 5_000, [3, 4, 6]) == ["0 0 0"]
    assert orders.is_blocked(KEY, "other", 1_000)
    assert not orders.is_blocked(("t", "g", 1), None, 1_000)
    assert orders.acknowledge(KEY, 4, 1_000) == 3
    assert orders.acknowledge(KEY, 3, 1_000) == 6
    assert orders.is_blocked(KEY, None, 5_999)
    assert orders.acknowledge(KEY, 6, 1_000) == 7
    assert not orders.is_blocked(KEY, None, 1_000)


def test_queue_is_free_when_its_time_is_over() -> None:
    orders = Orders(b"")
    orders.popped(KEY, None, 1_000, 5_000, [3, 4])
    assert orders.is_blocked(KEY, None, 5_999)
    assert not orders.is_blocked(KEY, None, 6_000)
    assert orders.freed(5_999) == []
    assert orders.freed(6_000) == [KEY]
    assert orders.freed(6_000) == []


def test_attempt_that_popped_may_pop_again() -> None:
    orders = Orders(b"")
    orders.popped(KEY, "one", 1_000, 5_000, [3, 4])
    assert not orders.is_blocked(KEY, "one", 1_000)
    assert orders.is_blocked(KEY, "two", 1_000)
    assert orders.is_blocked(KEY, None, 1_000)
    assert orders.popped(KEY, "one", 1_000, 5_000, [3, 4]) == ["0 0 0"]


def test_messages_are_counted_that_come_again() -> None:
    orders = Orders(b"")
    orders.popped(KEY, None, 1_000, 5_000, [3, 4])
    assert orders.popped(KEY, None, 6_000, 5_000, [4, 5]) == ["0 qo0%4 1", "0 0 0"]
    assert orders.popped(KEY, None, 11_000, 5_000, [4]) == ["0 qo0%4 2", "0 0 2"]


def test_other_time_for_one_message() -> None:
    orders = Orders(b"")
    orders.popped(KEY, None, 1_000, 5_000, [3, 4])
    orders.change(KEY, 3, 1_000, 20_000)
    orders.change(KEY, 9, 1_000, 90_000)
    orders.change(KEY, 4, 1_001, 90_000)
    assert orders.is_blocked(KEY, None, 19_999)
    assert not orders.is_blocked(KEY, None, 20_000)
    orders.change(KEY, 3, 1_000, 500)
    assert orders.is_blocked(KEY, None, 5_999)
    assert not orders.is_blocked(KEY, None, 6_000)


def test_acknowledgements_of_what_is_not_under_way() -> None:
    orders = Orders(b"")
    assert orders.acknowledge(KEY, 3, 1_000) == 4
    orders.popped(KEY, None, 1_000, 5_000, [3, 4])
    assert orders.acknowledge(KEY, 3, 999) == UNCHANGED
    assert orders.acknowledge(KEY, 5, 1_000) == ILLEGAL


def test_file_brings_back_what_is_under_way() -> None:
    orders = Orders(b"")
    orders.popped(KEY, "a", 1_000, 5_000, [3, 4, 6])
    orders.acknowledge(KEY, 3, 1_000)
    orders.change(KEY, 4, 1_000, 9_000)
    orders.popped(("t", "g", 1), None, 1_000, 5_000, [0])
    was_changed = orders.changed
    data = orders.file(2_000)
    assert (was_changed, orders.changed) == (True, False)
    again = Orders(data)
    assert not again.changed
    assert again.file(2_000) == data
    assert again.is_blocked(KEY, None, 8_999)
    assert again.acknowledge(KEY, 4, 1_000) == 6
    assert again.freed(6_000) == [KEY, ("t", "g", 1)]


def test_file_forgets_what_nobody_has_used_for_a_day() -> None:
    orders = Orders(b"")
    orders.popped(KEY, None, 1_000, 5_000, [3])
    assert b"t@g" in orders.file(1_000 + DAY_MS)
    assert b"t@g" not in orders.file(1_001 + DAY_MS)
    with pytest.raises(FormatError):
        Orders(b'{"table":{"t@g":{0:[]}}}')


# -- requests


@pytest.fixture
def rig() -> Rig:
    return Rig()


def send(rig: Rig, *bodies: str) -> None:
    for body in bodies:
        assert rig.peer().send(body.encode()).code == ResponseCode.SUCCESS


def pop(peer: Peer, **changes: Any) -> dict[str, str]:
    return peer.popped(order="true", **{"invisibleTime": 5_000, **changes})


def fields_of(answer: Frame | None) -> dict[str, str]:
    assert answer is not None
    assert answer.ext_fields is not None
    return answer.ext_fields


def test_messages_come_one_after_the_other(rig: Rig) -> None:
    send(rig, "one", "two", "three")
    peer = rig.peer()
    found = pop(peer, maxMsgNums=1)
    assert list(found) == ["one"]
    assert pop(rig.peer(), maxMsgNums=1) == {}
    assert found["one"].split(" ")[3] == "999"
    assert peer.acknowledge(found["one"]).code == ResponseCode.SUCCESS
    assert list(pop(peer)) == ["two", "three"]
    assert rig.messages("rmq_sys_wheel_timer") == []


def test_messages_come_again_in_order_when_their_time_is_over(rig: Rig) -> None:
    send(rig, "one", "two", "three")
    peer = rig.peer()
    found = pop(peer, maxMsgNums=2)
    peer.acknowledge(found["two"])
    rig.pass_time(4_900)
    assert pop(peer) == {}
    rig.pass_time(200)
    answer = peer.answer(peer.pop(order="true"))
    assert list(handles(answer or pytest.fail("nothing"), "broker-g")) == ["one", "two", "three"]
    assert fields_of(answer)["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 0"
    assert "%RETRY%g_t" not in rig.topics.table


def test_waiting_request_is_answered_when_the_queue_is_free(rig: Rig) -> None:
    send(rig, "one", "two")
    peer = rig.peer()
    found = pop(peer, maxMsgNums=1)
    number = peer.pop(order="true", pollTime=20_000, invisibleTime=5_000)
    assert peer.answer(number) is None
    peer.acknowledge(found["one"])
    assert [bytes(each.body) for each in records_of(peer.answer(number) or pytest.fail("nothing"))] == [b"two"]
    number = peer.pop(order="true", pollTime=20_000, invisibleTime=5_000)
    asked = peer.ask(
        RequestCode.NOTIFICATION, consumerGroup="g", topic="t", queueId=-1, pollTime=20_000, bornTime=0, order="true"
    )
    rig.pass_time(4_800)
    assert peer.answer(asked) is None
    assert peer.answer(number) is None
    rig.pass_time(400)
    assert fields_of(peer.answer(asked))["hasMsg"] == "true"
    assert [bytes(each.body) for each in records_of(peer.answer(number) or pytest.fail("nothing"))] == [b"two"]


def test_other_queues_are_not_blocked(rig: Rig) -> None:
    rig.topics.put(TopicConfig("t", 2, 2), rig.wall_ms)
    send(rig, "one")
    peer = rig.peer()
    assert list(pop(peer)) == ["one"]
    peer.send(b"two", e=1)
    send(rig, "three")
    assert list(pop(peer)) == ["two"]


def test_message_that_is_tried_again_later_blocks_its_queue(rig: Rig) -> None:
    send(rig, "one", "two")
    peer = rig.peer()
    found = pop(peer, maxMsgNums=1)
    rig.pass_time(1_000)
    changed = fields_of(peer.hide(found["one"], 9_000))
    assert (changed["popTime"], changed["invisibleTime"]) == (found["one"].split(" ")[1], "10000")
    rig.pass_time(8_900)
    assert pop(peer) == {}
    rig.pass_time(200)
    assert list(pop(peer)) == ["one", "two"]


def test_acknowledgement_of_something_else(rig: Rig) -> None:
    send(rig, "one", "two")
    peer = rig.peer()
    found = pop(peer, maxMsgNums=1)
    words = found["one"].split(" ")
    assert peer.acknowledge(" ".join((*words[:7], "1"))).code == ResponseCode.MESSAGE_ILLEGAL
    # One of an earlier time says nothing of what is under way.
    assert peer.acknowledge(" ".join((words[0], "1", *words[2:]))).code == ResponseCode.SUCCESS
    assert pop(peer) == {}
    assert peer.acknowledge(found["one"]).code == ResponseCode.SUCCESS
    assert peer.acknowledge(found["one"]).code == ResponseCode.SUCCESS
    assert fields_of(peer.hide(found["one"], 9_000))["popTime"] == "0"


def test_batch_is_acknowledged_in_order(rig: Rig) -> None:
    send(rig, "one", "two", "three")
    peer = rig.peer()
    words = pop(peer, maxMsgNums=2)["one"].split(" ")
    ack = {"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "rq": 999, "pt": int(words[1]), "it": 5_000, "b": "Aw=="}
    body = json.dumps({"brokerName": "broker-g", "acks": [ack]}).encode()
    assert peer.call(RequestCode.BATCH_ACK_MESSAGE, body).code == ResponseCode.SUCCESS
    assert list(pop(peer)) == ["three"]


def test_offset_that_is_reset_counts_and_not_what_was_under_way(rig: Rig) -> None:
    send(rig, "one", "two", "three")
    peer = rig.peer()
    peer.acknowledge(pop(peer, maxMsgNums=1)["one"])
    found = pop(peer, maxMsgNums=1)
    fields: dict[str, Any] = {"topic": "t", "group": "g", "timestamp": 0, "isForce": "true", "offset": 0, "queueId": 0}
    number = peer.pop(order="true", pollTime=20_000, maxMsgNums=1, invisibleTime=60_000)
    assert peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields).code == ResponseCode.SUCCESS
    assert peer.acknowledge(found["two"]).code == ResponseCode.SUCCESS
    rig.pass_time(300)
    assert list(handles(peer.answer(number) or pytest.fail("nothing"), "broker-g")) == ["one"]
    assert peer.acknowledge(found["two"]).code == ResponseCode.SUCCESS
    assert pop(peer) == {}


def test_order_is_kept_over_a_stop(rig: Rig) -> None:
    send(rig, "one", "two")
    found = pop(rig.peer(), maxMsgNums=1)
    rig.stop()
    peer = rig.peer()
    assert pop(peer) == {}
    peer.acknowledge(found["one"])
    assert list(pop(peer)) == ["two"]
    rig.crash()
    assert next(iter(pop(rig.peer(), attemptId="new") or ["two"])) in ("one", "two")
    rig.pass_time(6_000)
    assert list(pop(rig.peer()))[-1] == "two"
