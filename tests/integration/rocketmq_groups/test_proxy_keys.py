"""`bmqctl start rocketmq-proxy` with a key, before a node of ours that checks: who may call through it, and who not."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bmqctl.systems.node_process import NodeFailed, RocketProcess, RocketProxyProcess
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import make
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed
from scripts.judges.client_environment import CannotInstall, client_python
from tests.integration.clients.test_rocketmq_grpc_client import PACKAGE
from tests.integration.rocketmq.access_rig import ROOT, call, write
from tests.rigs.grpc_calls import Caller, connect
from tests.rigs.grpc_topics import make_topics
from tests.rigs.remoting import Remote

PROGRAM = Path(__file__).parents[2] / "rigs" / "programs" / "grpc_keys_client.py"
BROKER = """authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={"username":"root","password":"hush-root"}
"""
KEY = 'innerClientAuthenticationCredentials={"accessKey":"proxy","secretKey":"hush-proxy"}\n'
CHECKS = "authenticationEnabled=true\nauthorizationEnabled=true\n"
ANN, BOB = ("ann", "hush-ann"), ("bob", "hush-bob")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RocketProcess]:
    """A node that checks. The proxy's user is a super user, Ann may use `Normal` and `consumers`, Bob nothing."""
    with RocketProcess(tmp_path / "store", config_file=write(tmp_path / "broker.conf", ""), grpc_port=0) as process:
        make_topics(process.port)
        process.stop()
        write(tmp_path / "broker.conf", BROKER)
        process.start()
        with Remote(process.port) as remote:
            for name, password, kind in (("proxy", "hush-proxy", "Super"), (*ANN, "Normal"), (*BOB, "Normal")):
                body = json.dumps({"password": password, "userType": kind}).encode()
                assert call(remote, ROOT, RequestCode.AUTH_CREATE_USER, body, username=name).code == 0
            entries = [
                {"resource": each, "actions": ["Pub", "Sub"], "sourceIps": [], "decision": "Allow"}
                for each in ("Topic:Normal", "Group:consumers")
            ]
            body = json.dumps({"policies": [{"entries": entries}]}).encode()
            assert call(remote, ROOT, RequestCode.AUTH_CREATE_ACL, body, subject="User:ann").code == 0
        yield process


def proxy_of(node: RocketProcess, tmp_path: Path, text: str) -> RocketProxyProcess:
    config = write(tmp_path / "proxy.conf", text)
    return RocketProxyProcess(tmp_path / "proxy", [node.nameserver], options=["--config", str(config)])


def headers(name: str, secret: str) -> dict[str, str]:
    now = "20260101T000000Z"
    signature = hmac.new(secret.encode(), now.encode(), hashlib.sha1).hexdigest()
    text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": text, "x-mq-date-time": now}


def send(proxy: RocketProxyProcess, *user: str, topic: str = "Normal") -> tuple[int, str]:
    message = make("Message", body=b"x", topic=make("Resource", name=topic))
    message.system_properties.message_id = "ID-1"
    message.system_properties.message_type = message.system_properties.body_encoding = 1
    with closing(connect(proxy.port)) as sock:
        caller = Caller(sock, headers=headers(*user) if user else {})
        (answer,) = caller.call("SendMessage", make("SendMessageRequest", messages=[message]))
    return answer.status.code, answer.status.message


def test_users_who_may_call_through_a_proxy_that_checks(node: RocketProcess, tmp_path: Path) -> None:
    with proxy_of(node, tmp_path, CHECKS + KEY) as proxy:
        assert send(proxy, *ANN)[0] == Code.OK
        assert send(proxy, *ROOT, topic="Delay")[0] == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        for user, text in (
            ((), "username cannot be null."),
            (("ann", "guess"), "check signature failed."),
            (("nobody", "x"), "User:nobody is not found."),
            (BOB, "User:bob has no permission to access Topic:Normal from 127.0.0.1, no matched policies."),
        ):
            assert send(proxy, *user) == (Code.UNAUTHORIZED, text)
        assert send(proxy, *ANN, topic="Delay")[0] == Code.UNAUTHORIZED
        # Remoting clients sign what brokers check, and the proxy's key is not lent to them.
        with Remote(proxy.remoting_port) as remote:
            fields = {"a": "p", "b": "Normal", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}
            texts = {name: str(value) for name, value in {**fields, "n": "broker-a"}.items()}
            for one, code in ((ANN, ResponseCode.SUCCESS), (BOB, 16), (("ann", "guess"), 16)):
                frame = signed(Frame(RequestCode.SEND_MESSAGE_V2, 0, ext_fields=texts, body=b"y"), *one)
                sent = remote.call(RequestCode.SEND_MESSAGE_V2, b"y", **(frame.ext_fields or {}))
                assert sent.code == code, sent.remark
            assert remote.call(RequestCode.SEND_MESSAGE_V2, b"y", **texts).code == ResponseCode.NO_PERMISSION
        # Known users go on to the broker; others are refused even if no broker answers.
        node.kill()
        assert send(proxy, *ANN)[0] == Code.INTERNAL_SERVER_ERROR
        failed = "Authentication failed. Please verify the credentials and try again."
        assert send(proxy, "later", "x") == (Code.UNAUTHORIZED, failed)
        assert "hush" not in proxy.log + proxy.output
        assert "fault of this broker" not in proxy.output


