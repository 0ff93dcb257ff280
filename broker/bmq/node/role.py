# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The services that a node needs of its part in the cluster: alone, as a member of several, or as a proxy to clusters.

`Node` makes its role at the end of its own construction. Neither is changed from outside afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.bmq.core.cluster_view import ClusterView, CopiedMessage, ProxyView
from broker.bmq.core.config import DomainConfig
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.session.session import Session
from broker.bmq.session.session_ports import BrokerPeer
from formats.bmq.control.messages import ClientIdentity, QueueHandleParameters

__all__ = ["ClosedDoor", "Door", "Role"]


class Door(Protocol):
    """Admits the brokers below a node, and takes leave of them when the node is about to stop."""

    def admit(self, session: Session, identity: ClientIdentity) -> BrokerPeer | str | None: ...

    def retire(self) -> bool:
        """Announce that the node is about to stop; return True once all brokers below are ready for it."""
        ...


class ClosedDoor:
    """Admits no brokers."""

    def admit(self, session: Session, identity: ClientIdentity) -> str:
        return f"{identity.client_type.name} connections are not supported"

    def retire(self) -> bool:
        return True


class Role(Door, Protocol):
    """The part of a node in its cluster."""

    @property
    def is_proxy(self) -> bool: ...

    @property
    def assigns_queues(self) -> bool:
        """True if this node alone assigns queues to partitions; False if the cluster agrees on their places."""
        ...

    # -- queues

    def place(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        """Find the place of a queue to be opened, by its URI, its domain and the request, and open it there.

        `opened` is called once, at once or later. Raises `Refusal` instead if the queue cannot be opened.
        """
        ...

    def take_away(self, queue: Queue) -> None:
        """Delete an unused queue, in the ledger first."""
        ...

    def renew_apps(self, config: DomainConfig) -> None:
        """Give a domain's queues the apps that it names, in the ledger first."""
        ...

    # -- steps and the end

    def settle(self) -> bool:
        """End a step, before links are sent to; return True if more can be done at once."""
        ...

    def rest(self) -> bool:
        """Send what `settle` left to go with later output; return True if there was any."""
        ...

    def retire(self) -> bool:
        """Prepare the stop; called repeatedly, until it returns True because others have taken over."""
        ...

    def awaits_confirms(self) -> bool:
        """Return True while the stop waits for confirms of messages that were delivered from here."""
        ...

    def leave(self) -> None:
        """Stop taking part: the last thing before all links end."""
        ...

    # -- administration

    def set_elector_quorum(self, quorum: int) -> None: ...

    def set_replication_quorum(self, quorum: int) -> None:
        """Set the number of nodes that must have a message of strong consistency."""
        ...

    def cluster_view(self) -> ClusterView | None:
        """Return a member's view of its cluster; None in a cluster of one and at a proxy."""
        ...

    def copied(self, partition_id: int) -> Mapping[bytes, tuple[int, int]] | None:
        """Count messages and bytes of a partition's replica by queue key; None if this node serves it itself."""
        ...

    def list_copied(self, partition_id: int, queue_key: bytes, first: int, count: int) -> Sequence[CopiedMessage]:
        """List at most `count` messages of a queue in a partition's replica, from number `first` on."""
        ...

    def proxy_view(self, name: str) -> ProxyView | None:
        """Return a proxy's view of the cluster `name`; None for an unknown one, and at other nodes."""
        ...
