"""The hosts from which administrators may change the tables of a nameserver or a controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.common.addresses import address_of
from broker.common.networks import Network, is_within
from broker.rocketmq.remoting.peers import KnownPeers

__all__ = ["Administrators"]


class Administrators:
    """The networks that administrators connect from; None if not configured.

    While `are_checked` returns True, access control checks each request, and any address is accepted.
    """

    def __init__(
        self, networks: tuple[Network, ...] | None = None, are_checked: Callable[[], bool] = lambda: False
    ) -> None:
        self.networks = networks
        self._are_checked = are_checked

    def refusal(self, address: str, peers: KnownPeers, hosts: Iterable[str]) -> str | None:
        """Return why an administrator's request from an address is refused; None if it is accepted.

        The configured networks, and the addresses of `hosts`, are accepted.
        """
        if self._are_checked():
            return None
        if is_within(address, self.networks or ()):
            return None
        found = address_of(f"{address}:0")
        if any(peers.refusal_of_address(host, found) is None for host in hosts):
            return None
        return f"administrators do not connect from {found}: see administratorAddresses"
