"""Bytes that make no sense, peers that behave badly: their link ends with a reason, no other notices."""

from __future__ import annotations

import random
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from blazingmq import AckStatus
from blazingmq.session_events import Connected

from bmqctl.testing import NodeProcess
from formats.bmq.control.messages import ClientType
from formats.bmq.wire.event import EventType, build_event, build_schema_event
from tests.forked_starts import NEW_INTERPRETER
from tests.rigs.official import Client, Connect, confirm, queue_name
from tests.rigs.raw import READ, WRITE, Raw, configure_request, identity, open_request
from tests.waiting import eventually

MIB = 1 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A new interpreter, whose memory is its own."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "store", command=NEW_INTERPRETER) as running:
        yield running


class Witness:
    """The official client at work, one message at a time, while others misbehave."""

    def __init__(self, node: NodeProcess) -> None:
        self.client = Client(node.uri)
        self.uri = queue_name()
        self.client.open(self.uri, read=True, write=True)
        self.posted = 0
        self._enough = threading.Event()
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def _work(self) -> None:
        confirmed = 0
        while not self._enough.wait(0.002):
            fresh = self.client.delivered[confirmed:]
            confirm(fresh)
            confirmed += len(fresh)
            self.client.post(self.uri, str(self.posted).encode())
            self.posted += 1

    def check(self) -> None:
        """Wait until messages posted from here on have been acknowledged and delivered."""
        goal = self.posted + 20
        self.client.wait(lambda: len(self.client.acks) >= goal and len(self.client.delivered) >= goal)

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, kind: type[BaseException] | None, *fault: object) -> None:
        self._enough.set()
        self._worker.join()
        with self.client as client:
            if kind is None:
                self._judge(client)

    def _judge(self, client: Client) -> None:
        client.wait(lambda: len(client.acks) == len(client.delivered) == self.posted)
        assert {ack.status for _, ack in client.acks} == {AckStatus.SUCCESS}
        assert [int(data) for data in client.payloads()] == list(range(self.posted))
        assert [type(event) for event in client.events] == [Connected]


@pytest.fixture
def witness(node: NodeProcess) -> Iterator[Witness]:
    with Witness(node) as found:
        yield found


def header(length: int = 8, version: int = 1, kind: int = 1, words: int = 2, specific: int = 0) -> bytes:
    return struct.pack(">IBBBB", length, version << 6 | kind, words, specific, 0)


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


BEFORE_NEGOTIATION = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + noise(240, 0),
    "zeros": bytes(100),
    "ones": b"\xff" * 100,
    "a newline": b"\r\n\r\n\r\n\r\n",
    "an event too long": header(length=0x7FFF_FFFF),
    "an event too long for a negotiation": header(length=MIB),
    "an event shorter than its header": header(length=4),
    "a fragment": header(length=0x8000_0008),
    "version 0": header(version=0),
    "version 2": header(version=2),
    "no type": header(kind=0),
    "type 63": header(kind=63),
    "a header of no words": header(words=0),
    "a header of 255 words": header(words=255),
    "a PUT": build_event(EventType.PUT, bytes(40)),
    "a CONFIRM": build_event(EventType.CONFIRM, bytes(40)),
    "an empty negotiation": build_schema_event(b""),
    "a negotiation of noise": build_schema_event(noise(200, 1)),
    "a negotiation without an end": build_event(EventType.CONTROL, identity()[8:-40]),
    "a negotiation in JSON that is none": build_event(EventType.CONTROL, b'{"clientIdentity": {', 1 << 5),
    "a negotiation in no encoding": build_event(EventType.CONTROL, identity()[8:], 7 << 5),
    **{f"noise {seed}": noise(1 << seed, seed) for seed in range(5, 18)},
}

