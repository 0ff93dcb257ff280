"""Peers that connect with TLS, and peers that should and do not."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.testing import NodeFailed, NodeProcess, free_port
from formats.bmq.codes import AckStatus
from formats.bmq.wire.ack import iter_acks
from formats.bmq.wire.event import HEARTBEAT_REQUEST, EventType
from formats.bmq.wire.push import iter_pushes
from tests.broker.bmq.rig import put_event
from tests.rigs.config_files import spoil, write_config
from tests.rigs.console_pages import Pages
from tests.rigs.raw import READ, WRITE, Raw, configure_request, identity, open_request
from tests.waiting import WAIT_S

TLS = Path(__file__).parents[2] / "rigs" / "tls"
AUTHORITY = TLS / "authority.pem"
CONFIG = {
    "certificateAuthority": str(AUTHORITY),
    "certificate": str(TLS / "broker.pem"),
    "key": str(TLS / "broker.key"),
    "versions": "TLSv1.3",
}
LISTENERS = ("appConfig", "networkInterfaces", "tcpInterface", "listeners")


def configuration(folder: Path, *ports: int, **tls: str) -> Path:
    """Files of a configuration with listeners on these ports, the first for TLS."""
    config = write_config(folder / "etc")
    listeners = [{"name": f"on{port}", "address": "127.0.0.1", "port": port, "tls": port == ports[0]} for port in ports]
    spoil(config, "bmqbrkrcfg.json", "appConfig", "tlsConfig", value=CONFIG | tls)
    spoil(config, "bmqbrkrcfg.json", *LISTENERS, value=listeners)
    spoil(config, "bmqbrkrcfg.json", "taskConfig", "logController", "fileName", value="")
    endpoint = ("myClusters", 0, "nodes", 0, "transport", "tcp", "endpoint")
    spoil(config, "clusters.json", *endpoint, value=f"tcp://localhost:{ports[0]}")
    for name, place in (("location", "store"), ("archiveLocation", "archive")):
        spoil(config, "clusters.json", "myClusters", 0, "partitionConfig", name, value=str(folder / place))
    return config


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("tls")
    port = free_port()
    options = ("--console-port", str(free_port()))
    with NodeProcess(folder / "store", config_dir=configuration(folder, port), port=port, options=options) as running:
        yield running


class SecureRaw(Raw):
    """A raw connection over TLS, identified."""

    def __init__(self, node: NodeProcess, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        super().__init__(node, identified=False)
        context = ssl.create_default_context(cafile=str(AUTHORITY))
        context.minimum_version = context.maximum_version = version
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        self.send(identity())
        self.event()


def guid(number: int) -> bytes:
    return (1 << 126 | number).to_bytes(16, "big")


def test_messages_of_all_sizes_go_through(node: NodeProcess) -> None:
    sizes = [1, 100, 16_000, 16_384, 16_400, 70_000, 300_000, 2_000_000]
    with SecureRaw(node) as producer, SecureRaw(node) as consumer:
        for peer, flags in ((producer, WRITE), (consumer, READ)):
            peer.send(open_request("bmq://shop.orders/sizes", 0, flags))
            peer.control()
        consumer.send(configure_request(0, 1 << 30))
        consumer.control()
        producer.send(b"".join(put_event(0, guid(number), bytes([number]) * size) for number, size in enumerate(sizes)))
        acked: list[int] = []
        while len(acked) < len(sizes):
            kind, body = producer.event()
            if kind is EventType.ACK:
                acked += [ack.status for ack in iter_acks(memoryview(body), 0, len(body))]
        assert set(acked) == {AckStatus.SUCCESS}
        payloads: list[bytes] = []
        while len(payloads) < len(sizes):
            kind, body = consumer.event()
            if kind is EventType.PUSH:
                payloads += [bytes(push.data) for push in iter_pushes(memoryview(body), 0, len(body))]
        assert payloads == [bytes([number]) * size for number, size in enumerate(sizes)]


def test_byte_by_byte(node: NodeProcess) -> None:
    with SecureRaw(node) as raw:
        for byte in HEARTBEAT_REQUEST * 20:
            raw.send(bytes([byte]))
        assert [raw.event()[0] for _ in range(20)] == [EventType.HEARTBEAT_RSP] * 20


def test_the_certificate_is_the_configured_one_and_the_version_too(node: NodeProcess) -> None:
    with SecureRaw(node) as raw:
        assert isinstance(raw.sock, ssl.SSLSocket)
        assert raw.sock.version() == "TLSv1.3"
        names = raw.sock.getpeercert()["subjectAltName"]  # type: ignore[index]
        assert ("DNS", "localhost") in names
    with pytest.raises(ssl.SSLError, match=r"(?i)version"):
        SecureRaw(node, ssl.TLSVersion.TLSv1_2)
    with socket.create_connection(("127.0.0.1", node.port)) as sock, pytest.raises(ssl.SSLError, match="certificate"):
        ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")


def test_a_client_that_does_not_speak_it_is_put_off(node: NodeProcess) -> None:
    with Raw(node, identified=False) as raw:
        raw.send(identity())
        raw.rest()
        assert raw.end_reason().startswith("the connection failed: TLS: ")
    with SecureRaw(node) as raw:
        raw.send(HEARTBEAT_REQUEST)
        assert raw.event()[0] is EventType.HEARTBEAT_RSP


def test_a_client_that_leaves_in_the_handshake(node: NodeProcess) -> None:
    for sent in (b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(100)):
        with Raw(node, identified=False) as raw:
            raw.send(sent)
        raw.end_reason()
    with SecureRaw(node):
        pass


def test_administration(node: NodeProcess) -> None:
    with AdminClient("localhost", node.port, tls_authority=AUTHORITY) as admin:
        dump = admin.send("BROKERCONFIG DUMP")
        assert '"tlsConfig": {' in dump
    with pytest.raises(AdminLost):
        AdminClient("localhost", node.port, 5.0)
    with pytest.raises(AdminLost, match="no TLS with localhost"):
        AdminClient("localhost", node.port, tls_authority=TLS / "broker.key")


def test_the_console_beside_a_node_without_a_plain_port(node: NodeProcess) -> None:
    pages = Pages(int(node.options[1]))
    assert pages.begin()["place"] == f"tcp://localhost:{node.port}"
    assert pages.look()["map"]["name"] == "mine"


def test_one_port_with_and_one_without(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", "from bmqctl.app import main; main()", "start", "node", configuration(tmp_path, *ports)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    with process:
        try:
            assert process.stdout is not None
            assert f"127.0.0.1:{ports[0]}, 127.0.0.1:{ports[1]}" in process.stdout.readline()
            with AdminClient("localhost", ports[0], tls_authority=AUTHORITY) as admin:
                assert admin.send("CLUSTERS LIST")
            with AdminClient("127.0.0.1", ports[1]) as admin:
                assert admin.send("CLUSTERS LIST")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0


def test_both_versions_if_asked_for(tmp_path: Path) -> None:
    port = free_port()
    config = configuration(tmp_path, port, versions="TLSv1.2, TLSv1.3")
    with NodeProcess(tmp_path / "store", config_dir=config, port=port) as node:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            with SecureRaw(node, version) as raw:
                raw.send(HEARTBEAT_REQUEST)
                assert raw.event()[0] is EventType.HEARTBEAT_RSP


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"certificate": "/nowhere.pem"}, "tlsConfig.certificate: /nowhere.pem: no such file"),
        ({"key": "/nowhere.key"}, "tlsConfig.key: /nowhere.key: no such file"),
        ({"certificateAuthority": "/nowhere.ca"}, "tlsConfig.certificateAuthority: /nowhere.ca: no such file"),
        ({"key": str(AUTHORITY)}, "tlsConfig.certificate: "),
        ({"certificateAuthority": str(TLS / "broker.key")}, "tlsConfig.certificateAuthority: "),
        ({"versions": "SSLv3"}, 'tlsConfig.versions: is "SSLv3"; list TLSv1.2 or TLSv1.3'),
        ({"versions": ""}, 'tlsConfig.versions: is ""'),
    ],
)
def test_a_certificate_that_cannot_be_used(tmp_path: Path, changed: dict[str, str], told: str) -> None:
    port = free_port()
    with pytest.raises(NodeFailed) as failure:
        NodeProcess(tmp_path / "store", config_dir=configuration(tmp_path, port, **changed), port=port).start()
    assert failure.value.exit_code == 2
    (line,) = failure.value.output.splitlines()
    assert told in line
    assert not (tmp_path / "store").exists()


def test_a_slow_reader_gets_all_in_the_end(node: NodeProcess) -> None:
    count, size = 30, 100_000
    with SecureRaw(node) as producer, SecureRaw(node) as consumer:
        for peer, flags in ((producer, WRITE), (consumer, READ)):
            peer.send(open_request("bmq://bmq.test.mem.priority/slow", 0, flags))
            peer.control()
        consumer.send(configure_request(0, 1 << 30))
        consumer.control()
        for number in range(count):
            producer.send(put_event(0, guid(number), bytes([number]) * size))
        acked = 0
        while acked < count:
            kind, body = producer.event()
            acked += sum(1 for _ in iter_acks(memoryview(body), 0, len(body))) if kind is EventType.ACK else 0
        found = 0
        while found < count:
            kind, body = consumer.event()
            if kind is EventType.PUSH:
                for push in iter_pushes(memoryview(body), 0, len(body)):
                    assert bytes(push.data) == bytes([found]) * size
                    found += 1


def test_many_who_never_finish_the_handshake(node: NodeProcess) -> None:
    peers = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(50)]
    try:
        for number, peer in enumerate(peers):
            peer.sendall(b"\x16\x03\x01\x02\x00\x01"[: number % 7])
        with SecureRaw(node) as raw:
            raw.send(HEARTBEAT_REQUEST)
            assert raw.event()[0] is EventType.HEARTBEAT_RSP
    finally:
        for peer in peers:
            peer.close()
