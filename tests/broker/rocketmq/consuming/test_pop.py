"""Popping: messages are handed out for a while, and come again unless they are acknowledged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from broker.rocketmq.consuming.pop.revival import ReviveQueue
from broker.rocketmq.consuming.pop.waiting import PLACE_MAX
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.popping import AckNote, CheckPoint
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import OPTIONS, Peer, Rig, handles

RETRY = "%RETRY%g_t"
REVIVE = "rmq_sys_REVIVE_LOG_GoldenCluster"
TIMERS = "rmq_sys_wheel_timer"
HOUR_MS = 3_600_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


def send(rig: Rig, *bodies: str, queue_id: int = 0, **properties: str) -> None:
    peer = rig.peer()
    for body in bodies:
        assert peer.send(body.encode(), properties, e=queue_id).code == ResponseCode.SUCCESS


def pop_again(rig: Rig, peer: Peer, ms: int = 13_000, **changes: Any) -> dict[str, str]:
    """Pop after the time for which messages are hidden, and a little more."""
    rig.pass_time(ms)
    return peer.popped(**changes)


def fields_of(answer: Frame | None) -> dict[str, str]:
    assert answer is not None
    assert answer.ext_fields is not None
    return answer.ext_fields


# -- popping


def test_popped_messages_are_hidden_from_others(rig: Rig) -> None:
    send(rig, "one", "two")
    assert list(rig.peer().popped()) == ["one", "two"]
    assert rig.peer().popped() == {}
    assert list(rig.peer().popped(group="other")) == ["one", "two"]


def test_answer_has_what_handles_are_made_of(rig: Rig) -> None:
    send(rig, "one", "two", "three")
    peer = rig.peer()
    answer = peer.answer(peer.pop(maxMsgNums=2))
    fields = fields_of(answer)
    assert (fields["startOffsetInfo"], fields["msgOffsetInfo"], fields["restNum"]) == ("0 0 0", "0 0 0,1", "1")
    assert (fields["popTime"], fields["invisibleTime"]) == (str(rig.wall_ms), "10000")


def test_checkpoints_go_to_one_revive_queue_after_the_other(rig: Rig) -> None:
    peer = rig.peer()
    found = [fields_of(peer.answer(peer.pop()))["reviveQid"] for _ in range(9)]
    assert found == ["0", "1", "2", "3", "4", "5", "6", "7", "0"]


def test_all_queues_are_popped_at_once(rig: Rig) -> None:
    rig.topics.put(TopicConfig("t", 3, 3), rig.wall_ms)
    for queue_id in range(3):
        send(rig, f"queue {queue_id}", queue_id=queue_id)
    peer = rig.peer()
    answer = peer.answer(peer.pop(maxMsgNums=2))
    assert answer is not None
    assert len(records_of(answer)) == 2
    assert fields_of(answer)["restNum"] == "1"
    assert len(peer.popped()) == 1


def test_filter_by_tags_skips_what_is_not_wanted(rig: Rig) -> None:
    send(rig, "x", TAGS="x")
    send(rig, "y", TAGS="y")
    send(rig, "z", TAGS="z")
    peer = rig.peer()
    assert list(peer.popped(exp="y || z", expType="TAG")) == ["y", "z"]
    assert peer.popped() == {}


def test_filter_by_expression(rig: Rig) -> None:
    send(rig, "low", level="1")
    send(rig, "high", level="7")
    assert list(rig.peer().popped(exp="level > 3", expType="SQL92")) == ["high"]
    for kind, text in (("SQL92", "level >"), ("OTHER", "x")):
        answer = rig.peer().call(
            RequestCode.POP_MESSAGE,
            consumerGroup="g",
            topic="t",
            queueId=-1,
            maxMsgNums=1,
            invisibleTime=1,
            pollTime=0,
            initMode=0,
            exp=text,
            expType=kind,
        )
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_group_may_begin_at_the_end(rig: Rig) -> None:
    rig.store_options = rig.store_options._replace(commit_log_file_bytes=4096)
    rig.stop()
    rig.topics.put(TopicConfig("t", 1, 1), rig.wall_ms)
    send(rig, *(f"{number} {'x' * 500}" for number in range(20)))
    # With the first messages gone from the log, it is not all in memory.
    rig.store.expire(rig.store.log.end - 4096)
    assert rig.store.span("t", 0)[0] > 0
    assert [body[:2] for body in rig.peer().popped(initMode=1)] == ["19"]


def test_offset_before_the_first_message_moves_on(rig: Rig) -> None:
    rig.store_options = rig.store_options._replace(commit_log_file_bytes=4096)
    rig.stop()
    rig.topics.put(TopicConfig("t", 1, 1), rig.wall_ms)
    rig.offsets.commit("t", "g", 0, 0)
    send(rig, *(f"{number} {'x' * 500}" for number in range(20)))
    rig.store.expire(rig.store.log.end - 4096)
    begin = rig.store.span("t", 0)[0]
    answer = rig.peer().popped()
    assert next(iter(answer)).startswith(f"{begin} ")


def test_requests_that_are_refused(rig: Rig) -> None:
    peer = rig.peer()
    cases: list[tuple[ResponseCode, dict[str, Any]]] = [
        (ResponseCode.TOPIC_NOT_EXIST, {"topic": "none"}),
        (ResponseCode.INVALID_PARAMETER, {"queueId": 1}),
        (ResponseCode.INVALID_PARAMETER, {"maxMsgNums": 33}),
        (ResponseCode.INVALID_PARAMETER, {"maxMsgNums": 0}),
        (ResponseCode.INVALID_PARAMETER, {"invisibleTime": -1}),
        (ResponseCode.INVALID_PARAMETER, {"invisibleTime": 1 << 62}),
        (ResponseCode.POLLING_TIMEOUT, {"bornTime": 1}),
        (ResponseCode.SYSTEM_ERROR, {"maxMsgNums": "many"}),
    ]
    for code, changes in cases:
        answer = peer.answer(peer.pop(**changes))
        assert answer is not None
        assert answer.code == code, changes


# -- acknowledgements


def test_acknowledged_messages_do_not_come_again(rig: Rig) -> None:
    send(rig, "one", "two")
    peer = rig.peer()
    handle = peer.popped()["one"]
    assert peer.acknowledge(handle).code == ResponseCode.SUCCESS
    assert list(pop_again(rig, peer)) == ["two"]


def test_message_comes_again_with_its_count_until_it_is_acknowledged(rig: Rig) -> None:
    send(rig, "one", KEYS="k", TAGS="x")
    peer = rig.peer()
    assert list(peer.popped()) == ["one"]
    popped_ms = rig.wall_ms
    rig.pass_time(11_900)
    assert peer.popped() == {}
    answer: Frame | None = None
    for count in (1, 2, 3):
        rig.pass_time(13_000)
        answer = peer.answer(peer.pop())
        assert answer is not None
        (record,) = records_of(answer)
        assert (record.topic, record.reconsume_times) == ("t", count)
        properties = decode_properties(record.properties)
        assert properties["1ST_POP_TIME"] == str(popped_ms)
        assert (properties["ORIGIN_GROUP"], properties["KEYS"], properties["TAGS"]) == ("g", "k", "x")
    assert answer is not None
    assert peer.acknowledge(handles(answer, "broker-g")["one"]).code == ResponseCode.SUCCESS
    assert pop_again(rig, peer) == {}
    assert rig.topics.table[RETRY].read_queue_nums == 1


def test_batch_of_acknowledgements(rig: Rig) -> None:
    send(rig, "one", "two", "three")
    peer = rig.peer()
    words = peer.popped()["one"].split(" ")
    ack = {
        "c": "g",
        "t": "t",
        "r": "0",
        "so": int(words[0]),
        "q": 0,
        "rq": int(words[3]),
        "pt": int(words[1]),
        "it": int(words[2]),
        "b": "BQ==",
    }
    body = json.dumps({"brokerName": "broker-g", "acks": [ack]}).encode()
    assert peer.call(RequestCode.BATCH_ACK_MESSAGE, body).code == ResponseCode.SUCCESS
    assert list(pop_again(rig, peer)) == ["two"]
    for changes, code in (
        ({"b": "!"}, ResponseCode.SYSTEM_ERROR),
        ({"b": "/" * 8}, ResponseCode.SYSTEM_ERROR),
        ({"r": "9"}, ResponseCode.SYSTEM_ERROR),
        ({"rq": 50}, ResponseCode.MESSAGE_ILLEGAL),
        ({"pt": 1 << 62}, ResponseCode.MESSAGE_ILLEGAL),
        ({"c": ""}, ResponseCode.INVALID_PARAMETER),
        ({"q": 7}, ResponseCode.SUCCESS),
    ):
        body = json.dumps({"brokerName": "broker-g", "acks": [{**ack, **changes}]}).encode()
        assert peer.call(RequestCode.BATCH_ACK_MESSAGE, body).code == code, changes
    assert peer.call(RequestCode.BATCH_ACK_MESSAGE, b"{}").code == ResponseCode.NO_MESSAGE


def test_hidden_for_longer_or_less_long(rig: Rig) -> None:
    send(rig, "one", "two")
    peer = rig.peer()
    found = peer.popped()
    sooner = peer.hide(found["one"], 1_000)
    assert fields_of(sooner)["invisibleTime"] == "1000"
    later = peer.hide(found["two"], 30_000)
    rig.pass_time(5_000)
    assert list(peer.popped(invisibleTime=HOUR_MS)) == ["one"]
    assert pop_again(rig, peer, 15_000) == {}
    # The old handle is spent: what it acknowledges was acknowledged before.
    assert peer.acknowledge(found["two"]).code == ResponseCode.SUCCESS
    assert list(pop_again(rig, peer, 15_000)) == ["two"]
    assert fields_of(later)["popTime"] != ""


def test_message_that_is_hidden_anew_as_soon_as_it_is_popped_comes_again(rig: Rig) -> None:
    """Both checkpoints are of the same message; the note that the first is over does not end the second."""
    send(rig, "one")
    peer = rig.peer()
    handle = peer.popped()["one"]
    assert peer.hide(handle, 8_000).code == ResponseCode.SUCCESS
    assert list(pop_again(rig, peer, 30_000)) == ["one"]


def test_new_handle_acknowledges_what_was_hidden_anew(rig: Rig) -> None:
    send(rig, "one")
    peer = rig.peer()
    words = peer.popped()["one"].split(" ")
    changed = fields_of(peer.hide(" ".join(words), 2_000))
    handle = " ".join((words[7], changed["popTime"], changed["invisibleTime"], changed["reviveQid"], "0", *words[5:]))
    assert peer.acknowledge(handle).code == ResponseCode.SUCCESS
    assert pop_again(rig, peer) == {}


def test_handles_that_are_refused(rig: Rig) -> None:
    send(rig, "one")
    peer = rig.peer()
    words = peer.popped()["one"].split(" ")
    for place, word, code in (
        (0, "x", ResponseCode.SYSTEM_ERROR),
        (0, "-1", ResponseCode.SYSTEM_ERROR),
        (1, "9" * 30, ResponseCode.SYSTEM_ERROR),
        (1, str(1 << 62), ResponseCode.MESSAGE_ILLEGAL),
        (2, str((1 << 63) - 1), ResponseCode.SYSTEM_ERROR),
        (3, "8", ResponseCode.MESSAGE_ILLEGAL),
        (5, "b" * 300, ResponseCode.SYSTEM_ERROR),
        (6, "1", ResponseCode.MESSAGE_ILLEGAL),
        (7, "5", ResponseCode.NO_MESSAGE),
    ):
        handle = " ".join((*words[:place], word, *words[place + 1 :]))
        assert peer.acknowledge(handle).code == code, handle
    assert peer.hide(" ".join(words), 1 << 62).code == ResponseCode.INVALID_PARAMETER
    assert peer.acknowledge(" ".join(words), topic="none").code == ResponseCode.TOPIC_NOT_EXIST


def test_dead_letters_are_sent_by_who_has_tried_often_enough(rig: Rig) -> None:
    send(rig, "one")
    peer = rig.peer()
    peer.popped()
    rig.pass_time(13_000)
    answer = peer.answer(peer.pop())
    assert answer is not None
    (record,) = records_of(answer)
    fields: dict[str, Any] = {"offset": record.physical_offset, "group": "g", "delayLevel": -1, "originTopic": "t"}
    assert peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, **fields).code == ResponseCode.SUCCESS
    assert peer.acknowledge(handles(answer, "broker-g")["one"]).code == ResponseCode.SUCCESS
    assert pop_again(rig, peer) == {}
    (dead,) = rig.messages("%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"one", 2)


# -- waiting


def test_request_waits_until_a_message_comes(rig: Rig) -> None:
    peer = rig.peer()
    number = peer.pop(pollTime=5_000)
    rig.pass_time(1_000)
    assert peer.answer(number) is None
    send(rig, "one")
    answer = peer.answer(number)
    assert answer is not None
    assert list(handles(answer, "broker-g")) == ["one"]


def test_request_waits_no_longer_than_it_says(rig: Rig) -> None:
    peer = rig.peer()
    number = peer.pop(pollTime=5_000)
    rig.pass_time(4_800)
    assert peer.answer(number) is None
    rig.pass_time(400)
    answer = peer.answer(number)
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")


def test_clock_of_a_client_that_is_fast_makes_it_wait_no_longer(rig: Rig) -> None:
    peer = rig.peer()
    number = peer.pop(pollTime=5_000, bornTime=rig.wall_ms + HOUR_MS)
    rig.pass_time(5_300)
    assert peer.answer(number) is not None


def test_messages_are_shared_by_those_who_wait(rig: Rig) -> None:
    first, second = rig.peer(), rig.peer()
    numbers = [peer.pop(pollTime=5_000, maxMsgNums=1) for peer in (first, second)]
    opaque = [peer.ask(RequestCode.GET_MAX_OFFSET, topic="t", queueId=0) for peer in (first, second)]
    assert all(opaque)
    send(rig, "one")
    assert list(handles(first.answer(numbers[0]) or pytest.fail("nothing"), "broker-g")) == ["one"]
    assert second.answer(numbers[1]) is None
    send(rig, "two")
    assert list(handles(second.answer(numbers[1]) or pytest.fail("nothing"), "broker-g")) == ["two"]


def test_revived_messages_go_to_those_who_wait(rig: Rig) -> None:
    send(rig, "one")
    peer = rig.peer()
    assert list(peer.popped(invisibleTime=1_000)) == ["one"]
    number = peer.pop(pollTime=15_000)
    rig.pass_time(4_000)
    answer = peer.answer(number)
    assert answer is not None
    assert list(handles(answer, "broker-g")) == ["one"]


def test_unwanted_messages_let_a_request_wait_on(rig: Rig) -> None:
    peer = rig.peer()
    number = peer.pop(pollTime=15_000, exp="x")
    send(rig, *map(str, range(1_700)), TAGS="y")
    assert peer.answer(number) is None
    send(rig, "one", TAGS="x")
    answer = peer.answer(number)
    assert answer is not None
    assert list(handles(answer, "broker-g")) == ["one"]


def test_old_messages_that_are_not_wanted_are_gone_through_in_steps(rig: Rig) -> None:
    send(rig, *map(str, range(2_000)), TAGS="y")
    send(rig, "one", TAGS="x")
    peer = rig.peer()
    # One look goes as far as it may; what is left is looked at in the steps that follow.
    answer = peer.answer(peer.pop(pollTime=15_000, exp="x"))
    assert answer is not None
    assert list(handles(answer, "broker-g")) == ["one"]


def test_request_for_one_queue_waits_for_that(rig: Rig) -> None:
    rig.topics.put(TopicConfig("t", 2, 2), rig.wall_ms)
    peer = rig.peer()
    number = peer.pop(pollTime=5_000, queueId=1)
    send(rig, "zero")
    assert peer.answer(number) is None
    send(rig, "one", queue_id=1)
    assert peer.answer(number) is not None


def test_closed_connection_waits_no_longer(rig: Rig) -> None:
    peer = rig.peer()
    peer.pop(pollTime=5_000)
    info: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": -1}
    assert fields_of(rig.peer().call(RequestCode.POLLING_INFO, **info))["pollingNum"] == "1"
    rig.broker.disconnected(peer.session)
    assert fields_of(rig.peer().call(RequestCode.POLLING_INFO, **info))["pollingNum"] == "0"
    send(rig, "one")
    assert list(rig.peer().popped()) == ["one"]


def test_no_more_requests_wait_than_there_may(rig: Rig) -> None:
    peer = rig.peer()
    for _ in range(PLACE_MAX + 1):
        peer.pop(pollTime=5_000)
    answer = peer.answer(peer.pop(pollTime=5_000))
    assert answer is not None
    assert answer.code == ResponseCode.POLLING_FULL


# -- asking


def test_notification_tells_whether_there_are_messages(rig: Rig) -> None:
    peer = rig.peer()
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": -1, "bornTime": 0}
    assert fields_of(peer.call(RequestCode.NOTIFICATION, **fields, pollTime=0))["hasMsg"] == "false"
    number = peer.ask(RequestCode.NOTIFICATION, **fields, pollTime=5_000)
    over = peer.ask(RequestCode.NOTIFICATION, **{**fields, "topic": "t", "consumerGroup": "h"}, pollTime=1_000)
    rig.pass_time(1_300)
    assert fields_of(peer.answer(over))["hasMsg"] == "false"
    assert peer.answer(number) is None
    send(rig, "one")
    assert fields_of(peer.answer(number))["hasMsg"] == "true"
    assert fields_of(peer.call(RequestCode.NOTIFICATION, **fields, pollTime=0))["hasMsg"] == "true"
    peer.popped(invisibleTime=1_000)
    number = peer.ask(RequestCode.NOTIFICATION, **fields, pollTime=15_000)
    rig.pass_time(4_000)
    assert fields_of(peer.answer(number))["hasMsg"] == "true"
    answer = peer.call(RequestCode.NOTIFICATION, **{**fields, "topic": "none"}, pollTime=0)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_peeked_messages_stay_where_they_are(rig: Rig) -> None:
    send(rig, "one", "two", "three")
    peer = rig.peer()
    fields: dict[str, Any] = {"topic": "t", "queueId": -1, "consumerGroup": "g"}
    for _ in range(2):
        answer = peer.call(RequestCode.PEEK_MESSAGE, **fields, maxMsgNums=2)
        assert [bytes(record.body) for record in records_of(answer)] == [b"one", b"two"]
        assert fields_of(answer)["restNum"] == "3"
    peer.popped()
    assert peer.call(RequestCode.PEEK_MESSAGE, **fields, maxMsgNums=2).code == ResponseCode.PULL_NOT_FOUND
    assert peer.call(RequestCode.PEEK_MESSAGE, **fields, maxMsgNums=40).code == ResponseCode.INVALID_PARAMETER


# -- crashes


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_nothing_is_lost_that_was_not_acknowledged(rig: Rig, end: str) -> None:
    send(rig, *map(str, range(40)))
    peer = rig.peer()
    found = peer.popped()
    for body in map(str, range(0, 32, 2)):
        peer.acknowledge(found[body])
    rig.pass_time(6_000)
    getattr(rig, end)()
    peer = rig.peer()
    got = set(peer.popped(invisibleTime=HOUR_MS))
    for _ in range(4):
        got |= set(pop_again(rig, peer, 5_000, invisibleTime=HOUR_MS))
    # Acknowledged messages may come once more after a crash, as offsets are written periodically.
    assert got >= {str(number) for number in range(40) if number % 2 or number >= 32}
    assert end == "crash" or got == {str(number) for number in range(40) if number % 2 or number >= 32}


def test_messages_are_revived_whose_time_was_over_while_the_broker_was_down(rig: Rig) -> None:
    send(rig, "one", "two")
    peer = rig.peer()
    peer.acknowledge(peer.popped()["one"])
    rig.crash()
    rig.wall_ms += HOUR_MS
    rig.pass_time(500)
    assert "two" in rig.peer().popped()


@pytest.mark.parametrize("is_killed", [False, True])
def test_message_popped_after_a_loss_of_power_comes_again(rig: Rig, is_killed: bool) -> None:
    """The file with the position in the revive log is on the disk, and none of the notes before it."""
    send(rig, *map(str, range(24)))
    peer = rig.peer()
    for _ in range(24):
        peer.popped(maxMsgNums=1, invisibleTime=1_000)
    rig.pass_time(20_000)
    assert b"CID_RMQ_SYS_REVIVE_GROUP" in rig.files["offsets"]
    rig.lose_power()
    send(rig, "one")
    assert list(rig.peer().popped(consumerGroup="other", invisibleTime=1_000)) == ["one"]
    if is_killed:
        rig.pass_time(1_000)
        rig.crash()
    assert list(pop_again(rig, rig.peer(), consumerGroup="other")) == ["one"]


def test_nothing_is_revived_before_all_acknowledgements_are_read(rig: Rig) -> None:
    bodies = [str(number) for number in range(150)]
    send(rig, *bodies)
    peer = rig.peer()
    for body in bodies:
        assert peer.acknowledge(peer.popped(maxMsgNums=1)[body]).code == ResponseCode.SUCCESS
    rig.stop()
    # One step brings the checkpoints into the log, and only the next the rest of the acknowledgements.
    rig.wall_ms += HOUR_MS
    rig.pass_time(5_000)
    assert rig.messages(RETRY) == []


def test_revive_log_is_gone_through_once(rig: Rig) -> None:
    send(rig, "one")
    peer = rig.peer()
    peer.popped()
    assert list(pop_again(rig, peer, invisibleTime=HOUR_MS)) == ["one"]
    rig.stop()
    rig.pass_time(20_000)
    assert len(rig.messages(RETRY)) == 1


def test_notes_that_cannot_be_read_are_passed_over(rig: Rig) -> None:
    peer = rig.peer()
    for tag, body in (("ck", b"{"), ("ck", b'{"n":99}'), ("ack", b"[1]"), ("other", b"{}"), ("ck", b"\xff")):
        rig.plant(REVIVE, body, {"TAGS": tag})
    point = {"so": 0, "pt": 1, "it": 1, "n": 1, "q": 0, "t": "t", "c": "g", "d": [7]}
    for changes in ({}, {"t": "none"}, {"t": "%RETRY%other_t"}, {"c": ""}, {"q": 9}):
        rig.plant(REVIVE, json.dumps({**point, **changes}).encode(), {"TAGS": "ck"})
    send(rig, "one")
    peer.popped()
    assert list(pop_again(rig, peer)) == ["one"]


def test_group_or_topic_that_is_gone_has_nothing_revived(rig: Rig) -> None:
    rig.topics.put(TopicConfig("u", 1, 1), rig.wall_ms)
    peer = rig.peer()
    peer.send(b"one", topic="u")
    assert list(peer.popped("u")) == ["one"]
    rig.topics.delete("u", rig.wall_ms)
    rig.pass_time(15_000)
    assert "%RETRY%g_u" not in rig.topics.table


def test_store_with_no_room_hands_out_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from broker.rocketmq.store.errors import DiskFull

    send(rig, "one")
    peer = rig.peer()

    def full(*_: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "put", full)
        number = peer.pop(pollTime=5_000)
        assert peer.answer(number) is None
        rig.pass_time(100)
    rig.pass_time(6_000)
    answer = peer.answer(number)
    assert answer is not None
    assert list(handles(answer, "broker-g")) == ["one"]


def test_other_clusters_have_other_revive_logs() -> None:
    rig = Rig(replace(OPTIONS, cluster="Other", revive_queues=1))
    send(rig, "one")
    peer = rig.peer()
    assert list(peer.popped(invisibleTime=0)) == ["one"]
    assert len(rig.messages("rmq_sys_REVIVE_LOG_Other")) == 1
    assert rig.messages(TIMERS) == []
    assert list(pop_again(rig, peer, 2_500)) == ["one"]


def test_log_is_on_the_disk_before_a_file_says_what_was_done(rig: Rig) -> None:
    rig.is_sync = True
    for number in range(12):
        send(rig, str(number), DELAY="1")
        send(rig, str(number))
        rig.peer().popped(invisibleTime=3_000)
        rig.peer().popped(group="h", order="true")
        rig.pass_time(900)
    written = {name: rig.unflushed[name] for name in ("offsets", "orders", "delays", "timers")}
    assert written == dict.fromkeys(written, 0)


def test_checkpoints_of_one_millisecond_keep_the_messages_of_both() -> None:
    queue = ReviveQueue(0, "broker-g")
    many = CheckPoint(3, 1_000, 5_000, 4, 0, "t", "g", "broker-g", [0, 1, 2, 3])
    queue.take(many, 10, 1_000)
    queue.take(AckNote(4, 3, "g", "t", 0, 1_000, "broker-g"), 11, 1_500)
    queue.take(many._replace(queue_id=1), 12, 1_000)
    queue.take(many._replace(invisible_ms=9_000, message_count=1, differences=[0]), 13, 1_000)
    queue.take(AckNote(6, 3, "g", "t", 0, 1_000, "broker-g"), 14, 2_000)
    found = queue.first_over(60_000)
    assert found is not None
    # It stays the first, as a restart needs the earlier of both.
    assert found[1:] == ([3, 5], 10)


def test_checkpoint_that_replaces_another_goes_after_all_and_keeps_its_acknowledgements() -> None:
    queue = ReviveQueue(0, "broker-g")
    point = CheckPoint(3, 1_000, 5_000, 2, 0, "t", "g", "broker-g", [0, 1])
    queue.take(point, 10, 1_000)
    queue.take(AckNote(4, 3, "g", "t", 0, 1_000, "broker-g"), 11, 1_500)
    queue.take(point._replace(queue_id=1), 12, 1_000)
    queue.take(point._replace(differences=[0, 1, 2], message_count=3), 13, 1_000)
    assert [found[1:] for found in _over(queue)] == [([3, 4], 12), ([3, 5], 13)]


def _over(queue: ReviveQueue) -> Iterator[tuple[CheckPoint, list[int], int]]:
    while (found := queue.first_over(60_000)) is not None:
        yield found
        queue.drop_first()
