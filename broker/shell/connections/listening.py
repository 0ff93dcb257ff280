"""Listening sockets, and the errors for addresses that cannot be listened on."""

from __future__ import annotations

import errno
import socket

from formats.addresses import shown_place

__all__ = ["ListenError", "listen"]

BACKLOG = 1024

_REMEDIES = {
    errno.EADDRINUSE: "stop the program that uses it, or choose another {option}",
    errno.EACCES: "choose a {option} above 1023, or permit this program to use that one",
}


class ListenError(OSError):
    """An address that cannot be listened on; the text has the address, the reason and the remedy."""


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """Make a listening socket. Raises `ListenError` if the address is taken or not this machine's.

    An IPv6 address may be in brackets. The error names `option`, by which another port is chosen.
    """
    place = shown_place(host, port)
    try:
        (family, kind, proto, _, address), *_ = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError as error:
        raise ListenError(f"{place}: no name of a host ({error}); give --host an address of this machine") from None
    except socket.gaierror as error:
        raise ListenError(f"{place}: {error.strerror}; give --host an address of this machine") from None
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        remedy = _REMEDIES.get(error.errno or 0, "give --host an address of this machine").format(option=option)
        raise ListenError(f"{place}: {error.strerror}; {remedy}") from None
    sock.setblocking(False)
    return sock
