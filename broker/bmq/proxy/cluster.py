# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A cluster that a proxy serves: its nodes, the one in use, and the proxy's queues there.

Source: mqbblp::ClusterProxy, mqbblp::ClusterQueueHelper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from broker.bmq.core.cluster_view import ProxyView
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Content
from broker.bmq.core.received import received
from broker.bmq.core.state_monitor import Observed
from broker.bmq.links.peer_links import PeerLink, PeerLinks
from broker.bmq.links.requests import Requests
from broker.bmq.node.node import Node
from broker.bmq.proxy.active_node import ActiveNode, UpstreamNode
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.queue import Surroundings
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.relay.put_room import PutRoom
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.relay_links import RelayLinks
from broker.bmq.session.negotiation import NO_NODE_ID
from broker.common.faults import Change
from formats.bmq.codes import DEFAULT_APP_ID, EventType
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    NodeStatus,
    NodeStatusAdvisory,
    OpenQueueResponse,
    QueueHandleParameters,
    RoutingConfigurationFlags,
    StopRequest,
    StopResponse,
)
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY
from formats.bmq.wire.event import Frame, schema_encoding, schema_message
from formats.errors import FormatError

__all__ = ["ProxyCluster", "UpstreamCluster"]

log: Final = logging.getLogger("broker.proxy")

# Time for which only nodes of the proxy's own data centre are used.
NEAR_WAIT_MS: Final = 10_000

# Time that consumers have to confirm messages from a node that is stopping.
LEAVE_MS: Final = 3_000

UNCONFIRMED_BYTES_MAX: Final = 256 << 20


class ProxyQueue(RelayQueue):
    """A proxy's queue. Each answer to an open request has its routing, so no client has it open before the first.

    A proxy keeps unconfirmed messages, of which there may be very many, in memory, and so has its own limit.
    """

    def __init__(
        self,
        uri: str,
        config: DomainConfig,
        around: Surroundings,
        queue_id: int,
        unused: Callable[[RelayQueue], None],
        room: PutRoom,
    ) -> None:
        super().__init__(uri, NULL_KEY, config, (), around, queue_id, _nothing, unused, None, _no_store, room)

    @property
    def asked_bytes_max(self) -> int:
        return UNCONFIRMED_BYTES_MAX

    def learn(self, response: OpenQueueResponse) -> None:
        mode = _mode(response.routing_configuration.flags)
        deduplication_time_ms = response.deduplication_time_ms
        if mode is not Mode.FANOUT and DEFAULT_APP_ID not in self.apps:
            self.app(DEFAULT_APP_ID).key = DEFAULT_APP_KEY
        if (mode, deduplication_time_ms) != (self.config.mode, self.config.deduplication_time_ms):
            self.configure_domain(replace(self.config, mode=mode, deduplication_time_ms=deduplication_time_ms))


def _mode(flags: int) -> Mode:
    if flags >> RoutingConfigurationFlags.AT_MOST_ONCE & 1:
        return Mode.BROADCAST
    return Mode.FANOUT if flags >> RoutingConfigurationFlags.HAS_MULTIPLE_SUB_STREAMS & 1 else Mode.PRIORITY


def _nothing(guid: bytes) -> Content | None:
    return None


def _no_store(queue: RelayQueue) -> None:
    """Reject a message without payload: only brokers with a store can use it."""


class UpstreamCluster(NamedTuple):
    """A cluster as the configuration has it."""

    name: str
    nodes: tuple[UpstreamNode, ...]


class Leaving:
    """The state while the node in use stops: consumers may confirm its messages for a while; then `done` is called.

    `asked` is the number of unanswered requests to stop sending: messages may be in flight. `later` are broadcast
    queues, asked only when all confirms are in: their consumers miss messages posted afterwards.
    """

    __slots__ = ("asked", "done", "later", "node_id", "until_ms")

    def __init__(self, node_id: int, until_ms: int, done: Callable[[], None]) -> None:
        self.node_id = node_id
        self.until_ms = until_ms
        self.done = [done]
        self.asked = 0
        self.later: list[RelayQueue] = []

    def ask(self, relays: Iterable[RelayQueue]) -> None:
        for relay in relays:
            self.asked += relay.leave(self.answered)

    def answered(self) -> None:
        self.asked -= 1


