"""The rights on messages that are read out of the log, by their own topics and groups."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import Transaction
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GroupConfig
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed
from tests.broker.rocketmq.access.access_rig import BOTH, ROOT, USER, Signer, create_user, policy
from tests.broker.rocketmq.consuming.lite.lite_rig import PARENT, LiteRig
from tests.broker.rocketmq.rig import Rig

Code = RequestCode
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
SECRET = b"secret"


class Node:
    """A broker with topics `mine` and `theirs`, groups of these names, and a user with rights on the former."""

    def __init__(self, rig: Rig | None = None, *own: str) -> None:
        self.rig = rig = rig or Rig()
        peer = rig.peer()
        create_user(peer, *ROOT, userType="Super")
        create_user(peer, *USER)
        for each in own or ("Topic:mine", "Group:mine"):
            peer.call(Code.AUTH_CREATE_ACL, policy(each, "All"), subject="User:walter")
        for name in ("mine", "theirs"):
            rig.topics.put(TopicConfig(name, 1, 1), rig.wall_ms)
            self.make_group(name)
        rig.access_options = BOTH
        rig.stop()
        self.root, self.user = Signer(rig.peer(), ROOT), Signer(rig.peer(), USER)

    def make_group(self, name: str) -> None:
        self.rig.peer().call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP_CONFIG.write(GroupConfig(name)))

    def allow(self, resource: str, actions: str = "All") -> None:
        self.root.call(Code.AUTH_UPDATE_ACL, policy(resource, actions), subject="User:walter")

    def place(self, topic: str) -> int:
        """The place in the log of the first message of a topic."""
        return self.rig.messages(topic)[0].physical_offset

    def consumer(self, group: str, client_id: str = "c") -> Signer:
        """Connect a consumer of the super user."""
        found = Signer(self.rig.peer(), ROOT)
        assert found.call(Code.HEART_BEAT, heartbeat(group, "theirs", client_id=client_id)).code == 0
        return found

    def back(self, group: str, place: int, level: int = 0) -> None:
        """Have a message come again to a group, and let the time pass until it is there."""
        assert self.root.call(Code.CONSUMER_SEND_MSG_BACK, group=group, offset=place, delayLevel=level).code == 0
        self.rig.pass_time(20_000)


def send(who: Signer, topic: str, body: bytes = SECRET, group: str = "p", flags: int = 0, **properties: str) -> Frame:
    text = encode_properties(properties).decode()
    fields: dict[str, Any] = {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": flags,
        "g": who.peer.rig.wall_ms,
        "h": 0,
        "i": text,
    }
    return who.call(Code.SEND_MESSAGE_V2, body, **fields)


def ask(who: Signer, code: RequestCode, body: bytes = b"", **fields: Any) -> Frame | None:
    """Send a signed request; its answer, if there is one at once."""
    texts = {name: str(value) for name, value in fields.items()}
    frame = signed(Frame(code, 0, ext_fields=texts, body=body, version=493), *who.user)
    told: dict[str, Any] = {**(frame.ext_fields or {})}
    return who.peer.answer(who.peer.ask(code, body, **told))


def heartbeat(group: str, *topics: str, client_id: str = "c") -> bytes:
    subscriptions = [{"topic": topic, "subString": "*"} for topic in topics]
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": subscriptions}
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()


def pull(who: Signer, topic: str, group: str = "mine") -> Frame | None:
    return ask(
        who, Code.PULL_MESSAGE, topic=topic, consumerGroup=group, queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=4,
        commitOffset=0, suspendTimeoutMillis=0, subscription="*", subVersion=1,
    )  # fmt: skip


def pop(who: Signer, topic: str, group: str = "mine") -> Frame | None:
    now = who.peer.rig.wall_ms
    return ask(
        who, Code.POP_MESSAGE, topic=topic, consumerGroup=group, queueId=-1, maxMsgNums=32, invisibleTime=10_000,
        pollTime=0, bornTime=now, initMode=0,
    )  # fmt: skip


def denied(answer: Frame | None) -> bool:
    return answer is not None and answer.code == ResponseCode.NO_PERMISSION


def has_secret(answer: Frame | None) -> bool:
    return answer is not None and SECRET in bytes(answer.body)


# -- by its place in the log


@pytest.mark.parametrize("named", [{}, {"topic": ""}, {"topic": "mine"}, {"topic": "theirs"}, {"topic": "%RETRY%mine"}])
def test_message_of_another_topic_is_not_shown_by_its_place(named: dict[str, Any]) -> None:
    node = Node()
    send(node.root, "theirs")
    assert denied(node.user.call(Code.VIEW_MESSAGE_BY_ID, offset=node.place("theirs"), **named))
    assert has_secret(node.root.call(Code.VIEW_MESSAGE_BY_ID, offset=node.place("theirs"), **named))
    send(node.user, "mine")
    assert has_secret(node.user.call(Code.VIEW_MESSAGE_BY_ID, offset=node.place("mine"), topic="mine"))


def test_copies_in_the_brokers_own_topics_and_retry_topics_are_not_shown() -> None:
    node = Node()
    send(node.root, "theirs")
    send(node.root, "theirs", DELAY="18")
    send(node.root, "theirs", TIMER_DELAY_SEC="3600")
    send(node.root, "theirs", flags=4, TRAN_MSG="true", PGROUP="p", UNIQ_KEY="U")
    node.back("theirs", node.place("theirs"))
    node.back("theirs", node.place("theirs"), -1)
    copies = [node.place(topic) for topic in (HALF, "rmq_sys_wheel_timer", "%RETRY%theirs", "%DLQ%theirs")]
    copies.append(node.rig.messages("SCHEDULE_TOPIC_XXXX", 17)[0].physical_offset)
    for place in copies:
        for topic in ("mine", "%RETRY%mine", "%DLQ%mine"):
            assert denied(node.user.call(Code.VIEW_MESSAGE_BY_ID, offset=place, topic=topic))
        assert denied(node.user.call(Code.CONSUMER_SEND_MSG_BACK, group="mine", offset=place, delayLevel=0))


def test_message_of_another_topic_is_not_consumed_directly() -> None:
    node = Node()
    send(node.root, "theirs")
    mine = Signer(node.rig.peer(), USER)
    assert mine.call(Code.HEART_BEAT, heartbeat("mine", "mine")).code == 0
    message_id = str(OffsetId(Host("127.0.0.1", 20911), node.place("theirs")))
    options: list[dict[str, Any]] = [{}, {"topic": ""}, {"topic": "mine"}, {"topic": "theirs"}]
    for named in options:
        fields: dict[str, Any] = {"consumerGroup": "mine", "clientId": "c", "msgId": message_id, **named}
        assert denied(ask(node.user, Code.CONSUME_MESSAGE_DIRECTLY, **fields))
    mine.peer.read()
    assert not [each for each in mine.peer.asked if each.code == Code.CONSUME_MESSAGE_DIRECTLY]
    send(node.user, "mine")
    own = str(OffsetId(Host("127.0.0.1", 20911), node.place("mine")))
    ask(node.user, Code.CONSUME_MESSAGE_DIRECTLY, consumerGroup="mine", clientId="c", msgId=own, topic="mine")
    mine.peer.read()
    (asked,) = [each for each in mine.peer.asked if each.code == Code.CONSUME_MESSAGE_DIRECTLY]
    assert SECRET in bytes(asked.body)


# -- by its key


@pytest.mark.parametrize("unique", ["true", "false"])
def test_key_with_the_hash_of_anothers_shows_nothing(unique: str) -> None:
    """`Aa` and `BB` have one hash, so that a key of one topic has that of the other's."""
    node = Node(None, "Topic:Aa")
    for topic in ("Aa", "BB"):
        node.rig.topics.put(TopicConfig(topic, 1, 1), node.rig.wall_ms)
    asked: dict[str, Any] = {"topic": "Aa", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    nothing = node.user.call(Code.QUERY_MESSAGE, **asked, _UNIQUE_KEY_QUERY=unique)
    send(node.root, "BB", KEYS="k", UNIQ_KEY="k")
    answer = node.user.call(Code.QUERY_MESSAGE, **asked, _UNIQUE_KEY_QUERY=unique)
    # Not even that there is something.
    assert answer._replace(opaque=0) == nothing._replace(opaque=0)
    send(node.user, "Aa", b"own", KEYS="k", UNIQ_KEY="k")
    answer = node.user.call(Code.QUERY_MESSAGE, **asked, _UNIQUE_KEY_QUERY=unique)
    assert answer.code == ResponseCode.SUCCESS
    assert b"own" in bytes(answer.body)
    assert not has_secret(answer)


def test_keys_of_others_with_the_same_hash_do_not_hide_a_message() -> None:
    node = Node(None, "Topic:Aa")
    for topic in ("Aa", "BB"):
        node.rig.topics.put(TopicConfig(topic, 1, 1), node.rig.wall_ms)
    send(node.user, "Aa", b"own", KEYS="k", UNIQ_KEY="u")
    for _ in range(70):
        send(node.root, "BB", KEYS="k", UNIQ_KEY="v")
    asked: dict[str, Any] = {"topic": "Aa", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    assert b"own" in bytes(node.user.call(Code.QUERY_MESSAGE, **asked).body)


# -- transactions


def prepare(who: Signer, topic: str, group: str = "p") -> Record:
    assert send(who, topic, group=group, flags=4, TRAN_MSG="true", PGROUP=group, UNIQ_KEY="U").code == 0
    return who.peer.rig.messages(HALF)[-1]


def end(who: Signer, half: Record, how: int, **named: Any) -> Frame | None:
    place: dict[str, Any] = {"tranStateTableOffset": half.queue_offset, "commitLogOffset": half.physical_offset}
    return ask(
        who, Code.END_TRANSACTION, producerGroup="p", commitOrRollback=int(how), msgId="M", **place, **named
    )  # fmt: skip


@pytest.mark.parametrize("how", [Transaction.COMMIT, Transaction.ROLLBACK])
@pytest.mark.parametrize("named", [{}, {"topic": ""}, {"topic": "mine"}, {"topic": HALF}, {"topic": "theirs"}])
def test_transaction_of_another_topic_is_not_ended(how: Transaction, named: dict[str, Any]) -> None:
    node = Node()
    half = prepare(node.root, "theirs")
    assert denied(end(node.user, half, how, **named))
    assert node.rig.messages("theirs") == []
    assert (end(node.root, half, Transaction.COMMIT, topic="theirs") or Frame(1, 0)).code == ResponseCode.SUCCESS
    assert len(node.rig.messages("theirs")) == 1


@pytest.mark.parametrize("named", [{}, {"topic": "mine"}, {"topic": HALF}])
def test_transaction_of_ones_own_is_ended_by_clients_of_any_age(named: dict[str, Any]) -> None:
    """Clients before 5.0 name no topic, and answers to transaction checks name that of the check."""
    node = Node()
    answer = end(node.user, prepare(node.user, "mine"), Transaction.COMMIT, **named)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert len(node.rig.messages("mine")) == 1


def test_prepared_message_is_shown_to_no_producer_without_the_right_to_send_it() -> None:
    node = Node()
    body = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "p"}]}).encode()
    for each in (node.user, node.root):
        assert each.call(Code.HEART_BEAT, body).code == ResponseCode.SUCCESS
    for _ in range(2):
        prepare(node.root, "theirs")
    node.rig.pass_time(6_000)
    for each in (node.user, node.root):
        each.peer.read()
    assert node.user.peer.asked == []
    assert [each.code for each in node.root.peer.asked] == [Code.CHECK_TRANSACTION_STATE] * 2