AFTER_NEGOTIATION = {
    "noise": noise(100_000, 2),
    "a second negotiation": identity(),
    "HTTP": BEFORE_NEGOTIATION["HTTP"],
    "an event too long": header(length=0x7FFF_FFFF),
    "version 3": header(version=3),
    "control noise": build_schema_event(noise(500, 3)),
    "an empty control message": build_schema_event(b""),
    "a PUT of zeros": build_event(EventType.PUT, bytes(400)),
    "a PUT of noise": build_event(EventType.PUT, noise(400, 4)),
    "a PUT longer than its event": build_event(EventType.PUT, struct.pack(">II", 0x0FFF_FFFF, 9) + bytes(200)),
    "a PUT of options longer than it": build_event(EventType.PUT, struct.pack(">II", 50, 0xFFFFFF09) + bytes(192)),
    "a CONFIRM of nothing": build_event(EventType.CONFIRM, b""),
    "a CONFIRM of zeros": build_event(EventType.CONFIRM, bytes(100)),
    "a CONFIRM cut off": build_event(EventType.CONFIRM, b"\x16\0\0\0" + bytes(23)),
    "an ACK": build_event(EventType.ACK, bytes(28)),
    "a PUSH": build_event(EventType.PUSH, bytes(28)),
    "a STORAGE": build_event(EventType.STORAGE, bytes(28)),
    "an ELECTOR": build_event(EventType.ELECTOR, bytes(28)),
}


@pytest.mark.parametrize("what", BEFORE_NEGOTIATION)
def test_garbage_before_the_negotiation(node: NodeProcess, witness: Witness, what: str) -> None:
    with Raw(node, identified=False) as raw:
        raw.send(BEFORE_NEGOTIATION[what])
        assert raw.rest() == b""
        assert raw.end_reason().startswith("sent bytes that are not a valid event: ")
    witness.check()


@pytest.mark.parametrize("what", AFTER_NEGOTIATION)
def test_garbage_after_the_negotiation(node: NodeProcess, witness: Witness, what: str) -> None:
    with Raw(node) as raw:
        uri = queue_name()
        raw.send(open_request(uri, 0, READ | WRITE))
        raw.control()
        raw.send(AFTER_NEGOTIATION[what])
        raw.rest()
        assert raw.end_reason().startswith("sent bytes that are not a valid event: ")
    witness.check()


@pytest.mark.parametrize("what", AFTER_NEGOTIATION)
def test_garbage_of_a_proxy(node: NodeProcess, witness: Witness, what: str) -> None:
    with Raw(node, identified=False) as raw:
        raw.send(identity(ClientType.TCPBROKER))
        assert raw.event()[0] == EventType.CONTROL
        raw.send(open_request(queue_name(), 0, READ | WRITE))
        raw.event()
        raw.send(AFTER_NEGOTIATION[what])
        raw.rest()
        assert raw.end_reason().startswith("sent bytes that are not a valid event: ")
    witness.check()


def test_peers_that_are_nothing_known(node: NodeProcess, witness: Witness) -> None:
    with Raw(node, identified=False) as raw:
        raw.send(identity(ClientType.UNKNOWN))
        assert b"connections are not supported" in raw.rest()
        assert raw.end_reason() == "UNKNOWN connections are not supported"
    witness.check()


def test_names_with_line_breaks_make_no_lines_in_the_log(node: NodeProcess, witness: Witness) -> None:
    with Raw(node, identified=False) as raw:
        raw.send(identity(name="x\n2026-01-01T00:00:00.000Z ERROR broker forged\r\x1b[31m"))
        raw.event()
        raw.send(open_request("bmq://no.such.domain/a\nERROR forged", 0, WRITE))
        raw.control()
    witness.check()
    assert not [line for line in node.log.splitlines() if line.startswith("2026-01-01T00:00:00.000Z")]
    assert not [line for line in node.log.splitlines() if line.startswith("ERROR forged")]
    assert "\x1b" not in node.log


def test_an_event_byte_by_byte(node: NodeProcess, witness: Witness) -> None:
    with Raw(node, identified=False) as raw:
        raw.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in identity():
            raw.send(bytes([byte]))
        assert raw.event()[0] == EventType.CONTROL
        for byte in open_request(queue_name(), 0, WRITE):
            raw.send(bytes([byte]))
        raw.control()
    witness.check()


def test_links_that_end_amid_an_event(node: NodeProcess, witness: Witness) -> None:
    whole = identity()
    for size in range(0, len(whole), 3):
        with Raw(node, identified=False) as raw:
            raw.send(whole[:size])
        assert raw.end_reason() == "the peer closed the connection"
    # Not closed but cut: the kernel sends a reset.
    with Raw(node) as raw:
        raw.send(whole[:10])
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert raw.end_reason().startswith("the connection failed: ")
    witness.check()


