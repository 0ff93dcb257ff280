"""The addresses from which the nodes of a cluster connect: those of the hosts that its configuration names.

A host is looked up when the cluster's member starts, and again when a broker connects from an address that is not known
as the host's, since addresses change.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.common.clock import Now

__all__ = ["LOOK_UP_MS", "LookUp", "Origins", "address_of"]

log: Final = logging.getLogger("broker.peers")

# Minimum interval between lookups of a host: strangers must not cause endless lookups.
LOOK_UP_MS: Final = 5_000

# Finds the addresses of a host; passes them on, or the reason why there are none, at once or later.
LookUp = Callable[[str, Callable[[frozenset[str] | str], None]], None]


class Origins:
    """The addresses of all nodes, from their `hosts`. `look_up` resolves a host that is not an address itself."""

    def __init__(self, hosts: Mapping[int, str], own_id: int, now: Now, look_up: LookUp) -> None:
        self._hosts = hosts
        self._own_id = own_id
        self._now = now
        self._look_up = look_up
        self._addresses: dict[str, frozenset[str]] = {}
        self._asked_ms: dict[str, int] = {}
        # Actions that wait for a host's addresses.
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        for host in set(hosts.values()):
            numeric = _normal(host)
            if numeric is not None:
                self._addresses[host] = frozenset((numeric,))

    def start(self) -> None:
        """Look up all hosts."""
        # A peer that connected before may have had its host looked up already.
        for host in sorted(set(self._hosts.values()) - self._addresses.keys() - self._waiting.keys()):
            self._ask(host)

    def has(self, node_id: int, address: str) -> bool:
        """Return True if a node may connect from `address`, as far as is known.

        A connection from this host may be from any node on it.
        """
        own = self._of(self._own_id)
        theirs = self._of(node_id)
        return address in theirs or (_is_here(address, own) and any(_is_here(each, own) for each in theirs))

    def shown(self, node_id: int) -> str:
        """Return a node's host and its addresses, for people."""
        host, found = self._hosts[node_id], self._of(node_id)
        if found == {host}:
            return host
        return f"{host}, " + (", ".join(sorted(found)) or "whose address is unknown")

    def renew(self, node_id: int, then: Callable[[], None]) -> bool:
        """Look up a node's host again, then call `then`; return False if it is too early, or the host is an address."""
        host = self._hosts[node_id]
        if host in self._waiting:
            self._waiting[host].append(then)
            return True
        asked_ms = self._asked_ms.get(host)
        if _normal(host) is not None or (asked_ms is not None and self._now.ms - asked_ms < LOOK_UP_MS):
            return False
        self._waiting[host] = [then]
        self._ask(host)
        return True

    def _of(self, node_id: int) -> frozenset[str]:
        return self._addresses.get(self._hosts[node_id], frozenset())

    def _ask(self, host: str) -> None:
        self._asked_ms[host] = self._now.ms
        self._waiting.setdefault(host, [])
        self._look_up(host, lambda found: self._found(host, found))

    def _found(self, host: str, found: frozenset[str] | str) -> None:
        if isinstance(found, str):
            log.warning("the host %s of a node cannot be resolved: %s", host, found)
        else:
            self._addresses[host] = frozenset(_normal(each) or each for each in found)
        for then in self._waiting.pop(host):
            then()


def address_of(peer: str) -> str:
    """Return the address of a peer without its port."""
    host, colon, port = peer.rpartition(":")
    address = host if colon else port
    return _normal(address) or address


def _normal(text: str) -> str | None:
    """Normalise an address: without a zone, and IPv4 not mapped into IPv6. Returns None if it is not an address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _is_here(text: str, own: frozenset[str]) -> bool:
    """Return True if an address is this host's; `own` are those of this node."""
    if text in own:
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
