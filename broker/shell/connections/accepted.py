"""The accepted connections of a server, and the choice of one to close for a new one beyond their maximum."""

from __future__ import annotations

from typing import Final

from broker.common.standing import Standing
from broker.shell.connections.account import Connection

__all__ = ["CHOICE_MS", "AcceptedConnections"]

# Minimum interval between two choices among the connections of an address: each choice scans them all.
CHOICE_MS: Final = 10

_STRANGER: Final = int(Standing.STRANGER)
_PEER: Final = int(Standing.PEER)


class AcceptedConnections:
    """The accepted connections, by address, and the strangers among them in order of arrival."""

    def __init__(self) -> None:
        # Includes former strangers, which `choose` drops.
        self._strangers: dict[Connection, None] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._chosen_ms = -CHOICE_MS

    def add(self, connection: Connection) -> None:
        self._strangers[connection] = None
        self._by_address.setdefault(connection.address, {})[connection] = None

    def discard(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        of_address = self._by_address.get(connection.address)
        if of_address is not None:
            of_address.pop(connection, None)
            if not of_address:
                del self._by_address[connection.address]

    def choose(self, address: str, now_ms: int) -> tuple[Connection, str] | None:
        """Return the connection to close for a new one from `address`, with the reason; None to refuse the new one.

        The oldest stranger is chosen first. Without strangers, it is the connection with the earliest last input of the
        address with most connections, unless that has at most one more than `address`.
        """
        while self._strangers:
            oldest = next(iter(self._strangers))
            if oldest.standing == _STRANGER:
                return oldest, "no request of it was carried out yet, and there is no room for others"
            del self._strangers[oldest]
        if now_ms - self._chosen_ms < CHOICE_MS or not self._by_address:
            return None
        most = max(self._by_address, key=self._count)
        if self._count(most) <= self._count(address) + 1:
            return None
        self._chosen_ms = now_ms
        clients = [connection for connection in self._by_address[most] if connection.standing != _PEER]
        if not clients:
            return None
        silent = min(clients, key=_read_ms)
        return silent, f"{most} has {len(clients)} connections, more than others, and there is no room for others"

    def _count(self, address: str) -> int:
        return len(self._by_address.get(address, ()))


def _read_ms(connection: Connection) -> int:
    return connection.read_ms