def test_a_proxy_that_only_signs_says_so(node: RocketProcess, tmp_path: Path) -> None:
    given = json.dumps({"innerClientAuthenticationCredentials": KEY.partition("=")[2], "rocketmqClusterName": "x"})
    with proxy_of(node, tmp_path, given) as proxy:
        assert send(proxy)[0] == Code.OK
        assert "clients that speak gRPC are not checked" in proxy.log
        assert "unsupported properties ignored: rocketmqClusterName" in proxy.log
    with proxy_of(node, tmp_path, KEY + "authenticationEnabled=true\n") as proxy:
        assert send(proxy, *BOB)[0] == Code.OK
        assert send(proxy)[0] == Code.UNAUTHORIZED
        assert "what clients that speak gRPC may do is not checked" in proxy.log


def test_a_proxy_whose_key_is_no_super_users_says_why_it_knows_nobody(node: RocketProcess, tmp_path: Path) -> None:
    with proxy_of(node, tmp_path, CHECKS + KEY.replace("proxy", "ann")) as proxy:
        assert send(proxy, *ANN)[0] == Code.UNAUTHORIZED
        assert "users and their policies cannot be looked up" in proxy.log


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'innerClientAuthenticationCredentials={"accessKey":"hush"}',
            "innerClientAuthenticationCredentials: its value is not like",
        ),
        ("authenticationEnabled=hush", "authenticationEnabled: its value is neither true nor false"),
        ("authorizationEnabled=true", "authorizationEnabled needs to know who asks: set authenticationEnabled=true"),
        (
            'initAuthenticationUser={"username":"hush","password":"hush"}',
            "initAuthenticationUser: a proxy has no users",
        ),
        ('{"authenticationEnabled": hush}', "is not JSON"),
        (None, "No such file"),
    ],
)
def test_keys_that_cannot_be_used_are_one_line(tmp_path: Path, text: str | None, reason: str) -> None:
    config = tmp_path / "proxy.conf"
    if text is not None:
        config.write_text(text)
    with pytest.raises(NodeFailed) as failed:
        RocketProxyProcess(tmp_path / "proxy", ["127.0.0.1:1"], options=["--config", str(config)]).start()
    told = str(failed.value)
    assert f"bmqctl: {config}: " in told
    assert reason in told
    assert "Traceback" not in told
    assert "hush" not in told


@pytest.mark.slow
def test_the_python_client_with_each_key(node: RocketProcess, tmp_path: Path) -> None:
    try:
        python = client_python(PACKAGE, "rocketmq-grpc")
    except CannotInstall as reason:
        pytest.skip(str(reason))

    def run(*words: str) -> dict[str, str]:
        done = subprocess.run(
            [str(python), str(PROGRAM), proxy.endpoint, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": ""},
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return found

    with proxy_of(node, tmp_path, CHECKS + KEY) as proxy:
        assert run("Normal", "consumers", *ANN) == {"sent": "sent", "received": "by key"}
        for words in (
            ("Normal", "consumers", "ann", "guess"),
            ("Normal", "consumers"),
            ("Normal", "consumers", *BOB),
            ("Fifo", "consumers", *ANN),
        ):
            # The client does not hand on what the proxy says of its reasons.
            refused = f"Exception: failed to fetch topic:{words[0]} route."
            assert run(*words) == {"sent": refused, "received": refused}
        other = run("Normal", "others", *ANN)
        assert other["sent"] == "sent"
        assert other["received"] != "by key"
