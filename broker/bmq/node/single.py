"""The role of a node that is a cluster of one: primary of every partition, with a quorum of 1."""

from __future__ import annotations

from collections.abc import Sequence

from broker.bmq.core.cluster_view import CopiedMessage
from broker.bmq.core.config import DomainConfig
from broker.bmq.node.changes import delete_queue, sync_apps
from broker.bmq.node.node import Node
from broker.bmq.node.role import Door
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import Opened
from formats.bmq.control.messages import QueueHandleParameters

__all__ = ["SingleNode"]


class SingleNode:
    """A `Role`. `door` admits brokers below this one, if any."""

    is_proxy = False
    assigns_queues = True

    def __init__(self, node: Node, door: Door) -> None:
        self._node = node
        self.admit = door.admit
        self.retire = door.retire

    def place(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        opened(self._node.serve_queue(name, domain))

    def take_away(self, queue: Queue) -> None:
        delete_queue(self._node, queue)

    def renew_apps(self, config: DomainConfig) -> None:
        for queue in list(self._node.queues.values()):
            if queue.config.name == config.name:
                sync_apps(self._node, queue, config)

    def settle(self) -> bool:
        return False

    def rest(self) -> bool:
        return False

    def awaits_confirms(self) -> bool:
        return False

    def leave(self) -> None:
        """Leave nothing: there is no other node."""

    def set_elector_quorum(self, quorum: int) -> None:
        """Change nothing: there are no elections."""

    def set_replication_quorum(self, quorum: int) -> None:
        """Change nothing: there are no copies."""

    def cluster_view(self) -> None:
        return None

    def copied(self, partition_id: int) -> None:
        return None

    def list_copied(self, partition_id: int, queue_key: bytes, first: int, count: int) -> Sequence[CopiedMessage]:
        return ()

    def proxy_view(self, name: str) -> None:
        return None
