# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The account of the memory that connections use: incomplete input, and output that their peers have not read.

One account covers all connections of a process. Links report changes of their sizes; connections are scanned, and some
closed, only when a bound is exceeded.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker.common.standing import Standing

__all__ = ["ACCOUNT_BYTES_MAX", "FREE_BYTES", "Account", "Connection"]

# The default bound on the bytes of all connections.
ACCOUNT_BYTES_MAX: Final = 256 << 20
# Strangers that use more than this are closed before others.
FREE_BYTES: Final = 64 << 10

_STRANGER: Final = int(Standing.STRANGER)


class Connection(Protocol):
    """A connection, accepted from `address`. Only the account writes `size`."""

    address: str
    size: int

    @property
    def standing(self) -> int: ...

    @property
    def read_ms(self) -> int: ...


class Account:
    """The sizes of all connections other than those of peers. Strangers together may use a quarter of the bound."""

    def __init__(self, bytes_max: int = ACCOUNT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.strangers_bytes_max = bytes_max // 4
        self.total = 0
        # True if a bound may be exceeded; `to_close` decides.
        self.is_over = False
        self._connections: dict[Connection, None] = {}
        # An upper bound on the size of strangers, which is exact after `to_close`.
        self._strangers_total = 0

    def set_size(self, connection: Connection, size: int) -> None:
        """Set the size of a connection, in bytes. A connection that is closed must be set to 0."""
        grown = size - connection.size
        connection.size = size
        self.total += grown
        if not size:
            self._connections.pop(connection, None)
        elif grown == size:
            self._connections[connection] = None
        if connection.standing == _STRANGER:
            self._strangers_total += grown
        self._judge()

    def _judge(self) -> None:
        self.is_over = self.total > self.bytes_max or self._strangers_total > self.strangers_bytes_max

    def to_close(self) -> list[tuple[Connection, str]]:
        """Return the connections to close, with the reason; none if the sizes are within the bounds.

        Strangers that use more than `FREE_BYTES` go before other strangers, in the order of their last input; then the
        largest connections. An eighth of the bound becomes free.
        """
        found: list[tuple[Connection, str]] = []
        strangers = [connection for connection in self._connections if connection.standing == _STRANGER]
        total = self._strangers_total = sum([connection.size for connection in strangers])
        self._judge()
        if total > self.strangers_bytes_max:
            strangers.sort(key=_rank)
            why = (
                "no request of it was carried out yet, and all such connections together use "
                f"{total} bytes, more than {self.strangers_bytes_max}"
            )
            found += _first(strangers, total - self.strangers_bytes_max // 8 * 7, why)
        left = self.total - sum([connection.size for connection, _ in found])
        if left > self.bytes_max:
            gone = {connection for connection, _ in found}
            connections = [connection for connection in self._connections if connection not in gone]
            connections.sort(key=_size, reverse=True)
            why = f"no connection uses more, and all together use {left} bytes, more than {self.bytes_max}"
            found += _first(connections, left - self.bytes_max // 8 * 7, why)
        return found


def _first(connections: list[Connection], excess: int, why: str) -> list[tuple[Connection, str]]:
    found: list[tuple[Connection, str]] = []
    for connection in connections:
        if excess <= 0:
            break
        excess -= connection.size
        found.append((connection, f"it uses {connection.size} bytes for what it has not sent or not read: {why}"))
    return found


def _rank(connection: Connection) -> tuple[bool, int, int]:
    return connection.size <= FREE_BYTES, connection.read_ms, -connection.size


def _size(connection: Connection) -> int:
    return connection.size
