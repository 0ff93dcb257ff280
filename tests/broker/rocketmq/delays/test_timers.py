"""Messages with delivery times, and messages recalled before theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.rocketmq.delays.timers import PRECISION_MS, STEP_MESSAGES
from formats.rocketmq.files.checkpoints import TIMER_CHECKPOINT, TimerCheckpoint
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.rig import OPTIONS, Peer, Rig

TIMERS = "rmq_sys_wheel_timer"


def bodies(rig: Rig, topic: str = "t") -> list[bytes]:
    return [bytes(record.body) for record in rig.messages(topic)]


@pytest.mark.parametrize(
    ("name", "value", "delay_ms"),
    [
        ("TIMER_DELAY_SEC", "4", 4_000),
        ("TIMER_DELAY_MS", "2500", 2_500),
        ("TIMER_DELIVER_MS", "1700000003000", 3_000),
        ("TIMER_DELIVER_MS", "1700000003001", 3_001),
    ],
)
def test_message_comes_at_its_time_and_not_before(name: str, value: str, delay_ms: int) -> None:
    rig = Rig()
    rig.peer().send(b"late", {name: value, "UNIQ_KEY": "U"})
    rig.pass_time(delay_ms - 1)
    assert bodies(rig) == []
    rig.pass_time(PRECISION_MS)
    (record,) = rig.messages("t")
    properties = decode_properties(record.properties)
    assert (bytes(record.body), properties["REAL_TOPIC"], "TIMER_DEQUEUE_MS" in properties) == (b"late", "t", True)


@pytest.mark.parametrize("is_killed", [False, True])
def test_message_after_a_loss_of_power_is_not_taken_for_one_that_it_took(is_killed: bool) -> None:
    """The checkpoint is on the disk, and none of the messages that it counts."""
    rig = Rig()
    for _ in range(3):
        rig.peer().send(b"lost", {"TIMER_DELAY_SEC": "1"})
        rig.pass_time(20_000)
    assert TIMER_CHECKPOINT.unpack(rig.files["timers"]).queue_offset == 3
    rig.lose_power()
    for number in range(4):
        rig.peer().send(b"%d" % number, {"TIMER_DELAY_SEC": str(number + 1)})
    if is_killed:
        rig.crash()
    rig.pass_time(6_000)
    assert bodies(rig) == [b"0", b"1", b"2", b"3"]


def test_time_that_is_over_is_no_delay() -> None:
    rig = Rig()
    answer = rig.peer().send(b"now", {"TIMER_DELIVER_MS": str(rig.wall_ms)})
    assert bodies(rig) == [b"now"]
    assert answer.ext_fields is not None
    assert "recallHandle" not in answer.ext_fields


def test_time_that_is_too_far_is_refused() -> None:
    rig = Rig()
    longest_ms = rig.options.timer_delay_max_s * 1000
    assert longest_ms == 3 * 86_400_000
    answer = rig.peer().send(b"", {"TIMER_DELIVER_MS": str(rig.wall_ms + longest_ms + 1)})
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.peer().send(b"", {"TIMER_DELIVER_MS": str(rig.wall_ms + longest_ms)}).code == ResponseCode.SUCCESS


def test_longest_time_is_a_property_that_administrators_change() -> None:
    rig = Rig(replace(OPTIONS, timer_delay_max_s=40 * 86_400))
    peer = rig.peer()
    later = rig.wall_ms + 30 * 86_400_000
    assert peer.send(b"late", {"TIMER_DELIVER_MS": str(later)}).code == ResponseCode.SUCCESS
    rig.stop()
    assert bodies(rig) == []
    rig.wall_ms = later + 2_000
    rig.pass_time(100)
    assert bodies(rig) == [b"late"]
    peer = rig.peer()
    assert peer.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"timerMaxDelaySec=60").code == ResponseCode.SUCCESS
    assert peer.send(b"", {"TIMER_DELAY_SEC": "61"}).code == ResponseCode.MESSAGE_ILLEGAL
    assert peer.send(b"", {"TIMER_DELAY_SEC": "60"}).code == ResponseCode.SUCCESS
    # A popped message may be hidden for longer.
    assert peer.send(b"popped").code == ResponseCode.SUCCESS


def test_delay_level_goes_before_a_time() -> None:
    rig = Rig()
    rig.peer().send(b"late", {"TIMER_DELAY_SEC": "60", "DELAY": "1"})
    rig.pass_time(1_000)
    assert bodies(rig) == [b"late"]


def test_messages_come_in_the_order_of_their_times() -> None:
    rig = Rig()
    peer = rig.peer()
    for number in (3, 1, 2):
        peer.send(b"%d" % number, {"TIMER_DELAY_SEC": str(number)})
    for _ in range(STEP_MESSAGES + 10):
        peer.send(b"many", {"TIMER_DELAY_SEC": "4"})
    rig.pass_time(5_000)
    assert bodies(rig) == [b"1", b"2", b"3", *[b"many"] * (STEP_MESSAGES + 10)]


def recall(peer: Peer, handle: str, topic: str = "t") -> ResponseCode:
    answer = peer.call(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle, producerGroup="p")
    return ResponseCode(answer.code)


def handle_of(peer: Peer, body: bytes, key: str) -> str:
    answer = peer.send(body, {"TIMER_DELAY_SEC": "5", "UNIQ_KEY": key})
    assert answer.ext_fields is not None
    return answer.ext_fields["recallHandle"]


def test_recalled_message_does_not_come() -> None:
    rig = Rig()
    peer = rig.peer()
    handle = handle_of(peer, b"one", "U1")
    handle_of(peer, b"two", "U2")
    assert recall(peer, handle) == ResponseCode.SUCCESS
    rig.pass_time(10_000)
    assert bodies(rig) == [b"two"]


def test_recall_is_known_behind_a_crash() -> None:
    rig = Rig()
    peer = rig.peer()
    recall(peer, handle_of(peer, b"one", "U1"))
    rig.crash()
    rig.pass_time(10_000)
    assert bodies(rig) == []


@pytest.mark.parametrize("handle", ["", "x", "!!!", "djEgYSBiIGM=", "djEgdCBicm9rZXItZyB4IFU="])
def test_handle_that_is_none_is_refused(handle: str) -> None:
    assert recall(Rig().peer(), handle) == ResponseCode.ILLEGAL_OPERATION


def test_recall_of_another_topic_or_too_late_is_refused() -> None:
    rig = Rig()
    peer = rig.peer()
    handle = handle_of(peer, b"one", "U1")
    assert recall(peer, handle, "none") == ResponseCode.TOPIC_NOT_EXIST
    assert recall(peer, handle, "TBW102") == ResponseCode.ILLEGAL_OPERATION
    rig.pass_time(6_000)
    assert recall(peer, handle) == ResponseCode.ILLEGAL_OPERATION
    assert bodies(rig) == [b"one"]


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_waiting_timers_outlast_the_process(how: str) -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"long", {"TIMER_DELAY_SEC": "60"})
    peer.send(b"short", {"TIMER_DELAY_SEC": "1"})
    rig.pass_time(10_000)
    rig.stop() if how == "stop" else rig.crash()
    checkpoint = TIMER_CHECKPOINT.unpack(rig.files["timers"])
    assert checkpoint.queue_offset == checkpoint.master_queue_offset == 0
    rig.pass_time(60_000)
    assert bodies(rig) == [b"short", b"long"]
    rig.stop()
    assert TIMER_CHECKPOINT.unpack(rig.files["timers"]).queue_offset == 2


def test_timers_of_the_originals_wheel_come_and_delivered_ones_do_not() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"over", {"TIMER_DELAY_SEC": "1"})
    peer.send(b"waits", {"TIMER_DELAY_SEC": "60"})
    read_ms = rig.wall_ms + 10_000
    rig.files["timers"] = TIMER_CHECKPOINT.pack(TimerCheckpoint(read_ms, 104, 2, 2, 0, rig.wall_ms, 5))
    rig.crash()
    rig.pass_time(70_000)
    assert bodies(rig) == [b"waits"]


def test_clock_that_is_set_back_loses_nothing() -> None:
    rig = Rig()
    rig.pass_time(1_000)
    peer = rig.peer()
    peer.send(b"one", {"TIMER_DELAY_SEC": "1"})
    rig.pass_time(3_000)
    rig.wall_ms -= 3_600_000
    peer.send(b"two", {"TIMER_DELAY_SEC": "1"})
    rig.pass_time(3_000)
    assert bodies(rig) == [b"one", b"two"]


def test_foreign_messages_in_the_brokers_own_topic_are_skipped() -> None:
    rig = Rig()
    peer = rig.peer()
    for properties in ({}, {"TIMER_OUT_MS": "x"}, {"TIMER_OUT_MS": "5"}, {"TIMER_OUT_MS": "9" * 30}):
        peer.send(b"strange", properties, topic=TIMERS)
    peer.send(b"late", {"TIMER_DELAY_SEC": "1"})
    rig.pass_time(3_000)
    assert bodies(rig) == [b"late"]
    assert rig.faults.others == 0


def test_prepared_message_with_a_time_waits_for_both() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"one", {"TRAN_MSG": "true", "PGROUP": "p", "TIMER_DELAY_SEC": "5"}, f=4)
    (half,) = rig.messages("RMQ_SYS_TRANS_HALF_TOPIC")
    peer.ask(
        RequestCode.END_TRANSACTION,
        producerGroup="p",
        tranStateTableOffset=0,
        commitLogOffset=half.physical_offset,
        commitOrRollback=8,
        msgId="M",
    )
    assert bodies(rig) == []
    rig.pass_time(6_000)
    assert bodies(rig) == [b"one"]
