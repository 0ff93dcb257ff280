# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Interfaces of the links to other members, for the machines of a cluster's member."""

from __future__ import annotations

from typing import Protocol

from formats.schema import Buffer

__all__ = ["HealingLinks", "Links", "OwnLinks"]


class Links(Protocol):
    """One link to each other node; node ids are those of the cluster's definition."""

    @property
    def own_id(self) -> int: ...

    @property
    def other_ids(self) -> tuple[int, ...]: ...

    def is_up(self, node_id: int) -> bool: ...

    def send(self, node_id: int, event: Buffer) -> None:
        """Send a whole event, in the order of the calls; it is discarded while the link is down."""
        ...

    def backlog(self, node_id: int) -> int: ...


class HealingLinks(Links, Protocol):
    """Links to nodes that partitions are received from and sent to."""

    def takes_removals(self, node_id: int) -> bool: ...


class OwnLinks(Links, Protocol):
    """Links that are also written to without `send`, and end when writing fails."""

    def takes_early(self, node_id: int) -> bool:
        """Return True if a node takes a queue's data before its subscriptions; see `negotiation.EARLY_FEATURE`."""
        ...

    def fail(self, node_id: int, error: Exception) -> None:
        """Close a link after this step: preparing its output failed."""
        ...
