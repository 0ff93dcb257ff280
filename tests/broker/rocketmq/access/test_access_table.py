"""Each request that a node answers, from a user with rights on one topic and one group.

The requests are those for which there are handlers. Each is sent as it should be, and then with each field that names a
resource left out, blank, and with the name of somebody else's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import broker.rocketmq
from broker.rocketmq.access.guard import AccessDenied, AccessOptions
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame
from formats.rocketmq.remoting.headers.table import HEADERS
from formats.rocketmq.remoting.raft import CODE as RAFT_CODE
from formats.rocketmq.remoting.signature import signed
from tests.broker.rocketmq.access.access_rig import ROOT, USER, create_user, policy
from tests.broker.rocketmq.rig import Rig

Code = RequestCode
Fields = dict[str, str]

# Where requests are answered. A code that is the key of a table there has a handler.
_FOLDERS: Final = ("access", "controller", "core", "nameserver", "replication")
_NOT_HANDLERS: Final = {"needs.py"}


def _handled() -> set[int]:
    root = Path(broker.rocketmq.__path__[0])
    found: set[int] = {*Rig().broker._handlers, Code.GET_ROUTEINFO_BY_TOPIC, RAFT_CODE}
    for folder in _FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            if file.name not in _NOT_HANDLERS:
                found |= {
                    Code.__members__[name]
                    for name in re.findall(r"^ +RequestCode\.(\w+): ", file.read_text(), re.MULTILINE)
                }
    return found


HANDLED: Final = sorted(_handled())

TOPICS: Final = {"topic", "b", "parentTopic", "topicList"}
GROUPS: Final = {"consumerGroup", "group", "groupName", "srcGroup", "destGroup", "compareGroup", "filterGroups"}
# Fields that name something about a topic or a group without being one.
NO_RESOURCE: Final = {
    "producerGroup": "producers need rights on topics only",
    "proxyFrowardClientId": "a client",
    "defaultTopic": "the topic after which one is made that is not there",
    "originTopic": "a note; the message itself says where it comes from",
    "topicFilterType": "a kind",
    "topicSysFlag": "flags",
    "groupSysFlag": "flags",
    "liteTopic": "a part of its parent, which is named as well",
}
# Fields that may be left out; `needs.OPTIONAL` says why.
MAY_LACK: Final = {
    (Code.GET_CONSUME_STATS, "topic"),
    (Code.QUERY_CONSUME_QUEUE, "consumerGroup"),
    (Code.CLONE_GROUP_OFFSET, "topic"),
    (Code.END_TRANSACTION, "topic"),
    (Code.UNREGISTER_CLIENT, "consumerGroup"),
}
LISTS: Final = {"topicList", "filterGroups"}


def _subscription(topic: str) -> dict[str, Any]:
    return {"topic": topic, "subString": "*"}


def _heartbeat(topic: str, group: str) -> Any:
    consumer = {"groupName": group, "subscriptionDataSet": [_subscription("mine"), _subscription(topic)]}
    return {"clientID": "c", "consumerDataSet": [{**consumer, "groupName": "mine"}, consumer]}


def _lock(topic: str, group: str) -> Any:
    queues = [{"topic": each, "brokerName": "b", "queueId": 0} for each in ("mine", topic)]
    return {"consumerGroup": group, "clientId": "c", "mqSet": queues}


def _acks(topic: str, group: str) -> Any:
    numbers = dict.fromkeys(("so", "q", "rq", "pt", "it"), 0)
    return {"acks": [{"c": "mine", "t": "mine", "r": "0", **numbers}, {"c": group, "t": topic, "r": "0", **numbers}]}


def _lite(topic: str, group: str) -> Any:
    change = {"action": "PARTIAL_ADD", "clientId": "c", "liteTopicSet": ["a"]}
    return {
        "subscriptionSet": [{**change, "group": "mine", "topic": "mine"}, {**change, "group": group, "topic": topic}]
    }


def _both(topic: str, group: str) -> Any:
    return {"topic": topic, "consumerGroup": group, "clientId": "c"}


def _topics(topic: str, group: str) -> Any:
    return {"topicConfigList": [{"topicName": "mine"}, {"topicName": topic}]}


def _groups(topic: str, group: str) -> Any:
    return {"groupConfigList": [{"groupName": "mine"}, {"groupName": group}]}


# The resources in bodies, by the request's code: which there are, and what makes the body.
Body = Callable[[str, str], Any]
BODIES: Final[dict[int, tuple[str, Body]]] = {
    Code.HEART_BEAT: ("topic group", _heartbeat),
    Code.LOCK_BATCH_MQ: ("topic group", _lock),
    Code.UNLOCK_BATCH_MQ: ("topic group", _lock),
    Code.BATCH_ACK_MESSAGE: ("topic group", _acks),
    Code.LITE_SUBSCRIPTION_CTL: ("topic group", _lite),
    Code.QUERY_ASSIGNMENT: ("topic group", _both),
    Code.SET_MESSAGE_REQUEST_MODE: ("topic group", _both),
    Code.CHECK_CLIENT_CONFIG: (
        "topic group",
        lambda topic, group: {"clientId": "c", "group": group, "subscriptionData": _subscription(topic)},
    ),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: ("topic", _topics),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ("group", lambda topic, group: {"groupName": group}),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ("group", _groups),
}
# Requests about the cluster that name a topic or a group as well.
OF_CLUSTER: Final = {
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.DELETE_TOPIC_IN_NAMESRV,
    Code.REGISTER_TOPIC_IN_NAMESRV,
}


def fields_of(code: int) -> Fields:
    """A request's fields, with the resources that the user has rights on."""
    headers = HEADERS.get(code)
    if headers is None or headers.request is None:
        return {}
    usual: dict[type, str] = {int: "0", bool: "false", str: "x"}
    found = {field.wire_name: usual[field.kind] for field in headers.request.fields}
    return found | dict.fromkeys(resources_of(code), "mine")


