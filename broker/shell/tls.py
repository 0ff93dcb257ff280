"""TLS on a link: the kernel's socket carries ciphertext, and OpenSSL holds up to a record of plain bytes.

Those plain bytes are why a link over TLS is not quite as others: epoll knows nothing of them. The handshake is made by
the first reads, so that a peer that never finishes it is put off as one that never says who it is.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from socket import socket

from broker.shell.link import Link, Machine

__all__ = ["TlsLink", "TlsStream"]


class TlsStream:
    """What of a socket a link uses; what TLS waits for looks like a socket that waits."""

    def __init__(self, sock: socket, context: ssl.SSLContext) -> None:
        sock.setblocking(False)
        self._sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def recv_into(self, view: memoryview) -> int:
        try:
            return self._sock.recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _told(error) from None

    def send(self, data: bytearray | memoryview) -> int:
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _told(error) from None

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


def _told(error: ssl.SSLError) -> OSError:
    return OSError(0, f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}")


class TlsLink(Link):
    """A link that looks after what OpenSSL still holds."""

    __slots__ = ("_stream",)

    def __init__(self, stream: TlsStream, machine: Machine, scratch: memoryview) -> None:
        super().__init__(stream, machine, scratch)
        self._stream = stream

    def on_readable(self) -> None:
        super().on_readable()
        self._take_decrypted()

    def flush(self) -> None:
        super().flush()
        self._take_decrypted()

    def _take_decrypted(self) -> None:
        while self.ended is None and self.wants_read and self._stream.pending():
            super().on_readable()
