"""The rights of a proxy's clients, by the policies that brokers tell it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rocketmq.grpc.access.needs import NEEDS
from broker.rocketmq.proxy.access import Checks
from formats.rocketmq.files.record import Record
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed
from tests.broker.rocketmq.grpc.grpc_service_rig import credential, producer
from tests.broker.rocketmq.grpc.served import message
from tests.broker.rocketmq.proxy.clustered import Clustered
from tests.broker.rocketmq.proxy.keyed import (
    BOB,
    BOTH,
    NO_ACL,
    NO_USER,
    PROXY,
    WHO_ONLY,
    allow,
    authenticate,
    guarded,
    outcome,
    proxy,
)
from tests.broker.rocketmq.proxy.remoting_clients_rig import Proxied, Remoting
from tests.broker.rocketmq.proxy.rights_rig import is_denied, rename, requests
from tests.broker.rocketmq.rig import Rig

# -- what a caller may do


def test_client_with_the_right_may_call_and_a_super_user_may_do_everything() -> None:
    served = proxy()
    allow(served.rig, "Topic:t", "Group:g*")
    assert served.send(message()).status.code == Code.OK
    (received,) = served.receive()
    assert served.acknowledge(received.system_properties.receipt_handle).status.code == Code.OK
    served.rig.access.create_user(UserInfo("root", "r", "Super", "enable"))
    served.headers = credential("root", "r")
    assert served.send(message("many")).status.code == Code.OK


def test_client_without_the_right_may_not_call() -> None:
    served = proxy()
    text = "User:bob has no permission to access Topic:t from 127.0.0.1, no matched policies."
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, text)
    assert served.rig.messages("t") == []


@pytest.mark.parametrize(
    ("source", "decision", "reason"),
    [
        ("10.0.0.0/8", "Allow", "no matched policies."),
        ("127.0.0.0/8", "Deny", "the decision is deny."),
        ("127.0.0.0/8", "Allow", None),
    ],
)
def test_a_policy_is_about_addresses_of_clients(source: str, decision: str, reason: str | None) -> None:
    served = proxy()
    allow(served.rig, "Topic:t", source=source, decision=decision)
    code, text = outcome(served.send(message()))
    assert (code == Code.OK) == (reason is None)
    assert reason is None or text.endswith(reason)


def test_policies_are_looked_up_anew_and_without_an_answer_nothing_is_allowed() -> None:
    served = proxy()
    allow(served.rig, "Topic:t")
    assert served.send(message()).status.code == Code.OK
    allow(served.rig, "Topic:t", decision="Deny")
    served.pass_time(21_000)
    served.send(message())
    assert served.send(message()).status.code == Code.UNAUTHORIZED
    # The user's identity is known, but not the rights.
    fresh = proxy()
    authenticate(fresh)
    fresh.end_broker(0)
    assert outcome(fresh.send(message())) == (Code.UNAUTHORIZED, NO_ACL)


TOPIC_ONLY = {"SendMessage", "RecallMessage", "EndTransaction", "QueryRoute"}
GROUP_ONLY = {"Heartbeat", "NotifyClientTermination"}
PUBLISHED = {"SendMessage", "RecallMessage", "EndTransaction"}


def test_every_call_has_its_needs() -> None:
    served = proxy()
    assert set(served.service._handlers) == set(NEEDS) == set(requests(served))


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_each_call_needs_its_topic_and_its_group(name: str) -> None:
    right = "Pub" if name in PUBLISHED else "Sub"
    whole = ["Topic:t", *([] if name in TOPIC_ONLY else ["Group:g"])]
    whole = ["Group:g"] if name in GROUP_ONLY else whole
    served = proxy()
    allow(served.rig, *whole, actions=right)
    assert not is_denied(served, name)
    for each in whole:
        lacking = proxy()
        allow(lacking.rig, *(other for other in [*whole, "Topic:x"] if other != each), actions=right)
        assert is_denied(lacking, name)
    wrong = proxy()
    allow(wrong.rig, *whole, actions="Pub,Create" if right == "Sub" else "Sub,Create")
    assert is_denied(wrong, name) == (name != "QueryRoute")


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_request_without_a_name_is_not_allowed(name: str) -> None:
    served = proxy()
    allow(served.rig, "*", actions="All")
    blank = requests(served)[name]
    if name == "SendMessage":
        blank.messages[0].topic.name = " "
    elif name == "ReceiveMessage":
        blank.ClearField("message_queue")
    elif name == "Telemetry":
        blank.settings.subscription.group.name = ""
    elif name in GROUP_ONLY:
        blank.group.name = ""
    else:
        blank.topic.name = ""
    stream = served.begin(name, blank)
    answers = served.answers(name, stream)
    if name == "NotifyClientTermination":
        assert answers[0].status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    elif name == "Telemetry":
        assert served.client.status(stream) == "3"
    else:
        assert answers[0].status.code == Code.UNAUTHORIZED
        assert answers[0].status.message.endswith(" is null.")


def test_settings_of_producers_need_the_right_to_send() -> None:
    served = proxy()
    allow(served.rig, "Topic:t", actions="Sub")
    stream, answers = served.tell(producer("t"))
    assert (answers, served.client.status(stream)) == ([], "3")
    allow(served.rig, "Topic:t", actions="Pub")
    served.pass_time(21_000)
    served.tell(producer("t"))
    _, answers = served.tell(producer("t"))
    assert [each.status.code for each in answers] == [Code.OK]


def test_client_cannot_bury_messages_of_topics_that_it_may_not_read() -> None:
    """Otherwise anyone could read them among the dead letters of another group: offsets in the log can be guessed."""
    served = proxy()
    allow(served.rig, "Topic:t", "Group:g*")
    served.rig.topics.put(TopicConfig("secret", 1, 1), served.rig.wall_ms)
    served.headers = credential(*PROXY)
    assert served.send(message("secret", b"secret")).status.code == Code.OK
    place = next(iter(served.rig.store.get("secret", 0, 0, 1))).physical_offset
    served.headers = credential(*BOB)
    assert served.send(message(body=b"mine")).status.code == Code.OK
    (received,) = served.receive()
    handle = received.system_properties.receipt_handle

    def forward(handle: str) -> int:
        request = requests(served)["ForwardMessageToDeadLetterQueue"]
        request.receipt_handle = handle
        return int(served.call("ForwardMessageToDeadLetterQueue", request).status.code)

    stolen = " ".join([*handle.split(" ")[:-1], str(place)])
    assert forward(stolen) == Code.INVALID_RECEIPT_HANDLE
    assert forward(" ".join([*handle.split(" ")[:-1], "99999999"])) != Code.OK
    assert served.rig.messages("%DLQ%g") == []
    assert forward(handle) == Code.OK
    assert [bytes(each.body) for each in served.rig.messages("%DLQ%g")] == [b"mine"]


# -- clients of the remoting protocol


class Signing(Remoting):
    """A client that signs."""

    user: tuple[str, str] | None = BOB

    def put(self, frame: Frame) -> None:
        super().put(frame if self.user is None else signed(frame, *self.user))


def proxied(checks: Checks, rig: Rig) -> tuple[Clustered, Signing]:
    made = Proxied.__new__(Proxied)
    made.served = Clustered(rig, checks=checks, key=PROXY)
    made.service = made.served.cluster.remoting_clients("10.0.0.7:8080")
    made.clients = []
    client = Signing(made, 1)
    made.clients.append(client)
    return made.served, client


@pytest.mark.parametrize("checks", [Checks(), BOTH])
def test_brokers_check_remoting_clients_by_their_own_signatures(checks: Checks) -> None:
    served, client = proxied(checks, guarded())
    assert client.send(b"x", "broker-g", "t").code == ResponseCode.NO_PERMISSION
    allow(served.rig, "Topic:t", "Group:g")
    served.pass_time(21_000)
    client.send(b"x", "broker-g", "t")
    answer = client.send(b"x", "broker-g", "t")
    assert answer.code == ResponseCode.SUCCESS
    assert client.route("t").code == ResponseCode.SUCCESS
    client.user = None
    for topic in ("t", "other"):
        assert client.send(b"x", "broker-g", topic).code == ResponseCode.NO_PERMISSION
        assert client.route(topic).code == ResponseCode.NO_PERMISSION
    client.user = ("bob", "guess")
    answer = client.send(b"x", "broker-g", "t")
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "check signature failed.")


def test_the_proxy_checks_remoting_clients_of_brokers_that_do_not() -> None:
    served, client = proxied(BOTH, guarded(checks=False))
    answer = client.send(b"x", "broker-g", "t")
    text = "User:bob has no permission to access Topic:t from 127.0.0.1, no matched policies."
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, text)
    allow(served.rig, "Topic:t", "Group:g")
    served.pass_time(21_000)
    client.send(b"x", "broker-g", "t")
    assert client.send(b"whole", "broker-g", "t").code == ResponseCode.SUCCESS
    assert bytes(served.rig.messages("t")[-1].body) == b"whole"
    assert client.heartbeat("me").code == ResponseCode.NO_PERMISSION
    garbage = client.call(RequestCode.HEART_BEAT, b"garbage")
    assert garbage.remark == "parse authorization context error."
    client.user = None
    answer = client.route("t")
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
    served.end_broker(0)
    client.user = ("new", "x")
    answer = client.send(b"x", "broker-g", "t")
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, NO_USER)


def test_waiting_requests_of_remoting_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.rocketmq.proxy.remoting._HELD_BYTES_MAX", 15_000)
    served, client = proxied(WHO_ONLY, guarded())
    allow(served.rig, "*", actions="All")
    served.pass_time(1_000)
    served.network.is_stuck = True
    fields: dict[str, Any] = {
        "a": "p",
        "b": "t",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 0,
        "i": "",
        "n": "broker-g",
    }
    first, second = (client.ask(RequestCode.SEND_MESSAGE_V2, b"x" * 6_000, **fields) for _ in range(2))
    assert first not in client.answers
    assert client.answers[second].code == ResponseCode.SYSTEM_BUSY
    served.network.is_stuck = False
    client.proxied.step()
    assert client.answers[first].code == ResponseCode.SUCCESS
    assert bytes(served.rig.messages("t")[-1].body) == b"x" * 6_000


def test_the_proxy_looks_at_what_a_remoting_client_names_by_its_place() -> None:
    """Brokers that do not check hand everything out. Places can be guessed."""
    served, client = proxied(BOTH, guarded(checks=False))
    allow(served.rig, "Topic:t", "Group:g", actions="Pub,Sub")
    served.rig.topics.put(TopicConfig("secret", 1, 1), served.rig.wall_ms)
    owner = served.rig.peer()
    owner.send(b"theirs", topic="secret")
    half = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "U"}
    owner.send(b"theirs", half, topic="secret", f=4)
    owner.send(b"mine")
    owner.send(b"mine", half, f=4)
    halves = served.rig.messages("RMQ_SYS_TRANS_HALF_TOPIC")
    (secret,), (mine,) = served.rig.messages("secret"), served.rig.messages("t")

    def back(record: Record) -> int:
        fields: dict[str, Any] = {"group": "g", "offset": record.physical_offset, "delayLevel": -1, "bname": "broker-g"}
        return client.call(RequestCode.CONSUMER_SEND_MSG_BACK, **fields).code

    def end(record: Record) -> int:
        place: dict[str, Any] = {"tranStateTableOffset": record.queue_offset, "commitLogOffset": record.physical_offset}
        fields: dict[str, Any] = {
            "producerGroup": "p",
            "commitOrRollback": 8,
            "msgId": "U",
            "topic": "t",
            "bname": "broker-g",
        }
        return client.call(RequestCode.END_TRANSACTION, **place, **fields).code

    # The first of them looks up the user's identity and rights.
    back(secret)
    assert back(secret) == end(halves[0]) == ResponseCode.NO_PERMISSION
    assert served.rig.messages("%DLQ%g") == []
    assert back(mine._replace(physical_offset=mine.physical_offset + 1)) == ResponseCode.NO_PERMISSION
    assert back(mine) == end(halves[1]) == ResponseCode.SUCCESS
    assert [bytes(each.body) for each in served.rig.messages("%DLQ%g")] == [b"mine"]
    assert (len(served.rig.messages("secret")), len(served.rig.messages("t"))) == (1, 2)


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_call_that_leaves_out_its_topic_or_its_group_is_denied(name: str) -> None:
    served = proxy()
    allow(served.rig, "*", actions="All")
    assert not is_denied(served, name)
    whole = [] if name in GROUP_ONLY else ["topic"]
    whole += [] if name in TOPIC_ONLY or name in LEAVES else ["group"]
    for lacking in whole:
        request = requests(served)[name]
        for value in ("", " "):
            rename(request, lacking, value)
            assert is_denied(served, name, request)


# Producers say farewell without a group.
LEAVES = {"NotifyClientTermination"}


@pytest.mark.parametrize("name", sorted(NEEDS))
@pytest.mark.parametrize("other", ["theirs", "%RETRY%theirs", "%DLQ%theirs", "%RETRY%theirs_t"])
def test_call_about_anothers_topic_or_group_is_denied(name: str, other: str) -> None:
    served = proxy()
    allow(served.rig, "Topic:t", "Group:g", actions="All")
    assert not is_denied(served, name)
    for kind in ("topic", "group"):
        request = requests(served)[name]
        before = request.SerializeToString()
        rename(request, kind, other)
        if request.SerializeToString() != before:
            assert is_denied(served, name, request)
