"""A watch over the ports of a test process and of the Python processes that it starts.

The folder of this module is in PYTHONPATH, so that each child imports it. A process may listen on or connect to a port
of this machine that is 0, that `bmqctl.common.ports` has given to it or to another of these processes, or that the
kernel gives away. Uses of other ports are written to a file, and fail the test that runs.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["FOLDER", "PortWatch"]

FOLDER: Final = "BMQCTL_WATCHED_PORTS"
_OWN_HOSTS: Final = ("127.", "0.0.0.0", "localhost", "::")
_PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_GIVER: Final = str(Path("bmqctl", "common", "ports.py"))
# Only a privileged process can listen below: a test may connect there to find nobody.
_FIRST_UNPRIVILEGED: Final = 1024


class PortWatch:
    """An audit hook; `folder` has the files that the processes share."""

    def __init__(self, folder: Path) -> None:
        self._given_file = folder / "given"
        self._misused_file = folder / "misused"
        self._given: set[int] = set()
        self._told = 0
        self._first_of_kernel = int(_PORT_RANGE.read_text().split()[0]) if _PORT_RANGE.exists() else 49_152

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what a process does with a port, for events of the interpreter's audit hooks."""
        if event not in ("socket.bind", "socket.connect"):
            return
        sock, address = arguments
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or not sock.type & socket.SOCK_STREAM:
            return
        host, port = address[:2]
        if host and not host.startswith(_OWN_HOSTS):
            return
        if event == "socket.bind" and _is_given():
            self._given.add(port)
            _append(self._given_file, str(port))
        elif not self._may_use(event, port):
            _append(self._misused_file, f"{event} of {address[0]}:{port}, given by nobody, by {sys.argv[:6]}")

    def take_misused(self) -> list[str]:
        """Return the lines about uses of other ports since the last call."""
        try:
            if self._misused_file.stat().st_size == self._told:
                return []
            text = self._misused_file.read_bytes()[self._told :]
        except FileNotFoundError:
            return []
        self._told += len(text)
        return text.decode(errors="replace").splitlines()

    def _may_use(self, event: str, port: int) -> bool:
        if port == 0 or port in self._given:
            return True
        if event == "socket.connect" and (port < _FIRST_UNPRIVILEGED or port >= self._first_of_kernel):
            return True
        if self._given_file.exists():
            self._given.update(map(int, self._given_file.read_text().split()))
        return port in self._given


def _is_given() -> bool:
    """Return whether it is `bmqctl.common.ports` that calls, at most one hook of a test process away."""
    frame = sys._getframe(2)
    callers = (frame, frame.f_back)
    return any(each is not None and each.f_code.co_filename.endswith(_GIVER) for each in callers)


def _append(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write(line + "\n")


def _watch_child() -> None:
    folder = os.environ.get(FOLDER)
    if folder:
        sys.addaudithook(PortWatch(Path(folder)))


if __name__ == "sitecustomize":
    _watch_child()
