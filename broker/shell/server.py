"""The loop around a node: listeners, links, the clock, and the signals that end it."""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Callable, Iterable

import trio

from broker.core.node import Node
from broker.core.session import Session
from broker.shell.link import READ_BYTES, Link

__all__ = ["ListenError", "Server", "listen"]

log = logging.getLogger("broker.server")

TICK_S = 1.0
BACKLOG = 1024


class ListenError(OSError):
    """An address that cannot be listened on; the text says which, why, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; `ListenError` when the address is taken or not this machine's."""
    try:
        (family, kind, proto, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise ListenError(f"{host}:{port}: {error.strerror}; give --host an address of this machine") from None
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        remedy = "stop the program that has it, or choose another --port"
        raise ListenError(f"{host}:{port}: {error.strerror}; {remedy}") from None
    sock.setblocking(False)
    return sock


class Server:
    """Carries bytes between sockets and the sessions of a node, and tells the node the time."""

    def __init__(self, node: Node, listeners: Iterable[socket.socket]) -> None:
        self._node = node
        self._listeners = list(listeners)
        self._links: dict[Session, Link] = {}
        self._scratch = bytearray(READ_BYTES)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tick)
                for listener in self._listeners:
                    nursery.start_soon(self._accept, listener, nursery)
                on_ready()
                async for number in signals:
                    log.info("stopping on %s", signal.Signals(number).name)
                    break
                nursery.cancel_scope.cancel()

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        with listener:
            while True:
                await trio.lowlevel.wait_readable(listener)
                try:
                    sock, address = listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    # Out of descriptors, most likely: those who are connected must not suffer for it.
                    log.error("cannot accept a connection: %s", error.strerror)
                    await trio.sleep(TICK_S)
                    continue
                nursery.start_soon(self._serve, sock, f"{address[0]}:{address[1]}")

    async def _serve(self, sock: socket.socket, peer: str) -> None:
        self._set_clock()
        session = self._node.connect(peer)
        reason = "the node stops"
        with sock:
            link = self._links[session] = Link(sock, session, self._scratch)
            try:
                reason = await link.run(self._set_clock, self._flush)
            finally:
                del self._links[session]
                self._set_clock()
                self._node.disconnect(session, reason)
                self._flush()

    def _set_clock(self) -> None:
        now = self._node.now
        now.wall_s = int(time.time())
        now.ms = time.monotonic_ns() // 1_000_000

    def _flush(self) -> None:
        """Send what the last step produced, to everyone it concerns."""
        dirty = self._node.dirty
        while dirty:
            session = dirty.pop()
            link = self._links.get(session)
            if link is not None:
                link.flush()

    async def _tick(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            self._set_clock()
            self._node.tick()
            self._flush()
