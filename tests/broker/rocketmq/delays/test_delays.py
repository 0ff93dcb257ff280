"""Messages with a delay level, messages that are sent back, and dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rocketmq.delays.levels import STEP_MESSAGES
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import Peer, Rig


def properties_of(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)


@pytest.mark.parametrize(("level", "delay_ms"), [(1, 1_000), (2, 5_000), (18, 7_200_000), (99, 7_200_000)])
def test_delayed_message_comes_when_it_is_due(level: int, delay_ms: int) -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"late", {"DELAY": str(level), "TAGS": "a"})
    rig.wall_ms += delay_ms - 1
    rig.broker.tick()
    rig.broker.end_step()
    assert rig.messages("t") == []
    opaque = peer.pull(sysFlag=6)
    assert peer.answer(opaque) is None
    rig.pass_time(1)
    answer = peer.answer(opaque)
    assert answer is not None
    (record,) = records_of(answer)
    assert (record.topic, record.queue_id, bytes(record.body)) == ("t", 0, b"late")
    assert record.stored_ms == rig.wall_ms
    assert properties_of(record)["REAL_TOPIC"] == "t"


def test_delayed_messages_of_a_level_keep_their_order_and_come_once() -> None:
    rig = Rig()
    peer = rig.peer()
    for number in range(STEP_MESSAGES + 50):
        peer.send(b"%d" % number, {"DELAY": "1"})
    rig.pass_time(1_000)
    assert [int(bytes(each.body)) for each in rig.messages("t")] == list(range(STEP_MESSAGES + 50))
    rig.pass_time(5_000)
    assert len(rig.messages("t")) == STEP_MESSAGES + 50


def test_delays_go_on_behind_a_stop() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"one", {"DELAY": "1"})
    rig.pass_time(1_000)
    peer.send(b"two", {"DELAY": "2"})
    rig.stop()
    assert DELAY_OFFSETS.read(rig.files["delays"]).offset_table == {1: 1}
    rig.pass_time(5_000)
    assert [bytes(each.body) for each in rig.messages("t")] == [b"one", b"two"]


def test_nothing_is_lost_by_a_crash_and_little_comes_twice() -> None:
    """Progress is written every ten seconds: what was delivered after that is delivered again."""
    rig = Rig()
    peer = rig.peer()
    peer.send(b"one", {"DELAY": "1"})
    rig.pass_time(20_000)
    peer = rig.peer()
    peer.send(b"two", {"DELAY": "1"})
    rig.pass_time(1_000)
    rig.crash()
    rig.pass_time(1_000)
    assert [bytes(each.body) for each in rig.messages("t")] == [b"one", b"two", b"two"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_message_after_a_loss_of_power_is_not_taken_for_one_that_it_took(is_killed: bool) -> None:
    """The file with the progress is on the disk, and none of the messages that it counts."""
    rig = Rig()
    for _ in range(3):
        rig.peer().send(b"lost", {"DELAY": "1"})
        rig.pass_time(20_000)
    assert DELAY_OFFSETS.read(rig.files["delays"]).offset_table == {1: 3}
    rig.lose_power()
    for number in range(4):
        rig.peer().send(b"%d" % number, {"DELAY": "1"})
    if is_killed:
        rig.crash()
    rig.pass_time(1_000)
    assert [bytes(each.body) for each in rig.messages("t")] == [b"0", b"1", b"2", b"3"]


def test_clock_that_was_set_back_keeps_nobody_waiting_longer() -> None:
    rig = Rig()
    rig.peer().send(b"late", {"DELAY": "1"})
    rig.wall_ms -= 3_600_000
    rig.pass_time(1_000)
    assert len(rig.messages("t")) == 1


def test_full_disk_delays_the_delayed() -> None:
    rig = Rig()
    rig.peer().send(b"late" * 1250, {"DELAY": "1"})
    log = rig.folder.folder("commitlog")
    free, log.free = log.free, 0
    rig.pass_time(2_000)
    assert rig.messages("t") == []
    log.free = free
    rig.pass_time(1_000)
    assert [bytes(each.body) for each in rig.messages("t")] == [b"late" * 1250]


def send_back(peer: Peer, record: Record, **changes: Any) -> ResponseCode:
    fields = {"group": "g", "offset": record.physical_offset, "delayLevel": 0, "originTopic": record.topic}
    return ResponseCode(peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, **{**fields, **changes}).code)


def test_message_that_is_sent_back_comes_again_later_each_time() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"hard", {"KEYS": "k", "UNIQ_KEY": "U"})
    (record,) = peer.pulled()
    origin = "7F000001000051AF" + f"{record.physical_offset:016X}"
    for times, delay_ms in enumerate((10_000, 30_000, 60_000), 1):
        assert send_back(peer, record) == ResponseCode.SUCCESS
        rig.pass_time(delay_ms - 100)
        assert len(rig.messages("%RETRY%g")) == times - 1
        rig.pass_time(100)
        record = rig.messages("%RETRY%g")[-1]
        assert record.reconsume_times == times
        found = properties_of(record)
        assert (found["RETRY_TOPIC"], found["ORIGIN_MESSAGE_ID"], found["KEYS"]) == ("t", origin, "k")


def test_message_that_was_retried_too_often_is_a_dead_letter() -> None:
    rig = Rig()
    rig.groups.put(GroupConfig("g", retry_max_times=1), 0)
    peer = rig.peer()
    peer.send(b"hard")
    (record,) = peer.pulled()
    send_back(peer, record, delayLevel=1)
    rig.pass_time(1_000)
    (record,) = rig.messages("%RETRY%g")
    send_back(peer, record)
    (dead,) = rig.messages("%DLQ%g")
    assert (bytes(dead.body), dead.reconsume_times) == (b"hard", 2)
    assert (properties_of(dead)["DELAY"], properties_of(dead)["RETRY_TOPIC"]) == ("0", "t")


@pytest.mark.parametrize("changes", [{"delayLevel": -1}, {"maxReconsumeTimes": 0}])
def test_consumer_may_give_up_at_once(changes: dict[str, int]) -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"hard")
    send_back(peer, peer.pulled()[0], **changes)
    assert len(rig.messages("%DLQ%g")) == 1


def test_group_without_retries_drops_what_is_sent_back() -> None:
    rig = Rig()
    rig.groups.put(GroupConfig("g", retry_queue_nums=0), 0)
    peer = rig.peer()
    peer.send(b"hard")
    assert send_back(peer, peer.pulled()[0]) == ResponseCode.SUCCESS
    rig.pass_time(11_000)
    assert rig.messages("%RETRY%g") == []


def test_message_that_is_not_there_cannot_be_sent_back() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"hard")
    (record,) = peer.pulled()
    for offset in (-1, 1, record.physical_offset + 5, 1 << 40):
        assert send_back(peer, record, offset=offset) == ResponseCode.SYSTEM_ERROR


def test_message_sent_to_a_retry_topic_too_often_is_a_dead_letter() -> None:
    rig = Rig()
    peer = rig.peer()
    assert peer.send(b"one", {"DELAY": "1"}, topic="%RETRY%g", j=16).code == ResponseCode.SUCCESS
    assert peer.send(b"two", {"DELAY": "1"}, topic="%RETRY%g", j=17).code == ResponseCode.SUCCESS
    assert peer.send(b"three", {"DELAY": "1"}, topic="%RETRY%g", j=3, l=2).code == ResponseCode.SUCCESS
    rig.pass_time(1_000)
    assert [bytes(each.body) for each in rig.messages("%RETRY%g")] == [b"one"]
    assert [bytes(each.body) for each in rig.messages("%DLQ%g")] == [b"two", b"three"]
    assert properties_of(rig.messages("%DLQ%g")[0])["DELAY"] == "-1"


def test_waiting_message_creates_the_topic_that_this_master_has_never_got() -> None:
    rig = Rig()
    rig.peer().send(b"one", {"DELAY": "1"})
    rig.lead_without("t").pass_time(1_000)
    assert [bytes(each.body) for each in rig.messages("t")] == [b"one"]
    assert rig.topics.get("t") == TopicConfig("t", 8, 8, 6)


def test_waiting_message_leaves_a_topic_deleted() -> None:
    rig = Rig()
    rig.peer().send(b"one", {"DELAY": "1"})
    rig.topics.begin_epoch(2, rig.wall_ms, {})
    rig.topics.delete("t", rig.wall_ms)
    rig.pass_time(1_000)
    assert rig.topics.get("t") is None


def test_waiting_message_creates_no_topic_without_a_group() -> None:
    rig = Rig()
    rig.peer().send(b"one", {"DELAY": "1"})
    version = rig.topics.version
    rig.topics.follow({}, version._replace(counter=99))
    rig.pass_time(1_000)
    assert rig.topics.get("t") is None
