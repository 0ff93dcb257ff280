# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Retention of partitions' removals: the longest time that the domains of the cluster's queues need.

A replica does not read the domains of the queues that it replicates, so their files are read here, a few each second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.ledger import Ledger
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.domains import DomainInUse
from broker.common.clock import Now
from formats.bmq.uri import parse_uri

__all__ = ["Retention"]

# Window for an unreadable domain: the reference's default.
WINDOW_MS: Final = 300_000
# Interval at which the domains are read, and number read at once.
INTERVAL_MS: Final = 60_000
DOMAINS_AT_ONCE: Final = 8


class DomainHolder(Protocol):
    """The node's interface to its domains."""

    now: Now
    ledger: Ledger
    domains: dict[str, DomainInUse]
    resolve_domain: Callable[[str], DomainConfig | None]

    @property
    def partitions(self) -> Mapping[int, StoredPartition]: ...


class Retention:
    """Sets the retention of removals in a node's partitions."""

    def __init__(self, holder: DomainHolder) -> None:
        self._holder = holder
        self._to_read: set[str] = set()
        self._window_ms = 0  # the longest read in this round
        self._begun_ms: int | None = None

    def tick(self) -> None:
        """Read some domains; called once a second."""
        holder = self._holder
        if not holder.partitions:
            return
        if not self._to_read:
            if self._begun_ms is not None and holder.now.ms - self._begun_ms < INTERVAL_MS:
                return
            self._begun_ms = holder.now.ms
            self._window_ms = WINDOW_MS
            self._to_read = {parse_uri(uri).qualified_domain for uri in holder.ledger.state.queues}
        for _ in range(min(DOMAINS_AT_ONCE, len(self._to_read))):
            self._window_ms = max(self._window_ms, self._read(self._to_read.pop()))
        for partition in holder.partitions.values():
            # The time is shortened only after all have been read.
            known_ms = partition.removals.retention_ms if self._to_read else 0
            partition.removals.retention_ms = max(known_ms, self._window_ms)

    def _read(self, name: str) -> int:
        known = self._holder.domains.get(name)
        if known is not None:
            return known.config.deduplication_time_ms
        try:
            config = self._holder.resolve_domain(name)
        except ValueError:
            config = None
        return WINDOW_MS if config is None else config.deduplication_time_ms