def test_half_open_connections(node: NodeProcess, witness: Witness) -> None:
    files = node.open_files()
    links = [Raw(node, identified=False) for _ in range(300)]
    for number, raw in enumerate(links):
        raw.send(identity()[: number % 60])
    witness.check()
    for raw in links:
        raw.sock.close()
    eventually(lambda: node.open_files() == files)


def test_thousands_of_connections_leave_nothing_behind(node: NodeProcess, witness: Witness) -> None:
    files = node.open_files()
    for _ in range(200):
        Raw(node).sock.close()
    eventually(lambda: node.open_files() == files)
    before = node.rss_bytes()
    for _ in range(2000):
        socket.create_connection(("127.0.0.1", node.port)).close()
    for _ in range(500):
        Raw(node).sock.close()
    eventually(lambda: node.open_files() == files)
    assert node.rss_bytes() - before < 8 * MIB
    witness.check()


def test_a_consumer_that_never_reads(node: NodeProcess, witness: Witness, connect: Connect) -> None:
    uri = queue_name()
    producer = connect(node)
    producer.open(uri, write=True)
    before = node.rss_bytes()
    with Raw(node) as raw:
        raw.send(open_request(uri, 0, READ))
        raw.control()
        raw.send(configure_request(0, 1 << 30))
        for _ in range(10):
            producer.post_all(uri, [bytes(60_000) + b"x"] * 100)
        witness.check()
        assert node.rss_bytes() - before < 16 * MIB
    # It is gone, and what it was sent is there for the next.
    other = connect(node)
    other.open(uri, read=True, max_unconfirmed_bytes=1 << 30)
    other.wait_for_messages(1000)


def test_a_listener_of_a_broadcast_that_never_reads(node: NodeProcess, witness: Witness, connect: Connect) -> None:
    uri = queue_name("bmq.test.mem.broadcast")
    producer, listener = connect(node), connect(node)
    producer.open(uri, write=True)
    listener.open(uri, read=True)
    before = node.rss_bytes()
    with Raw(node) as raw:
        raw.send(open_request(uri, 0, READ))
        raw.control()
        raw.send(configure_request(0, 1 << 30))
        raw.control()
        for number in range(1, 1001):
            producer.post_all(uri, [bytes(100_000) + b"x"])
            listener.wait_for_messages(number)
            listener.delivered[-1:] = [listener.delivered[0]]
        witness.check()
        assert node.rss_bytes() - before < 16 * MIB


def test_a_peer_that_asks_and_never_reads_the_answers(node: NodeProcess, witness: Witness) -> None:
    before = node.rss_bytes()
    with Raw(node) as raw:
        raw.sock.settimeout(1.0)
        requests = build_event(EventType.HEARTBEAT_REQ, b"") * 10_000
        sent = 0
        with suppress(TimeoutError):
            while sent < 200 * MIB:
                sent += raw.sock.send(requests)
        assert sent < 200 * MIB, "the node never stopped to read"
        witness.check()
        assert node.rss_bytes() - before < 16 * MIB
    witness.check()


@contextmanager
def limit_of_descriptors(pid: int, limit: int) -> Iterator[None]:
    """Limit a process to `count` descriptors, and restore the limit at the end."""
    if sys.platform == "linux":
        old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, old[1]))
        yield
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
    else:
        pytest.skip("only Linux limits other processes")


def test_no_descriptors_left(bmq_node: NodeProcess) -> None:
    with Witness(bmq_node) as witness, limit_of_descriptors(bmq_node.pid, bmq_node.open_files() + 20):
        began = time.monotonic()
        links = [Raw(bmq_node, identified=False) for _ in range(60)]
        bmq_node.wait_for("cannot accept a connection: Too many open files; raise the limit of open files (ulimit -n)")
        witness.check()
        threading.Event().wait(0.5)  # that long it must hold out, without a flood in the log
        # It tries again with every tick of 100 ms.
        tries = bmq_node.log.count("cannot accept a connection")
        assert tries < 10 + 10 * (time.monotonic() - began)
        for raw in links:
            raw.sock.close()
        with Raw(bmq_node):  # negotiates: there is room again
            pass
