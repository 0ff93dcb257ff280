"""The opening of queues by other members at this node, their active primary.

A member of the reference opens queues while its copy of their partition is being healed, and silently drops pushes of
messages that it lacks (mqbblp::RemoteQueue::pushMessage): its consumers would wait for ever. So its opens for reading
wait until it has everything that this primary had. Our own members wait by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.config import Mode
from broker.bmq.node.node import Node
from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import QueueFlag
from formats.bmq.control.messages import QueueHandleParameters, StatusCategory

__all__ = ["HELD_MAX", "MemberHost", "PrimaryOpens"]

log: Final = logging.getLogger("broker.cluster")

# Maximum number of waiting opens of all members; more are carried out at once.
HELD_MAX: Final = 1 << 16


class Served(Protocol):
    """The queues of this node."""

    node: Node

    def serves(self, uri: str) -> bool:
        """Return True if this node is the active primary of a queue."""
        ...

    def partition_of(self, uri: str) -> int: ...


class HeldOpen(NamedTuple):
    parameters: QueueHandleParameters
    opened: Opened


class PrimaryOpens:
    """The opens by other members; call `go_on` in each step while any are `held`.

    `may_lack(node_id, partition_id)` is True for a member that cannot be pushed all messages of a partition yet, and
    does not wait by itself.
    """

    def __init__(self, queues: Served, may_lack: Callable[[int, int], bool]) -> None:
        self._queues = queues
        self._may_lack = may_lack
        self.held: dict[tuple[int, int], list[HeldOpen]] = {}  # by member and partition

    def open(self, node_id: int, parameters: QueueHandleParameters, opened: Opened) -> None:
        """Open a queue for a member, at once or later. May raise `Refusal` instead."""
        node = self._queues.node
        name, domain = node.named(parameters)
        if not self._queues.serves(name) or isinstance(node.queues.get(name), RelayQueue):
            message = f"this node is not the active primary of '{name}'"
            raise Refusal(StatusCategory.REFUSED, message, ClusterError.NOT_PRIMARY)
        # The messages of broadcasts are in no store: their pushes have payloads.
        if parameters.flags & QueueFlag.READ and domain.config.mode is not Mode.BROADCAST:
            partition_id = self._queues.partition_of(name)
            if self._may_lack(node_id, partition_id) and self._has_room:
                log.info("node %d opens '%s' once its copy of partition %d is healed", node_id, name, partition_id)
                self.held.setdefault((node_id, partition_id), []).append(HeldOpen(parameters, opened))
                return
        opened(node.serve_queue(name, domain))

    @property
    def _has_room(self) -> bool:
        return sum(map(len, self.held.values())) < HELD_MAX

    def go_on(self) -> None:
        for node_id, partition_id in [key for key in self.held if not self._may_lack(*key)]:
            for parameters, opened in self.held.pop((node_id, partition_id)):
                try:
                    self.open(node_id, parameters, opened)
                except Refusal as refusal:
                    opened(refusal)

    def partition_lost(self, partition_id: int) -> None:
        """Refuse the opens that wait for a partition that this node no longer serves.

        After this refusal a node of the reference asks the next primary; others raise an alarm there, or reach its
        clients.
        """
        message = "this node is no longer the active primary"
        for key in [key for key in self.held if key[1] == partition_id]:
            for _, opened in self.held.pop(key):
                opened(Refusal(StatusCategory.CANCELED, message, ClusterError.NODE_DOWN))

    def node_lost(self, node_id: int) -> None:
        for key in [key for key in self.held if key[0] == node_id]:
            del self.held[key]


class MemberHost:
    """The queues that one member may open here, those of which this node is the primary."""

    def __init__(self, opens: PrimaryOpens, node: Node, node_id: int) -> None:
        self._opens = opens
        self._node_id = node_id
        self.routing_flags = node.routing_flags

    def open_queue(self, parameters: QueueHandleParameters, opened: Opened) -> None:
        self._opens.open(self._node_id, parameters, opened)
