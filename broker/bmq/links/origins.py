# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The addresses from which the nodes of a cluster connect: those of their configured hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.common.addresses import LOOK_UP_MS, Addresses, LookUp, address_of
from broker.common.clock import Now

__all__ = ["LOOK_UP_MS", "LookUp", "Origins", "address_of"]


class Origins:
    """The addresses of all nodes, from their `hosts`. `look_up` resolves a host that is not an address itself."""

    def __init__(self, hosts: Mapping[int, str], own_id: int, now: Now, look_up: LookUp) -> None:
        self._hosts = hosts
        self._addresses = Addresses(hosts[own_id], now, look_up, look_ups_max=len(hosts))

    def start(self) -> None:
        self._addresses.start(self._hosts.values())

    def has(self, node_id: int, address: str) -> bool:
        """See `Addresses.has`."""
        return self._addresses.has(self._hosts[node_id], address)

    def shown(self, node_id: int) -> str:
        return self._addresses.shown(self._hosts[node_id])

    def renew(self, node_id: int, then: Callable[[], None]) -> bool:
        """Look up a node's host again, then call `then`; return False if that cannot help; see `Addresses.renew`."""
        return self._addresses.renew(self._hosts[node_id], then)
