# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The links of a proxy to the nodes of a cluster: the one in use, and one that can replace it at once.

Nodes near the proxy come first. While fewer than two are available, the others are dialed repeatedly. (The reference's
proxies link to all nodes: thousands of links at each node for thousands of proxies.)

Any peer that answers is accepted, as by the reference (mqba::SessionNegotiator): a node of the cluster, a broker that
stands for it as a virtual cluster, or another proxy to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, Protocol

from broker.bmq.links.dialing import REDIAL_MS_MAX, DialedSession, Redialer
from broker.bmq.links.peer_links import PeerLink
from broker.bmq.node.node import Node
from broker.bmq.session.credentials import Credentials
from broker.bmq.session.negotiation import own_identity, tells_status
from broker.bmq.session.session import Session
from formats.bmq.codes import EventType
from formats.bmq.control.messages import BrokerResponse, ClientIdentity, NodeStatus
from formats.bmq.wire.event import Frame

__all__ = ["LINKS_WANTED", "PENDING_MS", "Hub", "UpstreamLinks"]

log: Final = logging.getLogger("broker.peers")

TICK_MS: Final = 1_000

# One in use, and one in reserve.
LINKS_WANTED: Final = 2

# Time that a dialed node has to become available before others are dialed in its place.
PENDING_MS: Final = 1_000

_CONTROL: Final = int(EventType.CONTROL)


class Hub(Protocol):
    """The user of the links: `broker.bmq.proxy.cluster.ProxyCluster`."""

    @property
    def name(self) -> str: ...

    @property
    def active_id(self) -> int | None: ...

    @property
    def statuses(self) -> Mapping[int, NodeStatus]: ...

    def peer_up(self, node_id: int, peer: PeerLink, *, tells_status: bool) -> None: ...

    def peer_down(self, node_id: int) -> None: ...

    def receive(self, node_id: int, data: memoryview, frame: Frame) -> None: ...


class UpstreamLinks:
    """The links to one cluster; a `Dialer`. `cluster_name` is the cluster that this proxy requests in negotiation.

    `dial(node_id)` starts to connect; the outcome is `connected` or `failed`. `node_ids` are tried in their order,
    except that `near` ones come first. `credentials` are those of this proxy.
    """

    def __init__(
        self,
        node: Node,
        hub: Hub,
        cluster_name: str,
        node_ids: Iterable[int],
        near: Container[int],
        dial: Callable[[int], None],
        credentials: Credentials | None = None,
    ) -> None:
        self.credentials = credentials
        self._node = node
        self._hub = hub
        self._cluster_name = cluster_name
        self._near = near
        self._node_ids = tuple(sorted(node_ids, key=lambda each: each not in near))
        self._dial = dial
        self._links: dict[int, PeerLink] = {}
        self._dialing: set[int] = set()
        # Nodes that failed, until they may be dialed again.
        self._resting: set[int] = set()
        # Time of dialing a node, or of its link's beginning.
        self._since_ms: dict[int, int] = {}
        self._tell_status: dict[int, bool] = {}
        self._redialer = Redialer(node.now, node.timers, self._on_rested, lambda node_id: True, REDIAL_MS_MAX)
        # The reason for each node that cannot be linked to.
        self.faults = self._redialer.faults
        self._stopping = False

    def start(self) -> None:
        self._tick()

    def stop(self) -> None:
        self._stopping = True

    def _tick(self) -> None:
        for link in list(self._links.values()):
            self._node.tick_session(link.session)
        self._review()
        self._node.timers.at(self._node.now.ms + TICK_MS, self._tick)

    def _review(self) -> None:
        if self._stopping:
            return
        for node_id in self._lacking():
            self._dialing.add(node_id)
            self._since_ms[node_id] = self._node.now.ms
            self._dial(node_id)
        available = [each for each in self._node_ids if self._is_available(each)]
        if len(available) > LINKS_WANTED:
            available.sort(key=lambda each: (each != self._hub.active_id, each not in self._near))
            for node_id in available[LINKS_WANTED:]:
                self._leave(node_id)

    def _lacking(self) -> list[int]:
        counted = [each for each in self._node_ids if self._counts(each)]
        known = self._links.keys() | self._dialing | self._resting
        others = [each for each in self._node_ids if each not in known]
        missing = LINKS_WANTED - len(counted)
        if missing <= 0:
            # These suffice, but a node nearby is better.
            return [] if any(each in self._near for each in counted) else [x for x in others if x in self._near][:1]
        return others[:missing]

    def _counts(self, node_id: int) -> bool:
        if node_id not in self._links and node_id not in self._dialing:
            return False
        return self._is_available(node_id) or self._node.now.ms - self._since_ms[node_id] < PENDING_MS

    def _is_available(self, node_id: int) -> bool:
        return self._hub.statuses.get(node_id) is NodeStatus.AVAILABLE

    def _leave(self, node_id: int) -> None:
        link = self._links.pop(node_id)
        self._hub.peer_down(node_id)
        link.end("surplus link closed: other nodes serve as well")

    def connected(self, node_id: int, address: str) -> Session:
        return self._node.adopt(lambda session_id: DialedSession(self._node, session_id, address, self, node_id))

    def introduce(self, session_id: int) -> ClientIdentity:
        return own_identity(self._node.identity, session_id, self._cluster_name)

    def accept(self, node_id: int, session: Session, answer: BrokerResponse) -> PeerLink | str:
        if self._stopping:
            return "is disconnected: this broker is stopping"
        self._tell_status[node_id] = tells_status(answer.broker_identity)
        missed_max, features = self._node.identity.upstream_heartbeats_missed_max, answer.broker_identity.features
        return PeerLink(self, node_id, session, self._receive, missed_max, features)

    def failed(self, node_id: int, reason: str) -> None:
        """Handle a failure to connect, or the loss of a connection; the node is dialed again after a while."""
        self._dialing.discard(node_id)
        if self._stopping:
            return
        self._resting.add(node_id)
        if self._redialer.failed(node_id, reason):
            log.warning("node %d of cluster '%s' cannot be connected to: %s", node_id, self._hub.name, reason)
        self._review()

    def refused(self, node_id: int, reason: str) -> None:
        log.error("node %d of cluster '%s' %s", node_id, self._hub.name, reason)
        self._redialer.refused(node_id, reason)

    def _on_rested(self, node_id: int) -> None:
        self._resting.discard(node_id)
        self._review()

    def begun(self, link: PeerLink) -> None:
        node_id = link.node_id
        self._dialing.discard(node_id)
        self._links[node_id] = link
        self._since_ms[node_id] = self._node.now.ms
        self._redialer.begun(node_id)
        # Not a client's session.
        self._node.sessions.pop(link.session.session_id, None)
        self._hub.peer_up(node_id, link, tells_status=self._tell_status.pop(node_id))
        self._review()

    def _receive(self, node_id: int, data: memoryview, frame: Frame) -> None:
        self._hub.receive(node_id, data, frame)
        if frame.type == _CONTROL:
            # Its status may already be known.
            self._review()

    def ended(self, link: PeerLink) -> None:
        node_id = link.node_id
        if self._links.get(node_id) is link:
            del self._links[node_id]
            self._hub.peer_down(node_id)
            self.failed(node_id, "the link was lost")
