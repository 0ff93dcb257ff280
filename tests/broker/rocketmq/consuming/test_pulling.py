"""Consumers: what they get of a queue and when, their groups and their offsets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.rocketmq.consuming.pulling import HELD_MAX, RESPONSE, Puller, PullFlag
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.clients import EXPIRED_MS, Clients, ConsumerGroup
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.services import Services
from broker.rocketmq.tables.statistics import Statistics
from broker.rocketmq.tables.topics import Topics
from broker.shell.files.folders import FileFolder
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.java import string_hash
from formats.rocketmq.remoting.bodies.clients import GroupConfig, Subscription, read_heartbeat
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, next_frame
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import GOLDEN, make_message
from tests.golden.rocketmq.captures import CAPTURES, streams
from tests.golden.rocketmq.stores import unpack

PORT = 20911
NOW_MS = 1_000_000
OPTIONS = BrokerOptions("GoldenCluster", "broker-g", address=Host("127.0.0.1", PORT))


class Consumers:
    """A puller over a store, and somebody who asks it."""

    def __init__(
        self,
        store: MessageStore | None = None,
        *,
        options: BrokerOptions = OPTIONS,
        auto_create: bool = True,
        held_max: int = HELD_MAX,
    ) -> None:
        self.store = store or open_store(MemoryFolder(), StoreOptions(1 << 20, 2000, 50, 400), lambda ms: f"{ms:017d}")
        self.topics = Topics(options, b"", lambda _: None)
        self.topics.put(TopicConfig("t", 4, 4), 0)
        self.groups = Groups(b"", lambda _: None, auto_create=auto_create)
        self.offsets = Offsets(b"")
        self.clients = Clients()
        services = Services(
            options, self.topics, self.groups, self.offsets, self.clients, self.store, Statistics("c", 0)
        )
        self.scheduler = services.scheduler
        self.puller = Puller(services, self.failed, held_max)
        self.failures: list[object] = []
        self.answers: list[Frame] = []

    def failed(self, connection: object, error: Exception) -> None:
        self.failures.append(connection)

    def put(self, number: int, **changes: Any) -> None:
        message = make_message(number, topic="t", **changes)
        Writer(self.store).put(message, NOW_MS)
        self.puller.arrived("t", message.queue_id, NOW_MS)
        self.scheduler.run(NOW_MS)

    def expire(self, now_ms: int) -> None:
        self.puller.expire(now_ms)
        self.scheduler.run(now_ms)

    def pull(self, connection: object = None, **fields: Any) -> Frame | None:
        """Pull with a subscription to everything; the answer, or None if the request is held."""
        header = {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": 0,
            "queueOffset": 0,
            "maxMsgNums": 32,
            "sysFlag": int(PullFlag.SUBSCRIPTION),
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subscription": "*",
            "subVersion": 1,
            **fields,
        }
        told = {name: str(value) for name, value in header.items()}
        before = len(self.answers)
        self.puller.pull(told, connection, NOW_MS, self.answers.append)
        return self.answers[-1] if len(self.answers) > before else None


def numbers(answer: Frame | None) -> list[int]:
    """The numbers of the messages that an answer carries."""
    assert answer is not None
    found: list[int] = []
    at = 0
    while at < len(answer.body):
        record = decode_record(answer.body, at)
        assert isinstance(record, Record)
        found.append(int(bytes(record.body)))
        at += int.from_bytes(answer.body[at : at + 4], "big")
    return found


def test_captured_pulls_get_the_same_messages(tmp_path: Path) -> None:
    """Each pull gets what the golden store had by then, which is the front of what it has in the end."""
    (golden,) = unpack("store", tmp_path, without=("timerwheel", "timerlog"))
    store = open_store(FileFolder(golden), GOLDEN, lambda ms: f"{ms:017d}")
    consumers = Consumers(store)
    golden_topics = Topics(OPTIONS, (golden / "config/topics.json").read_bytes(), lambda _: None)
    consumers.topics.put_all(golden_topics.table.values(), 0)
    compared = 0
    for capture in (each for each in CAPTURES if each.startswith("pcap/") and "sql" not in each):
        frames: dict[tuple[int, int, bool], Frame] = {}
        for stream in streams(capture):
            view, at = memoryview(stream.data), 0
            while PORT in (stream.source, stream.target) and (found := next_frame(view, at, len(view))) is not None:
                frame, at = found
                port = stream.target if frame.is_response else stream.source
                frames[port, frame.opaque, frame.is_response] = frame
        for (port, _, is_response), frame in frames.items():
            if frame.code == RequestCode.HEART_BEAT and not is_response:
                consumers.clients.heard(read_heartbeat(frame.body), (capture, port), NOW_MS)
        for (port, opaque, is_response), request in frames.items():
            theirs = frames.get((port, opaque, True))
            if is_response or theirs is None or request.code not in (11, 361) or theirs.code != ResponseCode.SUCCESS:
                continue
            answers: list[Frame] = []
            consumers.puller.pull(request.ext_fields or {}, None, NOW_MS, answers.append)
            (ours,) = answers
            assert ours.code == ResponseCode.SUCCESS
            assert bytes(ours.body).startswith(bytes(theirs.body))
            ours_header, theirs_header = RESPONSE.read(ours.ext_fields), RESPONSE.read(theirs.ext_fields)
            assert ours_header.next_begin_offset >= theirs_header.next_begin_offset
            assert ours_header.min_offset == theirs_header.min_offset
            if ours_header.max_offset == theirs_header.max_offset:
                assert ours == theirs._replace(body=ours.body, opaque=0, flag=0, version=0, ext_fields=ours.ext_fields)
                assert ours.ext_fields == theirs.ext_fields
                assert ours.body == theirs.body
            compared += 1
    store.close()
    assert compared > 50


def test_messages_come_in_the_order_of_their_queue() -> None:
    consumers = Consumers()
    for number in range(40):
        consumers.put(number, queue_id=number % 2)
    first = consumers.pull()
    assert numbers(first) == list(range(0, 40, 2))
    assert first is not None
    assert (first.code, first.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert first.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "20",
        "minOffset": "0",
        "maxOffset": "20",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    assert numbers(consumers.pull(queueOffset=18)) == [36, 38]
    assert numbers(consumers.pull(maxMsgNums=3)) == [0, 2, 4]


def test_answer_is_bounded_but_never_empty() -> None:
    consumers = Consumers()
    for number in range(3):
        consumers.put(number, size=200_000)
    assert numbers(consumers.pull()) == [0]
    for number in range(3, 50):
        consumers.put(number, queue_id=1)
    assert len(numbers(consumers.pull(queueId=1, maxMsgNums=1000))) == 32


def test_tags_choose() -> None:
    consumers = Consumers()
    for number in range(10):
        consumers.put(number)
    assert numbers(consumers.pull(subscription="odd")) == [0, 2, 4, 6, 8]
    assert numbers(consumers.pull(subscription="odd || even ")) == list(range(10))
    nothing = consumers.pull(subscription="none")
    assert nothing is not None
    assert (nothing.code, nothing.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert RESPONSE.read(nothing.ext_fields).next_begin_offset == 10


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
def test_offset_outside_of_the_queue(offset: int, code: ResponseCode, remark: str, following: int) -> None:
    consumers = Consumers()
    for number in range(3):
        consumers.put(number)
    answer = consumers.pull(queueOffset=offset)
    assert answer is not None
    assert (answer.code, answer.remark) == (code, remark)
    assert RESPONSE.read(answer.ext_fields).next_begin_offset == following


def test_queue_that_never_had_a_message() -> None:
    consumers = Consumers()
    answer = consumers.pull()
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE")
    moved = consumers.pull(queueOffset=5)
    assert moved is not None
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED


LONG = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)


def test_request_is_held_until_a_message_comes() -> None:
    consumers = Consumers()
    assert consumers.pull(sysFlag=LONG) is None
    consumers.put(7, queue_id=1)
    assert consumers.answers == []
    consumers.put(8)
    assert numbers(consumers.answers[0]) == [8]
    assert consumers.puller.held == 0


def test_there_is_a_bound_on_requests_that_are_held() -> None:
    consumers = Consumers(held_max=2)
    consumers.put(0)
    waiting = {"sysFlag": LONG, "queueOffset": 1}
    assert consumers.pull(**waiting, subscription="none") is None
    assert consumers.pull(**waiting, connection="gone") is None
    answer = consumers.pull(**waiting)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    # Room is made by one that goes, by one that is answered, and not by one that goes on waiting.
    consumers.puller.disconnected("gone")
    assert consumers.pull(**waiting) is None
    consumers.put(1)
    assert consumers.puller.held == 1
    assert consumers.pull(**{**waiting, "queueOffset": 2}) is None
    assert consumers.pull(**{**waiting, "queueOffset": 2}) is not None
    consumers.expire(NOW_MS + 15_000)
    assert consumers.puller.held == 0


def test_request_is_answered_when_its_time_is_over() -> None:
    consumers = Consumers()
    assert consumers.pull(sysFlag=LONG) is None
    consumers.expire(NOW_MS + 14_999)
    assert consumers.answers == []
    consumers.expire(NOW_MS + 15_000)
    assert [answer.code for answer in consumers.answers] == [ResponseCode.PULL_NOT_FOUND]


def test_held_request_goes_on_waiting_for_its_tag() -> None:
    consumers = Consumers()
    assert consumers.pull(sysFlag=LONG, subscription="even") is None
    consumers.put(0)
    assert consumers.answers == []
    consumers.put(1)
    assert numbers(consumers.answers[0]) == [1]


def test_closed_connection_waits_for_nothing() -> None:
    consumers = Consumers()
    consumers.pull("one", sysFlag=LONG)
    consumers.pull("two", sysFlag=LONG)
    consumers.puller.disconnected("one")
    assert consumers.puller.held == 1
    consumers.put(0)
    assert len(consumers.answers) == 1


def test_pull_commits_an_offset_once() -> None:
    consumers = Consumers()
    for number in range(5):
        consumers.put(number)
    flags = LONG | PullFlag.COMMIT_OFFSET
    assert consumers.pull(queueOffset=5, sysFlag=flags, commitOffset=5) is None
    assert consumers.offsets.get("t", "g", 0) == 5
    consumers.offsets.commit("t", "g", 0, 4)
    consumers.put(5)
    assert consumers.offsets.get("t", "g", 0) == 4
    assert consumers.pull(queueOffset=6, sysFlag=flags, commitOffset=7) is None
    assert consumers.offsets.get("t", "g", 0) == 4


HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"consumeType":1,"messageModel":1,"consumeFromWhere":0,"groupName":"g",'
    b'"subscriptionDataSet":[{"topic":"t","subString":"odd","subVersion":"5","codeSet":[109871],"tagsSet":["odd"]}]}],'
    b'"producerDataSet":[{"groupName":"p"}]}'
)


def test_subscription_of_the_group_is_used_if_the_request_has_none() -> None:
    consumers = Consumers()
    for number in range(4):
        consumers.put(number)
    absent = consumers.pull(sysFlag=0)
    assert absent is not None
    assert absent.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    consumers.clients.heard(read_heartbeat(HEARTBEAT), "one", NOW_MS)
    assert numbers(consumers.pull(sysFlag=0, subVersion=5)) == [0, 2]
    newer = consumers.pull(sysFlag=0, subVersion=6)
    assert newer is not None
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


def test_group_consumes_by_broadcast_unless_that_is_switched_off() -> None:
    consumers = Consumers()
    consumers.put(0)
    consumers.clients.heard(read_heartbeat(HEARTBEAT.replace(b'"messageModel":1', b'"messageModel":0')), "one", NOW_MS)
    assert numbers(consumers.pull(sysFlag=0, subVersion=5)) == [0]
    consumers.groups.put(GroupConfig("g", consume_broadcast_enable=False), NOW_MS)
    refused = consumers.pull(sysFlag=0, subVersion=5)
    assert refused is not None
    assert (refused.code, refused.remark) == (
        ResponseCode.NO_PERMISSION,
        "the consumer group[g] can not consume by broadcast way",
    )
    consumers.clients.heard(read_heartbeat(HEARTBEAT), "one", NOW_MS)
    assert numbers(consumers.pull(sysFlag=0, subVersion=5)) == [0]


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "topic[none] not exist, apply first please!"),
        (
            {"queueId": 4},
            ResponseCode.INVALID_PARAMETER,
            "queueId[4] is illegal, topic:[t] topicConfig.readQueueNums:[4]",
        ),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1] is illegal"),
        (
            {"consumerGroup": "a b"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group [a b] does not exist",
        ),
        (
            {"expressionType": "SQL93"},
            ResponseCode.SYSTEM_ERROR,
            "does not support consumer to filter message by SQL93",
        ),
        (
            {"expressionType": "SQL92", "subscription": "a >"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        ),
        ({"topic": "secret"}, ResponseCode.NO_PERMISSION, "the topic[secret] pulling message is forbidden"),
        ({"consumerGroup": "off"}, ResponseCode.NO_PERMISSION, "subscription group no permission, off"),
    ],
)
def test_pull_is_refused_with_the_original_s_code(fields: dict[str, Any], code: ResponseCode, text: str) -> None:
    consumers = Consumers()
    consumers.topics.put(TopicConfig("secret", 4, 4, perm=int(Permission.WRITE)), 0)
    consumers.groups.put(GroupConfig("off", consume_enable=False), 0)
    answer = consumers.pull(**fields)
    assert answer is not None
    assert (answer.code, text in (answer.remark or "")) == (code, True), answer.remark


def test_group_is_made_only_where_that_is_allowed() -> None:
    consumers = Consumers(auto_create=False)
    answer = consumers.pull()
    assert answer is not None
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert Consumers().groups.find("g", 0) == GroupConfig("g")


def test_expression_chooses() -> None:
    consumers = Consumers()
    for number in range(10):
        consumers.put(number)
    assert numbers(consumers.pull(expressionType="SQL92", subscription="TAGS = 'odd'")) == [0, 2, 4, 6, 8]
    nothing = consumers.pull(expressionType="SQL92", subscription="TAGS IS NULL")
    assert nothing is not None
    assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_filters_of_a_topic_are_told_apart() -> None:
    consumers = Consumers()
    for number in range(4):
        consumers.put(number)
    expected = {"odd": [0, 2], "even": [1, 3], "*": [0, 1, 2, 3]}
    for text in ("odd", "even", "odd", "*", "even", "*"):
        assert numbers(consumers.pull(subscription=text)) == expected[text]
    # The same text means something else as an expression.
    told = Subscription("t", "TAGS = 'odd'", "TAG", 1, ["odd"], [string_hash("odd")])
    consumers.clients.consumers["h"] = ConsumerGroup("PULL", "CLUSTERING", "", subscriptions={"t": told})
    assert numbers(consumers.pull(consumerGroup="h", sysFlag=0)) == [0, 2]
    text = "TAGS = 'even' OR TAGS = 'odd'"
    assert numbers(consumers.pull(expressionType="SQL92", subscription=text)) == [0, 1, 2, 3]
    consumers.clients.consumers["h"].subscriptions["t"] = told._replace(
        tags_set=["even"], code_set=[string_hash("even")]
    )
    assert numbers(consumers.pull(consumerGroup="h", sysFlag=0)) == [1, 3]


def test_broker_that_filters_by_no_expression_refuses() -> None:
    answer = Consumers(options=replace(OPTIONS, property_filter=False)).pull(expressionType="SQL92")
    assert answer is not None
    text = "The broker does not support consumer to filter message by SQL92"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, text)


def test_broker_that_may_not_be_read_refuses() -> None:
    answer = Consumers(options=replace(OPTIONS, permission=2)).pull()
    assert answer is not None
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] pulling message is forbidden",
    )


def test_group_changes_when_a_consumer_comes_goes_or_subscribes_anew() -> None:
    clients = Clients()
    heartbeat = read_heartbeat(HEARTBEAT)
    assert clients.heard(heartbeat, "one", 0) == ["g"]
    assert clients.heard(heartbeat, "one", 1) == []
    assert clients.heard(heartbeat._replace(client_id="d"), "two", 2) == ["g"]
    assert clients.ids("g") == ["c", "d"]
    (consumer,) = heartbeat.consumer_data_set
    other = consumer._replace(subscription_data_set=[consumer.subscription_data_set[0]._replace(topic="u")])
    assert clients.heard(heartbeat._replace(consumer_data_set=[other]), "one", 3) == ["g"]
    assert clients.heard(heartbeat._replace(heartbeat_fingerprint=5, is_without_sub=True), "one", 4) == []
    assert list(clients.consumers["g"].subscriptions) == ["u"]
    assert clients.expire(EXPIRED_MS + 3) == ["two"]
    assert clients.disconnected("two") == ["g"]
    assert clients.unregister_consumer("g", "one")
    assert not clients.unregister_consumer("g", "one")
    assert clients.consumers == {}
    clients.disconnected("one")
    assert clients.producers == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"clientID":5}',
        b'{"clientID":"c","consumerDataSet":5}',
        b'{"clientID":"c","consumerDataSet":[[]]}',
    ],
)
def test_heartbeat_of_a_stranger_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        read_heartbeat(body)


def test_golden_groups_and_offsets_are_read(golden_files: Path) -> None:
    groups = Groups((golden_files / "subscriptionGroup.json").read_bytes(), lambda _: None)
    assert groups.table["CG_push"] == GroupConfig("CG_push")
    offsets = Offsets((golden_files / "consumerOffset.json").read_bytes())
    assert offsets.queues("GNormal", "CG_push") == {0: 12, 1: 12, 2: 20, 3: 18}
    assert offsets.topics("CG_retry") == ["%RETRY%CG_retry", "GMixed"]
    again = Offsets(offsets.file(5))
    assert again.queues("GNormal", "CG_push") == {0: 12, 1: 12, 2: 20, 3: 18}
    again.forget_group("CG_push")
    assert again.get("GNormal", "CG_push", 0) is None
    again.forget_topic("GNormal")
    assert again.get("GNormal", "CG_pull", 0) is None
    assert again.changed


@pytest.fixture
def golden_files(tmp_path: Path) -> Path:
    (golden,) = unpack("store", tmp_path, without=("timerwheel", "timerlog", "commitlog"))
    return golden / "config"


@pytest.mark.parametrize(
    ("slave_read", "broker_id", "offset", "expected"),
    [
        (True, 0, 0, 1),  # far from the end
        (True, 0, 9, 0),
        (True, 1, 0, 1),  # a slave sends consumers back once they have caught up
        (True, 1, 9, 0),
        (False, 0, 0, 0),
        (False, 1, 0, 0),
    ],
)
def test_consumers_that_are_far_behind_are_sent_to_a_slave(
    slave_read: bool, broker_id: int, offset: int, expected: int
) -> None:
    options = replace(OPTIONS, slave_read=slave_read, broker_id=broker_id, read_behind_bytes=700)
    consumers = Consumers(options=options)
    for number in range(10):
        consumers.put(number)
    answer = consumers.pull(queueOffset=offset, maxMsgNums=1)
    assert numbers(answer) == [offset]
    assert answer is not None
    assert RESPONSE.read(answer.ext_fields).suggest_which_broker_id == expected


def test_group_says_which_broker_it_reads_from() -> None:
    consumers = Consumers(options=replace(OPTIONS, slave_read=True, read_behind_bytes=700))
    consumers.groups.put(GroupConfig("g", broker_id=3, which_broker_when_consume_slowly=2), 0)
    for number in range(10):
        consumers.put(number)
    for offset, expected in ((0, 2), (9, 3), (10, 3)):
        answer = consumers.pull(queueOffset=offset, maxMsgNums=1)
        assert answer is not None
        assert RESPONSE.read(answer.ext_fields).suggest_which_broker_id == expected
