"""The port for gRPC over sockets: plain and TLS at once, what is neither, and the farewell."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from bmqctl.systems.node_process import HOST, NodeFailed, RocketProcess
from formats.rocketmq.grpc.codes import Code
from tests.rigs.grpc_calls import ask_route, connect
from tests.rigs.grpc_topics import make_topics
from tests.waiting import WAIT_S


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def node(tmp_path: Path, authority: trustme.CA) -> Iterator[RocketProcess]:
    certificate = authority.issue_cert(HOST)
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    config = tmp_path / "broker.conf"
    config.write_text(f"tlsCertPath={chain}\ntlsKeyPath={key}\n")
    with RocketProcess(tmp_path / "store", config_file=config) as process:
        make_topics(process.port)
        yield process


def test_one_port_takes_plain_connections_and_tls(node: RocketProcess, authority: trustme.CA) -> None:
    for trusted in (None, authority, None, authority):
        with connect(node.grpc_port, trusted) as sock:
            assert ask_route(sock) == Code.OK


def test_without_a_certificate_the_node_has_one_of_its_own(tmp_path: Path) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.set_alpn_protocols(["h2"])
    with RocketProcess(tmp_path / "store") as node:
        make_topics(node.port)
        with connect(node.grpc_port) as plain, connect(node.grpc_port) as sock, trusting.wrap_socket(sock) as secret:
            assert secret.selected_alpn_protocol() == "h2"
            assert ask_route(secret) == ask_route(plain) == Code.OK
    config = tmp_path / "broker.conf"
    config.write_text("tlsTestModeEnable=false\n")
    with (
        RocketProcess(tmp_path / "store", config_file=config) as node,
        connect(node.grpc_port) as sock,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        trusting.wrap_socket(sock)


def test_connection_of_an_unknown_protocol_is_closed_with_a_reason(node: RocketProcess) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n" * 3, b"\x16garbage" * 9):
        with socket.create_connection((HOST, node.grpc_port), WAIT_S) as sock:
            sock.sendall(data)
            with suppress(ConnectionResetError):
                while sock.recv(65_536):
                    pass
    assert "invalid HTTP/2" in node.log
    with connect(node.grpc_port, None) as sock:
        assert ask_route(sock) == Code.OK
    assert "fault of this broker" not in node.output


def test_a_node_that_stops_says_farewell(node: RocketProcess) -> None:
    with connect(node.grpc_port, None) as sock:
        assert ask_route(sock) == Code.OK
        node.stop()
        rest = b""
        while data := sock.recv(65_536):
            rest += data
    # The type of a GOAWAY frame, and that it is of no stream.
    assert b"\x07\x00\x00\x00\x00\x00" in rest


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"tlsCertPath={tmp_path / 'none.pem'}\n")
    process = RocketProcess(tmp_path / "store", config_file=config)
    with pytest.raises(NodeFailed, match="tlsKeyPath"):
        process.start()
