"""The links of a proxy to the nodes of a cluster: all are dialed, and dialed again when they are lost.

Whoever answers is accepted, as by the reference (mqba::SessionNegotiator): a node of the cluster, a broker that stands
for it as a virtual cluster, or another proxy to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from broker.cluster.dialing import REDIAL_MS_MAX, DialedSession, Redialer
from broker.cluster.peer_links import Peer, PeerLink
from broker.core.negotiation import own_identity, tells_status
from broker.core.node import Node
from broker.core.session import Session
from formats.control.messages import BrokerResponse, ClientIdentity
from formats.wire.event import Frame

__all__ = ["Hub", "UpstreamLinks"]

log = logging.getLogger("broker.peers")

TICK_MS = 1_000


class Hub(Protocol):
    """For what the links are: `broker.proxy.cluster.ProxyCluster`."""

    @property
    def name(self) -> str: ...

    def peer_up(self, node_id: int, peer: Peer, *, tells_status: bool) -> None:
        """The node can be spoken with; if it tells of its status, that follows."""
        ...

    def peer_down(self, node_id: int) -> None:
        """It cannot any more."""
        ...

    def receive(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Take in an event of the node."""
        ...


class UpstreamLinks:
    """Keeps a link to each node of one cluster; `cluster_name` is what this proxy says that it wants to speak to.

    `dial(node_id)` is asked to connect; the outcome is `connected` or `failed`.
    """

    def __init__(
        self, node: Node, hub: Hub, cluster_name: str, node_ids: Iterable[int], dial: Callable[[int], None]
    ) -> None:
        self._node = node
        self._hub = hub
        self._cluster_name = cluster_name
        self._node_ids = tuple(node_ids)
        self._dial = dial
        self._links: dict[int, PeerLink] = {}
        self._tell_status: dict[int, bool] = {}
        self._redialer = Redialer(node.now, node.timers, dial, self._wants, REDIAL_MS_MAX)
        # Why a node cannot be linked to, as long as it cannot.
        self.faults = self._redialer.faults
        self._stopping = False

    def start(self) -> None:
        """Dial all; watch over the links."""
        self._tick()
        for node_id in self._node_ids:
            self._dial(node_id)

    def stop(self) -> None:
        """Dial nobody any more."""
        self._stopping = True

    def _tick(self) -> None:
        for link in list(self._links.values()):
            link.session.tick()
        self._node.timers.at(self._node.now.ms + TICK_MS, self._tick)

    # -- dialing

    def connected(self, node_id: int, address: str) -> Session:
        """A connection to the node is there; the session that it is for."""
        return self._node.adopt(lambda session_id: DialedSession(self._node, session_id, address, self, node_id))

    def introduce(self, session_id: int) -> ClientIdentity:
        """See `Dialer`."""
        return own_identity(self._node.identity, session_id, self._cluster_name)

    def accept(self, node_id: int, session: Session, answer: BrokerResponse) -> PeerLink | str:
        """See `Dialer`."""
        if self._stopping:
            return "is not wanted any more: this broker stops"
        self._tell_status[node_id] = tells_status(answer.broker_identity)
        missed_max = self._node.identity.upstream_heartbeats_missed_max
        return PeerLink(self, node_id, session, self._hub.receive, missed_max)

    def failed(self, node_id: int, reason: str) -> None:
        """The node could not be linked to, or not any longer; it is dialed again after a while."""
        if not self._stopping and self._redialer.failed(node_id, reason):
            log.warning("node %d of cluster '%s' cannot be connected to: %s", node_id, self._hub.name, reason)

    def refused(self, node_id: int, reason: str) -> None:
        """The node is there, and not to be spoken with."""
        log.error("node %d of cluster '%s' %s", node_id, self._hub.name, reason)
        self._redialer.refused(node_id, reason)

    def _wants(self, node_id: int) -> bool:
        return node_id not in self._links and not self._stopping

    # -- links

    def begun(self, link: PeerLink) -> None:
        """Both sides know who the other is."""
        node_id = link.node_id
        self._links[node_id] = link
        self._redialer.begun(node_id)
        # No client: the proxy's own affair.
        self._node.sessions.pop(link.session.session_id, None)
        self._hub.peer_up(node_id, link, tells_status=self._tell_status.pop(node_id))

    def ended(self, link: PeerLink) -> None:
        """The link is gone."""
        node_id = link.node_id
        del self._links[node_id]
        self._hub.peer_down(node_id)
        self.failed(node_id, "the link was lost")
