"""TLS by files: a connection uses their contents at its beginning."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

__all__ = ["FileContext", "TlsContext"]

log = logging.getLogger("broker.tls")

# Minimum time between two looks at the files.
LOOK_S: Final = 1.0
# Files that have changed more recently may not be complete: a certificate and its key are two files.
SETTLE_S: Final = 2.0

_NS: Final = 1_000_000_000

# Device, inode, size, and times of modification and change in ns; None for a file that cannot be found.
Stamp = tuple[int, int, int, int, int] | None


class TlsContext(Protocol):
    """The beginning of TLS on a connection, as in `ssl.SSLContext`."""

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
    ) -> ssl.SSLSocket: ...


class FileContext:
    """A context that `make` makes of files, again when a connection begins after they have changed.

    `make` raises `fault` for files that cannot be used: the constructor raises it. Later the previous context stays in
    use, and each change to such files is one alarm.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Iterable[str | Path], fault: type[Exception]) -> None:
        self._make = make
        self._files = tuple(map(Path, files))
        self._fault = fault
        # A change while the files are read makes them differ from this.
        self._read = self._stamps()
        self._context = make()
        self._next_s = time.monotonic() + LOOK_S

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
    ) -> ssl.SSLSocket:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + LOOK_S
            self._look()
        return self._context.wrap_socket(
            sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, server_hostname
        )

    def _look(self) -> None:
        stamps = self._stamps()
        if stamps == self._read or not is_settled(stamps, time.time_ns()):
            return
        self._read = stamps
        names = ", ".join(map(str, self._files))
        try:
            self._context = self._make()
        except self._fault as fault:
            log.error("ALARM [TLS] the new files cannot be used, and new connections use the former: %s", fault)
        else:
            log.info("new connections use the new certificates in %s", names)

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(_stamp, self._files))


def is_settled(stamps: Iterable[Stamp], now_ns: int) -> bool:
    """Return False for files of which one has just changed. A change in the future is that of a clock."""
    return all(stamp is None or not 0 <= now_ns - stamp[4] < SETTLE_S * _NS for stamp in stamps)


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
