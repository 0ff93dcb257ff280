"""The calls that differ between operating systems, selected here for all callers as `HOST`.

`BMQCTL_PORTABLE=1` in the environment selects the portable ones on Linux, too, for tests.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import ssl
import sys
from typing import Final, Protocol

__all__ = ["HOST", "KEEP_ALIVE", "LONG_SLICE_NS", "READABLE", "WRITABLE", "Alarm", "Host", "Poller", "Wakener"]

# Bits of readiness; those of epoll have the same values.
READABLE: Final = select.POLLIN
WRITABLE: Final = select.POLLOUT

# A process with a long slice yields at once to one that wakes up with a shorter slice, about 3 ms by default; its share
# of the processor is the same.
LONG_SLICE_NS: Final = 100_000_000

if sys.platform == "darwin":
    _KEEP_IDLE = socket.TCP_KEEPALIVE
else:
    _KEEP_IDLE = socket.TCP_KEEPIDLE

# Not every peer supports heartbeats: the kernel detects after two minutes that a silent peer's machine is down.
KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, _KEEP_IDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)


class Poller(Protocol):
    """Descriptors, and the readiness for which each is watched.

    An armed poller is itself a descriptor that tasks can wait for.
    """

    def register(self, fd: int, mask: int, /) -> object: ...
    def modify(self, fd: int, mask: int, /) -> object: ...
    def unregister(self, fd: int, /) -> object: ...

    def poll(self, timeout_s: float, /) -> list[tuple[int, int]]:
        """Wait in this thread; return the ready descriptors with their bits. Errors count as ready, too."""
        ...

    def arm(self) -> None:
        """Have `fileno` become readable as soon as a descriptor is ready, until the next `poll`."""
        ...

    def fileno(self) -> int:
        """Return its own descriptor; it must have been armed before."""
        ...

    def close(self) -> None: ...


class Wakener(Protocol):
    """A descriptor that any thread makes readable, until it is cleared."""

    def fileno(self) -> int: ...
    def set(self) -> None: ...

    def clear(self) -> None:
        """Make it unreadable. Raises `BlockingIOError` if it is already."""
        ...

    def close(self) -> None: ...


class Alarm(Protocol):
    """A descriptor that becomes readable at a time of `CLOCK_MONOTONIC`."""

    def fileno(self) -> int: ...
    def set(self, due_ns: int) -> None: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...


class AnySocket(Protocol):
    """A socket, or a stream on one."""

    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...


class Host(Protocol):
    """One way to make each call."""

    name: str

    def poller(self) -> Poller: ...
    def wakener(self) -> Wakener: ...

    def alarm(self) -> Alarm | None:
        """Make an alarm that is exact to the microsecond; None where there is none."""
        ...

    def allocate(self, fd: int, start: int, size: int) -> None:
        """Allocate disk for a part of a file, and keep its content. Raises `OSError` if there is not enough."""
        ...

    def flush_data(self, fd: int) -> None:
        """Wait until a file's data and size are on the disk, maybe without other attributes."""
        ...

    def flush(self, fd: int) -> None:
        """Wait until a file or a folder is on the disk."""
        ...

    def read_nothing_ahead(self, mapped: mmap.mmap, start: int, size: int) -> None:
        """Disable read-ahead in a part that is about to be written. `start` is the start of a page."""
        ...

    def map_ahead(self, mapped: mmap.mmap, start: int, size: int) -> None:
        """Map pages about to be written. `start` is the start of a page."""
        ...

    def unmap(self, mapped: mmap.mmap, start: int, size: int) -> None:
        """Unmap unused pages. `start` is the start of a page."""
        ...

    def acknowledge_at_once(self, sock: AnySocket) -> None:
        """Have the kernel acknowledge received data without waiting for data to send."""
        ...

    def set_slice(self, ns: int) -> bool:
        """Ask the kernel for time slices of `ns` nanoseconds, 0 for its own choice; return True if it accepted."""
        ...

    def memory(self) -> tuple[int, int]:
        """Return the virtual and the resident memory of this process, in bytes, if known."""
        ...

    def cpu_s(self, pid: int) -> float:
        """Return the user and system time of all threads of a process up to this moment. Raises `OSError`."""
        ...

    def anonymous_memory(self, pid: int) -> int:
        """Return a process's memory without its mapped files, in bytes, if known. Raises `OSError`."""
        ...

    def open_files(self, pid: int) -> int: ...

    def load_certificate(self, context: ssl.SSLContext, pem: bytes) -> None:
        """Load a certificate with its key into a context, without exposing them to other accounts. Raises `OSError`."""
        ...


def _chosen() -> Host:
    if sys.platform == "linux" and os.environ.get("BMQCTL_PORTABLE", "0") in ("", "0"):
        from broker.shell.host.linux import LinuxHost

        return LinuxHost()
    from broker.shell.host.portable import PortableHost

    return PortableHost()


HOST: Final[Host] = _chosen()
