"""Proxies with keys, ours and Apache's, before brokers that check signatures, ours and Apache's.

Users with every right, some, and none, one with a wrong secret and an unknown one call each proxy before each broker
over gRPC; all four have to refuse the same calls for the same reasons. Apache's proxy before Apache's broker is the
measure. Calls that are not refused may still fail, as the clients have sent no settings.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, RocketProcess, RocketProxyProcess
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GroupConfig
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import CreateTopicRequest
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.signature import signed
from scripts.judges.rocketmq_reference import READY_S, ReferenceProcess
from scripts.mixtures.rocketmq_turns import Differs
from scripts.suites.mqadmin import ACL_CONFIG, PROVIDERS
from tests.rigs.grpc_calls import Caller, connect
from tests.rigs.remoting import Remote

__all__ = ["compare_proxies"]

ROOT: Final = ("root", "root-secret")
PROXY: Final = ("proxy", "proxy-secret")
USERS: Final = {"ann": "ann-secret", "bob": "bob-secret"}
CALLERS: Final[dict[str, tuple[str, ...]]] = {
    "super user": ROOT,
    "some rights": ("ann", USERS["ann"]),
    "no rights": ("bob", USERS["bob"]),
    "wrong secret": ("ann", "guess"),
    "unknown": ("nobody", "x"),
    "nobody": (),
}
TOPICS: Final = ("Allowed", "Other")
_KEY: Final = json.dumps(dict(zip(("accessKey", "secretKey"), PROXY, strict=True)))
_OURS: Final = f"authenticationEnabled=true\nauthorizationEnabled=true\ninnerClientAuthenticationCredentials={_KEY}\n"
_PACKAGE: Final = "org.apache.rocketmq.proxy.auth."
_THEIRS: Final = {
    "rocketMQClusterName": "DefaultCluster",
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "enableAclRpcHookForClusterMode": True,
    "authenticationMetadataProvider": f"{_PACKAGE}ProxyAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_PACKAGE}ProxyAuthorizationMetadataProvider",
    "innerClientAuthenticationCredentials": _KEY,
}
# The text of the refusal of each call, by caller, topic and name; None if it is not refused.
Said = dict[tuple[str, str, str], str | None]


def compare_proxies(class_path: str, proxy_path: str, folder: Path) -> None:
    """Run the case with the Java class paths of Apache's broker and proxy. Raises `Differs`."""
    said: dict[str, Said] = {}
    for broker in ("theirs", "ours"):
        with _broker(broker, class_path, folder / f"broker-{broker}") as (nameserver, port):
            _prepare(port)
            _wait_for_routes(int(nameserver.rpartition(":")[2]))
            for proxy in ("theirs", "ours"):
                where = folder / f"proxy-{proxy}-before-{broker}"
                with _proxy(proxy, proxy_path, nameserver, where) as grpc_port:
                    said[f"proxy {proxy}, broker {broker}"] = _ask_all(grpc_port)
    measure = said["proxy theirs, broker theirs"]
    refused = sum(text is not None for text in measure.values())
    print(f"keys: {len(measure)} calls through each of {len(said)} pairs, of which {refused} are refused", flush=True)
    for name, each in said.items():
        wrong = [f"{call}: {each[call]} instead of {measure[call]}" for call in measure if each[call] != measure[call]]
        if wrong:
            raise Differs(f"{name}: {'; '.join(wrong)}")


# -- who is there


@contextmanager
def _broker(make_of: str, class_path: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run a broker that checks signatures; yield its nameserver's port and its own."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        if make_of == "theirs":
            theirs = ReferenceProcess(class_path, folder, PROVIDERS + ACL_CONFIG)
            stack.enter_context(theirs)
            yield theirs.nameserver, theirs.port
        else:
            config = folder / "broker.conf"
            config.write_text(ACL_CONFIG)
            ours = stack.enter_context(RocketProcess(folder / "store", config_file=config, grpc_port=0))
            yield ours.nameserver, ours.port


@contextmanager
def _proxy(make_of: str, class_path: str, nameserver: str, folder: Path) -> Iterator[int]:
    """Run a proxy with a key; yield its port for gRPC."""
    folder.mkdir(parents=True)
    if make_of == "ours":
        config = folder / "proxy.conf"
        config.write_text(_OURS)
        with RocketProxyProcess(folder, [nameserver], options=["--config", str(config)]) as ours:
            yield ours.port
        return
    port = free_port()
    ports = {"grpcServerPort": port, "remotingListenPort": free_port(), "namesrvAddr": nameserver}
    (folder / "proxy.json").write_text(json.dumps({**_THEIRS, **ports}))
    settings = (f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}", "-Xms512m", "-Xmx512m")
    words = ["-pm", "cluster", "-n", nameserver, "-pc", str(folder / "proxy.json")]
    with (folder / "proxy.out").open("wb") as out:
        process = subprocess.Popen(
            ["java", *settings, "-cp", class_path, "org.apache.rocketmq.proxy.ProxyStartup", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(process, folder / "proxy.out")
        yield port
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], out: Path) -> None:
    until = time.monotonic() + READY_S
    while b"rocketmq-proxy startup successfully" not in out.read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"Apache's proxy does not start: {out.read_text()[-2000:]}")
        time.sleep(0.05)


