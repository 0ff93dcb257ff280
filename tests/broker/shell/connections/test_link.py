"""A link moves bytes between a socket and a machine, whatever the socket gives and takes at a time."""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import cast

import pytest

from broker.common.standing import Standing
from broker.shell.connections.link import READ_BYTES, SEND_BYTES, Link


class Socket:
    """A socket that gives the chunks in `incoming` (an error is raised) and takes `room` bytes."""

    def __init__(self, *incoming: bytes | OSError, room: int = 1 << 40) -> None:
        self.incoming = list(incoming)
        self.room = room
        self.sent = bytearray()
        self.broken: OSError | None = None
        self.options: dict[tuple[int, int], int] = {}

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def fileno(self) -> int:
        return 7

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[level, option] = value

    def recv_into(self, view: memoryview) -> int:
        if not self.incoming:
            raise BlockingIOError
        chunk = self.incoming.pop(0)
        if isinstance(chunk, OSError):
            raise chunk
        assert len(view)
        size = min(len(view), len(chunk))
        view[:size] = chunk[:size]
        if size < len(chunk):
            self.incoming.insert(0, chunk[size:])
        return size

    def send(self, data: bytearray | memoryview) -> int:
        if self.broken:
            raise self.broken
        if not self.room:
            raise BlockingIOError
        size = min(self.room, len(data))
        self.sent += data[:size]
        self.room -= size
        return size


BACKLOG_BYTES_MAX = 4 << 20


class Words:
    """A machine whose events are a length byte (0: 1 MiB) and that number of bytes; it echoes what `echo` says."""

    def __init__(self, echo: int = 0) -> None:
        self.events: list[bytes] = []
        self.output = bytearray()
        self.echo = echo
        self.sent_up = 0
        self.largest = 0
        self.finished = False
        self.paused = self.input_can_wait = False
        self.event_bytes_max = (1 << 20) + 1
        self.backlog_bytes_max = BACKLOG_BYTES_MAX
        self.standing = Standing.CLIENT
        self.keeps_more = False

    def receive(self, data: memoryview) -> int:
        self.largest = max(self.largest, len(data))
        at = 0
        while at < len(data) and not self.paused:
            end = at + 1 + (data[at] or 1 << 20)
            if end > len(data):
                break
            self.events.append(bytes(data[at + 1 : end]))
            self.output += b"x" * self.echo
            self.paused = self.events[-1] == b"pause"
            at = end
        return at

    def take_output(self) -> bytearray:
        data, self.output = self.output, bytearray()
        return data

    def output_size(self) -> int:
        return len(self.output)

    def memory_size(self) -> int:
        return len(self.output)

    def output_sent(self) -> None:
        self.sent_up += 1


def link(sock: Socket, machine: Words) -> Link:
    return Link(cast(socket.socket, sock), machine, memoryview(bytearray(READ_BYTES)))


def read_all(link: Link, sock: Socket) -> None:
    while sock.incoming and link.ended is None:
        link.on_readable()


EVENTS = [b"a", b"bb" * 100, b"ccc", bytes(255)]
STREAM = b"".join(bytes([len(event)]) + event for event in EVENTS)


def test_small_events_go_out_at_once_and_a_machine_that_is_gone_is_noticed() -> None:
    sock = Socket()
    Link(cast(socket.socket, sock), Words(), memoryview(bytearray(READ_BYTES)))
    assert sock.options[socket.IPPROTO_TCP, socket.TCP_NODELAY] == 1
    assert sock.options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
    if sys.platform == "darwin":
        idle = socket.TCP_KEEPALIVE
    else:
        idle = socket.TCP_KEEPIDLE
    tcp = (idle, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    assert [sock.options[socket.IPPROTO_TCP, option] for option in tcp] == [60, 10, 6]


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000])
def test_events_are_put_together(size: int) -> None:
    sock = Socket(*(STREAM[at : at + size] for at in range(0, len(STREAM), size)))
    machine = Words()
    read_all(link(sock, machine), sock)
    assert machine.events == EVENTS


@pytest.mark.parametrize("size", [4096, 100_000, READ_BYTES])
def test_long_events_get_a_buffer_that_grows_with_what_arrives(size: int) -> None:
    long = bytes(at % 251 for at in range(1 << 20))
    stream = STREAM + b"\0" + long + STREAM + b"\0" + long
    sock = Socket(*(stream[at : at + size] for at in range(0, len(stream), size)))
    machine = Words()
    read_all(link(sock, machine), sock)
    assert machine.events == [*EVENTS, long, *EVENTS, long]
    assert machine.largest <= 2 * len(long) + READ_BYTES


def test_a_length_that_only_claims_takes_no_memory() -> None:
    sock = Socket(b"\0" + bytes(9))
    found = link(sock, Words())
    found.on_readable()
    assert found._long is None
    assert len(found._held) == 10


def test_a_quiet_socket_is_no_end() -> None:
    found = link(Socket(), Words())
    found.on_readable()
    assert found.ended is None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (b"", "the peer closed the connection"),
        (OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)), "the connection failed: Connection reset by peer"),
    ],
)
def test_the_end_is_told_with_its_reason(fault: bytes | OSError, reason: str) -> None:
    sock = Socket(b"\1a", fault)
    machine = Words()
    found = link(sock, machine)
    found.on_readable()
    before = found.is_over
    found.on_readable()
    assert (before, found.is_over) == (False, True)
    assert found.ended == reason
    assert machine.events == [b"a"]