# -- recalls


@pytest.mark.parametrize("how", ["handle", "property", "property with a topic"])
def test_message_of_another_topic_is_not_recalled_by_its_id(how: str) -> None:
    node = Node()
    handle = (send(node.root, "theirs", TIMER_DELAY_SEC="5", UNIQ_KEY="U").ext_fields or {})["recallHandle"]
    assert denied(ask(node.user, Code.RECALL_MESSAGE, topic="theirs", recallHandle=handle))
    if how == "handle":
        words = base64.urlsafe_b64decode(handle).decode().split(" ")
        assert words[1] == "theirs"
        words[1] = "mine"
        forged = base64.urlsafe_b64encode(" ".join(words).encode()).decode()
        answer = ask(node.user, Code.RECALL_MESSAGE, topic="mine", recallHandle=forged)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
    else:
        deleted = "U" if how == "property" else "theirs+U"
        assert send(node.user, "mine", TIMER_DELAY_SEC="6", TIMER_DEL_UNIQKEY=deleted).code == ResponseCode.SUCCESS
    node.rig.pass_time(10_000)
    assert len(node.rig.messages("theirs")) == 1


# -- topics for retries, and dead letters


@pytest.mark.parametrize("group", ["mine", "theirs", "CLIENT_INNER_PRODUCER", ""])
def test_retry_topic_belongs_to_the_group_in_its_name_whoever_sends(group: str) -> None:
    node = Node()
    send(node.root, "theirs")
    node.back("theirs", node.place("theirs"))
    before = len(node.rig.messages("%RETRY%theirs"))
    assert denied(send(node.user, "%RETRY%theirs", group=group))
    batch: dict[str, Any] = {
        "a": group,
        "b": "%RETRY%theirs",
        "c": "x",
        "d": 1,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 0,
        "m": "true",
    }
    assert denied(ask(node.user, Code.SEND_BATCH_MESSAGE, b"x", **batch))
    assert denied(ask(node.user, Code.SEND_REPLY_MESSAGE_V2, b"x", **batch))
    assert len(node.rig.messages("%RETRY%theirs")) == before
    # One's own is open to the producer in which clients have the messages sent that they hand back.
    assert send(node.user, "%RETRY%mine", group=group).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("topic", ["%RETRY%theirs", "%DLQ%theirs"])
