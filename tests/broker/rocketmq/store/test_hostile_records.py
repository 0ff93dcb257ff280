"""Stored messages that anybody may have written: whatever is in them, the broker serves the others, also later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.rocketmq.replication.metadata import stored_topics
from broker.rocketmq.replication.options import Role
from broker.rocketmq.store.copying import copy_records
from broker.rocketmq.store.writing import Writer
from formats.rocketmq.files.record import PROPERTIES_BYTES_MAX, decode_record
from formats.rocketmq.flags import Transaction
from formats.rocketmq.properties import decode_properties, encode_properties
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS, ConsumerOffsets
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIG_LIST, TopicConfig, TopicConfigList
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.rig import Peer, Rig
from tests.broker.rocketmq.store.message_store_rig import record_of

TIMERS = "rmq_sys_wheel_timer"
DELAYS = "SCHEDULE_TOPIC_XXXX"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
NOTES = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
REVIVE = "rmq_sys_REVIVE_LOG_GoldenCluster"
CHECKED = "TRANS_CHECK_MAX_TIME_TOPIC"
OWN = (TIMERS, DELAYS, HALF, NOTES, REVIVE, CHECKED)
SYSTEM = (*OWN, "rmq_sys_new", "rmq_sys_SYNC_BROKER_MEMBER_broker-g", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC")

PROPERTIES = (
    *("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"),
    *("TIMER_DEL_UNIQKEY", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DELAY_LEVEL"),
    *("TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS"),
    *("__transactionId__", "PGROUP", "CLUSTER", "UNIQ_KEY", "1ST_POP_TIME", "POP_CK", "POP_CK_OFFSET", "ORIGIN_GROUP"),
    *("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "MAX_RECONSUME_TIMES", "RECONSUME_TIME", "CONSUME_START_TIME"),
    *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "__LITE_TOPIC", "MSG_REGION", "TRACE_ON", "TAGS", "KEYS"),
    *("WAIT", "BORN_TIMESTAMP", "REPLY_TO_CLIENT", "DLQ_ORIGIN_TOPIC", "_SYS_MSG_PRIORITY_"),
)
VALUES = {
    "empty": "",
    "digits": "9" * 5_000,
    "nul": "a\0b",
    "path": "../../x",
    "folder": "..",
    "long": "x" * 300,
    "timers": TIMERS,
    "delays": DELAYS,
    "half": HALF,
    "notes": NOTES,
    "revive": REVIVE,
    "unicode": "\N{ARABIC-INDIC DIGIT THREE}",
    "int": str(1 << 31),
    "int-max": str((1 << 31) - 1),
    "long-int": str(1 << 63),
    "negative": "-1",
    "word": "true",
    "fullwidth": "\N{FULLWIDTH DIGIT SEVEN}",
}
PRODUCER = json.dumps({"clientID": "one", "producerDataSet": [{"groupName": "p"}]}).encode()
# A checkpoint of a later time expires this long after it was read.
LATE_MS = 10_000
# The messages of one rig: far more of them is multiplication.
GROWTH_MAX = 4


def bases(rig: Rig) -> dict[str, tuple[dict[str, str], bytes]]:
    """Properties and bodies of messages that are sound, by the topics in which a broker keeps them."""
    destined = {"REAL_TOPIC": "t", "REAL_QID": "0", "UNIQ_KEY": "U", "PGROUP": "p"}
    point = {"so": 0, "pt": rig.wall_ms, "it": 1_000, "n": 1, "q": 0, "t": "t", "c": "g", "d": [0]}
    return {
        "t": ({"UNIQ_KEY": "U"}, b"x"),
        TIMERS: ({**destined, "TIMER_OUT_MS": str(rig.wall_ms // 1000 * 1000)}, b"x"),
        DELAYS: ({**destined, "DELAY": "1"}, b"x"),
        HALF: ({**destined, "TRAN_MSG": "true"}, b"x"),
        NOTES: ({"TAGS": "d"}, b"0,"),
        REVIVE: ({"TAGS": "ck"}, json.dumps(point).encode()),
        "%RETRY%g_t": ({"UNIQ_KEY": "U", "RETRY_TOPIC": "t"}, b"x"),
    }


def fill(rig: Rig, value: str) -> None:
    """Plant messages with each property of that value into each topic, and with bodies of it."""
    for topic, (sound, body) in bases(rig).items():
        for name in PROPERTIES:
            rig.plant(topic, body, {**sound, name: value})
        rig.plant(topic, value.encode(), sound)


def asked_about(peer: Peer) -> set[bytes]:
    """The bodies of the messages that a producer was asked about."""
    peer.read()
    frames = [frame for frame in peer.asked if frame.code == RequestCode.CHECK_TRANSACTION_STATE]
    return {bytes(decode_record(frame.body).body) for frame in frames}  # type: ignore[union-attr]


def check_serves(rig: Rig, word: str, ms: int = 12_000) -> None:
    """Have a message of each kind sent, and see that it comes."""
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    topic = f"served-{word}"
    rig.topics.put(TopicConfig(topic, 1, 1), rig.wall_ms)
    kinds: dict[bytes, dict[str, str]] = {
        b"plain": {},
        b"delayed": {"DELAY": "1"},
        b"timed": {"TIMER_DELAY_MS": "1500"},
        b"committed": {"TRAN_MSG": "true", "PGROUP": "p"},
        b"forgotten": {"TRAN_MSG": "true", "PGROUP": "p"},
    }
    for body, properties in kinds.items():
        answer = peer.send(word.encode() + body, {"UNIQ_KEY": word + body.decode(), **properties}, topic, f=0)
        assert answer.code == ResponseCode.SUCCESS
    half = next(each for each in rig.messages(HALF) if bytes(each.body) == word.encode() + b"committed")
    fields: dict[str, Any] = {
        "producerGroup": "p",
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical_offset,
        "commitOrRollback": int(Transaction.COMMIT),
        "msgId": "M",
    }
    assert peer.call(RequestCode.END_TRANSACTION, **fields).code == ResponseCode.SUCCESS
    group = f"group-{word}"
    assert set(peer.popped(topic, group, invisibleTime=2_000)) == {f"{word}plain", f"{word}committed"}
    rig.pass_time(ms)
    stored = {bytes(each.body) for each in rig.messages(topic)}
    assert stored == {word.encode() + body for body in kinds if body != b"forgotten"}
    again = {bytes(each.body) for each in rig.messages(f"%RETRY%{group}_{topic}")}
    assert {f"{word}plain".encode(), f"{word}committed".encode()} <= again
    assert word.encode() + b"forgotten" in asked_about(peer)


def follower(rig: Rig) -> Rig:
    """A slave that has taken the whole log of a broker, and is its successor."""
    slave = Rig()
    slave.wall_ms = rig.wall_ms
    slave.replication.role = Role.SLAVE
    slave.broker.change_role(slave.given())
    data = b"".join(bytes(file.buffer) for file in rig.store.log.files.files)[: rig.store.log.end]
    assert copy_records(slave.store, 0, memoryview(data), slave.broker.copied) == len(data)
    for topic in slave.topics.begin_epoch(2, slave.wall_ms, stored_topics(slave.store)):
        assert slave.topics.table[topic].read_queue_nums <= 65_536
    slave.replication.role = Role.SYNC_MASTER
    slave.broker.change_role(slave.given())
    return slave


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_broker_serves_whatever_is_in_its_store(value: str) -> None:
    rig = Rig()
    fill(rig, value)
    before = rig.store.log.end
    rig.pass_time(10_000)
    check_serves(rig, "first")
    assert rig.store.log.end < GROWTH_MAX * before + (1 << 20)
    rig.stop()
    check_serves(rig, "second")
    rig.crash()
    check_serves(rig, "third")
    check_serves(follower(rig), "fourth")
    assert rig.faults.others == rig.faults.of_sessions == 0
    assert all(
        topic not in ("", ".", "..") and "/" not in topic for topic in rig.folder.folder("consumequeue").folders()
    )


def sends(peer: Peer, topic: str, properties: dict[str, str]) -> Iterator[Frame]:
    """Send a message in each way that there is."""
    text = encode_properties(properties).decode()
    yield peer.send(b"x", properties, topic)
    yield peer.send(b"x", {"TRAN_MSG": "true", "PGROUP": "p", **properties}, topic)
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": peer.rig.wall_ms, "h": 0, "i": text}
    body = bytes(4)
    data = encode_properties(properties)
    body += bytes(8) + (1).to_bytes(4, "big") + b"x" + len(data).to_bytes(2, "big") + data
    body = (len(body)).to_bytes(4, "big") + body[4:]
    yield peer.call(RequestCode.SEND_BATCH_MESSAGE, body, **{**fields, "m": "true"})
    yield peer.call(RequestCode.SEND_REPLY_MESSAGE_V2, b"x", **fields)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_clients_may_give_each_property_any_value(value: str) -> None:
    rig = Rig()
    peer = rig.peer()
    for name in PROPERTIES:
        for answer in sends(peer, "t", {"UNIQ_KEY": "U", name: value}):
            assert answer.code in (
                *(ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER),
                ResponseCode.SYSTEM_ERROR,
            )
    rig.pass_time(5_000)
    for number in range(len(rig.messages("t"))):
        fields: dict[str, Any] = {"offset": rig.messages("t")[number].physical_offset, "delayLevel": number % 3 - 1}
        peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, group="g", **fields)
    while peer.popped(invisibleTime=1_000):
        pass
    check_serves(rig, "first")
    rig.stop()
    check_serves(rig, "second")
    assert rig.faults.others == rig.faults.of_sessions == 0


@pytest.mark.parametrize("topic", SYSTEM)
def test_clients_send_to_no_topic_of_the_broker(topic: str) -> None:
    rig = Rig()
    end = rig.store.log.end
    for answer in sends(rig.peer(), topic, {"UNIQ_KEY": "U"}):
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"Sending message to topic[{topic}] is forbidden."
    assert rig.store.log.end == end


@pytest.mark.parametrize(
    "topic", ["BenchmarkTest", "GoldenCluster", "broker-g", "GoldenCluster_REPLY_TOPIC", "rmq_sys_TRACE_DATA_x", "t"]
)
def test_clients_send_to_the_other_topics(topic: str) -> None:
    assert Rig().peer().send(b"x", {"UNIQ_KEY": "U"}, topic).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "topic", [*SYSTEM, "TBW102", "BenchmarkTest", "GoldenCluster", "broker-g", "GoldenCluster_REPLY_TOPIC"]
)
def test_requests_cannot_change_or_delete_a_system_topic(topic: str) -> None:
    rig = Rig()
    peer = rig.peer()
    before = dict(rig.topics.table)
    fields: dict[str, Any] = {"topic": topic, "defaultTopic": "x", "readQueueNums": 0, "writeQueueNums": 0, "perm": 6}
    listed = TOPIC_CONFIG_LIST.write(TopicConfigList([TopicConfig(topic, 0, 0)]))
    answers = [
        peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topicFilterType="SINGLE_TAG", order="false", **fields),
        peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, listed),
        peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic),
    ]
    text = f"The topic[{topic}] is conflict with system topic."
    assert [(each.code, each.remark) for each in answers] == [(ResponseCode.INVALID_PARAMETER, text)] * 3
    assert rig.topics.table == before


def test_waiting_timers_outlast_a_deletion_of_their_topic() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"late", {"TIMER_DELAY_MS": "3000"})
    peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TIMERS)
    rig.pass_time(5_000)
    assert [bytes(each.body) for each in rig.messages("t")] == [b"late"]


@pytest.mark.parametrize(
    ("kept", "destined"),
    [(kept, destined) for kept in (TIMERS, DELAYS) for destined in (*OWN, "rmq_sys_REVIVE_LOG_Other")],
)
def test_due_message_goes_to_no_topic_of_the_broker(kept: str, destined: str) -> None:
    rig = Rig()
    for _ in range(20):
        properties = {"REAL_TOPIC": destined, "REAL_QID": "0", "TIMER_OUT_MS": "1", "DELAY": "1"}
        rig.plant(kept, b"x", properties)
    stored = len(rig.messages(destined))
    rig.pass_time(10_000)
    # Notes of popped messages wait among the timers; these are none, and skipped there.
    expected = 20 if (kept, destined) == (TIMERS, REVIVE) else 0
    assert len(rig.messages(destined)) - stored == expected
    check_serves(rig, "later")


def test_due_message_of_a_queue_that_its_topic_has_no_more_is_in_another() -> None:
    rig = Rig()
    rig.plant(DELAYS, b"x", {"REAL_TOPIC": "t", "REAL_QID": str((1 << 31) - 1), "DELAY": "1"})
    rig.plant(TIMERS, b"y", {"REAL_TOPIC": "t", "REAL_QID": "9", "TIMER_OUT_MS": "1"})
    rig.pass_time(5_000)
    assert {bytes(each.body) for each in rig.messages("t")} == {b"x", b"y"}


@pytest.mark.parametrize("later_ms", [LATE_MS, 3 * 24 * 3_600_000, 1 << 61])
def test_a_checkpoint_of_a_late_time_holds_up_nobody(later_ms: int) -> None:
    rig = Rig()
    point = {"so": 0, "pt": rig.wall_ms + later_ms, "it": 1_000, "n": 1, "q": 0, "t": "t", "c": "g", "d": [0]}
    for queue_id in range(rig.options.revive_queues):
        rig.plant(REVIVE, json.dumps(point).encode(), {"TAGS": "ck"}, queue_id)
    check_serves(rig, "first", LATE_MS + 10_000)
    rig.stop()
    check_serves(rig, "second", LATE_MS + 10_000)
    check_serves(follower(rig), "third", LATE_MS + 10_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"born_ms": 1 << 61},
        {"born_ms": -(1 << 61)},
        {"reconsume_times": (1 << 31) - 1},
        {"reconsume_times": -(1 << 31)},
        {"flag": (1 << 31) - 1},
        {"properties": b"\xff" * 0x7FFF},
        {"properties": b"X\1" + b"x" * 0x7FF0 + b"\2"},
    ],
)
def test_numbers_and_sizes_at_their_bounds_hold_up_nobody(fields: dict[str, Any]) -> None:
    rig = Rig()
    for topic, (sound, body) in bases(rig).items():
        # The sound properties first, and then as much as there is room for.
        properties = (encode_properties(sound) + fields.get("properties", b""))[:PROPERTIES_BYTES_MAX]
        message = rig.plant_message(topic, body, sound)._replace(**{**fields, "properties": properties})
        Writer(rig.store).put(message, rig.wall_ms)
    half = rig.messages(HALF)[-1]
    peer = rig.peer()
    for topic in ("t", TIMERS, HALF):
        offset = rig.messages(topic)[0].physical_offset
        peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, group="g", offset=offset, delayLevel=0)
    assert decode_properties(half.properties)["REAL_TOPIC"] == "t"
    peer.popped(invisibleTime=1_000)
    check_serves(rig, "first")
    rig.stop()
    check_serves(rig, "second")
    assert rig.faults.others == rig.faults.of_sessions == 0


def test_half_messages_born_later_hold_up_nobody() -> None:
    rig = Rig()
    for number in range(50):
        sound, body = bases(rig)[HALF]
        rig.plant(HALF, body, {**sound, "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, born_ms=rig.wall_ms + number * 2_000)
        rig.plant(HALF, body, sound, born_ms=rig.wall_ms + number * 2_000)
    check_serves(rig, "first")


def test_a_transaction_of_a_topic_with_a_long_name_is_asked_about() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    topic = "%RETRY%" + "g" * 100 + "_" + "t" * 100
    sound, _ = bases(rig)[HALF]
    rig.plant(HALF, b"long", {**sound, "REAL_TOPIC": topic})
    rig.pass_time(10_000)
    assert b"long" in asked_about(peer)


@pytest.mark.parametrize(
    ("topic", "group"),
    [(REVIVE, "CID_RMQ_SYS_REVIVE_GROUP"), (HALF, "CID_RMQ_SYS_TRANS"), (NOTES, "CID_RMQ_SYS_TRANS")],
)
def test_clients_do_not_change_how_far_the_broker_has_read(topic: str, group: str) -> None:
    rig = Rig()
    peer = rig.peer()
    rig.groups.find(group, rig.wall_ms)
    fields: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1 << 60, **fields)
    peer.pull(topic, 0, group, sysFlag=5, commitOffset=1 << 60)
    peer.pop(topic, group)
    assert rig.offsets.get(topic, group, 0) is None
    rig.offsets.follow(CONSUMER_OFFSETS.write(ConsumerOffsets({f"{topic}@{group}": {0: 7}})))
    peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group, cleanOffset="true")
    assert rig.offsets.get(topic, group, 0) == 7


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [
        ("", 0),
        (".", 0),
        ("..", 0),
        ("../../x", 0),
        ("a\0b", 0),
        ("t" * 256, 0),
        ("ü" * 128, 0),
        ("t", -1),
        ("t", 1 << 31),
    ],
)
def test_store_takes_no_message_of_a_queue_that_it_could_not_open_again(topic: str, queue_id: int) -> None:
    rig = Rig()
    end, folders = rig.store.log.end, rig.folder.folder("consumequeue").folders()
    with pytest.raises(Exception, match="there can be no queue"):
        rig.plant(topic, b"x", {}, queue_id)
    assert (rig.store.log.end, rig.folder.folder("consumequeue").folders()) == (end, folders)
    # The log has it, as one that was written by another broker may.
    front = rig.store.log.read(rig.plant("t", b"x", {"UNIQ_KEY": "U"}).offset).record
    if queue_id <= (1 << 31) - 1:
        log, message = rig.store.log, rig.plant_message(topic, b"x", {}, queue_id)
        log.append(log.end, memoryview(record_of(message, log.end, 0, front.stored_ms)))
    rig.crash()
    assert rig.store.queue_table.misplaced.count == (queue_id <= (1 << 31) - 1)
    assert rig.folder.folder("consumequeue").folders() == sorted({*folders, "t"})
    check_serves(rig, "first")
    check_serves(follower(rig), "second")
