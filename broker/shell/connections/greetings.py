"""Accepted connections whose balancer has yet to send the address of its client; see `proxy_header`.

Only the header's bytes are taken from the socket: TLS, or a session, follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from socket import MSG_PEEK, socket
from typing import Final

from broker.common.networks import Network, is_within
from broker.shell.connections.proxy_header import HEADER_MAX, read_header
from broker.shell.host.calls import READABLE, Poller
from formats.errors import FormatError

__all__ = ["Address", "Greetings"]

# Time that a balancer has for the header, which it sends first of all.
GREETING_S: Final = 5.0
# Maximum number of connections without a header; beyond it the oldest is closed.
GREETINGS_MAX: Final = 256

Address = tuple[str, int]


@dataclass(slots=True)
class _Greeting:
    """A connection, the balancer's own address, the bytes of the header so far, and the function that takes over."""

    sock: socket
    own: Address
    begin: Callable[[socket, Address], None]
    deadline: float
    taken: bytes = b""


class Greetings:
    """All such connections, from `balancers`. `refused` gets the reason for which one is closed."""

    def __init__(self, poller: Poller, balancers: tuple[Network, ...], refused: Callable[[str], None]) -> None:
        self._poller = poller
        self._balancers = balancers
        self._refused = refused
        self._waiting: dict[int, _Greeting] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._waiting

    def add(self, sock: socket, own: Address, begin: Callable[[socket, Address], None]) -> None:
        """Begin a connection with the address of the client, at once or after its header.

        Without an address in the header, it is the connection's own.
        """
        if not self._balancers or not is_within(own[0], self._balancers):
            begin(sock, own)
            return
        if len(self._waiting) >= GREETINGS_MAX:
            self._end(next(iter(self._waiting)), f"more than {GREETINGS_MAX} connections have sent no header")
        sock.setblocking(False)
        self._waiting[sock.fileno()] = _Greeting(sock, own, begin, time.monotonic() + GREETING_S)
        self._poller.register(sock.fileno(), READABLE)

    def on_ready(self, fd: int) -> None:
        greeting = self._waiting[fd]
        try:
            data = greeting.sock.recv(HEADER_MAX, MSG_PEEK)
            whole = greeting.taken + data
            header = read_header(whole) if data else None
            # The bytes are there.
            greeting.sock.recv((len(whole) if header is None else header.size) - len(greeting.taken))
        except BlockingIOError:
            return
        except OSError as error:
            self._end(fd, f"the connection failed: {error.strerror}")
            return
        except FormatError as fault:
            self._end(fd, f"{fault.reason} (see proxyProtocolFrom)")
            return
        if header is not None:
            self._forget(fd)
            greeting.begin(greeting.sock, header.source or greeting.own)
        elif data:
            greeting.taken = whole
        else:
            # So do probes of balancers that only look whether the port is open.
            self._forget(fd).sock.close()

    def expire(self) -> None:
        now = time.monotonic()
        for fd in [fd for fd, greeting in self._waiting.items() if greeting.deadline <= now]:
            self._end(fd, f"no header of the PROXY protocol within {GREETING_S:g} s (see proxyProtocolFrom)")

    def close(self) -> None:
        for greeting in self._waiting.values():
            greeting.sock.close()

    def _end(self, fd: int, reason: str) -> None:
        greeting = self._forget(fd)
        greeting.sock.close()
        self._refused(f"{greeting.own[0]}:{greeting.own[1]}: {reason}")

    def _forget(self, fd: int) -> _Greeting:
        self._poller.unregister(fd)
        return self._waiting.pop(fd)
