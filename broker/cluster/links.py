"""What the machines of a cluster's member ask of the links to the other members."""

from __future__ import annotations

from typing import Protocol

from formats.schema import Buffer

__all__ = ["HealingLinks", "Links", "OwnLinks"]


class Links(Protocol):
    """One link to each other node; node ids are those of the cluster's definition."""

    @property
    def own_id(self) -> int: ...

    @property
    def other_ids(self) -> tuple[int, ...]:
        """All nodes of the cluster but this one, up or not."""
        ...

    def is_up(self, node_id: int) -> bool:
        """Return whether both sides of the link know who the other is."""
        ...

    def send(self, node_id: int, event: Buffer) -> None:
        """Put a whole event on its way, in the order of the calls; nothing happens while the link is down."""
        ...

    def backlog(self, node_id: int) -> int:
        """The bytes that wait to be sent to a node."""
        ...


class HealingLinks(Links, Protocol):
    """Links to nodes that copies of shards come from and go to."""

    def takes_removals(self, node_id: int) -> bool:
        """Return whether a node can be told which messages were removed before (`broker.cluster.removals`)."""
        ...


class OwnLinks(Links, Protocol):
    """Links that are written to beside `send`, and end when that fails."""

    def fail(self, node_id: int, error: Exception) -> None:
        """Close the link to a node when this step is over: something went wrong with what was to be sent."""
        ...
