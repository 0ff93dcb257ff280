"""The clients that are known, and how many there may be of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.rocketmq.grpc.clients import Client
from broker.rocketmq.grpc.statuses import Rejected
from formats.rocketmq.grpc.codes import Code

__all__ = ["Clients"]

_ALL_MAX: Final = 50_000
# Behind one address there may be many clients, but not all: nobody is to keep out others.
_ADDRESS_MAX: Final = 5_000


class Clients:
    """The clients by address, user and id.

    Ids are not secret: the id alone gives no access to a client of another host or user.
    """

    def __init__(self, all_max: int = _ALL_MAX, address_max: int = _ADDRESS_MAX) -> None:
        self._all_max = all_max
        self._address_max = address_max
        self._clients: dict[tuple[str, str, str], Client] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        """All, whoever is forgotten in the meantime."""
        return iter(list(self._clients.values()))

    def get(self, address: str, client_id: str, user: str = "") -> Client | None:
        """The client of that id and user at that address."""
        return self._clients.get((address, user, client_id))

    def check_room(self, address: str) -> None:
        """Check that there may be one more. Raises `Rejected`."""
        if len(self._clients) >= self._all_max:
            raise Rejected(Code.TOO_MANY_REQUESTS, "there are too many clients")
        if self._counts[address] >= self._address_max:
            raise Rejected(Code.TOO_MANY_REQUESTS, f"there are too many clients of {address}")

    def add(self, client: Client) -> None:
        """Note a client, of an address and id that has none."""
        address = client.host.address
        self._clients[address, client.user, client.client_id] = client
        self._counts[address] += 1

    def discard(self, client: Client) -> None:
        """Forget a client, if it is known."""
        address = client.host.address
        if self.get(address, client.client_id, client.user) is not client:
            return
        del self._clients[address, client.user, client.client_id]
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
