"""The cluster as a member's queues need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.ledger import ClusterState
from broker.bmq.core.messages import Content
from broker.bmq.queue.handles import Refusal
from formats.bmq.control.messages import QueueInfo

__all__ = ["Copies", "QueuePlaces"]


class QueuePlaces(Protocol):
    """The places of queues: see `broker.bmq.consensus.metadata.Metadata`."""

    @property
    def state(self) -> ClusterState: ...

    def assign_queue(self, uri: str, config: DomainConfig, done: Callable[[QueueInfo | Refusal], None]) -> None: ...


class Copies(Protocol):
    """The copies of the partitions, of this node and of other members."""

    def read(self, partition_id: int, queue_key: bytes, guid: bytes) -> Content | None: ...

    def takes_pushes(self, partition_id: int) -> bool:
        """Return True if this node's copy is complete and pushes can come: the reference's need it to be available."""
        ...

    def is_behind(self, node_id: int) -> bool:
        """Return True if a replica gets records late: pushes would overtake them."""
        ...

    def may_lack(self, node_id: int, partition_id: int) -> bool:
        """Return True if a replica cannot be pushed all messages yet, and does not wait for them itself."""
        ...