def test_output_is_sent_at_once_if_the_socket_takes_it() -> None:
    sock, machine = Socket(STREAM), Words(echo=10)
    found = link(sock, machine)
    found.on_readable()
    found.flush()
    assert sock.sent == b"x" * 40
    assert machine.sent_up == 1
    assert not found.wants_write


def test_the_rest_is_sent_when_the_socket_takes_more() -> None:
    sock, machine = Socket(STREAM, room=15), Words(echo=10)
    found = link(sock, machine)
    found.on_readable()
    found.flush()
    assert (len(sock.sent), machine.sent_up, found.wants_write) == (15, 0, True)
    machine.output += b"y" * 5
    found.flush()
    sock.room = 20
    found.on_writable()
    assert (len(sock.sent), machine.sent_up, found.wants_write) == (35, 0, True)
    sock.room = 100
    found.on_writable()
    assert sock.sent == b"x" * 40 + b"y" * 5
    assert machine.sent_up
    assert not found.wants_write


def test_a_socket_that_takes_nothing_is_waited_for() -> None:
    sock, machine = Socket(STREAM, room=0), Words(echo=10)
    found = link(sock, machine)
    found.on_readable()
    found.flush()
    assert found.wants_write
    assert found.ended is None
    sock.room = 100
    found.on_writable()
    assert sock.sent == b"x" * 40


def test_a_peer_that_takes_nothing_is_not_read_from() -> None:
    sock, machine = Socket(room=0), Words()
    found = link(sock, machine)
    wanted = []
    for output in (0, BACKLOG_BYTES_MAX, 1):
        machine.output += bytes(output)
        found.flush()
        wanted.append(found.wants_read)
    sock.room = 1 << 30
    found.on_writable()
    wanted.append(found.wants_read)
    assert wanted == [True, True, False, True]


def test_a_broken_socket_ends_the_link() -> None:
    sock, machine = Socket(STREAM), Words(echo=1)
    sock.broken = OSError(errno.EPIPE, os.strerror(errno.EPIPE))
    found = link(sock, machine)
    found.on_readable()
    found.flush()
    assert found.ended == "the connection failed: Broken pipe"


def test_a_finished_machine_has_its_last_word() -> None:
    sock, machine = Socket(STREAM), Words(echo=1)
    found = link(sock, machine)
    found.on_readable()
    machine.finished = True
    found.flush()
    assert sock.sent == b"xxxx"
    assert found.ended == "the session has ended"


@pytest.mark.parametrize("event", [b"a", b"a" * 200])
@pytest.mark.parametrize("long", [False, True])
def test_bytes_that_come_during_a_pause_are_delivered_later(event: bytes, long: bool) -> None:
    rest = bytes([len(event)]) + event + (b"\0" + bytes(1 << 20) if long else b"\1b\1")
    sock = Socket(b"\5pause" + rest[:1], *(rest[at : at + 100_000] for at in range(1, len(rest), 100_000)))
    machine = Words()
    found = link(sock, machine)
    found.on_readable()
    assert machine.events == [b"pause"]
    assert not found.wants_read
    found.flush()
    assert machine.events == [b"pause"]
    read_all(found, sock)  # it would not, but for bytes that were under way
    assert machine.events == [b"pause"]
    machine.paused = False
    found.flush()
    assert machine.events == [b"pause", event, bytes(1 << 20) if long else b"b"]
    sock.incoming.append(b"\1c" if long else b"c")
    found.on_readable()
    assert machine.events[3:] == [b"c"]


QUICK = (socket.IPPROTO_TCP, getattr(socket, "TCP_QUICKACK", -1))


@pytest.mark.skipif(
    sys.platform != "linux" or os.environ.get("BMQCTL_PORTABLE", "0") not in ("", "0"),
    reason="only Linux has a call for it",
)
@pytest.mark.parametrize(
    ("echo", "acknowledges"), [(0, True), (1, False)], ids=["without output", "output acknowledges"]
)
def test_the_front_of_an_event_is_acknowledged_at_the_end_of_the_step(echo: int, acknowledges: bool) -> None:
    """A peer that collects small segments sends the rest only then."""
    sock = Socket(b"\x01a\x05bc")
    waiting = link(sock, Words(echo))
    waiting.on_readable()
    assert QUICK not in sock.options
    waiting.flush()
    waiting.acknowledge()
    assert (QUICK in sock.options) == acknowledges
    sock.options.clear()
    waiting.acknowledge()
    assert QUICK not in sock.options


def test_long_output_is_sent_in_pieces_and_a_last_one_in_one_call() -> None:
    sock = Socket()
    machine = Words()
    machine.output += bytes(at % 251 for at in range(2 * SEND_BYTES + 5))
    whole = bytes(machine.output)
    found = link(sock, machine)
    assert not found.flush()
    assert (len(sock.sent), machine.sent_up) == (SEND_BYTES, 0)
    found.on_writable()
    assert (len(sock.sent), machine.sent_up) == (2 * SEND_BYTES, 0)
    found.on_writable()
    assert (bytes(sock.sent), machine.sent_up) == (whole, 1)

    machine.output += whole
    machine.finished = True
    found.flush()
    assert bytes(sock.sent) == whole + whole
