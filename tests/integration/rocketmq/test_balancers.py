"""Clients of a balancer that speaks the PROXY protocol, as a node of RocketMQ knows them at its ports."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing

import pytest

from bmqctl.systems.node_process import HOST, RocketProcess
from formats.rocketmq.remoting.bodies.clients import HEARTBEAT, ConsumerData, Heartbeat, Subscription
from formats.rocketmq.remoting.bodies.inspection import CONSUMER_CONNECTION
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.integration.rocketmq.authority import Authority
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S

BALANCER = "127.0.0.2"
HEADER = b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 10911\r\n"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RocketProcess]:
    folder = tmp_path_factory.mktemp("node")
    given = {"proxyProtocolFrom": BALANCER, **authority.certificate}
    (folder / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    with RocketProcess(folder / "store", config_file=folder / "broker.conf") as process:
        yield process


def connected(port: int, header: bytes, source: str = BALANCER, tls: ssl.SSLContext | None = None) -> socket.socket:
    sock = socket.create_connection((HOST, port), WAIT_S, (source, 0))
    sock.sendall(header)
    return sock if tls is None else tls.wrap_socket(sock, server_hostname=HOST)


def join(sock: socket.socket, port: int, group: str) -> Remote:
    """Join a group over a socket, as the first thing that is said there."""
    remote = Remote(port)
    remote.sock.close()
    remote.sock = sock
    data = ConsumerData(group, subscription_data_set=[Subscription("orders", "*")])
    answer = remote.call(RequestCode.HEART_BEAT, HEARTBEAT.write(Heartbeat(f"of-{group}", consumer_data_set=[data])))
    assert answer.code == ResponseCode.SUCCESS
    return remote


def address_of(group: str, port: int) -> str:
    with closing(Remote(port)) as asking:
        answer = asking.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
        (member,) = CONSUMER_CONNECTION.read(answer.body).connection_set
        return member.client_address


@pytest.mark.parametrize("is_secured", [False, True])
def test_a_client_has_the_address_of_the_header(node: RocketProcess, authority: Authority, is_secured: bool) -> None:
    group = f"readers-{is_secured}"
    sock = connected(node.port, HEADER, tls=authority.client() if is_secured else None)
    with closing(join(sock, node.port, group)):
        assert address_of(group, node.port) == "192.0.2.7:56324"


def test_others_are_refused_with_a_header_and_served_without(node: RocketProcess) -> None:
    with closing(connected(node.port, HEADER, "127.0.0.3")) as sock, pytest.raises((EOFError, ConnectionError)):
        join(sock, node.port, "liars")
    with closing(join(connected(node.port, b"", "127.0.0.3"), node.port, "others")):
        assert address_of("others", node.port).startswith("127.0.0.3:")


@pytest.mark.parametrize(("header", "is_served"), [(HEADER, True), (b"", False)])
def test_the_port_of_grpc_takes_the_header_and_nothing_else(
    node: RocketProcess, header: bytes, is_served: bool
) -> None:
    with closing(connected(node.grpc_port, header + HTTP2)) as sock:
        try:
            answer = sock.recv(9)
        except ConnectionError:
            answer = b""
    assert answer[3:4] == (bytes((SETTINGS,)) if is_served else b"")
