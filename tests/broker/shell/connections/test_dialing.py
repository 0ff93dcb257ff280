"""Dialing a peer: it answers, refuses, is unknown, or does not answer at all."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
import trio

from broker.bmq.session.session import Session
from broker.common.clock import Now
from broker.shell.connections import dialing
from broker.shell.connections.dialing import Endpoint
from broker.shell.loop.server import Server
from tests.broker.bmq.rig import bare_proxy
from tests.waiting import WAIT_S

HOST = "127.0.0.1"


class Dialed:
    """The result of one dialing, once the server has ended with it."""

    def __init__(self, place: Endpoint) -> None:
        now = Now(int(time.time()), time.monotonic_ns() // 1_000_000)
        self._node = bare_proxy(now)
        self._server = Server(self._node, [])
        self.connected = ""
        self.failed = ""

        def on_ready() -> None:
            self._server.dial(place, self._on_connected, self._on_failed)

        async def run() -> None:
            with trio.fail_after(WAIT_S):
                await self._server.run(on_ready)

        trio.run(run)

    def _on_connected(self, address: str) -> Session:
        self.connected = address
        self._server.stop()
        return self._node.connect(address)

    def _on_failed(self, reason: str) -> None:
        self.failed = reason
        self._server.stop()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0), backlog=0) as sock:
        yield sock


def test_a_peer_that_listens_is_connected_to(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    dialed = Dialed(Endpoint(HOST, port))
    assert (dialed.connected, dialed.failed) == (f"{HOST}:{port}", "")


def test_a_peer_that_does_not_listen_refuses(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    assert Dialed(Endpoint(HOST, port)).failed == "Connection refused"


def test_a_host_that_nobody_knows_is_told() -> None:
    assert Dialed(Endpoint("no-such-host.invalid", 1)).failed.startswith("no-such-host.invalid: ")


def test_a_host_that_does_not_answer_is_given_up(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "DIAL_S", 0.2)
    waiting = []
    try:
        # Once nobody accepts what waits already, the kernel leaves who knocks without an answer.
        for _ in range(3):
            sock = socket.socket()
            waiting.append(sock)
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        assert Dialed(Endpoint(HOST, listener.getsockname()[1])).failed == "Connection timed out"
    finally:
        for sock in waiting:
            sock.close()
