"""The choice of a connection that is closed for a new one when there are as many as there may be."""

from __future__ import annotations

from typing import Final, Protocol

from broker.common.standing import Standing

__all__ = ["CHOICE_MS", "Holder", "Slots"]

# Minimum time between two choices among the connections of an address, since each looks at all of these.
CHOICE_MS: Final = 10

_STRANGER: Final = int(Standing.STRANGER)
_PEER: Final = int(Standing.PEER)


class Holder(Protocol):
    """A connection that was accepted from `address`."""

    address: str

    @property
    def standing(self) -> int: ...

    @property
    def read_ms(self) -> int:
        """The time at which the peer was last heard."""
        ...


class Slots:
    """The connections that were accepted, in the order in which they came."""

    def __init__(self) -> None:
        # Some of them are strangers no longer: they are dropped when they are next looked at.
        self._strangers: dict[Holder, None] = {}
        self._by_address: dict[str, dict[Holder, None]] = {}
        self._chosen_ms = -CHOICE_MS

    def add(self, holder: Holder) -> None:
        """Note a connection."""
        self._strangers[holder] = None
        self._by_address.setdefault(holder.address, {})[holder] = None

    def discard(self, holder: Holder) -> None:
        """Forget a connection, if it is known."""
        self._strangers.pop(holder, None)
        of_address = self._by_address.get(holder.address)
        if of_address is not None:
            of_address.pop(holder, None)
            if not of_address:
                del self._by_address[holder.address]

    def give_way(self, address: str, now_ms: int) -> tuple[Holder, str] | None:
        """Choose the connection that is closed for a new one from an address; None if that is to be refused.

        The oldest stranger goes first. If there is none, the address that has the most connections loses the one that
        was silent for the longest, unless it is the address of the new one or has hardly more.
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
        clients = [holder for holder in self._by_address[most] if holder.standing != _PEER]
        if not clients:
            return None
        silent = min(clients, key=_heard)
        return silent, f"{most} has {len(clients)} connections, more than others, and there is no room for others"

    def _count(self, address: str) -> int:
        return len(self._by_address.get(address, ()))


def _heard(holder: Holder) -> int:
    return holder.read_ms
