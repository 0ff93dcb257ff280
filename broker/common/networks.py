"""Networks of addresses in configurations."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from broker.common.addresses import address_of

__all__ = ["Network", "is_within", "read_networks"]

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


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Raises `ValueError` for a text that is no address."""
    found = ipaddress.ip_address(address_of(f"{address}:0"))
    return any(found in network for network in networks)
