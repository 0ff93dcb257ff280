"""The addresses from which the nodes of a cluster come: those of the hosts that its configuration names.

A host is looked up when the cluster's member starts, and again when somebody comes from an address that is not known
as its own: addresses change.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping

from broker.core.clock import Now

__all__ = ["LOOK_UP_MS", "LookUp", "Origins", "address_of"]

log = logging.getLogger("broker.peers")

# A host is looked up no more often: strangers must not make this node ask without end.
LOOK_UP_MS = 5_000

# Finds the addresses of a host, and hands them on, or why there are none; now or later.
LookUp = Callable[[str, Callable[[frozenset[str] | str], None]], None]


class Origins:
    """The addresses of all nodes, `hosts` by node. `look_up` asks for those of a host that is no address itself."""

    def __init__(self, hosts: Mapping[int, str], own_id: int, now: Now, look_up: LookUp) -> None:
        self._hosts = hosts
        self._own_id = own_id
        self._now = now
        self._look_up = look_up
        self._addresses: dict[str, frozenset[str]] = {}
        self._asked_ms: dict[str, int] = {}
        # What is to be done when a host's addresses are there.
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        for host in set(hosts.values()):
            numeric = _normal(host)
            if numeric is not None:
                self._addresses[host] = frozenset((numeric,))

    def start(self) -> None:
        """Look up all hosts."""
        # A peer that came before may have had its host looked up already.
        for host in sorted(set(self._hosts.values()) - self._addresses.keys() - self._waiting.keys()):
            self._ask(host)

    def has(self, node_id: int, address: str) -> bool:
        """Return whether a node may come from `address`, as far as is known.

        What comes from this host may be any node that is on it.
        """
        own = self._of(self._own_id)
        theirs = self._of(node_id)
        return address in theirs or (_is_here(address, own) and any(_is_here(each, own) for each in theirs))

    def shown(self, node_id: int) -> str:
        """A node's host and what it stands for, for people."""
        host, found = self._hosts[node_id], self._of(node_id)
        if found == {host}:
            return host
        return f"{host}, " + (", ".join(sorted(found)) or "which has no address that is known")

    def renew(self, node_id: int, then: Callable[[], None]) -> bool:
        """Look a node's host up again, then call `then`; False if it is too early, or would tell nothing new."""
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
            log.warning("the host %s of a node cannot be looked up: %s", host, found)
        else:
            self._addresses[host] = frozenset(_normal(each) or each for each in found)
        for then in self._waiting.pop(host):
            then()


def address_of(peer: str) -> str:
    """The address of a peer, which is given with its port; without one where it has none."""
    host, colon, port = peer.rpartition(":")
    address = host if colon else port
    return _normal(address) or address


def _normal(text: str) -> str | None:
    """An address as it is compared: without a zone, IPv4 without the guise of IPv6; None for what is no address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _is_here(text: str, own: frozenset[str]) -> bool:
    """Return whether an address is this host's; `own` are those of this node."""
    if text in own:
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