def test_retries_and_dead_letters_are_not_read_by_another_group(topic: str) -> None:
    node = Node()
    send(node.root, "theirs")
    node.back("theirs", node.place("theirs"), -1 if "DLQ" in topic else 0)
    assert len(node.rig.messages(topic)) == 1
    for ask_for in (pull, pop):
        assert denied(ask_for(node.user, topic))
    assert denied(node.user.call(Code.GET_MAX_OFFSET, topic=topic, queueId=0))
    assert denied(node.user.call(Code.SEARCH_OFFSET_BY_TIMESTAMP, topic=topic, queueId=0, timestamp=0))
    assert denied(node.user.call(Code.HEART_BEAT, heartbeat("mine", "mine", topic)))
    lock = {"consumerGroup": "mine", "clientId": "c", "mqSet": [{"topic": topic, "brokerName": "b", "queueId": 0}]}
    assert denied(node.user.call(Code.LOCK_BATCH_MQ, json.dumps(lock).encode()))
    node.allow("Group:theirs")
    assert has_secret(pull(node.user, topic))


def test_dead_letters_are_open_to_who_has_the_right_on_their_topic() -> None:
    node = Node()
    send(node.root, "theirs")
    node.back("theirs", node.place("theirs"), -1)
    node.allow("Topic:%DLQ%theirs", "Sub")
    assert has_secret(pull(node.user, "%DLQ%theirs"))


