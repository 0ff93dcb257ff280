"""The hosts from which administrators may change the tables of a nameserver or a controller."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

from broker.common.addresses import address_of
from broker.rocketmq.remoting.peers import KnownPeers

__all__ = ["Administrators", "Network", "read_networks"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def read_networks(text: str) -> tuple[Network, ...]:
    """Parse addresses and networks, separated by commas or semicolons; `*` is all addresses. Raises `ValueError`."""
    found: list[Network] = []
    for word in text.replace(";", ",").split(","):
        if word.strip() == "*":
            found += [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
        elif word.strip():
            found.append(ipaddress.ip_network(word.strip()))
    return tuple(found)


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
        """Return the reason to refuse an administrator's request from an address; None if it is accepted.

        It is accepted from the configured networks, and from the addresses of `hosts`.
        """
        if self._are_checked():
            return None
        found = ipaddress.ip_address(address_of(f"{address}:0"))
        if any(found in network for network in self.networks or ()):
            return None
        if any(peers.refusal_of_address(host, str(found)) is None for host in hosts):
            return None
        return f"administrators do not connect from {found}: see administratorAddresses"
