"""Free TCP ports for the processes that a test or a script starts."""

from __future__ import annotations

import atexit
import errno
import os
import random
import re
import socket
import sys
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Final

__all__ = ["free_port", "free_ports", "free_rocketmq_port"]

_HOST: Final = "127.0.0.1"
_FIRST_PORT = 10_240
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_GENERATOR = random.SystemRandom()
_LEFT: list[int] = []
# Sockets that reserve the ports returned last.
_RESERVED: deque[socket.socket] = deque(maxlen=256)


def free_port(host: str = _HOST) -> int:
    return free_ports(1, host)


def free_ports(count: int, host: str = _HOST) -> int:
    """Return the first of `count` consecutive free TCP ports of `host`. Raises `OSError` if there are none.

    They are below the kernel's range for outgoing connections, in which a client that keeps trying the port of a
    stopped node can be given that very port, and connect to itself. A process tries all other ports before it repeats
    one, and each worker of pytest-xdist has its own part of the range. On Linux the ports returned last stay reserved:
    other searches do not get them, while a server with SO_REUSEADDR, as all brokers are, can listen there.
    """
    for _ in range(2):
        while _LEFT:
            # A test may have seeded the generator of `random`.
            first = _LEFT.pop(_GENERATOR.randrange(len(_LEFT)))
            if _reserve(host, range(first, first + count)):
                return first
        _LEFT.extend(_port_range())
    _LEFT.clear()
    raise OSError(errno.EADDRINUSE, f"{host} has no free port")


def free_rocketmq_port(host: str = _HOST) -> int:
    """Return a TCP port of `host` for a RocketMQ broker, which may also listen 2 below and 1 above it."""
    return free_ports(4, host) + 2


def _port_range() -> range:
    """The ports for this process: all, or the part of its pytest-xdist worker."""
    end = int(_PORT_RANGE.read_text().split()[0]) if _PORT_RANGE.exists() else 32_768
    if end <= _FIRST_PORT:
        end = 65_535
    worker = re.fullmatch("gw([0-9]+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    count = re.fullmatch("[1-9][0-9]*", os.environ.get("PYTEST_XDIST_WORKER_COUNT", ""))
    if worker is None or count is None:
        return range(_FIRST_PORT, end)
    part = max(1, (end - _FIRST_PORT) // int(count[0]))
    # The worker that replaces a crashed one has a number beyond the count.
    first = _FIRST_PORT + int(worker[1]) % int(count[0]) * part
    return range(first, first + part)


@atexit.register
def _release() -> None:
    while _RESERVED:
        _RESERVED.popleft().close()


def _reserve(host: str, ports: range) -> bool:
    """Reserve all of `ports`; return False, and reserve none, unless all are free."""
    with ExitStack() as bound:
        sockets = []
        for port in ports:
            sockets.append(bound.enter_context(socket.socket()))
            try:
                sockets[-1].bind((host, port))
            except OSError:
                return False
        # Elsewhere two sockets cannot be bound to the same port, even where only one listens.
        if sys.platform == "linux":
            for sock in sockets:
                # Only now: with the option, a bind would also succeed on a reserved port.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for sock in sockets:
                if len(_RESERVED) == _RESERVED.maxlen:
                    _RESERVED.popleft().close()
                _RESERVED.append(sock)
            bound.pop_all()
    return True
