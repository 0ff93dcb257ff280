"""Users, policies, and the check of requests, through a whole broker."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rocketmq.access.guard import AccessDenied, AccessOptions
from broker.rocketmq.access.needs import needs
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GroupConfig
from formats.rocketmq.remoting.bodies.lite import SUBSCRIPTIONS, LiteSubscription, LiteSubscriptions
from formats.rocketmq.remoting.bodies.popping import BATCH_ACK_REQUEST, BatchAck, BatchAckRequest
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import is_signed_with, signed
from tests.broker.rocketmq.access.access_rig import BOTH, ROOT, USER, Signer, create_user, json_body, policy
from tests.broker.rocketmq.rig import Rig


def rig_with(options: AccessOptions = BOTH) -> tuple[Rig, Signer, Signer]:
    """A broker that checks, its super user, and another user without policies."""
    rig = Rig()
    peer = rig.peer()
    assert create_user(peer, *ROOT, userType="Super").code == ResponseCode.SUCCESS
    assert create_user(peer, *USER).code == ResponseCode.SUCCESS
    rig.access_options = options
    rig.stop()
    peer = rig.peer()
    return rig, Signer(peer, ROOT), Signer(peer, USER)


# -- signatures


def test_signature_is_that_of_the_original() -> None:
    """The expected value was made with the Java class AclClientRPCHook of RocketMQ 5.4.0."""
    frame = Frame(10, 1, ext_fields={"topic": "t", "a": "1", "AccessKey": "ak"}, body=b"body")
    made = signed(frame, "ak", "12345678").ext_fields or {}
    assert made["Signature"] == "GZyQ+f3kNJZ3GDe5KUJV7qQvoIE="
    assert is_signed_with(frame._replace(ext_fields=made), "12345678")


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame._replace(body=b"other"),
        lambda frame: frame._replace(ext_fields={**frame.ext_fields, "topic": "u"}),
        lambda frame: frame._replace(ext_fields={**frame.ext_fields, "more": "u"}),
        lambda frame: frame._replace(ext_fields={**frame.ext_fields, "Signature": ""}),
        lambda frame: frame._replace(ext_fields={"topic": "t", "AccessKey": "ak"}),
    ],
)
def test_changed_request_is_not_signed(change: Any) -> None:
    frame = signed(Frame(10, 1, ext_fields={"topic": "t"}, body=b"body"), "ak", "s")
    assert is_signed_with(frame, "s")
    assert not is_signed_with(frame, "S")
    assert not is_signed_with(change(frame), "s")


def test_field_that_older_clients_add_late_is_not_signed() -> None:
    frame = signed(Frame(12, 1, ext_fields={"topic": "t"}), "ak", "s")
    late = {**(frame.ext_fields or {}), "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed_with(frame._replace(ext_fields=late, version=399), "s")  # 4.9.3
    assert not is_signed_with(frame._replace(ext_fields=late, version=401), "s")  # 4.9.4
    assert not is_signed_with(frame._replace(ext_fields=late, version=493), "s")


# -- authentication


def test_nothing_is_checked_by_default() -> None:
    rig = Rig()
    assert rig.peer().send(b"x").code == ResponseCode.SUCCESS
    assert not rig.guard.is_on


def test_requests_without_a_valid_signature_are_denied() -> None:
    rig, root, _ = rig_with(AccessOptions(authentication=True))
    assert root.send().code == ResponseCode.SUCCESS
    peer = root.peer
    # Such messages are stored without looking closely where nothing is checked.
    denied = peer.send(b"x", {"UNIQ_KEY": "1"})
    assert (denied.code, denied.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
    wrong = Signer(peer, ("root", "guess")).send()
    assert (wrong.code, wrong.remark) == (ResponseCode.NO_PERMISSION, "check signature failed.")
    unknown = Signer(peer, ("nobody", "x")).send()
    assert (unknown.code, unknown.remark) == (ResponseCode.NO_PERMISSION, "User:nobody is not found.")
    assert len(rig.messages("t")) == 1


def test_disabled_user_is_denied() -> None:
    _, root, user = rig_with(AccessOptions(authentication=True))
    assert user.send().code == ResponseCode.SUCCESS
    update = RequestCode.AUTH_UPDATE_USER
    assert root.call(update, json_body(userStatus="disable"), username="walter").code == ResponseCode.SUCCESS
    assert user.send().remark == "User:walter is disabled."
    assert root.call(update, json_body(userStatus="enable"), username="walter").code == ResponseCode.SUCCESS
    assert user.send().code == ResponseCode.SUCCESS


def test_white_list_is_not_checked() -> None:
    options = AccessOptions(authentication=True, authentication_white_list=frozenset({RequestCode.GET_MAX_OFFSET}))
    _, root, _ = rig_with(options)
    assert root.peer.call(RequestCode.GET_MAX_OFFSET, topic="t", queueId=0).code == ResponseCode.SUCCESS
    assert root.peer.call(RequestCode.GET_MIN_OFFSET, topic="t", queueId=0).code == ResponseCode.NO_PERMISSION


def test_check_is_switched_while_the_broker_runs() -> None:
    rig = Rig()
    peer = rig.peer()
    create_user(peer, *ROOT, userType="Super")
    assert peer.send(b"x", {"UNIQ_KEY": "1"}).code == ResponseCode.SUCCESS
    assert peer.call(RequestCode.UPDATE_BROKER_CONFIG, b"authenticationEnabled=true").code == ResponseCode.SUCCESS
    assert peer.send(b"x", {"UNIQ_KEY": "1"}).code == ResponseCode.NO_PERMISSION
    off = Signer(peer, ROOT).call(RequestCode.UPDATE_BROKER_CONFIG, b"authenticationEnabled=false")
    assert off.code == ResponseCode.SUCCESS
    assert peer.send(b"x", {"UNIQ_KEY": "1"}).code == ResponseCode.SUCCESS


# -- authorization


def test_policies_decide() -> None:
    _, root, user = rig_with()
    denied = user.send()
    assert denied.code == ResponseCode.NO_PERMISSION
    assert denied.remark == "User:walter has no permission to access Topic:t from 127.0.0.1, no matched policies."
    create = RequestCode.AUTH_CREATE_ACL
    assert root.call(create, policy("Topic:t", "Pub"), subject="User:walter").code == ResponseCode.SUCCESS
    assert user.send().code == ResponseCode.SUCCESS
    pull: dict[str, Any] = {
        "consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1,
    }  # fmt: skip
    assert user.call(RequestCode.PULL_MESSAGE, **pull).code == ResponseCode.NO_PERMISSION
    update = RequestCode.AUTH_UPDATE_ACL
    assert root.call(update, policy("Topic:t", "Pub,Sub"), subject="User:walter").code == ResponseCode.SUCCESS
    missing = user.call(RequestCode.PULL_MESSAGE, **pull)
    assert missing.remark == "User:walter has no permission to access Group:g from 127.0.0.1, no matched policies."
    root.call(update, policy("Group:g", "Sub", sources=("127.0.0.0/8",)), subject="User:walter")
    assert user.call(RequestCode.PULL_MESSAGE, **pull).code == ResponseCode.SUCCESS
    root.call(update, policy("Group:g", "Sub", sources=("10.0.0.0/8",)), subject="User:walter")
    assert user.call(RequestCode.PULL_MESSAGE, **pull).code == ResponseCode.NO_PERMISSION
    root.call(update, policy("Topic:t", "Pub", "Deny"), subject="User:walter")
    assert (user.send().remark or "").endswith("the decision is deny.")


def test_only_super_users_or_those_of_the_cluster_administer() -> None:
    rig, root, user = rig_with()
    for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.AUTH_LIST_USER, RequestCode.CLEAN_UNUSED_TOPIC):
        assert user.call(code).code == ResponseCode.NO_PERMISSION
        assert root.call(code).code == ResponseCode.SUCCESS
    cluster = rig.options.cluster
    root.call(RequestCode.AUTH_CREATE_ACL, policy(f"Cluster:{cluster}", "Get,Update"), subject="User:walter")
    assert user.call(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS
    assert user.call(RequestCode.AUTH_GET_USER, username="root").code == ResponseCode.SUCCESS
    made = user.call(RequestCode.AUTH_CREATE_USER, json_body(password="x", userType="Super"), username="evil")
    assert (made.code, made.remark) == (ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
    changed = user.call(RequestCode.AUTH_UPDATE_USER, json_body(password="mine"), username="root")
    assert changed.code == ResponseCode.SYSTEM_ERROR
    assert user.call(RequestCode.AUTH_DELETE_USER, username="root").code == ResponseCode.SYSTEM_ERROR
    assert root.call(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS


def test_authorization_alone_asks_who_it_is() -> None:
    _, root, user = rig_with(AccessOptions(authorization=True))
    assert root.peer.call(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.NO_PERMISSION
    assert Signer(root.peer, ("root", "anything")).call(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS
    assert user.send().code == ResponseCode.NO_PERMISSION


def test_body_that_cannot_be_read_is_denied() -> None:
    _, _, user = rig_with()
    denied = user.call(RequestCode.HEART_BEAT, b"{")
    assert (denied.code, denied.remark) == (ResponseCode.NO_PERMISSION, "parse authorization context error.")


def resources(code: RequestCode, body: bytes = b"", **fields: str) -> set[str]:
    frame = Frame(code, 0, ext_fields=fields, body=body)
    return {f"{need.resource} {'|'.join(sorted(need.actions))}" for need in needs(frame, "c")}


def test_requests_concern_what_they_name() -> None:
    code = RequestCode
    heartbeat = json_body(
        clientID="x",
        consumerDataSet=[
            {
                "groupName": "g",
                "subscriptionDataSet": [{"topic": "t", "subString": "*"}, {"topic": "%RETRY%g", "subString": "*"}],
            }
        ],
    )
    assert resources(code.HEART_BEAT, heartbeat) == {"Group:g Sub", "Topic:t Sub"}
    assert resources(code.HEART_BEAT, json_body(clientID="x", producerDataSet=[{"groupName": "p"}])) == set()
    assert resources(code.SEND_MESSAGE_V2, b="t", a="p") == {"Topic:t Pub"}
    assert resources(code.SEND_MESSAGE, topic="t", producerGroup="p") == {"Topic:t Pub"}
    assert resources(code.SEND_MESSAGE_V2, b="%RETRY%g", a="g") == {"Group:g Sub"}
    assert resources(code.PULL_MESSAGE, topic="%RETRY%g", consumerGroup="g") == {"Group:g Sub"}
    assert resources(code.ACK_MESSAGE, topic="%RETRY%g_t", consumerGroup="g") == {"Group:g Sub"}
    acks = BATCH_ACK_REQUEST.write(BatchAckRequest("b", [BatchAck("g", "t", "0", 0, 0, 0, 0, 0)]))
    assert resources(code.BATCH_ACK_MESSAGE, acks) == {"Group:g Sub", "Topic:t Sub"}
    assert resources(code.GET_ROUTEINFO_BY_TOPIC, topic="t") == {"Topic:t Get|Pub|Sub"}
    lock = json_body(consumerGroup="g", clientId="x", mqSet=[{"topic": "t", "brokerName": "b", "queueId": 0}])
    assert resources(code.LOCK_BATCH_MQ, lock) == {"Group:g Sub", "Topic:t Sub"}
    assert resources(code.QUERY_ASSIGNMENT, json_body(topic="t", consumerGroup="g", clientId="x")) == {
        "Group:g Sub",
        "Topic:t Sub",
    }
    group = GROUP_CONFIG.write(GroupConfig("g"))
    assert resources(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group) == {"Group:g Create"}
    assert resources(code.GET_CONSUME_STATS, consumerGroup="g", topicList="t;u") == {
        "Group:g Get",
        "Topic:t Get",
        "Topic:u Get",
    }
    assert resources(code.UPDATE_BROKER_CONFIG) == {"Cluster:c Update"}
    assert resources(code.GET_BROKER_CONFIG) == {"Cluster:c Get"}
    assert resources(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"Cluster:c List"}


@pytest.mark.parametrize("code", list(RequestCode))
def test_no_request_is_open_to_those_without_policies(code: RequestCode) -> None:
    """Each names what it concerns, or cannot be read, or is one that clients send about nothing."""
    _, _, user = rig_with()
    fields = dict.fromkeys(
        ("topic", "group", "consumerGroup", "groupName", "destGroup", "compareGroup", "parentTopic", "b"), "x"
    )
    frame = signed(Frame(code, 0, ext_fields=fields, body=b"{}", version=493), *USER)
    try:
        user.peer.rig.guard.check(frame, "127.0.0.1")
    except AccessDenied:
        return
    about_nothing = {
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
    assert code in about_nothing


# -- users and policies


def listed(answer: Frame) -> Any:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return fastjson.loads(bytes(answer.body).decode()) if answer.body else None


def test_users_are_made_changed_shown_and_deleted() -> None:
    rig = Rig()
    peer = rig.peer()
    assert create_user(peer, "one", "p1").code == ResponseCode.SUCCESS
    again = create_user(peer, "one", "p2")
    assert (again.code, again.remark) == (ResponseCode.NO_PERMISSION, "The user is existed")
    assert create_user(peer, "", "p").code == ResponseCode.INVALID_PARAMETER
    assert create_user(peer, "two", " ").remark == "password can not be blank"
    get = RequestCode.AUTH_GET_USER
    shown = {"username": "one", "userType": "Normal", "userStatus": "enable"}
    assert listed(peer.call(get, username="one")) == shown
    assert listed(peer.call(get, username="two")) is None
    create_user(peer, "other", "p3", userType="super")
    names = RequestCode.AUTH_LIST_USER
    assert [each["username"] for each in listed(peer.call(names))] == ["one", "other"]
    assert [each["userType"] for each in listed(peer.call(names, filter="the"))] == ["Super"]
    assert listed(peer.call(names, filter="x")) is None
    update = RequestCode.AUTH_UPDATE_USER
    assert peer.call(update, json_body(password="p4"), username="one").code == ResponseCode.SUCCESS
    assert peer.call(update, json_body(), username="two").remark == "The user is not exist"
    rig.stop()
    peer = rig.peer()
    assert listed(peer.call(get, username="one")) == shown
    assert b"p4" in rig.files["users"]
    assert peer.call(RequestCode.AUTH_DELETE_USER, username="one").code == ResponseCode.SUCCESS
    assert listed(peer.call(get, username="one")) is None


@pytest.mark.parametrize("options", [BOTH, AccessOptions()])
def test_a_password_is_told_to_super_users_who_sign_and_to_nobody_else(options: AccessOptions) -> None:
    """Proxies check signatures with it; that nothing is checked here is no reason to tell it to anybody."""
    rig, root, user = rig_with(options)
    get = RequestCode.AUTH_GET_USER
    assert listed(root.call(get, username="walter"))["password"] == USER[1]
    assert "password" not in str(listed(root.call(RequestCode.AUTH_LIST_USER)))
    root.call(RequestCode.AUTH_CREATE_ACL, policy("*", "All"), subject="User:walter")
    assert "password" not in listed(user.call(get, username="walter"))
    unproven = rig.peer().call(get, username="walter", AccessKey="root", Signature="guess")
    assert b"walter-secret" not in bytes(unproven.body)
    root.call(RequestCode.AUTH_CREATE_USER, json_body(password="s", userType="Super"), username="second")
    assert listed(Signer(root.peer, ("second", "s")).call(get, username="walter"))["password"] == USER[1]
    root.call(RequestCode.AUTH_UPDATE_USER, json_body(userStatus="disable"), username="second")
    disabled = Signer(root.peer, ("second", "s")).call(get, username="walter")
    assert b"walter-secret" not in bytes(disabled.body)


def test_policies_are_made_changed_shown_and_deleted() -> None:
    rig = Rig()
    peer = rig.peer()
    create_user(peer, "one")
    create, get, delete = RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_GET_ACL, RequestCode.AUTH_DELETE_ACL
    assert peer.call(create, policy("Topic:a", "Pub"), subject="User:two").code == ResponseCode.NO_PERMISSION
    assert peer.call(create, policy("Topic:a", "Any"), subject="User:one").remark == "The actions can not be Any."
    assert peer.call(create, policy("Topic:a", "Pub"), subject="Robot:one").code == ResponseCode.NO_PERMISSION
    assert listed(peer.call(get, subject="User:one")) is None
    peer.call(create, policy("Topic:a", "Pub"), subject="User:one")
    peer.call(create, policy("Group:b*", "Sub,Get", "Deny", ("10.0.0.0/8",)), subject="User:one")
    rig.stop()
    peer = rig.peer()
    (shown,) = listed(peer.call(get, subject="User:one"))["policies"]
    assert shown == {
        "policyType": "Custom",
        "entries": [
            {"resource": "Topic:a", "actions": ["Pub"], "sourceIps": [], "decision": "Allow"},
            {"resource": "Group:b*", "actions": ["Sub", "Get"], "sourceIps": ["10.0.0.0/8"], "decision": "Deny"},
        ],
    }
    found = RequestCode.AUTH_LIST_ACL
    (only,) = listed(peer.call(found, resourceFilter="b*"))
    assert [entry["resource"] for each in only["policies"] for entry in each["entries"]] == ["Group:b*"]
    assert listed(peer.call(found, subjectFilter="two")) is None
    assert peer.call(delete, subject="User:one", resource="Topic:a").code == ResponseCode.SUCCESS
    assert len(listed(peer.call(get, subject="User:one"))["policies"][0]["entries"]) == 1
    assert peer.call(delete, subject="User:one").code == ResponseCode.SUCCESS
    assert listed(peer.call(get, subject="User:one")) is None
    assert peer.call(delete, subject="User:one").remark == "The acl is not exist."


def test_policies_go_with_their_user() -> None:
    rig = Rig()
    peer = rig.peer()
    create_user(peer, "one")
    peer.call(RequestCode.AUTH_CREATE_ACL, policy("Topic:a", "Pub"), subject="User:one")
    peer.call(RequestCode.AUTH_DELETE_USER, username="one")
    create_user(peer, "one")
    assert listed(peer.call(RequestCode.AUTH_GET_ACL, subject="User:one")) is None


@pytest.mark.parametrize("body", [b'{"password":["hush"]}', b'{"password":"hush"', b'["hush"]', b"\xffhush"])
def test_answer_tells_nothing_of_a_password(body: bytes) -> None:
    rig = Rig()
    answer = rig.peer().call(RequestCode.AUTH_CREATE_USER, body, username="one")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "hush" not in (answer.remark or "")


def test_client_cannot_send_back_messages_of_topics_that_it_may_not_read() -> None:
    """Otherwise anyone could read them in the retry topic of another group: offsets in the log can be guessed."""
    rig, root, user = rig_with()
    root.call(RequestCode.AUTH_CREATE_ACL, policy("Group:g", "Sub"), subject="User:walter")
    root.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP_CONFIG.write(GroupConfig("g")))
    assert root.send("t", b"secret").code == ResponseCode.SUCCESS
    place = next(iter(rig.store.get("t", 0, 0, 1))).physical_offset
    fields: dict[str, Any] = {"group": "g", "offset": place, "delayLevel": 0, "originTopic": "mine"}
    end = rig.store.log.end
    denied = user.call(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)
    assert denied.code == ResponseCode.NO_PERMISSION
    assert "User:walter has no permission to access Topic:t from" in (denied.remark or "")
    assert rig.store.log.end == end
    root.call(RequestCode.AUTH_UPDATE_ACL, policy("Topic:t", "Sub"), subject="User:walter")
    assert user.call(RequestCode.CONSUMER_SEND_MSG_BACK, **fields).code == ResponseCode.SUCCESS
    rig.pass_time(3_600_000)
    # A user who may read the source topic can take back a redelivered message again.
    again = next(iter(rig.store.get("%RETRY%g", 0, 0, 1))).physical_offset
    assert user.call(RequestCode.CONSUMER_SEND_MSG_BACK, **{**fields, "offset": again}).code == ResponseCode.SUCCESS


def test_asking_a_controller_needs_less_than_having_it_change_something() -> None:
    code = RequestCode
    for shown in (code.CONTROLLER_GET_REPLICA_INFO, code.CONTROLLER_GET_METADATA_INFO, code.GET_CONTROLLER_CONFIG):
        assert resources(shown, brokerName="b") == {"Cluster:c Get"}
    for changed in (code.CONTROLLER_ELECT_MASTER, code.CONTROLLER_ALTER_SYNC_STATE_SET, code.UPDATE_CONTROLLER_CONFIG):
        assert resources(changed, brokerName="b") == {"Cluster:c Update"}


def test_lite_topics_are_open_to_those_who_may_consume_parent_and_group() -> None:
    change = LiteSubscription("PARTIAL_ADD", "c", "g", "parent", ["a"])
    body = SUBSCRIPTIONS.write(LiteSubscriptions([change]))
    found = needs(Frame(RequestCode.LITE_SUBSCRIPTION_CTL, 0, body=body), "cluster")
    assert {(need.resource.kind, need.resource.name, *need.actions) for need in found} == {
        ("Topic", "parent", "Sub"),
        ("Group", "g", "Sub"),
    }
