"""TLS on a link: the kernel's socket carries ciphertext, and OpenSSL holds up to a record of plain bytes.

Those plain bytes are why a link over TLS is not quite as others: epoll knows nothing of them. The handshake of a
connection that is accepted is made by the first reads, so that a peer that never finishes it is put off as one that
never says who it is. That of a connection that this broker makes is over before there is a link: see
`broker.shell.dialing`.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from socket import socket
from typing import Any

from broker.shell.link import Link, Machine

# The kinds of alternative names that may name a broker.
_NAMES = ("DNS", "URI")

__all__ = ["TlsLink", "TlsStream", "accept_tls", "tls_error"]


def accept_tls(sock: socket, context: ssl.SSLContext) -> TlsStream:
    """The broker's side of TLS on a connection that it has accepted; OSError if that is over already."""
    sock.setblocking(False)
    # Wrapped without a peer it would speak plainly.
    sock.getpeername()
    return TlsStream(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))


class TlsStream:
    """What of a socket a link uses; what TLS waits for looks like a socket that waits."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock

    def names(self) -> frozenset[str]:
        """The names in the certificate that the peer has shown and that is trusted; none before the handshake is over.

        They are its subject's alternative names, or, where it has no such names, the common name.
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
        """The number of plain bytes that can be read without the kernel."""
        return self._sock.pending()

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self._sock.setblocking(flag)

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._sock.setsockopt(level, name, value)

    def close(self) -> None:
        # Without a good-bye the peer could not tell our end from that of one who cuts the wire.
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.close()


def tls_error(error: ssl.SSLError) -> str:
    """The reason that TLS failed for, in words."""
    reason = f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason += f": {error.verify_message}"
    return reason


class TlsLink(Link):
    """A link that looks after what OpenSSL still holds."""

    __slots__ = ("_stream",)

    def __init__(self, stream: TlsStream, machine: Machine, scratch: memoryview) -> None:
        super().__init__(stream, machine, scratch)
        self._stream = stream

    def on_readable(self) -> None:
        super().on_readable()
        self._take_decrypted()

    def flush(self) -> bool:
        super().flush()
        self._take_decrypted()
        return not self._unsent and self.ended is None

    def _take_decrypted(self) -> None:
        while self.ended is None and self.wants_read and self._stream.pending():
            super().on_readable()