def _prepare(port: int) -> None:
    with Remote(port) as remote:

        def do(code: RequestCode, value: Any = None, **fields: str) -> None:
            body = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
            frame = signed(Frame(code, 0, ext_fields=fields, body=body), *ROOT)
            answer = remote.call(code, body, **(frame.ext_fields or {}))
            if answer.code:
                raise Differs(f"{code.name}: {answer.code} {answer.remark}")

        for name, secret in (PROXY, *USERS.items()):
            kind = "Super" if name == PROXY[0] else "Normal"
            do(RequestCode.AUTH_CREATE_USER, {"username": name, "password": secret, "userType": kind}, username=name)
        entries = [
            {"resource": resource, "actions": ["Pub", "Sub"], "sourceIps": [], "decision": "Allow"}
            for resource in (f"Topic:{TOPICS[0]}", "Group:allowed")
        ]
        policies = {"policies": [{"policyType": "Custom", "entries": entries}]}
        do(RequestCode.AUTH_CREATE_ACL, policies, subject="User:ann")
        for topic in TOPICS:
            header = CreateTopicRequest(topic, "TBW102", 1, 1, 6, "SINGLE_TAG", False, 0, "+message.type=NORMAL")
            do(RequestCode.UPDATE_AND_CREATE_TOPIC, **write_header(header))
        for group in ("allowed", "other"):
            do(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP_CONFIG.write(GroupConfig(group)))


def _wait_for_routes(port: int) -> None:
    """Wait until a nameserver knows the topics, and that of the cluster, which Apache's proxy begins with."""
    until = time.monotonic() + READY_S
    with Remote(port) as remote:
        for topic in ("DefaultCluster", *TOPICS):
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            frame = signed(Frame(code, 0, ext_fields={"topic": topic}), *ROOT)
            while remote.call(code, b"", **(frame.ext_fields or {})).code:
                if time.monotonic() > until:
                    raise Differs(f"the nameserver does not hear of {topic}")
                time.sleep(0.2)


# -- calls


def _ask_all(port: int) -> Said:
    """Make each call as each caller about each topic; return the texts of the refusals."""
    said: Said = {}
    for who, user in CALLERS.items():
        for topic in TOPICS:
            for name, request in _requests(topic).items():
                with closing(connect(port)) as sock:
                    answer = Caller(sock, f"client-{who}", _credential(*user) if user else {}).call(name, request)[0]
                is_refused = answer.status.code == Code.UNAUTHORIZED
                said[who, topic, name] = answer.status.message if is_refused else None
    return said


def _requests(topic: str) -> dict[str, Message]:
    resource, group = make("Resource", name=topic), make("Resource", name=topic.lower())
    endpoints = make("Endpoints", scheme=1, addresses=[make("Address", host=HOST, port=8081)])
    message = make("Message", body=b"x", topic=resource)
    message.system_properties.message_id = "ID"
    message.system_properties.message_type = message.system_properties.body_encoding = 1
    receive = make("ReceiveMessageRequest", batch_size=32, group=group)
    receive.message_queue.topic.name, receive.message_queue.broker.name = topic, "broker-a"
    receive.filter_expression.type, receive.filter_expression.expression = 1, "*"
    receive.long_polling_timeout.CopyFrom(duration_of_ms(5_000))
    receive.invisible_duration.CopyFrom(duration_of_ms(30_000))
    return {
        "QueryRoute": make("QueryRouteRequest", topic=resource, endpoints=endpoints),
        "QueryAssignment": make("QueryAssignmentRequest", topic=resource, group=group, endpoints=endpoints),
        "SendMessage": make("SendMessageRequest", messages=[message]),
        "ReceiveMessage": receive,
    }


def _credential(name: str, secret: str) -> dict[str, str]:
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    signature = hmac.new(secret.encode(), at.encode(), hashlib.sha1).hexdigest()
    signs = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": signs, "x-mq-date-time": at}
