# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The brokers below this one outside its cluster: proxies, which open queues here like clients.

They have no node id, and there may be any number of them (source: mqbnet::SessionNegotiator, mqbblp::Cluster).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.pretty import Shown
from broker.bmq.core.received import received
from broker.bmq.node.node import Node
from broker.bmq.relay.downstream import Downstream
from broker.bmq.session.negotiation import NO_NODE_ID
from broker.bmq.session.session import Session
from broker.common.standing import Standing
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
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
from formats.bmq.wire.event import Frame, build_schema_event, schema_encoding, schema_message
from formats.errors import FormatError

__all__ = ["Guest", "Guests"]

log: Final = logging.getLogger("broker.downstream")

# Their numbers are below those of a cluster's nodes.
FIRST_NUMBER: Final = -(1 << 32)

# bmqp::HighAvailabilityFeatures: brokers that answer a StopRequest of this version when they hold their posts back.
STOP_FEATURE: Final = "GRACEFUL_SHUTDOWN_V2"
STOP_VERSION: Final = 2
# A proxy gets no other request.
STOP_REQUEST_ID: Final = 1

# A proxy's requests are for all of its clients together.
CONTROL_BYTES_MAX: Final = 4 << 20
# Pushes stay within what it accepts: other pending output is acknowledgments and answers.
BACKLOG_BYTES_MAX: Final = 64 << 20

# A proxy that gets this retries: elsewhere, or here if the node stays after all.
IS_STOPPING: Final = Status(
    category=StatusCategory.REFUSED, code=ClusterError.STOPPING, message="this node is stopping"
)


class Guest:
    """One proxy's session; see `broker.bmq.session.session.BrokerPeer`."""

    def __init__(self, guests: Guests, session: Session, node: Node, features: str = "") -> None:
        self.session = session
        self.control_bytes_max = CONTROL_BYTES_MAX
        self.backlog_bytes_max = BACKLOG_BYTES_MAX
        self.standing = Standing.CLIENT
        self.has_answered = False  # it is ready for this node's stop
        self._cluster_name = node.identity.cluster_name
        self._answers_stop = STOP_FEATURE in features
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
        # A search for a queue's clients finds it among them.
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
            raise FormatError(
                "EventHeader.type", frame.body, f"unexpected {EventType(frame.type).name} event from a proxy"
            )
        handler(data, frame)

    def output_sent(self) -> None:
        self.downstream.output_sent()

    def hold(self) -> None:
        self.downstream.hold()

    def ended(self) -> None:
        self.downstream.lost()
        self._guests.ended(self)

    def advise(self, status: NodeStatus) -> None:
        self._send(ControlMessage(choice=ClusterMessage(choice=NodeStatusAdvisory(status=status))))

    def ask_to_leave(self) -> None:
        """Announce to the proxy that this node stops.

        Proxies that answer keep their posts until the link ends or they have another node, and confirm meanwhile. The
        reference's proxies, if merely advised, open their queues elsewhere at once: messages on their way to them here
        would arrive after newer ones.
        """
        if self._answers_stop:
            request = StopRequest(cluster_name=self._cluster_name, version=STOP_VERSION)
            self._send(ControlMessage(r_id=STOP_REQUEST_ID, choice=ClusterMessage(choice=request)))
        else:
            self.advise(NodeStatus.STOPPING)

    def _on_control(self, data: memoryview, frame: Frame) -> None:
        body = schema_message(data, frame.body, frame.end)
        message = received(ControlMessage, body, schema_encoding(frame.type_specific))
        match message.choice:
            case ClusterMessage(choice=StopRequest(cluster_name=name)) if message.r_id is not None:
                answer = ClusterMessage(choice=StopResponse(cluster_name=name))
                self._send(ControlMessage(r_id=message.r_id, choice=answer))
            case ClusterMessage(choice=StopResponse()) if message.r_id == STOP_REQUEST_ID:
                self.has_answered = True
            case OpenQueue(handle_parameters=parameters) if self._guests.status is NodeStatus.STOPPING:
                log.info("%s: refused to open '%s': %s", self.session.description, parameters.uri, IS_STOPPING.message)
                self.downstream.reply(message, IS_STOPPING)
            case _:
                if not self.downstream.on_request(message):
                    shown = Shown(message, frame.end - frame.body)
                    log.warning("%s: unexpected response ignored: %s", self.session.description, shown)

    def _send(self, message: ControlMessage) -> None:
        self.session.send_event(build_schema_event(ber.encode(message)))


class Guests:
    """All proxies of a node: a `Door` for brokers without a node id.

    They are the first to leave when the node is to stop. `status` is the node's status as advised to them.
    """

    def __init__(self, node: Node, status: NodeStatus = NodeStatus.AVAILABLE) -> None:
        self.status = status
        self._node = node
        self._guests: set[Guest] = set()

    def retire(self) -> bool:
        """Announce that the node is about to stop; return True if all proxies have left, or are ready for it."""
        self.set_status(NodeStatus.STOPPING)
        return all(guest.has_answered or not guest.downstream.handles for guest in self._guests)

    def admit(self, session: Session, identity: ClientIdentity) -> Guest | str:
        if identity.cluster_node_id != NO_NODE_ID:
            return f"This broker knows no node {identity.cluster_node_id} of cluster '{identity.cluster_name}'"
        return Guest(self, session, self._node, identity.features)

    def set_status(self, status: NodeStatus) -> None:
        if status is not self.status:
            self.status = status
            for guest in self._guests:
                if status is NodeStatus.STOPPING:
                    guest.ask_to_leave()
                else:
                    guest.advise(status)

    def begun(self, guest: Guest) -> None:
        self._guests.add(guest)
        guest.advise(self.status)

    def ended(self, guest: Guest) -> None:
        self._guests.discard(guest)
