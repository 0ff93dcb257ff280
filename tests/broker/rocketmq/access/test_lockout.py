"""Refusals of switches, and of changes of users and policies, that would lock everybody out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.model import Invalid
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.assembly.checking import faults_at_start
from broker.rocketmq.config.node import load_rocketmq_config
from formats.rocketmq.remoting.bodies.access import UserInfo, write_users
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.access.access_rig import BOTH, ROOT, USER, Signer, create_user, json_body, policy
from tests.broker.rocketmq.rig import Peer, Rig

Code = RequestCode
AUTHENTICATION, AUTHORIZATION = "authenticationEnabled", "authorizationEnabled"
SWITCHES = [
    f"{AUTHENTICATION}=true",
    f"{AUTHORIZATION}=true",
    f"{AUTHENTICATION}=true\n{AUTHORIZATION}=true",
    f"fileReservedTime=5\n{AUTHORIZATION}=true",
]


def switch(peer: Peer, text: str) -> Frame:
    return peer.call(Code.UPDATE_BROKER_CONFIG, text.encode())


def allow(peer: Peer, resource: str, actions: str, decision: str = "Allow") -> None:
    answer = peer.call(Code.AUTH_CREATE_ACL, policy(resource, actions, decision), subject="User:walter")
    assert answer.code == ResponseCode.SUCCESS


def nobody(peer: Peer) -> None:
    """Leave the broker without users."""


def disabled(peer: Peer) -> None:
    create_user(peer, *ROOT, userType="Super", userStatus="disable")


def normal(peer: Peer) -> None:
    create_user(peer, *USER)
    allow(peer, "Topic:*", "All")
    allow(peer, "Cluster:other", "All")
    allow(peer, "Cluster:*", "Get,List")


def denied(peer: Peer) -> None:
    create_user(peer, *USER)
    allow(peer, "Cluster:*", "Update")
    allow(peer, "Cluster:GoldenCluster", "Update", "Deny")


@pytest.mark.parametrize("text", SWITCHES)
@pytest.mark.parametrize("make", [nobody, disabled, normal, denied])
def test_switch_is_refused_if_nobody_could_turn_it_back(make: Any, text: str) -> None:
    rig = Rig()
    peer = rig.peer()
    make(peer)
    answer = switch(peer, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "lock everybody out" in (answer.remark or "")
    assert rig.kept_settings == []
    assert not rig.guard.is_on
    assert peer.send(b"x").code == ResponseCode.SUCCESS


def test_switch_is_turned_if_somebody_may_administer() -> None:
    for text in SWITCHES:
        rig = Rig()
        peer = rig.peer()
        create_user(peer, *ROOT, userType="Super")
        assert switch(peer, text).code == ResponseCode.SUCCESS
        assert rig.guard.is_on
    rig = Rig()
    peer = rig.peer()
    create_user(peer, *USER)
    answer = peer.call(
        Code.AUTH_CREATE_ACL,
        policy("Cluster:Golden*", "Update", sources=("127.0.0.0/8",)),
        subject="User:walter",
    )
    assert answer.code == ResponseCode.SUCCESS
    assert switch(peer, SWITCHES[2]).code == ResponseCode.SUCCESS
    off = Signer(peer, USER).call(Code.UPDATE_BROKER_CONFIG, f"{AUTHORIZATION}=false".encode())
    assert off.code == ResponseCode.SUCCESS


def test_checks_that_are_off_are_switched_off_without_users() -> None:
    rig = Rig()
    assert switch(rig.peer(), f"{AUTHENTICATION}=false\n{AUTHORIZATION}=false").code == ResponseCode.SUCCESS


OPTIONS = [BOTH, AccessOptions(authentication=True), AccessOptions(authorization=True)]


def guarded(options: AccessOptions) -> tuple[Rig, Signer]:
    rig = Rig()
    peer = rig.peer()
    create_user(peer, *ROOT, userType="Super")
    create_user(peer, *USER)
    rig.access_options = options
    rig.stop()
    return rig, Signer(rig.peer(), ROOT)


CHANGES = [
    (Code.AUTH_DELETE_USER, b""),
    (Code.AUTH_UPDATE_USER, json_body(userStatus="disable")),
    (Code.AUTH_UPDATE_USER, json_body(userType="Normal")),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("code", "body"), CHANGES)
def test_last_super_user_stays(code: RequestCode, body: bytes, options: AccessOptions) -> None:
    rig, root = guarded(options)
    files = dict(rig.files)
    answer = root.call(code, body, username="root")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "lock everybody out" in (answer.remark or "")
    assert rig.files == files
    assert root.call(Code.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS
    create_user_as(root, "second", userType="Super")
    assert root.call(code, body, username="root").code == ResponseCode.SUCCESS


def create_user_as(root: Signer, name: str, **fields: Any) -> None:
    assert root.call(Code.AUTH_CREATE_USER, json_body(password="x", **fields), username=name).code == 0


@pytest.mark.parametrize("options", OPTIONS)
def test_password_of_the_last_super_user_does_not_become_nothing(options: AccessOptions) -> None:
    _, root = guarded(options)
    for password in ("", " ", None):
        root.call(Code.AUTH_UPDATE_USER, json_body(password=password), username="root")
        assert root.call(Code.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("code", "body"), CHANGES)
def test_last_super_user_goes_where_nothing_is_checked(code: RequestCode, body: bytes) -> None:
    rig = Rig()
    peer = rig.peer()
    create_user(peer, *ROOT, userType="Super")
    assert peer.call(code, body, username="root").code == ResponseCode.SUCCESS
    # The way in is the check of the switch.
    assert switch(peer, SWITCHES[0]).code == ResponseCode.INVALID_PARAMETER


def test_policies_of_the_last_who_administers_stay() -> None:
    rig, root = guarded(BOTH)
    allowed = policy(f"Cluster:{rig.options.cluster}", "Update,Get")
    assert root.call(Code.AUTH_CREATE_ACL, allowed, subject="User:walter").code == ResponseCode.SUCCESS
    user = Signer(root.peer, USER)
    assert root.call(Code.AUTH_DELETE_USER, username="root").code == ResponseCode.SUCCESS
    denial = policy(f"Cluster:{rig.options.cluster}", "Update", "Deny")
    for answer in (
        user.call(Code.AUTH_DELETE_ACL, subject="User:walter"),
        user.call(Code.AUTH_DELETE_ACL, subject="User:walter", resource=f"Cluster:{rig.options.cluster}"),
        user.call(Code.AUTH_UPDATE_ACL, denial, subject="User:walter"),
        user.call(Code.AUTH_DELETE_USER, username="walter"),
    ):
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "lock everybody out" in (answer.remark or "")
    assert user.call(Code.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS


def test_user_as_whom_the_node_signs_stays_as_it_is() -> None:
    tables = AccessTables(b"", b"", lambda data: None, lambda data: None)
    for name in ("root", "inner"):
        tables.create_user(UserInfo(name, "secret", "Super", "enable"))
    Guard(BOTH, tables, "cluster", "inner")
    with pytest.raises(Invalid, match="innerClientAuthenticationCredentials"):
        tables.delete_user("inner")
    for change in (
        UserInfo("inner", "other", None, None),
        UserInfo("inner", None, "Normal", None),
        UserInfo("inner", None, None, "disable"),
    ):
        with pytest.raises(Invalid, match="innerClientAuthenticationCredentials"):
            tables.update_user(change)
    tables.update_user(UserInfo("inner", "secret", "Super", "enable"))
    tables.delete_user("root")
    assert list(tables.users) == ["inner"]


def test_start_makes_the_check_of_the_switch(tmp_path: Path) -> None:
    """A node does not start, and `config validate` says why, where its switches would have been refused."""
    users = [UserInfo("root", "secret", "Super", "disable"), UserInfo("walter", "secret", "Normal", "enable")]
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "users.json").write_bytes(write_users(users))
    for text in SWITCHES[:3]:
        file = tmp_path / "broker.conf"
        file.write_text(f"storePathRootDir={tmp_path / 'store'}\n{text}\n")
        (fault,) = faults_at_start(load_rocketmq_config(file))
        assert "there is no user who is enabled and may administer" in str(fault)
        file.write_text(file.read_text() + 'initAuthenticationUser={"username":"first","password":"x"}\n')
        assert list(faults_at_start(load_rocketmq_config(file))) == []
