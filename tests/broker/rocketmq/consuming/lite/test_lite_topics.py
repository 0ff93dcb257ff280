"""A broker's lite topics: sending to them, subscribing, popping in order and acknowledging."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rocketmq.consuming.lite.placing import LitePlaces
from broker.rocketmq.remoting.requests import Refused
from formats.rocketmq.lite import queue_name
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.consuming.lite.lite_rig import PARENT, LiteClient, LiteRig, read

A = queue_name(PARENT, "a")


@pytest.fixture
def rig() -> LiteRig:
    return LiteRig()


def counts(client: LiteClient) -> list[str]:
    """Pop; the number of times that each message was given out before."""
    fields = client.pop().ext_fields or {}
    return fields["orderCountInfo"].split(";")


# -- sending


def test_message_says_where_it_is(rig: LiteRig) -> None:
    client = rig.client("one")
    for number in range(4):
        assert client.send(str(number), "a", e=number % 2).code == ResponseCode.SUCCESS
    found = [decode_properties(record.properties) for record in rig.messages(A)]
    assert [each["INNER_MULTI_QUEUE_OFFSET"] for each in found] == ["0", "1", "2", "3"]
    assert {each["INNER_MULTI_DISPATCH"] for each in found} == {A}
    assert [bytes(each.body) for each in rig.messages(PARENT, 1)] == [b"1", b"3"]


def test_sender_does_not_say_where_a_message_is(rig: LiteRig) -> None:
    forged = {"__LITE_TOPIC": "a", "INNER_MULTI_DISPATCH": "%LMQ%$Lite$b", "INNER_MULTI_QUEUE_OFFSET": "7"}
    assert rig.client("one").peer.send(b"x", forged, PARENT).code == ResponseCode.SUCCESS
    (record,) = rig.messages(A)
    assert decode_properties(record.properties)["INNER_MULTI_QUEUE_OFFSET"] == "0"
    assert rig.messages(queue_name(PARENT, "b")) == []


def test_lite_topic_of_another_topic_means_nothing(rig: LiteRig) -> None:
    assert rig.client("one").peer.send(b"x", {"__LITE_TOPIC": "a"}, "t").code == ResponseCode.SUCCESS
    assert rig.messages(queue_name("t", "a")) == []
    assert len(rig.messages("t")) == 1


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"__LITE_TOPIC": "../a"}, ResponseCode.INVALID_PARAMETER),
        ({"__LITE_TOPIC": "a", "DELAY": "3"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"__LITE_TOPIC": "a", "TRAN_MSG": "true", "PGROUP": "p"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_messages_that_cannot_be_of_a_lite_topic_are_refused(
    rig: LiteRig, properties: dict[str, str], code: ResponseCode
) -> None:
    assert rig.client("one").peer.send(b"x", properties, PARENT).code == code
    assert rig.messages(A) == []


def test_number_of_lite_topics_is_bounded(rig: LiteRig) -> None:
    rig.client("one").send("x", "a")
    topic = rig.topics.get(PARENT)
    assert topic is not None
    places = LitePlaces(rig.store, topics_max=1)
    places.place(topic, {"__LITE_TOPIC": "a"}, is_immediate=True)
    with pytest.raises(Refused) as refused:
        places.place(topic, {"__LITE_TOPIC": "b"}, is_immediate=True)
    assert refused.value.code == ResponseCode.LMQ_QUOTA_EXCEEDED


# -- popping


def test_each_lite_topic_is_consumed_in_order(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a", "b")
    for number in range(3):
        client.send(f"a{number}", "a")
        client.send(f"b{number}", "b")
    client.send("c0", "c")
    assert client.popped(maxMsgNum=2) == ["a0", "a1"]
    begun = rig.wall_ms
    assert client.popped() == ["b0", "b1", "b2"]
    assert client.popped() == []
    assert client.acknowledge("a", 0, begun).code == ResponseCode.SUCCESS
    assert client.popped() == []
    assert client.acknowledge("a", 1, begun).code == ResponseCode.SUCCESS
    assert client.popped() == ["a2"]
    assert rig.offsets.get(A, "shared", 0) == 2


def test_client_that_waits_is_given_what_comes(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a")
    number = client.ask(pollTime=20_000)
    assert client.peer.answer(number) is None
    client.send("x", "a")
    answer = client.peer.answer(number)
    assert answer is not None
    assert read(answer) == ["x"]


def test_client_that_waits_in_vain_is_told_so(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a")
    number = client.ask(pollTime=5_000)
    rig.pass_time(5_100)
    answer = client.peer.answer(number)
    assert answer is not None
    assert answer.code == ResponseCode.POLLING_TIMEOUT


def test_subscription_brings_what_is_there_already(rig: LiteRig) -> None:
    client = rig.client("one")
    client.send("x", "a")
    number = client.ask(pollTime=20_000)
    client.subscribe("a")
    answer = client.peer.answer(number)
    assert answer is not None
    assert read(answer) == ["x"]


def test_message_that_is_not_acknowledged_comes_again_and_is_counted(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a")
    client.send("x", "a")
    client.send("y", "a")
    assert counts(client) == ["0", "0"]
    number = client.ask(pollTime=20_000)
    rig.pass_time(9_900)
    assert client.peer.answer(number) is None
    rig.pass_time(200)
    answer = client.peer.answer(number)
    assert answer is not None
    assert read(answer) == ["x", "y"]
    assert (answer.ext_fields or {})["orderCountInfo"] == "1;1"


def test_message_comes_again_when_its_consumer_says(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a")
    client.send("x", "a")
    assert client.popped() == ["x"]
    changed = client.hide("a", 0, rig.wall_ms, 2_000)
    assert changed.code == ResponseCode.SUCCESS
    assert (changed.ext_fields or {})["invisibleTime"] == "2000"
    rig.pass_time(1_900)
    assert client.popped() == []
    rig.pass_time(200)
    assert counts(client) == ["1"]


def test_suspension_does_not_count(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a")
    client.send("x", "a")
    client.send("y", "a")
    client.pop()
    rig.pass_time(10_100)
    assert counts(client) == ["1", "1"]
    assert client.hide("a", 0, rig.wall_ms, 2_000, suspend="true").code == ResponseCode.SUCCESS
    rig.pass_time(2_100)
    assert counts(client) == ["1", "1"]


def test_messages_in_flight_come_again_after_a_restart(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a")
    for each in "xyz":
        client.send(each, "a")
    assert client.popped() == ["x", "y", "z"]
    client.acknowledge("a", 0, rig.wall_ms)
    rig.stop()
    client = rig.client("one")
    client.subscribe("a")
    assert client.popped() == ["y", "z"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "t"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "g"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNum": 33}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNum": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_requests_that_ask_for_what_cannot_be_are_refused(
    rig: LiteRig, fields: dict[str, object], code: ResponseCode
) -> None:
    client = rig.client("one")
    client.subscribe("a")
    client.send("x", "a")
    assert client.pop(**fields).code == code
    assert client.popped() == ["x"]


def test_message_that_was_not_popped_cannot_be_acknowledged(rig: LiteRig) -> None:
    client = rig.client("one")
    client.subscribe("a")
    client.send("x", "a")
    assert client.popped() == ["x"]
    assert client.acknowledge("a", 1, rig.wall_ms).code == ResponseCode.NO_MESSAGE
    assert client.acknowledge("b", 0, rig.wall_ms).code == ResponseCode.NO_MESSAGE
    assert client.acknowledge("../a", 0, rig.wall_ms).code == ResponseCode.INVALID_PARAMETER
    assert client.acknowledge("a", 0, rig.wall_ms - 1).code == ResponseCode.SUCCESS
    assert rig.offsets.get(A, "shared", 0) == 0


# -- several clients


def test_messages_go_to_one_client_of_each_group(rig: LiteRig) -> None:
    one, two, other = rig.client("one"), rig.client("two"), rig.client("other", "anew")
    for client in (one, two, other):
        client.subscribe("a")
    waiting = one.ask(pollTime=20_000)
    one.send("x", "a")
    answer = one.peer.answer(waiting)
    assert answer is not None
    assert read(answer) == ["x"]
    assert two.popped() == []
    assert other.popped() == ["x"]


def test_other_client_takes_over_from_one_that_does_not_ask(rig: LiteRig) -> None:
    one, two = rig.client("one"), rig.client("two")
    one.subscribe("a")
    one.send("x", "a")
    two.subscribe("a")
    waiting = two.ask(pollTime=20_000)
    assert two.peer.answer(waiting) is None
    rig.pass_time(10_200)
    answer = two.peer.answer(waiting)
    assert answer is not None
    assert read(answer) == ["x"]


def test_other_client_takes_over_from_one_that_leaves(rig: LiteRig) -> None:
    one, two = rig.client("one"), rig.client("two")
    one.subscribe("a")
    one.send("x", "a")
    two.subscribe("a")
    waiting = two.ask(pollTime=20_000)
    assert one.change(bodies.COMPLETE_REMOVE).code == ResponseCode.SUCCESS
    answer = two.peer.answer(waiting)
    assert answer is not None
    assert read(answer) == ["x"]


def test_client_of_another_group_cannot_make_one_leave(rig: LiteRig) -> None:
    one, two = rig.client("one"), rig.client("two", "anew")
    one.subscribe("a")
    two.change(bodies.COMPLETE_REMOVE, client_id="one")
    one.send("x", "a")
    assert one.popped() == ["x"]


def test_silent_client_is_forgotten(rig: LiteRig) -> None:
    one = rig.client("one")
    one.subscribe("a")
    rig.pass_time(170_000)
    one.change(bodies.COMPLETE_ADD, "a")
    rig.pass_time(170_000)
    one.send("x", "a")
    assert one.popped() == ["x"]
    rig.pass_time(11_000)
    assert one.popped() == []


# -- subscriptions


def test_complete_subscription_replaces_what_there_was(rig: LiteRig) -> None:
    one = rig.client("one")
    one.subscribe("a", "b")
    assert one.change(bodies.COMPLETE_ADD, "b", "c").code == ResponseCode.SUCCESS
    for name in "abc":
        one.send(name, name)
    assert one.popped() == ["b", "c"]
    assert one.change(bodies.PARTIAL_REMOVE, "b").code == ResponseCode.SUCCESS
    assert one.change(bodies.PARTIAL_ADD, "a").code == ResponseCode.SUCCESS
    assert one.popped() == ["a"]


def test_exclusive_lite_topic_goes_to_who_asked_last(rig: LiteRig) -> None:
    one, two = rig.client("one", "exclusive"), rig.client("two", "exclusive")
    one.subscribe("a")
    one.send("x", "a")
    assert one.popped() == ["x"]
    one.acknowledge("a", 0, rig.wall_ms)
    two.subscribe("a")
    one.peer.read()
    (told,) = one.peer.asked
    assert told.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE
    assert told.is_one_way
    assert told.ext_fields == {"clientId": "one", "consumerGroup": "exclusive", "liteTopic": "a"}
    # Its group starts again with the successor.
    assert two.popped() == ["x"]
    two.send("y", "a")
    assert one.popped() == []
    two.subscribe("a")
    two.peer.read()
    assert two.peer.asked == []


def test_client_without_a_subscription_gets_nothing_that_was_assigned_to_it(rig: LiteRig) -> None:
    for group, has_left in (("exclusive", False), ("shared", True)):
        one, two = rig.client(f"one of {group}", group), rig.client(f"two of {group}", group)
        one.subscribe(group)
        assert one.popped() == []
        if has_left:
            two.subscribe(group)
        one.send("x", group)
        if has_left:
            one.change(bodies.PARTIAL_REMOVE, group)
        else:
            two.subscribe(group)
        assert one.popped() == []
        assert two.popped() == ["x"]


def test_exclusive_lite_topic_is_not_taken_back_by_who_repeats_what_it_asked_for(rig: LiteRig) -> None:
    one, two = rig.client("one", "exclusive"), rig.client("two", "exclusive")
    one.subscribe("a")
    two.subscribe("a")
    assert one.change(bodies.COMPLETE_ADD, "a", "b").code == ResponseCode.SUCCESS
    one.ask(pollTime=20_000)
    two.send("x", "a")
    assert two.popped() == ["x"]
    two.acknowledge("a", 0, rig.wall_ms)
    assert two.change(bodies.COMPLETE_ADD, "a").code == ResponseCode.SUCCESS
    two.change(bodies.COMPLETE_REMOVE)
    one.change(bodies.COMPLETE_ADD, "a", "b")
    two.send("y", "a")
    assert one.peer.take_answers()


def test_group_may_begin_anew_after_a_client_has_left_a_lite_topic(rig: LiteRig) -> None:
    for group, expected in (("anew", ["x"]), ("shared", [])):
        one = rig.client(f"of {group}", group)
        one.send("x", group)
        one.subscribe(group)
        assert one.popped() == ["x"]
        one.acknowledge(group, 0, rig.wall_ms)
        one.change(bodies.PARTIAL_REMOVE, group)
        one.subscribe(group)
        assert one.popped() == expected


def test_group_that_takes_all_is_given_the_messages_of_any_lite_topic(rig: LiteRig) -> None:
    one = rig.client("one", "all")
    one.send("a", "a")
    assert one.change(bodies.PARTIAL_ADD, "a").code == ResponseCode.ILLEGAL_OPERATION
    assert one.change(bodies.COMPLETE_ADD).code == ResponseCode.SUCCESS
    one.send("b", "b")
    assert sorted(one.popped()) == ["a", "b"]
    one.change(bodies.COMPLETE_REMOVE)
    one.send("c", "c")
    assert one.popped() == []


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (None, ["4"]),
        (bodies.OffsetOption("POLICY", 0), ["4"]),
        (bodies.OffsetOption("POLICY", 1), ["0", "1", "2", "3", "4"]),
        (bodies.OffsetOption("POLICY", 2), []),
        (bodies.OffsetOption("OFFSET", 2), ["2", "3", "4"]),
        (bodies.OffsetOption("OFFSET", 100), []),
        (bodies.OffsetOption("TAIL_N", 3), ["1", "2", "3", "4"]),
        (bodies.OffsetOption("TAIL_N", 100), ["0", "1", "2", "3", "4"]),
        (bodies.OffsetOption("TIMESTAMP", 1), ["4"]),
    ],
)
def test_client_may_say_where_its_group_begins(
    rig: LiteRig, option: bodies.OffsetOption | None, expected: list[str]
) -> None:
    one = rig.client("one")
    for number in range(5):
        one.send(str(number), "a")
    rig.offsets.commit(A, "shared", 0, 4)
    one.subscribe("a", option=option)
    assert one.popped() == expected


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "t"}, ResponseCode.INVALID_PARAMETER),
        ({"group": "none"}, ResponseCode.ILLEGAL_OPERATION),
        ({"lite_topic_set": ["../a"]}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_subscriptions_that_cannot_be_are_refused(rig: LiteRig, changes: dict[str, Any], code: ResponseCode) -> None:
    assert rig.client("one").change(bodies.PARTIAL_ADD, "a", **changes).code == code


def test_action_that_is_none_is_refused(rig: LiteRig) -> None:
    assert rig.client("one").change("OTHER", "a").code == ResponseCode.SYSTEM_ERROR


def test_number_of_subscriptions_is_bounded(rig: LiteRig, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = rig.client("one"), rig.client("two")
    monkeypatch.setattr(rig.broker._lite._subscribing, "_subscriptions_max", 3)
    one.subscribe("a", "b")
    one.subscribe("b", "c")
    assert two.change(bodies.PARTIAL_ADD, "a").code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    one.change(bodies.PARTIAL_REMOVE, "a")
    two.subscribe("a")


def test_number_of_clients_without_subscriptions_is_bounded(rig: LiteRig, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = rig.client("one"), rig.client("two"), rig.client("three")
    monkeypatch.setattr(rig.broker._lite._subscribing, "_subscriptions_max", 2)
    assert one.change(bodies.COMPLETE_ADD).code == ResponseCode.SUCCESS
    assert two.change(bodies.PARTIAL_ADD).code == ResponseCode.SUCCESS
    for action in (bodies.COMPLETE_ADD, bodies.PARTIAL_ADD):
        assert three.change(action).code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert one.change(bodies.COMPLETE_ADD, "a").code == ResponseCode.SUCCESS
    two.change(bodies.COMPLETE_REMOVE)
    assert three.change(bodies.COMPLETE_ADD).code == ResponseCode.SUCCESS


def test_length_of_client_ids_is_bounded(rig: LiteRig) -> None:
    for action in (bodies.COMPLETE_ADD, bodies.PARTIAL_ADD):
        assert rig.client("x" * 256).change(action, "a").code == ResponseCode.INVALID_PARAMETER
        assert rig.client("x" * 255).change(action, "a").code == ResponseCode.SUCCESS


# -- the end of lite topics


def test_lite_topic_expires(rig: LiteRig) -> None:
    one = rig.client("one")
    one.subscribe("a", "b")
    one.send("x", "a")
    assert one.popped() == ["x"]
    one.acknowledge("a", 0, rig.wall_ms)
    rig.pass_time(15 * 60_000)
    one.send("y", "b")
    assert rig.offsets.get(A, "shared", 0) == 1
    rig.pass_time(8 * 60_000)
    assert (A, 0) not in rig.store.queues
    assert (queue_name(PARENT, "b"), 0) in rig.store.queues
    assert rig.offsets.get(A, "shared", 0) is None
    one.subscribe("a")
    one.send("z", "a")
    assert "z" in one.popped()


def test_lite_topics_go_with_their_parent(rig: LiteRig) -> None:
    one = rig.client("one")
    one.send("x", "a")
    assert one.peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=PARENT).code == ResponseCode.SUCCESS
    assert (A, 0) not in rig.store.queues


def test_queues_of_lite_topics_are_not_taken_for_those_of_unknown_topics(rig: LiteRig) -> None:
    one = rig.client("one")
    one.send("x", "a")
    assert one.peer.call(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    assert (A, 0) in rig.store.queues
