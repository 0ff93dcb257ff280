"""The bounds of a broker's tables, how often their files are written, and the cost of what clients put into them."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest

from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame
from tests.broker.rocketmq.rig import Peer, Rig
from tests.rigs.machine_speed import slowness

DISK_FULL = OSError(28, "No space left on device")


class Files(dict[str, bytes]):
    """Files that count how often each was written. With `error` none can be."""

    def __init__(self) -> None:
        self.writes: Counter[str] = Counter()
        self.error: OSError | None = None

    def __setitem__(self, name: str, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.writes[name] += 1
        super().__setitem__(name, data)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    files = Files()
    files.update(rig.files)
    rig.files = files
    return rig


def writes(rig: Rig) -> Counter[str]:
    assert isinstance(rig.files, Files)
    found, rig.files.writes = rig.files.writes, Counter()
    return found


def step(rig: Rig) -> None:
    while rig.broker.end_step():
        pass


def deliver(peer: Peer, *frames: Frame) -> None:
    """Deliver requests in one step, which is not over yet."""
    data = b"".join(map(encode_frame, frames))
    assert peer.session.receive(memoryview(data)) == len(data)


def make_send(number: int, topic: str) -> Frame:
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
    return Frame(RequestCode.SEND_MESSAGE_V2, number, ext_fields=fields, body=b"x", version=493)


def heartbeat(count: int, client: str = "c", **of_each: Any) -> bytes:
    consumers = [{"groupName": f"{client}-{number}", "subscriptionDataSet": [], **of_each} for number in range(count)]
    return json.dumps({"clientID": client, "consumerDataSet": consumers, "producerDataSet": []}).encode()


def configure(rig: Rig, text: str) -> None:
    rig.peer().call(RequestCode.UPDATE_BROKER_CONFIG, text.encode())


# -- how often files are written


def test_groups_of_a_heartbeat_are_written_once(rig: Rig) -> None:
    assert rig.peer().call(RequestCode.HEART_BEAT, heartbeat(200)).code == ResponseCode.SUCCESS
    assert writes(rig) == {"groups": 1, "topics": 1}
    assert rig.files["groups"].count(b'"groupName":"c-') == 200
    assert rig.files["topics"].count(b'"topicName":"%RETRY%c-') == 200


def test_topics_of_a_step_are_written_once_before_senders_are_answered(rig: Rig) -> None:
    peers = [rig.peer() for _ in range(3)]
    for place, peer in enumerate(peers):
        deliver(peer, *(make_send(number, f"new-{place}-{number}") for number in range(20)))
    # One that relies on a topic that somebody else has just made waits, too; others do not.
    late, other = rig.peer(), rig.peer()
    deliver(late, make_send(1, "new-0-0"))
    deliver(other, make_send(1, "t"))
    assert other.answer(1) is not None
    assert not any(peer.take_answers() for peer in (*peers, late))
    assert writes(rig) == {}
    step(rig)
    assert writes(rig) == {"topics": 1}
    assert [len(peer.take_answers()) for peer in (*peers, late)] == [20, 20, 20, 1]


def test_a_change_costs_what_it_changes() -> None:
    """Change single entries of tables with 4,000 topics and groups."""
    rig = Rig()
    rig.topics.put_all([TopicConfig(f"topic-{number}") for number in range(4_000)], rig.wall_ms)
    rig.groups.put_all([GroupConfig(f"group-{number}") for number in range(4_000)], rig.wall_ms)
    step(rig)
    peer = rig.peer()
    began = time.thread_time()
    for number in range(25):
        assert peer.send(b"x", topic=f"new-{number}").code == ResponseCode.SUCCESS
        assert peer.call(RequestCode.HEART_BEAT, heartbeat(1, f"client-{number}")).code == ResponseCode.SUCCESS
    # It is 0.2 s; encoding the tables each time takes 8 s.
    assert time.thread_time() - began < 2 * slowness()
    assert b'"new-24"' in rig.files["topics"]


def test_answers_about_all_topics_and_groups_encode_nothing(rig: Rig) -> None:
    rig.topics.put_all([TopicConfig(f"topic-{number}") for number in range(2_000)], rig.wall_ms)
    rig.groups.put_all([GroupConfig(f"group-{number}") for number in range(2_000)], rig.wall_ms)
    step(rig)
    peer = rig.peer()
    began = time.thread_time()
    for number in range(20):
        rig.topics.put(TopicConfig("changing", number, number), rig.wall_ms)
        answer = peer.call(RequestCode.GET_ALL_TOPIC_CONFIG)
        peer.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    # It is 0.1 s; encoding the tables each time takes 3 s.
    took_s = time.thread_time() - began
    assert took_s < slowness()
    assert TOPIC_CONFIGS.read(answer.body).topic_config_table == rig.topics.table


def test_offsets_are_written_once_and_only_if_they_have_changed(rig: Rig) -> None:
    peer = rig.peer()
    peer.send(b"x")
    peer.call(RequestCode.HEART_BEAT, heartbeat(1))
    writes(rig)
    for offset in (0, 1):
        fields: dict[str, Any] = {"consumerGroup": "c-0", "topic": "t", "queueId": 0, "commitOffset": offset}
        assert peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == ResponseCode.SUCCESS
    assert writes(rig) == {}
    rig.pass_time(6_000)
    assert writes(rig)["offsets"] == 1
    assert b'"t@c-0":{\n\t\t\t0:1\n\t\t}' in rig.files["offsets"]
    rig.pass_time(6_000)
    assert writes(rig)["offsets"] == 0


# -- files that cannot be written


def test_changes_that_cannot_be_stored_are_undone_and_refused(rig: Rig) -> None:
    assert isinstance(rig.files, Files)
    peer, topics = rig.peer(), dict(rig.topics.table)
    create: dict[str, Any] = {
        "topic": "t",
        "defaultTopic": "TBW102",
        "readQueueNums": 8,
        "writeQueueNums": 8,
        "perm": 6,
        "order": "false",
    }
    rig.files.error = DISK_FULL
    user = json.dumps({"username": "u", "password": "p"}).encode()
    mode = json.dumps({"topic": "t", "consumerGroup": "TOOLS_CONSUMER", "mode": "POP"}).encode()
    answers = [
        peer.send(b"x", topic="new"),
        peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **create, topicFilterType="SINGLE_TAG"),
        peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="t"),
        peer.call(RequestCode.HEART_BEAT, heartbeat(1)),
        peer.call(RequestCode.AUTH_CREATE_USER, user, username="u"),
        peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, mode),
    ]
    for answer in answers:
        text = "the change cannot be stored: No space left on device"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, text)
    assert rig.topics.table == topics
    assert "c-0" not in rig.groups.table
    assert not rig.access.users
    rig.files.error = None
    assert peer.send(b"x", topic="new").code == ResponseCode.SUCCESS
    rig.stop()
    assert set(rig.topics.table) == {*topics, "new"}


# -- bounds


@pytest.mark.parametrize(
    ("name", "begin"), [("autoCreateTopicMaxNum", "topic-"), ("autoCreateRetryTopicMaxNum", "%RETRY%group-")]
)
def test_topics_that_senders_make_are_bounded(
    rig: Rig, name: str, begin: str, caplog: pytest.LogCaptureFixture
) -> None:
    configure(rig, f"{name}=30")
    peer = rig.peer()
    answers = [peer.send(b"x", topic=f"{begin}{number}") for number in range(60)]
    refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
    assert 0 < len(refused) < 60
    assert all(answer.code == ResponseCode.TOPIC_NOT_EXIST for answer in refused)
    assert f"{name} allows 30" in (refused[0].remark or "")
    assert sum(topic.startswith(begin) for topic in rig.topics.table) == 60 - len(refused)
    assert caplog.text.count(f"{name} allows 30") == 1
    # Topics that there are take messages, and administrators may make more.
    assert peer.send(b"x", topic=f"{begin}0").code == ResponseCode.SUCCESS
    rig.topics.put(TopicConfig("mine"), rig.wall_ms)
    assert peer.send(b"x", topic="mine").code == ResponseCode.SUCCESS


def test_topics_and_groups_have_a_bound_for_administrators(rig: Rig) -> None:
    configure(rig, f"topicMaxNum={len(rig.topics.table) + 1}\nsubscriptionGroupMaxNum={len(rig.groups.table) + 1}")
    peer = rig.peer()
    queues: dict[str, Any] = {
        "defaultTopic": "TBW102",
        "readQueueNums": 8,
        "writeQueueNums": 8,
        "perm": 6,
        "order": "false",
    }
    for topic, is_made in (("one", True), ("two", False), ("one", True)):
        fields: dict[str, Any] = {"topic": topic, "topicFilterType": "SINGLE_TAG", **queues}
        answer = peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)
        assert (answer.code == ResponseCode.SUCCESS) is is_made
    for group, is_made in (("one", True), ("two", False)):
        body = json.dumps({"groupName": group}).encode()
        answer = peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        assert (answer.code == ResponseCode.SUCCESS) is is_made
    assert "subscriptionGroupMaxNum" in (answer.remark or "")


def test_groups_that_are_made_by_their_use_are_bounded(rig: Rig) -> None:
    configure(rig, "autoCreateSubscriptionGroupMaxNum=30")
    peer = rig.peer()
    assert peer.call(RequestCode.HEART_BEAT, heartbeat(60)).code == ResponseCode.SUCCESS
    assert len(rig.groups.table) == 30
    for number in (peer.pull(group="another"), peer.pop(group="another")):
        answer = peer.answer(number)
        assert answer is not None
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "autoCreateSubscriptionGroupMaxNum allows 30" in (answer.remark or "")


def test_a_heartbeat_names_a_bounded_number_of_groups(rig: Rig) -> None:
    peer = rig.peer()
    answer = peer.call(RequestCode.HEART_BEAT, heartbeat(1_500))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "heartbeatGroupMaxNum allows 256" in (answer.remark or "")
    assert not rig.broker.services.clients.consumers
    assert writes(rig) == {}
    assert peer.call(RequestCode.HEART_BEAT, heartbeat(5_000)).code == ResponseCode.SYSTEM_ERROR


def test_memberships_and_subscriptions_are_bounded_in_all(rig: Rig) -> None:
    configure(rig, "clientMembershipMaxNum=100\nclientSubscriptionMaxBytes=20000")
    one, other = rig.peer(), rig.peer()
    assert one.call(RequestCode.HEART_BEAT, heartbeat(80, "a")).code == ResponseCode.SUCCESS
    answer = other.call(RequestCode.HEART_BEAT, heartbeat(80, "b"))
    assert "clientMembershipMaxNum allows 100" in (answer.remark or "")
    rig.broker.disconnected(one.session)
    assert other.call(RequestCode.HEART_BEAT, heartbeat(80, "b")).code == ResponseCode.SUCCESS
    long = {"subscriptionDataSet": [{"topic": "t", "subString": "x" * 6_000}]}
    answer = rig.peer().call(RequestCode.HEART_BEAT, heartbeat(2, "c", **long))
    assert "clientSubscriptionMaxBytes allows 20000" in (answer.remark or "")
    assert rig.peer().call(RequestCode.HEART_BEAT, heartbeat(1, "c", **long)).code == ResponseCode.SUCCESS
    answer = rig.peer().call(RequestCode.HEART_BEAT, heartbeat(1, "d", **long))
    assert "clientSubscriptionMaxBytes allows 20000" in (answer.remark or "")


@pytest.mark.parametrize(
    ("queue_id", "offset"),
    [(-1, 0), (1, 0), (-(2**31), 1), (2**31 - 1, 1), (0, -1), (0, 4), (0, 2**63 - 1), (0, -(2**63))],
)
def test_offsets_are_taken_in_queues_that_there_are_only(rig: Rig, queue_id: int, offset: int) -> None:
    peer = rig.peer()
    for _ in range(3):
        peer.send(b"x")
    peer.call(RequestCode.HEART_BEAT, heartbeat(1))
    asked: dict[str, Any] = {"consumerGroup": "c-0", "topic": "t", "queueId": queue_id, "commitOffset": offset}
    assert peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, **asked).code == ResponseCode.INVALID_PARAMETER
    reset: dict[str, Any] = {
        "topic": "t",
        "group": "c-0",
        "timestamp": 0,
        "isForce": "true",
        "queueId": queue_id,
        "offset": offset,
    }
    peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
    found = rig.offsets.queues("t", "c-0")
    assert set(found) <= {0}
    assert all(0 <= each <= 3 for each in found.values())
    rig.offsets.forget_group("c-0")
    peer.pull(group="c-0", queueId=queue_id, sysFlag=7, commitOffset=offset, offset=3)
    assert rig.offsets.queues("t", "c-0") == {}
    assert len(rig.offsets) == 0


@pytest.mark.parametrize(("offset", "is_refused"), [(-2, True), (-(2**63), True), (4, True), (-1, False), (2, False)])
def test_an_offset_below_0_is_no_aim_of_a_reset(rig: Rig, offset: int, is_refused: bool) -> None:
    peer = rig.peer()
    for _ in range(3):
        peer.send(b"x")
    peer.call(RequestCode.HEART_BEAT, heartbeat(1))
    asked: dict[str, Any] = {"topic": "t", "group": "c-0", "timestamp": 0, "isForce": "true", "queueId": 0}
    answer = peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **asked, offset=offset)
    if is_refused:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"Target offset {offset} not in consume queue range [0-3]"
        assert rig.offsets.queues("t", "c-0") == {}
    else:
        assert answer.code == ResponseCode.SUCCESS
        # -1 stands for the time.
        assert rig.offsets.queues("t", "c-0") == {0: max(0, offset)}


def test_an_acknowledgement_in_order_notes_nothing_of_a_group_that_there_is_not(rig: Rig) -> None:
    peer = rig.peer()
    for _ in range(3):
        peer.send(b"x")
    wall = rig.wall_ms
    for number in range(5):
        handle = f"0 {wall} 10000 999 0 {rig.options.name} 0 0"
        peer.acknowledge(handle, group=f"none-{number}")
    assert len(rig.offsets) == 0


def test_offsets_are_bounded_in_all(rig: Rig) -> None:
    configure(rig, "consumerOffsetMaxNum=20")
    peer = rig.peer()
    peer.send(b"x")
    peer.call(RequestCode.HEART_BEAT, heartbeat(50))
    asked: dict[str, Any] = {"topic": "t", "queueId": 0, "commitOffset": 1}
    answers = [
        peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=f"c-{number}", **asked) for number in range(50)
    ]
    assert sum(answer.code == ResponseCode.SUCCESS for answer in answers) <= 20
    assert "consumerOffsetMaxNum allows 20" in (answers[-1].remark or "")
    assert len(rig.offsets) <= 20
    popped = peer.answer(peer.pop(group="another"))
    assert popped is not None
    assert "consumerOffsetMaxNum allows 20" in (popped.remark or "")
    # Existing entries are kept.
    assert peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="c-0", **asked).code == ResponseCode.SUCCESS
