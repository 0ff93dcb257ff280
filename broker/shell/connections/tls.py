# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""TLS on a link: the kernel's socket carries ciphertext, and OpenSSL holds up to a record of plain bytes.

The poller does not know of those bytes. The first reads of an accepted connection make the handshake, so a peer that
never finishes it is treated like one that never negotiates. That of an outgoing connection is complete before there is
a link: see `broker.shell.connections.dialing`.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from socket import MSG_PEEK, socket
from typing import Any, Final

from broker.shell.connections.account import Account
from broker.shell.connections.link import Link, Machine
from broker.shell.connections.reloading import TlsContext

# The kinds of alternative names that may identify a broker.
_NAMES = ("DNS", "URI")

# The type of TLS's first record, which begins a handshake.
_HANDSHAKE = b"\x16"

# Memory of a connection during its handshake in OpenSSL and Python: 44 to 58 KiB, as measured.
TLS_BYTES: Final = 48 << 10

__all__ = ["EitherStream", "TlsLink", "TlsStream", "accept_tls", "tls_error"]


def accept_tls(sock: socket, context: TlsContext) -> TlsStream:
    """Begin the broker's side of TLS on an accepted connection. Raises OSError if the connection is closed."""
    sock.setblocking(False)
    # A socket wrapped without a peer would send plain bytes.
    sock.getpeername()
    return TlsStream(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))


class TlsStream:
    """A socket with TLS, as a link uses it; waits within TLS look like those of a plain socket."""

    is_tls = True

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock

    def names(self) -> frozenset[str]:
        """Return the names in the peer's trusted certificate; none before the handshake is complete.

        They are its subject's alternative names or, without any, the common name.
        """
        certificate: dict[str, Any] | None = self._sock.getpeercert() if self._sock.version() is not None else None
        if not certificate:
            return frozenset()
        names = frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind in _NAMES)
        if names:
            return names
        return frozenset(name for part in certificate["subject"] for kind, name in part if kind == "commonName")

    def recv_into(self, view: memoryview) -> int:
        try:
            return self._sock.recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise OSError(0, tls_error(error)) from None

    def send(self, data: bytearray | memoryview) -> int:
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise OSError(0, tls_error(error)) from None

    def pending(self) -> int:
        """Return the number of bytes that can be read without the kernel."""
        return self._sock.pending()

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self._sock.setblocking(flag)

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._sock.setsockopt(level, name, value)

    def close(self) -> None:
        # Without a closing alert the peer could not distinguish the end from an attacker's cut.
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.close()


class EitherStream:
    """A connected socket whose peer shows by its first byte whether it speaks TLS."""

    def __init__(self, sock: socket, context: TlsContext) -> None:
        self._stream: socket | TlsStream = sock
        self._context = context
        self._is_known = False

    @property
    def is_tls(self) -> bool:
        return isinstance(self._stream, TlsStream)

    @property
    def plain(self) -> socket | None:
        """The socket, once its peer has shown that it does not speak TLS."""
        return self._stream if self._is_known and isinstance(self._stream, socket) else None

    def recv_into(self, view: memoryview) -> int:
        if not self._is_known:
            self._look()
        return self._stream.recv_into(view)

    def _look(self) -> None:
        """Peek at the first byte. Raises OSError, `BlockingIOError` if there is none yet."""
        assert isinstance(self._stream, socket)
        first = self._stream.recv(1, MSG_PEEK)
        self._is_known = True
        if first == _HANDSHAKE:
            self._stream = accept_tls(self._stream, self._context)

    def send(self, data: bytearray | memoryview) -> int:
        return self._stream.send(data)

    def pending(self) -> int:
        return self._stream.pending() if isinstance(self._stream, TlsStream) else 0

    def fileno(self) -> int:
        return self._stream.fileno()

    def setblocking(self, flag: bool) -> None:
        self._stream.setblocking(flag)

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._stream.setsockopt(level, name, value)

    def close(self) -> None:
        self._stream.close()


def tls_error(error: ssl.SSLError) -> str:
    # Some errors have no reason, although its declared type is text: a compiled module would raise TypeError.
    told: str | None = getattr(error, "reason", None)
    reason = f"TLS: {(told or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason += f": {error.verify_message}"
    return reason


class TlsLink(Link):
    """A link that also handles data buffered in OpenSSL, unless its peer does not speak TLS."""

    __slots__ = ("_stream",)

    def __init__(
        self,
        stream: TlsStream | EitherStream,
        machine: Machine,
        scratch: memoryview,
        account: Account | None = None,
        address: str = "",
    ) -> None:
        super().__init__(stream, machine, scratch, account, address)
        self._stream: TlsStream | EitherStream | None = stream
        self._settle(stream)

    def on_readable(self) -> bool:
        has_read = super().on_readable()
        stream = self._stream
        if stream is not None:
            if not self._overhead:
                self._settle(stream)
            self._take_decrypted(stream)
        return has_read

    def _settle(self, stream: TlsStream | EitherStream) -> None:
        """Count the memory of TLS, or use the socket itself, once the peer has shown what it speaks."""
        if stream.is_tls:
            self._overhead = TLS_BYTES
            self.count()
        elif isinstance(stream, EitherStream) and stream.plain is not None:
            self.sock = stream.plain
            self._stream = None

    def flush(self) -> bool:
        super().flush()
        if self._stream is not None:
            self._take_decrypted(self._stream)
        return not self._unsent and self.ended is None

    def _take_decrypted(self, stream: TlsStream | EitherStream) -> None:
        while self.ended is None and self.wants_read and stream.pending():
            super().on_readable()