class ProxyCluster:
    """A proxy's side of a cluster; `flush` ends a step. `on_available` is called when a node is first active."""

    def __init__(
        self,
        config: UpstreamCluster,
        data_center: str,
        node: Node,
        room: PutRoom,
        random_below: Callable[[int], int],
        on_available: Callable[[], None],
    ) -> None:
        self.name = config.name
        self.links = PeerLinks(NO_NODE_ID, [each.id for each in config.nodes])
        self.active = ActiveNode(config.nodes, data_center, random_below, self._on_active)
        self._on_available = on_available
        self._node = node
        self._room = room
        self._requests = Requests(self.links, node.now, node.timers)
        self._relay_links = RelayLinks(self.links, self._requests, config.name, node.now)
        self._was_available = False
        self._leaving: Leaving | None = None
        self._stopping = False

    @property
    def active_id(self) -> int | None:
        return self.active.node_id

    @property
    def statuses(self) -> dict[int, NodeStatus]:
        return self.active.statuses

    @property
    def queues(self) -> list[RelayQueue]:
        return list(self._relay_links.relays.values())

    def observed(self) -> Observed:
        """Return the state of the cluster for its monitor: the node in use stands for the leader."""
        active = self.active_id
        problems: tuple[str, ...] = ()
        if active is None:
            problems = (f"no node of cluster {self.name} is in use",)
        return Observed(active is not None, {}, {}, self._relay_links.reopening, problems)

    def view(self) -> ProxyView:
        return ProxyView(
            name=self.name,
            active_node_id=self.active_id,
            statuses=tuple((each, self.statuses.get(each, NodeStatus.UNAVAILABLE).name) for each in self.active.nodes),
            connected_ids=tuple(self.statuses),
            queue_ids=tuple(sorted((relay.uri, relay.queue_id) for relay in self.queues)),
            posts=sum(len(relay.unacknowledged) for relay in self.queues),
        )

    def start(self) -> None:
        self._node.timers.at(self._node.now.ms + NEAR_WAIT_MS, self.active.waited)

    def stop(self) -> None:
        self._stopping = True

    def peer_up(self, node_id: int, peer: PeerLink, *, tells_status: bool) -> None:
        """Register a negotiated link, which replaces an older one.

        A node that `tells_status` is used once it reports that it is available, another one at once.
        """
        if node_id in self.links.peers:
            self.peer_down(node_id)
        self.links.peers[node_id] = peer
        self._relay_links.link_up(node_id, peer.outbox)
        log.info("node %d of cluster '%s' is connected", node_id, self.name)
        self.active.status(node_id, NodeStatus.UNKNOWN if tells_status else NodeStatus.AVAILABLE)

    def peer_down(self, node_id: int) -> None:
        log.warning("node %d of cluster '%s' has disconnected", node_id, self.name)
        del self.links.peers[node_id]
        self._relay_links.node_down(node_id)
        self.active.down(node_id)
        self._requests.node_down(node_id)

    def receive(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Process an event from a node. Raises FormatError if it is malformed, or not for a proxy."""
        if frame.type == EventType.PUSH:
            self._relay_links.on_push(node_id, data, frame)
        elif frame.type == EventType.ACK:
            self._relay_links.on_ack(node_id, data, frame)
        elif frame.type == EventType.CONTROL:
            body = schema_message(data, frame.body, frame.end)
            message = received(ControlMessage, body, schema_encoding(frame.type_specific))
            with Change(f"a message of node {node_id} of cluster '{self.name}' ({type(message.choice).__name__})"):
                self._on_control(node_id, message)
        else:
            what = EventType(frame.type).name
            raise FormatError("EventHeader.type", frame.body, f"unexpected {what} from a node")

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
                    log.warning("node %d of cluster '%s': unexpected response ignored: %s", node_id, self.name, what)

    def _on_status(self, node_id: int, status: NodeStatus) -> None:
        if self._leaving is not None and self._leaving.node_id == node_id and status is NodeStatus.AVAILABLE:
            # It stays after all: it must resume the messages that it was asked to stop.
            self._on_active(node_id)
        self.active.status(node_id, status)

    def _answer_stop(self, node_id: int, message: ControlMessage) -> None:
        # All messages for it must be sent before the answer.
        self._relay_links.send_to(node_id)
        if message.r_id is not None and self.links.is_up(node_id):
            answer = ClusterMessage(choice=StopResponse(cluster_name=self.name))
            self._requests.respond(node_id, message, answer)

    def _leave(self, node_id: int, done: Callable[[], None]) -> None:
        """Handle a stopping node. If it is in use, its messages are confirmed first, so none is delivered twice."""
        log.info("node %d of cluster '%s' is STOPPING", node_id, self.name)
        if node_id != self.active_id:
            self.active.status(node_id, NodeStatus.STOPPING)
            done()
        elif self._leaving is None:
            self._leaving = leaving = Leaving(node_id, self._node.now.ms + LEAVE_MS, done)
            leaving.later = [relay for relay in self.queues if relay.broadcast]
            leaving.ask([relay for relay in self.queues if not relay.broadcast])
            self._node.timers.at(leaving.until_ms, self._go_on_leaving)
            self._go_on_leaving()
        else:
            self._leaving.done.append(done)

    def _go_on_leaving(self) -> None:
        leaving = self._leaving
        if leaving is None:
            return
        if leaving.later and self._is_clear(leaving):
            later, leaving.later = leaving.later, []
            leaving.ask([relay for relay in later if relay in self.queues])
        is_clear = self._is_clear(leaving)
        if is_clear or self._node.now.ms >= leaving.until_ms:
            self._leaving = None
            self.active.status(leaving.node_id, NodeStatus.STOPPING)
            for done in leaving.done:
                done()

    def _is_clear(self, leaving: Leaving) -> bool:
        return not leaving.asked and not any(relay.messages for relay in self.queues)

    def flush(self) -> None:
        if self._leaving is not None:
            self._go_on_leaving()
        self._relay_links.send_all()

    def _on_active(self, node_id: int | None) -> None:
        self._leaving = None
        for relay in self.queues:
            if relay.upstream is not None:
                self._relay_links.lost(relay)
        if node_id is None:
            log.warning("Cluster (%s): no node is available", self.name)
            return
        if self._stopping:
            return
        name = self.active.nodes[node_id].name
        # The text is the reference's: programs wait for it in the log.
        log.info("Cluster (%s): new leader: [%s, %d], leader status: ACTIVE", self.name, name, node_id)
        for relay in self.queues:
            self._relay_links.found(relay, node_id)
        if not self._was_available:
            self._was_available = True
            log.info("Cluster (%s) is available", self.name)
            self._on_available()

    def open_queue(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        queue = self._node.queues.get(name)
        if queue is None:
            queue = self._make_queue(name, domain)
        assert isinstance(queue, ProxyQueue)
        queue.open(parameters, opened)

    def _make_queue(self, name: str, domain: DomainInUse) -> ProxyQueue:
        queue_id = self._relay_links.next_queue_id()
        queue = ProxyQueue(name, domain.config, self._node, queue_id, self._forget, self._room)
        self._node.queues[name] = queue
        self._node.domains.setdefault(domain.config.name, domain)
        self._relay_links.relays[queue_id] = queue
        self._relay_links.begin(queue)
        if self.active_id is not None and not self._stopping:
            self._relay_links.found(queue, self.active_id)
        return queue

    def _forget(self, relay: RelayQueue) -> None:
        if not self._relay_links.remove(relay):
            return
        self._relay_links.end(relay)
        relay.posts.forget_all()
        del self._node.queues[relay.uri]
        name = relay.config.name
        if not any(queue.config.name == name for queue in self._node.queues.values()):
            self._node.domains.pop(name, None)
