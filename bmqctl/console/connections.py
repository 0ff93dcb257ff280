"""Connections to the nodes of a BlazingMQ cluster that are kept between questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from bmqctl.client.admin import AdminClient

__all__ = ["KeptConnections"]

# A broker's heartbeats are answered during a question only: an older connection may be lost.
_IDLE_S: Final = 5.0


class KeptConnections:
    """Connections of one person, each used by one thread at a time."""

    def __init__(
        self, connect: Callable[[str, int], AdminClient], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[tuple[float, AdminClient]]] = {}
        self._is_closed = False

    @contextmanager
    def client(self, host: str, port: int) -> Iterator[AdminClient]:
        """Use a connection; it is kept unless the use raises. Raises `AdminLost`."""
        client = self._take(host, port) or self._connect(host, port)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._keep(host, port, client)

    def close(self) -> None:
        """Close the idle connections now, and the others as their use ends."""
        with self._lock:
            self._is_closed = True
            idle = [client for clients in self._idle.values() for _, client in clients]
            self._idle.clear()
        for client in idle:
            client.close()

    def _take(self, host: str, port: int) -> AdminClient | None:
        while True:
            with self._lock:
                known = self._idle.get((host, port))
                if not known:
                    return None
                since_s, client = known.pop()
            if self._clock_s() - since_s < _IDLE_S and client.is_quiet():
                return client
            client.close()

    def _keep(self, host: str, port: int, client: AdminClient) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault((host, port), []).append((self._clock_s(), client))
                return
        client.close()
