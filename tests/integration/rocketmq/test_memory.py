"""The memory of a node, and its other clients, while hundreds of connections send halves of requests."""

from __future__ import annotations

import resource
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, RocketProcess
from broker.shell.host.calls import HOST as SYSTEM
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame
from tests.forked_starts import NEW_INTERPRETER
from tests.rigs.grpc_calls import ask_route, connect
from tests.rigs.grpc_topics import make_topics
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S

MIB = 1 << 20
PART_BYTES = 1 * MIB
SEND = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "k\x01v\x02"}
# All connections of a port hold 256 MiB in all, if the node lets them.
CONNECTIONS = 256
# The account's bound on strangers, and room for what the allocator does not give back.
GROWTH_MAX = 64 * MIB + 64 * MIB


def half_of_frame() -> bytes:
    whole = encode_frame(Frame(RequestCode.SEND_MESSAGE_V2, 1, ext_fields=SEND))
    return struct.pack(">I", 15 * MIB) + whole[4:] + bytes(PART_BYTES)


def half_of_call() -> bytes:
    """Headers of a call, and the front of a message of 4 MiB, as far as windows have room."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection

    http = H2Connection(H2Configuration(client_side=True))
    http.initiate_connection()
    # The window is wider as soon as the broker's settings are there, which this client knows.
    http.remote_settings.initial_window_size = PART_BYTES
    http.remote_settings.acknowledge()
    http.outbound_flow_control_window = 8 * MIB
    fields = {":method": "POST", ":scheme": "http", ":path": "/apache.rocketmq.v2.MessagingService/SendMessage"}
    fields |= {":authority": "broker", "content-type": "application/grpc", "te": "trailers"}
    fields |= {"x-mq-client-id": "hostile"}
    http.send_headers(1, list(fields.items()))
    data = bytes(1) + (4 * MIB).to_bytes(4) + bytes(PART_BYTES - 5)
    for at in range(0, len(data), 16_384):
        http.send_data(1, data[at : at + 16_384])
    return http.data_to_send()


def half_of_hello() -> bytes:
    """The front of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()[:-1]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RocketProcess]:
    config = tmp_path / "broker.conf"
    config.write_text(f"metricsExporterType=PROM\nmetricsPromExporterPort={free_port()}\n")
    with RocketProcess(tmp_path / "store", config_file=config, command=NEW_INTERPRETER) as process:
        make_topics(process.port)
        yield process


@pytest.mark.parametrize("make", [half_of_frame, half_of_call, half_of_hello])
def test_halves_of_requests_do_not_fill_the_memory(node: RocketProcess, make: Callable[[], bytes]) -> None:
    half = make()
    ports = (node.grpc_port,) if make is not half_of_frame else (node.port, node.nameserver_port)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert most > CONNECTIONS * len(ports) + 100
    pid = node.pid
    before = SYSTEM.anonymous_memory(pid)
    with ExitStack() as stack:
        for port in ports:
            for _ in range(CONNECTIONS):
                sock = stack.enter_context(socket.create_connection((HOST, port), WAIT_S))
                # With little room in the kernel, it is sent when nearly all of it was read.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
                with suppress(ConnectionError):
                    sock.sendall(half)
            client = stack.enter_context(Remote(node.port))
            assert client.send_message("Normal", b"m").code == ResponseCode.SUCCESS
        grown = SYSTEM.anonymous_memory(pid) - before
        assert grown < GROWTH_MAX
        with connect(node.grpc_port) as calling:
            assert ask_route(calling) == Code.OK
