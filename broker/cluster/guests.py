"""The brokers below this one that are not in its cluster: proxies. They have queues open here, as clients have.

They come without a node id of their own, any number of them (source: mqbnet::SessionNegotiator, mqbblp::Cluster).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.cluster.downstream import Downstream
from broker.core.cluster_errors import ClusterError
from broker.core.negotiation import NO_NODE_ID
from broker.core.node import Node
from broker.core.pretty import Shown
from broker.core.received import received
from broker.core.session import Session
from formats.codes import EventType
from formats.control import ber
from formats.control.messages import (
    ClientIdentity,
    ClusterMessage,
    ControlMessage,
    NodeStatus,
    NodeStatusAdvisory,
    OpenQueue,
    Status,
    StatusCategory,
    StopRequest,
    StopResponse,
)
from formats.errors import FormatError
from formats.wire.event import Frame, build_schema_event, schema_encoding, schema_message

__all__ = ["Guest", "Guests"]

log = logging.getLogger("broker.downstream")

# Their numbers are below those of a cluster's nodes.
FIRST_NUMBER = -(1 << 32)

# Whoever hears this asks again: elsewhere, or here if the node stays after all.
IS_STOPPING = Status(category=StatusCategory.REFUSED, code=ClusterError.STOPPING, message="this node is stopping")


class Guest:
    """One of them: what its session is for; see `broker.core.session.BrokerPeer`."""

    # It asks for all of its clients together.
    control_bytes_max = 4 << 20
    # It is pushed no more than it takes: what else waits are acknowledgments and answers.
    backlog_bytes_max = 64 << 20

    def __init__(self, guests: Guests, session: Session, node: Node) -> None:
        self.session = session
        self.heartbeats_missed_max = node.identity.downstream_heartbeats_missed_max
        self._guests = guests
        self.downstream = downstream = Downstream(
            node,
            FIRST_NUMBER - session.session_id,
            session.description,
            session.out,
            lambda: node.dirty.add(session),
            session.fail,
            member=False,
        )
        downstream.bulk = node.bulk
        # Whoever looks for a queue's clients finds it among them.
        session.handles = downstream.handles
        self._on_event: dict[int, Callable[[memoryview, Frame], None]] = {
            EventType.CONTROL: self._on_control,
            EventType.PUT: downstream.on_put,
            EventType.CONFIRM: downstream.on_confirm,
            EventType.REJECT: downstream.on_reject,
        }

    def begun(self) -> None:
        self._guests.begun(self)

    def receive(self, data: memoryview, frame: Frame) -> None:
        handler = self._on_event.get(frame.type)
        if handler is None:
            raise FormatError("EventHeader.type", frame.body, f"a proxy sends no {EventType(frame.type).name}")
        handler(data, frame)

    def output_sent(self) -> None:
        self.downstream.output_sent()

    def hold(self) -> None:
        self.downstream.ready = False

    def ended(self) -> None:
        self.downstream.lost()
        self._guests.ended(self)

    def advise(self, status: NodeStatus) -> None:
        """Tell it what this node is."""
        self._send(ControlMessage(choice=ClusterMessage(choice=NodeStatusAdvisory(status=status))))

    def _on_control(self, data: memoryview, frame: Frame) -> None:
        body = schema_message(data, frame.body, frame.end)
        message = received(ControlMessage, body, schema_encoding(frame.type_specific))
        match message.choice:
            case ClusterMessage(choice=StopRequest(cluster_name=name)) if message.r_id is not None:
                answer = ClusterMessage(choice=StopResponse(cluster_name=name))
                self._send(ControlMessage(r_id=message.r_id, choice=answer))
            case OpenQueue(handle_parameters=parameters) if self._guests.status is NodeStatus.STOPPING:
                log.info("%s: refused to open '%s': %s", self.session.description, parameters.uri, IS_STOPPING.message)
                self.downstream.reply(message, IS_STOPPING)
            case _:
                if not self.downstream.on_request(message):
                    shown = Shown(message, frame.end - frame.body)
                    log.warning("%s: nobody waits for %s", self.session.description, shown)

    def _send(self, message: ControlMessage) -> None:
        self.session.send_event(build_schema_event(ber.encode(message)))


class Guests:
    """All of a node's. `status` is what they hear of this node."""

    def __init__(self, node: Node, status: NodeStatus = NodeStatus.AVAILABLE) -> None:
        self.status = status
        self._node = node
        self._guests: set[Guest] = set()

    def serve(self) -> None:
        """Let in those that have no node id, and no others; when the node is to stop, they go first."""
        self._node.admit = self.admit
        self._node.retire = self.retire

    def retire(self) -> bool:
        """The node is about to stop: whether all of them have gone elsewhere."""
        self.set_status(NodeStatus.STOPPING)
        return not any(guest.downstream.handles for guest in self._guests)

    def admit(self, session: Session, identity: ClientIdentity) -> Guest | str:
        """See `Node.admit`."""
        if identity.cluster_node_id != NO_NODE_ID:
            return f"This broker knows no node {identity.cluster_node_id} of cluster '{identity.cluster_name}'"
        return Guest(self, session, self._node)

    def set_status(self, status: NodeStatus) -> None:
        """Set this node's status, and advise all guests of it if it changes."""
        if status is not self.status:
            self.status = status
            for guest in self._guests:
                guest.advise(status)

    def begun(self, guest: Guest) -> None:
        self._guests.add(guest)
        guest.advise(self.status)

    def ended(self, guest: Guest) -> None:
        self._guests.discard(guest)
