"""The role of a node that is a member of a cluster of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.bmq.core.cluster_view import ClusterView, CopiedMessage
from broker.bmq.member.member import Member
from broker.bmq.member.peers import Peers
from broker.bmq.member.view import view_of
from broker.bmq.node.node import Node
from broker.bmq.node.role import ClosedDoor
from broker.bmq.session.session import Session
from broker.bmq.session.session_ports import BrokerPeer
from formats.bmq.control.messages import ClientIdentity

__all__ = ["MemberRole"]


class MemberRole:
    """See `Role`: the machines of `member` do what a node asks of its role."""

    is_proxy = False
    assigns_queues = False

    def __init__(self, node: Node, member: Member) -> None:
        self.member = member
        self._cluster_name = node.identity.cluster_name
        self._peers: Peers | None = None
        self._endpoints: Mapping[int, str] = {}
        self.place, self.take_away = member.removals.place, member.removals.take_away
        self.renew_apps = member.upkeep.renew_apps
        self.settle, self.rest = member.settle, member.rest
        self.retire, self.awaits_confirms = member.retire, member.awaits_confirms
        self.set_elector_quorum = member.set_elector_quorum
        self.set_replication_quorum = member.set_replication_quorum
        self.copied = member.copied

    def attach(self, peers: Peers, endpoints: Mapping[int, str]) -> None:
        """Set the keeper of the member's links, and the displayed addresses of all nodes.

        Call this once, before the first connection: `peers` dials by the process's loop, which is made for the node.
        Until then no broker is admitted, and there is no view of the cluster.
        """
        self._peers = peers
        self._endpoints = endpoints

    def admit(self, session: Session, identity: ClientIdentity) -> BrokerPeer | str | None:
        return (self._peers or ClosedDoor()).admit(session, identity)

    def leave(self) -> None:
        if self._peers is not None:
            self._peers.stop()
        self.member.stop()

    def cluster_view(self) -> ClusterView | None:
        if self._peers is None:
            return None
        return view_of(self.member, self._cluster_name, self._endpoints, self._peers.faults)

    def list_copied(self, partition_id: int, queue_key: bytes, first: int, count: int) -> Sequence[CopiedMessage]:
        return self.member.partitions[partition_id].copy.index.places.listed(queue_key, first, count)

    def proxy_view(self, name: str) -> None:
        return None
