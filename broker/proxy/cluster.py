"""A cluster that a proxy is a proxy to: its nodes, which of them is in use, and the proxy's queues there.

Source: mqbblp::ClusterProxy, mqbblp::ClusterQueueHelper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from broker.cluster.hops import Hops
from broker.cluster.peer_links import PeerLink, PeerLinks
from broker.cluster.put_room import PutRoom
from broker.cluster.relay import RelayQueue
from broker.cluster.requests import Requests
from broker.core.cluster_view import ProxyView
from broker.core.domains import Domain
from broker.core.faults import Change
from broker.core.negotiation import NO_NODE_ID
from broker.core.node import Node
from broker.core.queue_requests import Opened
from broker.core.received import received
from broker.proxy.active_node import ActiveNode, UpstreamNode
from broker.proxy.queue import ProxyQueue
from formats.codes import EventType
from formats.control.messages import (
    ClusterMessage,
    ControlMessage,
    NodeStatus,
    NodeStatusAdvisory,
    QueueHandleParameters,
    StopRequest,
    StopResponse,
)
from formats.errors import FormatError
from formats.wire.event import Frame, schema_encoding, schema_message

__all__ = ["ProxyCluster", "UpstreamCluster"]

log = logging.getLogger("broker.proxy")

# How long only a node of the proxy's own data centre will do.
NEAR_WAIT_MS = 10_000

# So long consumers may take to confirm what came from a node that stops.
LEAVE_MS = 3_000


class UpstreamCluster(NamedTuple):
    """A cluster as the configuration has it."""

    name: str
    nodes: tuple[UpstreamNode, ...]


class Leaving:
    """The node that is in use stops: consumers may confirm what came from it, until then; then `done` is called.

    `asked` is how many requests to send no more it has not answered: messages may be on their way.
    """

    __slots__ = ("asked", "done", "node_id", "until_ms")

    def __init__(self, node_id: int, until_ms: int, done: Callable[[], None]) -> None:
        self.node_id = node_id
        self.until_ms = until_ms
        self.done = [done]
        self.asked = 0

    def answered(self) -> None:
        self.asked -= 1


class ProxyCluster:
    """`peer_up` and `peer_down` tell of links, `receive` takes an event of one; `flush` ends each step."""

    def __init__(
        self,
        config: UpstreamCluster,
        data_center: str,
        node: Node,
        room: PutRoom,
        random_below: Callable[[int], int],
    ) -> None:
        self.name = config.name
        self.links = PeerLinks(NO_NODE_ID, (each.id for each in config.nodes))
        self.active = ActiveNode(config.nodes, data_center, random_below, self._on_active)
        # Called when there is an active node for the first time.
        self.on_available: Callable[[], None] = lambda: None
        self._node = node
        self._room = room
        self._requests = Requests(self.links, node.now, node.timers)
        self._hops = Hops(self.links, self._requests, config.name, node.now)
        self._was_available = False
        self._leaving: Leaving | None = None
        self._stopping = False

    @property
    def active_id(self) -> int | None:
        """The node that is in use."""
        return self.active.node_id

    @property
    def statuses(self) -> dict[int, NodeStatus]:
        """What the nodes are whose links are up."""
        return self.active.statuses

    @property
    def queues(self) -> list[RelayQueue]:
        """The proxy's queues of this cluster."""
        return list(self._hops.relays.values())

    def view(self) -> ProxyView:
        """How the cluster is, for people."""
        posts = [put for relay in self.queues for put in relay.unacknowledged.values()]
        return ProxyView(
            name=self.name,
            active_node_id=self.active_id,
            statuses=tuple((each, self.statuses.get(each, NodeStatus.UNAVAILABLE).name) for each in self.active.nodes),
            connected_ids=tuple(self.statuses),
            queue_ids=tuple(sorted((relay.uri, relay.queue_id) for relay in self.queues)),
            posts=len(posts),
            post_bytes=sum(post.size for post in posts),
        )

    def start(self) -> None:
        """Begin to wait for a node nearby."""
        self._node.timers.at(self._node.now.ms + NEAR_WAIT_MS, self.active.waited)

    def stop(self) -> None:
        """Look for no other node any more."""
        self._stopping = True

    # -- links

    def peer_up(self, node_id: int, peer: PeerLink, *, tells_status: bool) -> None:
        """Both sides know who the other is; an older link to the node is void.

        A node that `tells_status` is used once it says that it is available; one that does not, at once.
        """
        if node_id in self.links.peers:
            self.peer_down(node_id)
        self.links.peers[node_id] = peer
        self._hops.link_up(node_id, peer.outbox)
        log.info("node %d of cluster '%s' is connected", node_id, self.name)
        self.active.status(node_id, NodeStatus.UNKNOWN if tells_status else NodeStatus.AVAILABLE)

    def peer_down(self, node_id: int) -> None:
        """The link to the node is gone."""
        log.warning("node %d of cluster '%s' is not connected any more", node_id, self.name)
        del self.links.peers[node_id]
        self._hops.node_down(node_id)
        self.active.down(node_id)
        self._requests.node_down(node_id)

    def receive(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Take in an event that the node sent. FormatError for garbage, and for what no node sends to a proxy."""
        if frame.type == EventType.PUSH:
            self._hops.on_push(node_id, data, frame)
        elif frame.type == EventType.ACK:
            self._hops.on_ack(node_id, data, frame)
        elif frame.type == EventType.CONTROL:
            body = schema_message(data, frame.body, frame.end)
            message = received(ControlMessage, body, schema_encoding(frame.type_specific))
            with Change(f"what node {node_id} of cluster '{self.name}' says ({type(message.choice).__name__})"):
                self._on_control(node_id, message)
        else:
            what = EventType(frame.type).name
            raise FormatError("EventHeader.type", frame.body, f"a node sends no {what} to a proxy")

    def _on_control(self, node_id: int, message: ControlMessage) -> None:
        match message.choice:
            case ClusterMessage(choice=NodeStatusAdvisory(status=NodeStatus.STOPPING)):
                self._leave(node_id, lambda: None)
            case ClusterMessage(choice=NodeStatusAdvisory(status=status)):
                log.info("node %d of cluster '%s' is %s", node_id, self.name, status.name)
                self._on_status(node_id, status)
            case ClusterMessage(choice=StopRequest()):
                self._leave(node_id, lambda: self._answer_stop(node_id, message))
            case _:
                if not self._requests.received(node_id, message):
                    what = type(message.choice).__name__
                    log.warning("node %d of cluster '%s': nobody waits for %s", node_id, self.name, what)

    def _on_status(self, node_id: int, status: NodeStatus) -> None:
        if self._leaving is not None and self._leaving.node_id == node_id and status is NodeStatus.AVAILABLE:
            # It stays after all: what it was asked to send no more, it is to send again.
            self._on_active(node_id)
        self.active.status(node_id, status)

    def _answer_stop(self, node_id: int, message: ControlMessage) -> None:
        # Before it hears that this is done, all that it has to know is on its way.
        self._hops.send_to(node_id)
        if message.r_id is not None and self.links.is_up(node_id):
            answer = ClusterMessage(choice=StopResponse(cluster_name=self.name))
            self._requests.respond(node_id, message, answer)

    def _leave(self, node_id: int, done: Callable[[], None]) -> None:
        """A node stops. If it is in use, what it has sent is confirmed first: nobody shall get it a second time."""
        log.info("node %d of cluster '%s' is STOPPING", node_id, self.name)
        if node_id != self.active_id:
            self.active.status(node_id, NodeStatus.STOPPING)
            done()
        elif self._leaving is None:
            self._leaving = leaving = Leaving(node_id, self._node.now.ms + LEAVE_MS, done)
            for relay in self.queues:
                leaving.asked += relay.leave(leaving.answered)
            self._node.timers.at(leaving.until_ms, self._go_on_leaving)
            self._go_on_leaving()
        else:
            self._leaving.done.append(done)

    def _go_on_leaving(self) -> None:
        """Leave the node if nothing of it is left here, or it took too long."""
        leaving = self._leaving
        if leaving is None:
            return
        is_clear = not leaving.asked and not any(relay.messages for relay in self.queues)
        if is_clear or self._node.now.ms >= leaving.until_ms:
            self._leaving = None
            self.active.status(leaving.node_id, NodeStatus.STOPPING)
            for done in leaving.done:
                done()

    def flush(self) -> None:
        """Send what the step has brought about."""
        if self._leaving is not None:
            self._go_on_leaving()
        self._hops.send_all()

    def _on_active(self, node_id: int | None) -> None:
        """Another node is in use, or none: so it is for all queues."""
        self._leaving = None
        for relay in self.queues:
            if relay.upstream is not None:
                self._hops.lost(relay)
        if node_id is None:
            log.warning("Cluster (%s): no node is available", self.name)
            return
        if self._stopping:
            return
        name = self.active.nodes[node_id].name
        # The words are the reference's: programs wait for them in the log.
        log.info("Cluster (%s): new leader: [%s, %d], leader status: ACTIVE", self.name, name, node_id)
        for relay in self.queues:
            self._hops.found(relay, node_id)
        if not self._was_available:
            self._was_available = True
            log.info("Cluster (%s) is available", self.name)
            self.on_available()

    # -- queues

    def open_queue(self, name: str, domain: Domain, parameters: QueueHandleParameters, opened: Opened) -> None:
        """A client opens a queue: it is open when it is open upstream."""
        queue = self._node.queues.get(name)
        if queue is None:
            queue = self._make_queue(name, domain)
        assert isinstance(queue, ProxyQueue)
        queue.open(parameters, opened)

    def _make_queue(self, name: str, domain: Domain) -> ProxyQueue:
        queue_id = self._hops.next_queue_id()
        queue = ProxyQueue(name, domain.config, self._node, queue_id, self._forget, self._room)
        self._node.queues[name] = queue
        self._node.domains.setdefault(domain.config.name, domain)
        self._hops.relays[queue_id] = queue
        self._hops.begin(queue)
        if self.active_id is not None and not self._stopping:
            self._hops.found(queue, self.active_id)
        return queue

    def _forget(self, relay: RelayQueue) -> None:
        """Nobody has it open any longer."""
        if not self._hops.remove(relay):
            return
        self._hops.end(relay)
        relay.posts.forget_all()
        del self._node.queues[relay.uri]
        name = relay.config.name
        if not any(queue.config.name == name for queue in self._node.queues.values()):
            self._node.domains.pop(name, None)