def test_topic_of_popped_messages_does_not_open_that_of_a_group_with_a_longer_name() -> None:
    """`%RETRY%mine_mine` is where POP has messages of topic `mine` come again for group `mine`, and another's."""
    node = Node()
    node.make_group("mine_mine")
    send(node.root, "theirs")
    node.back("mine_mine", node.place("theirs"))
    topic = "%RETRY%mine_mine"
    place = node.place(topic)
    assert denied(pull(node.user, topic))
    assert denied(pop(node.user, topic))
    assert denied(pop(node.user, "mine"))
    assert denied(ask(node.user, Code.PEEK_MESSAGE, topic="mine", consumerGroup="mine", queueId=-1, maxMsgNums=32))
    assert denied(node.user.call(Code.VIEW_MESSAGE_BY_ID, offset=place, topic="mine"))
    assert denied(node.user.call(Code.CONSUMER_SEND_MSG_BACK, group="mine", offset=place, delayLevel=0))
    handle = f"0 {node.rig.wall_ms} 1000 0 1 broker-g 0 0"
    about: dict[str, Any] = {"consumerGroup": "mine", "queueId": 0, "offset": 0, "extraInfo": handle}
    for name in (topic, "mine"):
        changed = ask(node.user, Code.CHANGE_MESSAGE_INVISIBLETIME, topic=name, invisibleTime=1000, **about)
        assert denied(changed)
    assert denied(ask(node.user, Code.ACK_MESSAGE, topic=topic, **about))


