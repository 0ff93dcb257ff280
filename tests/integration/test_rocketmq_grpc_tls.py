"""The port for gRPC over sockets: plain and TLS at once, what is neither, and the farewell."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection

from bmqctl.node_process import HOST, NodeFailed, RocketProcess
from broker.rocketmq.grpc.wire import frame_message
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import decode, make
from tests.integration.grpc_topics import make_topics

TIMEOUT_S = 20.0


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


def connect(port: int, authority: trustme.CA | None) -> socket.socket:
    """Connect to a port, with TLS if there is somebody to trust."""
    sock = socket.create_connection((HOST, port), TIMEOUT_S)
    if authority is None:
        return sock
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    authority.configure_trust(context)
    wrapped = context.wrap_socket(sock, server_hostname=HOST)
    assert wrapped.selected_alpn_protocol() == "h2"
    return wrapped


def ask_route(sock: socket.socket) -> int:
    """Ask for the route of a topic; the code of the answer."""
    http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    http.initiate_connection()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/apache.rocketmq.v2.MessagingService/QueryRoute",
        ":authority": "broker",
        "content-type": "application/grpc",
        "x-mq-client-id": "me",
    }
    http.send_headers(1, list(headers.items()))
    request = make("QueryRouteRequest", topic=make("Resource", name="Normal"))
    http.send_data(1, frame_message(request.SerializeToString()), end_stream=True)
    data = b""
    while True:
        sock.sendall(http.data_to_send())
        for event in http.receive_data(sock.recv(65_536)):
            if isinstance(event, events.DataReceived):
                data += event.data
            if isinstance(event, events.StreamEnded):
                return int(decode("QueryRouteResponse", data[5:]).status.code)


def test_one_port_takes_plain_connections_and_tls(node: RocketProcess, authority: trustme.CA) -> None:
    for trusted in (None, authority, None, authority):
        with connect(node.grpc_port, trusted) as sock:
            assert ask_route(sock) == Code.OK


def test_what_is_neither_is_closed_and_says_why(node: RocketProcess) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n" * 3, b"\x16garbage" * 9):
        with socket.create_connection((HOST, node.grpc_port), TIMEOUT_S) as sock:
            sock.sendall(data)
            with suppress(ConnectionResetError):
                while sock.recv(65_536):
                    pass
    assert "no HTTP/2" in node.log
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
