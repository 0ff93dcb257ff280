# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Network addresses of the hosts on which peers run, configured or stated by the peers.

Addresses change: a host is looked up again when a peer connects from an unknown address.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Collection
from typing import Final

from broker.common.clock import Now

__all__ = ["LOOK_UP_MS", "Addresses", "LookUp", "address_of", "is_loopback"]

log: Final = logging.getLogger("broker.peers")

# Minimum interval between lookups of a host: strangers must not cause endless lookups.
LOOK_UP_MS: Final = 5_000
# Maximum number of hosts with known addresses, since strangers may name hosts. The oldest is dropped first.
HOSTS_MAX: Final = 1_000
# Maximum number of concurrent lookups for strangers: dialing needs lookups, too.
LOOK_UPS_MAX: Final = 4

# Resolves a host, and passes its addresses, or the reason of a failure, on at once or later.
LookUp = Callable[[str, Callable[[frozenset[str] | str], None]], None]


class Addresses:
    """The known addresses of hosts. `own_host` is the configured host of this process.

    `look_up` resolves names, at most `look_ups_max` at a time.
    """

    def __init__(
        self,
        own_host: str,
        now: Now,
        look_up: LookUp,
        is_here: Callable[[str], bool] | None = None,
        look_ups_max: int = LOOK_UPS_MAX,
    ) -> None:
        self._look_ups_max = look_ups_max
        self._own_host = own_host
        self._now = now
        self._look_up = look_up
        self._is_local = is_loopback if is_here is None else is_here
        self._found: dict[str, frozenset[str]] = {}
        self._asked_ms: dict[str, int] = {}
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def start(self, hosts: Collection[str]) -> None:
        for host in sorted(set(hosts) - self._found.keys() - self._waiting.keys()):
            if _normal(host) is None:
                self._ask(host)

    def has(self, host: str, address: str) -> bool:
        """Return True if `address` is known to be one of `host`.

        A peer on this machine may connect from any of its addresses.
        """
        theirs = self.of(host)
        return address in theirs or (self.is_here(address) and any(map(self.is_here, theirs)))

    def of(self, host: str) -> frozenset[str]:
        numeric = _normal(host)
        return self._found.get(host, frozenset()) if numeric is None else frozenset((numeric,))

    def shown(self, host: str) -> str:
        found = self.of(host)
        if found == {host}:
            return host
        return f"{host}, " + (", ".join(sorted(found)) or "whose address is unknown")

    def renew(self, host: str, then: Callable[[], None]) -> bool:
        """Look up a host again, then call `then`.

        Return False if it is an address, was looked up just before, or `look_ups_max` lookups are in progress.
        """
        if host in self._waiting:
            self._waiting[host].append(then)
            return True
        asked_ms = self._asked_ms.get(host)
        is_early = asked_ms is not None and self._now.ms - asked_ms < LOOK_UP_MS
        if _normal(host) is not None or is_early or len(self._waiting) >= self._look_ups_max:
            return False
        self._waiting[host] = [then]
        self._ask(host)
        return True

    def is_here(self, address: str) -> bool:
        return address in self.of(self._own_host) or self._is_local(address)

    def _ask(self, host: str) -> None:
        self._asked_ms.pop(host, None)
        if len(self._asked_ms) >= HOSTS_MAX:
            oldest = next(iter(self._asked_ms))
            del self._asked_ms[oldest]
            self._found.pop(oldest, None)
        self._asked_ms[host] = self._now.ms
        self._waiting.setdefault(host, [])
        self._look_up(host, lambda found: self._take(host, found))

    def _take(self, host: str, found: frozenset[str] | str) -> None:
        if isinstance(found, str):
            log.warning("the host %s of a node cannot be resolved: %s", host, found)
        else:
            self._found[host] = frozenset(_normal(each) or each for each in found)
        for then in self._waiting.pop(host):
            then()


def address_of(peer: str) -> str:
    host, colon, port = peer.rpartition(":")
    address = host if colon else port
    return _normal(address) or address


def is_loopback(text: str) -> bool:
    """Return True for a loopback address or the unspecified one, which every machine has."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _normal(text: str) -> str | None:
    """Return an address without a zone, and IPv4 not mapped into IPv6; None for any other text."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