def test_popped_messages_come_again_and_are_acknowledged_by_who_has_topic_and_group() -> None:
    node = Node()
    send(node.user, "mine")
    assert has_secret(pop(node.user, "mine"))
    node.rig.pass_time(20_000)
    (again,) = node.rig.messages("%RETRY%mine_mine")
    assert has_secret(pop(node.user, "mine"))
    place = again.physical_offset
    assert has_secret(node.user.call(Code.VIEW_MESSAGE_BY_ID, offset=place, topic="mine"))
    assert node.user.call(Code.CONSUMER_SEND_MSG_BACK, group="mine", offset=place, delayLevel=0).code == 0
    handle = f"0 {node.rig.wall_ms} 1000 0 1 broker-g 0 0"
    about: dict[str, Any] = {"consumerGroup": "mine", "queueId": 0, "offset": 0, "extraInfo": handle}
    changes: dict[str, Any] = {"invisibleTime": 1000}
    for code, more in ((Code.ACK_MESSAGE, about), (Code.CHANGE_MESSAGE_INVISIBLETIME, about | changes)):
        answer = ask(node.user, code, topic="%RETRY%mine_mine", **more)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS


# -- groups and clients


def test_offsets_are_not_taken_from_a_group_of_others() -> None:
    node = Node()
    topics: list[dict[str, Any]] = [{}, {"topic": "mine"}, {"topic": "theirs"}]
    for topic in topics:
        assert denied(node.user.call(Code.CLONE_GROUP_OFFSET, srcGroup="theirs", destGroup="mine", **topic))
        assert denied(node.user.call(Code.CLONE_GROUP_OFFSET, srcGroup="mine", destGroup="theirs", **topic))
    assert node.user.call(Code.CLONE_GROUP_OFFSET, srcGroup="mine", destGroup="mine").code == ResponseCode.SUCCESS


def test_subscriptions_of_a_client_of_another_group_are_not_shown() -> None:
    node = Node(LiteRig(), f"Topic:{PARENT}", "Group:exclusive")
    change = {"action": "PARTIAL_ADD", "clientId": "theirs", "group": "shared", "topic": PARENT, "liteTopicSet": ["s"]}
    body = json.dumps({"subscriptionSet": [change]}).encode()
    assert node.root.call(Code.LITE_SUBSCRIPTION_CTL, body).code == ResponseCode.SUCCESS
    asked: dict[str, Any] = {"parentTopic": PARENT, "clientId": "theirs"}
    assert denied(node.user.call(Code.GET_LITE_CLIENT_INFO, group="shared", **asked))
    shown = json.loads(bytes(node.user.call(Code.GET_LITE_CLIENT_INFO, group="exclusive", **asked).body))
    unknown = json.loads(
        bytes(node.user.call(Code.GET_LITE_CLIENT_INFO, group="exclusive", **{**asked, "clientId": "nobody"}).body)
    )
    assert {**shown, "clientId": ""} == {**unknown, "clientId": ""}
