"""The account of the memory that connections use: input that is not whole, and output that was not read.

One account has all connections of a process. Each link reports its size when that changes; nothing is scanned until a
bound is exceeded. Then connections are chosen, one at a time, to be closed until the sizes are within the bounds.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker.common.standing import Standing

__all__ = ["ACCOUNT_BYTES_MAX", "FREE_BYTES", "Account", "Debtor"]

# The default bound on the bytes of all connections.
ACCOUNT_BYTES_MAX: Final = 256 << 20
# A stranger that uses no more than this goes after all strangers that use more.
FREE_BYTES: Final = 64 << 10

_STRANGER: Final = int(Standing.STRANGER)


class Debtor(Protocol):
    """A connection. `size` is written by the account only."""

    size: int

    @property
    def standing(self) -> int: ...

    @property
    def read_ms(self) -> int:
        """The time at which the peer was last heard."""
        ...


class Account:
    """The sizes of all connections, of which strangers have a quarter at most. Those of peers are not reported."""

    def __init__(self, bytes_max: int = ACCOUNT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.strangers_bytes_max = bytes_max // 4
        self.total = 0
        # A bound is exceeded, or may be: `to_close` decides.
        self.is_over = False
        # The connections that use memory.
        self._debtors: dict[Debtor, None] = {}
        # An upper bound on the size of strangers, which is exact after `to_close`.
        self._strangers_total = 0

    def set_size(self, debtor: Debtor, size: int) -> None:
        """Set the size of a connection, in bytes; 0 also when it is closed."""
        grown = size - debtor.size
        debtor.size = size
        self.total += grown
        if not size:
            self._debtors.pop(debtor, None)
        elif grown == size:
            self._debtors[debtor] = None
        if debtor.standing == _STRANGER:
            self._strangers_total += grown
        self._judge()

    def _judge(self) -> None:
        self.is_over = self.total > self.bytes_max or self._strangers_total > self.strangers_bytes_max

    def to_close(self) -> list[tuple[Debtor, str]]:
        """Choose the connections to be closed, and say why; none if the sizes are within the bounds.

        Of strangers, the ones that were silent for the longest go, first those that use more than `FREE_BYTES`; of all
        others, the ones with the greatest size. An eighth of the bound is made free, so that this is seldom needed.
        """
        found: list[tuple[Debtor, str]] = []
        strangers = [debtor for debtor in self._debtors if debtor.standing == _STRANGER]
        total = self._strangers_total = sum([debtor.size for debtor in strangers])
        self._judge()
        if total > self.strangers_bytes_max:
            strangers.sort(key=_rank)
            why = (
                "no request of it was carried out yet, and all such connections together use "
                f"{total} bytes, more than {self.strangers_bytes_max}"
            )
            found += _first(strangers, total - self.strangers_bytes_max // 8 * 7, why)
        left = self.total - sum([debtor.size for debtor, _ in found])
        if left > self.bytes_max:
            gone = {debtor for debtor, _ in found}
            debtors = [debtor for debtor in self._debtors if debtor not in gone]
            debtors.sort(key=_size, reverse=True)
            why = f"no connection uses more, and all together use {left} bytes, more than {self.bytes_max}"
            found += _first(debtors, left - self.bytes_max // 8 * 7, why)
        return found


def _first(debtors: list[Debtor], excess: int, why: str) -> list[tuple[Debtor, str]]:
    """Take as many connections from the front as use `excess` bytes."""
    found: list[tuple[Debtor, str]] = []
    for debtor in debtors:
        if excess <= 0:
            break
        excess -= debtor.size
        found.append((debtor, f"it uses {debtor.size} bytes for what it has not sent or not read: {why}"))
    return found


def _rank(debtor: Debtor) -> tuple[bool, int, int]:
    return debtor.size <= FREE_BYTES, debtor.read_ms, -debtor.size


def _size(debtor: Debtor) -> int:
    return debtor.size
