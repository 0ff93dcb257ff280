"""Outgoing connections: the host is resolved, the socket connected, and TLS negotiated if configured.

Names are resolved in threads; the rest follows the poller's readiness. The time is limited: for a host that is down,
the kernel would retry for minutes.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from broker.shell.connections.reloading import TlsContext
from broker.shell.connections.system import MadeSession
from broker.shell.connections.tls import TlsStream, tls_error
from broker.shell.host.calls import READABLE, WRITABLE, Poller

__all__ = ["Connected", "Dialed", "Dials", "Endpoint", "InThread", "addresses_of", "is_own_address"]

DIAL_S = 5.0

T = TypeVar("T")

# A peer's address, or the reason why it is unknown.
Found = tuple[socket.AddressFamily, Any] | str
Connected = Callable[[str], MadeSession]


class Endpoint(NamedTuple):
    """A broker's address. With `tls`, it must show the certificate that the context wants, if any."""

    host: str
    port: int
    tls: TlsContext | None = None


class Dialed(NamedTuple):
    """Callbacks for a finished attempt: `connected` makes the session, given the address; `failed` gets the reason."""

    connected: Connected
    failed: Callable[[str], None]


class InThread(Protocol):
    """Runs a blocking function in a thread, and passes its result to the loop."""

    def __call__(self, work: Callable[[], T], done: Callable[[T], None]) -> None: ...


def addresses_of(host: str) -> frozenset[str] | str:
    """Resolve a host to its addresses, or to the reason of a failure. This blocks."""
    try:
        return frozenset(str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        return _reason(error)


def is_own_address(address: str) -> bool:
    """Return True for an address of this machine, which a socket can be bound to."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except (OSError, UnicodeError):
        return False
    return True


def _resolve(place: Endpoint) -> Found:
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return f"{place.host}: {_reason(error)}"
    return family, address


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@dataclass(slots=True)
class _Dialing:
    """A connection attempt; `secured` is set once TLS has begun on it."""

    sock: socket.socket
    place: Endpoint
    dialed: Dialed
    deadline: float
    secured: ssl.SSLSocket | None = None


class Dials:
    """All connection attempts. `attach` connects a stream with the session that `connected` makes."""

    def __init__(
        self, poller: Poller, in_thread: InThread, attach: Callable[[socket.socket | TlsStream, str, Dialed], None]
    ) -> None:
        self._poller = poller
        self._in_thread = in_thread
        self._attach = attach
        self._dialing: dict[int, _Dialing] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._dialing

    def begin(self, place: Endpoint, dialed: Dialed) -> None:
        self._in_thread(lambda: _resolve(place), lambda found: self._connect(found, place, dialed))

    def _connect(self, found: Found, place: Endpoint, dialed: Dialed) -> None:
        if isinstance(found, str):
            dialed.failed(found)
            return
        family, address = found
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            dialed.failed(_reason(error))
            return
        sock.setblocking(False)
        error_code = sock.connect_ex(address)
        if error_code not in (0, errno.EINPROGRESS):
            sock.close()
            dialed.failed(os.strerror(error_code))
            return
        self._dialing[sock.fileno()] = _Dialing(sock, place, dialed, time.monotonic() + DIAL_S)
        self._poller.register(sock.fileno(), WRITABLE)

    def on_ready(self, fd: int) -> None:
        dialing = self._dialing[fd]
        if dialing.secured is not None:
            self._shake_hands(fd, dialing, dialing.secured)
            return
        error_code = dialing.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error_code:
            self._fail(fd, os.strerror(error_code))
        elif dialing.place.tls is None:
            self._done(fd, dialing.sock)
        else:
            self._secure(fd, dialing, dialing.place.tls)

    def _secure(self, fd: int, dialing: _Dialing, context: TlsContext) -> None:
        try:
            # The descriptor stays the same.
            secured = context.wrap_socket(
                dialing.sock, server_hostname=dialing.place.host, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:
            self._fail(fd, f"TLS: {_reason(error)}")
            return
        dialing.sock = dialing.secured = secured
        self._shake_hands(fd, dialing, secured)

    def _shake_hands(self, fd: int, dialing: _Dialing, secured: ssl.SSLSocket) -> None:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            self._poller.modify(fd, READABLE)
        except ssl.SSLWantWriteError:
            self._poller.modify(fd, WRITABLE)
        except ssl.SSLError as error:
            self._fail(fd, tls_error(error))
        except OSError as error:
            self._fail(fd, _reason(error))
        else:
            self._done(fd, TlsStream(secured))

    def _done(self, fd: int, stream: socket.socket | TlsStream) -> None:
        dialing = self._forget(fd)
        self._attach(stream, f"{dialing.place.host}:{dialing.place.port}", dialing.dialed)

    def _fail(self, fd: int, reason: str) -> None:
        dialing = self._forget(fd)
        dialing.sock.close()
        dialing.dialed.failed(reason)

    def _forget(self, fd: int) -> _Dialing:
        self._poller.unregister(fd)
        return self._dialing.pop(fd)

    def expire(self) -> None:
        now = time.monotonic()
        for fd in [fd for fd, dialing in self._dialing.items() if dialing.deadline <= now]:
            self._fail(fd, os.strerror(errno.ETIMEDOUT))

    def close(self) -> None:
        for dialing in self._dialing.values():
            dialing.sock.close()
