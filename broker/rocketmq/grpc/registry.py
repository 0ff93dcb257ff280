"""The known clients, and their maximum number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.rocketmq.grpc.clients import GrpcClient
from broker.rocketmq.grpc.statuses import CallRejected
from formats.rocketmq.grpc.codes import Code

__all__ = ["GrpcClients"]

_ALL_MAX: Final = 50_000
# There may be many clients at one address, but they must leave room for others.
_ADDRESS_MAX: Final = 5_000


class GrpcClients:
    """The clients by address, user and id.

    Ids are not secret: the id alone gives no access to a client of another host or user.
    """

    def __init__(self, all_max: int = _ALL_MAX, address_max: int = _ADDRESS_MAX) -> None:
        self._all_max = all_max
        self._address_max = address_max
        self._clients: dict[tuple[str, str, str], GrpcClient] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[GrpcClient]:
        """Yield a snapshot of all clients; clients may be forgotten meanwhile."""
        return iter(list(self._clients.values()))

    def get(self, address: str, client_id: str, user: str = "") -> GrpcClient | None:
        return self._clients.get((address, user, client_id))

    def check_room(self, address: str) -> None:
        """Raise `CallRejected` if there may be no more clients."""
        if len(self._clients) >= self._all_max:
            raise CallRejected(Code.TOO_MANY_REQUESTS, "there are too many clients")
        if self._counts[address] >= self._address_max:
            raise CallRejected(Code.TOO_MANY_REQUESTS, f"there are too many clients of {address}")

    def add(self, client: GrpcClient) -> None:
        """Add a client, of an address and id that has none."""
        address = client.host.address
        self._clients[address, client.user, client.client_id] = client
        self._counts[address] += 1

    def discard(self, client: GrpcClient) -> None:
        """Forget a client, if it is known."""
        address = client.host.address
        if self.get(address, client.client_id, client.user) is not client:
            return
        del self._clients[address, client.user, client.client_id]
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