def resources_of(code: int) -> list[str]:
    """The fields of a request that name resources."""
    headers = HEADERS.get(code)
    if code in OF_CLUSTER or headers is None or headers.request is None:
        return []
    return [field.wire_name for field in headers.request.fields if field.wire_name in TOPICS | GROUPS]


def node() -> Rig:
    """A broker with a super user, and a user with all rights on one topic and one group."""
    rig = Rig()
    peer = rig.peer()
    create_user(peer, *ROOT, userType="Super")
    create_user(peer, *USER)
    for each in ("Topic:mine", "Group:mine"):
        peer.call(Code.AUTH_CREATE_ACL, policy(each, "All"), subject="User:walter")
    rig.access_options = AccessOptions(authentication=True, authorization=True)
    rig.stop()
    return rig


def is_refused(rig: Rig, code: int, fields: Fields, body: bytes) -> bool:
    """Return whether the user is refused a request, at the broker if that answers it."""
    frame = signed(Frame(code, 0, ext_fields=fields, body=body, version=493), *USER)
    if code not in rig.broker._handlers:
        try:
            rig.guard.check(frame, "127.0.0.1")
        except AccessDenied:
            return True
        return False
    peer = rig.peer()
    peer.session.receive(memoryview(encode_frame(frame._replace(opaque=1))))
    answer = peer.answer(1)
    return answer is not None and answer.code == ResponseCode.NO_PERMISSION


def wrong_fields(code: int) -> Iterator[tuple[str, Fields]]:
    """A request with one resource that is absent, blank, or another's."""
    right = fields_of(code)
    for name in resources_of(code):
        may_lack = (code, name) in MAY_LACK or name in LISTS
        if not may_lack:
            yield f"without {name}", {each: value for each, value in right.items() if each != name}
            yield f"empty {name}", {**right, name: ""}
            yield f"blank {name}", {**right, name: " "}
        retry = "%RETRY%theirs"
        for other in ("theirs", retry, "%RETRY%theirs_mine", "%RETRY%theirs+mine", "%RETRY%mine_theirs", "%DLQ%theirs"):
            # The handle of what the group itself has popped from another's topic is the group's.
            if other != "%RETRY%mine_theirs" or (code, name) not in HANDLES:
                yield f"{name} {other}", {**right, name: other}
        if name in LISTS:
            yield f"{name} with theirs", {**right, name: "mine;theirs" if name == "topicList" else "mine,theirs"}
    if code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2):
        yield "the long name beside the short one", {**right, "topic": "mine", "b": "theirs"}
        yield "the long name for the short one", {**{k: v for k, v in right.items() if k != "b"}, "topic": "mine"}
    if code in (Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE):
        yield "the short name beside the long one", {**right, "b": "mine", "topic": "theirs"}
        yield "the short name for the long one", {**{k: v for k, v in right.items() if k != "topic"}, "b": "mine"}


HANDLES: Final = {(Code.ACK_MESSAGE, "topic"), (Code.CHANGE_MESSAGE_INVISIBLETIME, "topic")}


def bodies_of(code: int) -> Iterator[tuple[str, bytes]]:
    """A body with one resource that is blank, or another's; and bodies with none."""
    names, make = BODIES[code]
    for other in ("", " ", "theirs", "%RETRY%theirs", "%DLQ%theirs"):
        if "topic" in names:
            yield f"topic {other!r}", json.dumps(make(other, "mine")).encode()
        if "group" in names:
            yield f"group {other!r}", json.dumps(make("mine", other)).encode()
    if code != Code.HEART_BEAT:
        yield "nothing", b"{}"
    yield "no body", b""
    yield "garbage", b"{"


@pytest.mark.parametrize("code", HANDLED)
def test_user_has_only_what_he_has_rights_on(code: int) -> None:
    rig = node()
    names = resources_of(code)
    body = json.dumps(BODIES[code][1]("mine", "mine")).encode() if code in BODIES else b""
    if not names and code not in BODIES:
        # Requests about the cluster, or about nothing that anybody has declared.
        assert is_refused(rig, code, fields_of(code), b"{}")
        return
    passed = [what for what, fields in wrong_fields(code) if not is_refused(rig, code, fields, body)]
    if code in BODIES:
        passed += [what for what, wrong in bodies_of(code) if not is_refused(rig, code, fields_of(code), wrong)]
    assert passed == []
    assert not is_refused(rig, code, fields_of(code), body)
    own = {**fields_of(code), **{name: "%RETRY%mine" for name in names if name in {"topic", "b"}}}
    assert not is_refused(node(), code, own, body)


def test_no_field_of_a_header_about_a_topic_or_a_group_is_overlooked() -> None:
    for code in HANDLED:
        headers = HEADERS.get(code)
        if code in OF_CLUSTER or headers is None or headers.request is None:
            continue
        names = {each.wire_name for each in headers.request.fields if each.kind is str}
        assert {each for each in names if re.search("topic|group", each, re.IGNORECASE)} <= (
            TOPICS | GROUPS | NO_RESOURCE.keys()
        )


def test_each_request_is_declared_and_each_field_that_may_lack_has_a_reason() -> None:
    from broker.rocketmq.access.needs import ANSWERED, OPTIONAL

    assert set(HANDLED) <= ANSWERED
    assert set(OPTIONAL) == MAY_LACK | {(Code.HEART_BEAT, "consumerDataSet")}
    assert all(OPTIONAL.values())
