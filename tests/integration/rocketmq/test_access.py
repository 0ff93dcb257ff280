"""Access control and configuration of a RocketMQ node as a process."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from bmqctl.testing import NodeFailed, RocketProcess
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.integration.rocketmq.access_rig import ROOT, call, write
from tests.rigs.remoting import Remote

CONFIG = """# checked
authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={"username":"root","password":"hush-root"}
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"hush-inner"}
"""
ACCOUNTS = """accounts:
  - accessKey: alice
    secretKey: hush-alice
    defaultTopicPerm: DENY
    topicPerms:
      - orders=PUB|SUB
  - accessKey: admin
    secretKey: hush-admin
    whiteRemoteAddress: 10.0.0.*
    admin: true
"""


def send(remote: Remote, user: tuple[str, str], topic: str) -> int:
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}
    return call(remote, user, RequestCode.SEND_MESSAGE_V2, b"x", **fields).code


def test_both_listeners_check_and_no_secret_is_told(tmp_path: Path) -> None:
    config = write(tmp_path / "broker.conf", CONFIG)
    with RocketProcess(tmp_path / "store", config_file=config) as node:
        asked = ((node.port, RequestCode.GET_BROKER_CONFIG), (node.nameserver_port, RequestCode.GET_NAMESRV_CONFIG))
        for port, code in asked:
            with Remote(port) as remote:
                wrong = call(remote, ("root", "guess"), code)
                assert (wrong.code, wrong.remark) == (ResponseCode.NO_PERMISSION, "check signature failed.")
                assert remote.call(code).code == ResponseCode.NO_PERMISSION
        with Remote(node.nameserver_port) as remote:
            info = CLUSTER_INFO.read(call(remote, ROOT, RequestCode.GET_BROKER_CLUSTER_INFO).body)
            assert list(info.broker_addr_table) == ["broker-a"]
        with Remote(node.port) as remote:
            made = json.dumps({"password": "hush-walter", "userType": "Normal"}).encode()
            assert call(remote, ROOT, RequestCode.AUTH_CREATE_USER, made, username="walter").code == 0
            assert send(remote, ROOT, "t") == ResponseCode.SUCCESS
            assert send(remote, ("walter", "hush-walter"), "t") == ResponseCode.NO_PERMISSION
            told = [
                call(remote, ROOT, code, username="walter")
                for code in (
                    RequestCode.GET_BROKER_CONFIG,
                    RequestCode.GET_BROKER_RUNTIME_INFO,
                    RequestCode.AUTH_LIST_USER,
                )
            ]
            # The credentials with which proxies check signatures.
            shown = call(remote, ROOT, RequestCode.AUTH_GET_USER, username="walter")
            assert json.loads(bytes(shown.body))["password"] == "hush-walter"
        assert not [each for each in told if b"hush" in bytes(each.body)]
        users = node.data_dir / "config" / "users.json"
        assert stat.S_IMODE(users.stat().st_mode) == 0o600
        assert stat.S_IMODE(users.with_name("users.json.bak").stat().st_mode) == 0o600
        node.stop()
        assert "is denied: check signature failed." in node.log
        assert "hush" not in node.log
        assert "hush" not in node.output
        config.write_text(CONFIG.replace('"password":"hush-root"', '"password":"other"'))
        node.start()
        with Remote(node.port) as remote:
            assert send(remote, ("walter", "hush-walter"), "t") == ResponseCode.NO_PERMISSION
            assert send(remote, ROOT, "t") == ResponseCode.SUCCESS


def test_broker_signs_what_it_tells_nameservers(tmp_path: Path) -> None:
    config = write(tmp_path / "broker.conf", CONFIG)
    with RocketProcess(tmp_path / "store", config_file=config) as node:
        text = f"{CONFIG}namesrvAddr={node.nameserver}\nbrokerName=other\n"
        signing = write(tmp_path / "signing.conf", text)
        with RocketProcess(tmp_path / "signing", config_file=signing) as other:
            other.wait_for(f"registered with nameserver {node.nameserver}")
            with Remote(node.nameserver_port) as remote:
                assert b'"other"' in bytes(call(remote, ROOT, RequestCode.GET_BROKER_CLUSTER_INFO).body)
        silent = write(tmp_path / "silent.conf", f"namesrvAddr={node.nameserver}\nbrokerName=silent\n")
        with RocketProcess(tmp_path / "silent", config_file=silent) as other:
            other.wait_for("refuses: username cannot be null.")


def test_accounts_of_acl_1_are_taken_over(tmp_path: Path) -> None:
    config = write(tmp_path / "broker.conf", "aclEnable=true\n")
    write(tmp_path / "plain_acl.yml", ACCOUNTS)
    with RocketProcess(tmp_path / "store", config_file=config) as node:
        with Remote(node.port) as remote:
            assert send(remote, ("alice", "hush-alice"), "orders") == ResponseCode.SUCCESS
            assert send(remote, ("alice", "hush-alice"), "other") == ResponseCode.NO_PERMISSION
            assert send(remote, ("admin", "hush-admin"), "other") == ResponseCode.SUCCESS
        assert "the whitelisted addresses of account admin are ignored" in node.log
        assert "hush" not in node.log


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("authenticationEnabled=true", "there is no user"),
        ("authenticationEnabled=perhaps", "authenticationEnabled: its value is neither true nor false"),
        ('initAuthenticationUser={"username":"hush"}', "initAuthenticationUser: its value is not like"),
        ("initAuthenticationUser=hush", "initAuthenticationUser: its value is not like"),
        ("aclEnable=true", "plain_acl.yml: No such file"),
    ],
)
def test_access_control_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    config = write(tmp_path / "broker.conf", f"{text}\n")
    with pytest.raises(NodeFailed) as failed:
        RocketProcess(tmp_path / "store", config_file=config).start()
    assert reason in str(failed.value)
    assert "Traceback" not in str(failed.value)
    assert "hush" not in str(failed.value)


def test_switch_that_would_lock_everybody_out_is_neither_turned_nor_kept(tmp_path: Path) -> None:
    config = write(tmp_path / "broker.conf", "# open\n")
    with RocketProcess(tmp_path / "store", config_file=config) as node:
        with Remote(node.port) as remote:
            for name in ("authenticationEnabled", "authorizationEnabled"):
                answer = remote.call(RequestCode.UPDATE_BROKER_CONFIG, f"{name}=true".encode())
                assert answer.code == ResponseCode.INVALID_PARAMETER
            assert remote.call(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS
        assert config.read_text() == "# open\n"
        node.stop()
        node.start()


def test_user_as_whom_a_node_signs_and_the_last_super_user_stay(tmp_path: Path) -> None:
    config = write(tmp_path / "broker.conf", CONFIG)
    with RocketProcess(tmp_path / "store", config_file=config) as node, Remote(node.port) as remote:
        disable = b'{"userStatus":"disable"}'
        for code, body in ((RequestCode.AUTH_DELETE_USER, b""), (RequestCode.AUTH_UPDATE_USER, disable)):
            answer = call(remote, ROOT, code, body, username="inner")
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "innerClientAuthenticationCredentials" in (answer.remark or "")
        # There is another super user.
        assert call(remote, ROOT, RequestCode.AUTH_DELETE_USER, username="root").code == ResponseCode.SUCCESS
        inner = ("inner", "hush-inner")
        assert call(remote, inner, RequestCode.AUTH_DELETE_USER, username="inner").code == ResponseCode.NO_PERMISSION
        assert call(remote, inner, RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS


def test_change_of_the_configuration_is_kept_in_its_file(tmp_path: Path) -> None:
    config = write(tmp_path / "broker.conf", "# mine\nfileReservedTime=72\nbrokerName=kept\n")
    with RocketProcess(tmp_path / "store", config_file=config) as node:
        with Remote(node.port) as remote, Remote(node.nameserver_port) as nameserver:
            changed = remote.call(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=48\nmaxMessageSize=1000\n")
            assert changed.code == ResponseCode.SUCCESS
            told = nameserver.call(RequestCode.UPDATE_NAMESRV_CONFIG, b"returnOrderTopicConfigToBroker=false")
            assert told.code == ResponseCode.SUCCESS
        assert config.read_text() == "# mine\nfileReservedTime=48\nbrokerName=kept\nmaxMessageSize=1000\n"
        node.stop()
        node.start()
        with Remote(node.port) as remote, Remote(node.nameserver_port) as nameserver:
            shown = bytes(remote.call(RequestCode.GET_BROKER_CONFIG).body)
            assert b"fileReservedTime=48" in shown
            assert b"maxMessageSize=1000" in shown
            shown = bytes(nameserver.call(RequestCode.GET_NAMESRV_CONFIG).body)
            assert b"returnOrderTopicConfigToBroker=false" in shown
