"""The loop keeps to the order: first what must be so before anything is sent, then the bytes."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

import pytest

from broker.bmq.node.services import ProcessServices
from broker.shell.host.calls import READABLE, WRITABLE
from broker.shell.loop.server import Server
from tests.broker.bmq.rig import WRITE, guid, put_event, start

URI = "bmq://priority/q"
MESSAGES = 50


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        yield ours, theirs


def pending(sock: socket.socket) -> bool:
    return readable_within(sock, 0)


def arrived(sock: socket.socket) -> bool:
    return readable_within(sock, 10)


def readable_within(sock: socket.socket, timeout_s: float) -> bool:
    """Wait for input on a socket with any descriptor: select() accepts none above 1023."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def test_acks_leave_once_their_messages_are_synced(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    seen: list[tuple[int, bool]] = []

    def sync() -> None:
        seen.append((node.partitions[0].state().messages, pending(ours)))

    rig = start(services=ProcessServices(before_sending=sync))
    node = rig.node
    client = rig.connect()
    client.open(1, URI, WRITE)
    server = Server(node, [])
    server._attach(theirs, client.session)
    ours.sendall(b"".join(put_event(1, guid(number), b"payload") for number in range(MESSAGES)))
    assert arrived(theirs)
    server._on_ready(theirs.fileno(), READABLE)
    assert not pending(ours)
    server._flush()
    assert seen == [(MESSAGES, False)]
    assert arrived(ours)


def test_a_link_that_can_take_more_does_not_get_ahead_of_the_sync(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    order: list[str] = []

    def sync() -> None:
        order.append("sent already" if pending(ours) else "synced")

    rig = start(services=ProcessServices(before_sending=sync))
    client = rig.connect()
    client.open(1, URI, WRITE)
    server = Server(rig.node, [])
    server._attach(theirs, client.session)
    client.send(put_event(1, guid(1), b"payload"))
    server._on_ready(theirs.fileno(), WRITABLE)
    assert order == ["synced"]
    assert arrived(ours)
