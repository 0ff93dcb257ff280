"""Restoration of the queues of a partition at a member that is about to serve it."""

from __future__ import annotations

from typing import Protocol

from broker.bmq.node.node import Node
from broker.bmq.node.restoring import Restoration
from broker.bmq.queue.queue import Queue
from broker.bmq.relay.handover import retire
from formats.bmq.control.messages import QueueInfo

__all__ = ["MemberRestoration"]


class RestoredQueues(Protocol):
    """The queues of a member, among which the restored ones become visible."""

    node: Node
    outdated: dict[int, list[Queue]]

    def info_of(self, uri: str) -> QueueInfo | None: ...

    def restored(self, partition_id: int) -> None: ...


class MemberRestoration(Restoration):
    """The restoration of a partition, at a node that relays its queues until then."""

    def __init__(self, queues: RestoredQueues, partition_id: int) -> None:
        super().__init__(queues.node, queues.node.partitions[partition_id])
        self._owner = queues
        self._partition_id = partition_id

    def end(self) -> None:
        self._owner.restored(self._partition_id)
        super().end()

    def _show(self, queue: Queue) -> None:
        """Make a queue visible, unless the cluster has removed it and its name is taken.

        It is taken if the cluster has assigned it again, or if another queue of this node has it.
        """
        info, other = self._owner.info_of(queue.uri), self._owner.node.queues.get(queue.uri)
        if info is not None and info.key == queue.key:
            if other is not None and other.is_root:
                # An earlier queue of the name that could not be erased.
                self._set_aside(other)
            super()._show(queue)
        elif info is not None or other is not None:
            self._owner.outdated.setdefault(self._partition_id, []).append(queue)
        else:
            super()._show(queue)

    def _set_aside(self, queue: Queue) -> None:
        for partition_id, stored in self._owner.node.partitions.items():
            if queue.key in stored.records.stores:
                self._owner.outdated.setdefault(partition_id, []).append(queue)

    def give_up(self) -> None:
        for queue in self.queues.values():
            retire(queue)
