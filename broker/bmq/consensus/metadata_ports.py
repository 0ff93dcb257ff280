"""The node as its metadata need it."""

from __future__ import annotations

from typing import Protocol

from broker.bmq.consensus.known_queues import QueueChange

__all__ = ["MetadataListener"]


class MetadataListener(Protocol):
    """The node that the metadata report to, within a step."""

    def on_primary(self, partition_id: int, node_id: int | None, primary_lease_id: int) -> None:
        """Handle another primary of a partition, None when it is lost, or another lease of it."""
        ...

    def on_queues(self, change: QueueChange) -> None: ...

    def on_agreed(self) -> None:
        """Note that this node has agreed with the leader on the state; its primaries are acted on after this."""
        ...

    def on_healed(self, leads: bool) -> None:
        """Note that the metadata are healed; `leads` is True at the leader."""
        ...
