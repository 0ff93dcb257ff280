"""The other nodes of the cluster: who dials whom, who may come in, and what a lost link leads to.

Of two nodes the one with the lower id dials (source: mqbnet::TransportManager, its mixed mode), so there is one link
between any two. Both sides say who they are; after that, each tells the other its status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.cluster.agreement import disagreement
from broker.cluster.member import Member
from broker.core.negotiation import own_identity
from broker.core.node import Node
from broker.core.session import TRANSITIONS, Host, Session, SessionState, Trigger
from formats.codes import EventType
from formats.control import ber
from formats.control.messages import (
    BrokerResponse,
    ClientIdentity,
    NegotiationMessage,
    StatusCategory,
)
from formats.errors import FormatError
from formats.schema import Buffer
from formats.wire.event import Frame, build_schema_event, schema_message

__all__ = ["DialedSession", "PeerLink", "Peers"]

log = logging.getLogger("broker.peers")

TICK_MS = 1_000

# How long after a failure a node is dialed again: at first, and when it goes on failing.
REDIAL_MS = 100
REDIAL_MS_MAX = 1_000
# After the other side has refused this one: that is not over in a moment.
REFUSED_MS = 5_000


class PeerLink:
    """The link to one node: what `Member` sends by, and where its session hands events on."""

    def __init__(self, peers: Peers, node_id: int, session: Session) -> None:
        self.node_id = node_id
        self.session = session
        self._peers = peers
        self._member_receive = peers.member.receive

    @property
    def backlog(self) -> int:
        return self.session.backlog

    def send_event(self, event: Buffer) -> None:
        self.session.send_event(event)

    def end(self, reason: str) -> None:
        self.session.end(reason)

    def begun(self) -> None:
        self._peers.begun(self)

    def receive(self, data: memoryview, frame: Frame) -> None:
        self._member_receive(self.node_id, data, frame)

    def ended(self) -> None:
        self._peers.ended(self)


class DialedSession(Session):
    """A session that this node began: it says who it is, and waits for the answer."""

    def __init__(self, host: Host, session_id: int, address: str, peers: Peers, node_id: int) -> None:
        self._peers = peers
        self._node_id = node_id
        super().__init__(host, session_id, address)
        identity = own_identity(host.identity, session_id, to_broker=True)
        self.send_event(build_schema_event(ber.encode(NegotiationMessage(choice=identity))))

    def _enter(self, state: SessionState) -> None:
        super()._enter(state)
        if state is SessionState.NEGOTIATING:
            self._on_event = [self._on_answer] * len(EventType)

    def end(self, reason: str, *, lost: bool = True) -> None:
        was_unknown = self.state is SessionState.NEGOTIATING
        super().end(reason, lost=lost)
        if was_unknown:
            self._peers.failed(self._node_id, reason)

    def _on_answer(self, data: memoryview, frame: Frame) -> None:
        if frame.type != EventType.CONTROL:
            raise FormatError("EventHeader.type", frame.body, "a broker that is dialed answers with its identity")
        answer = ber.decode(NegotiationMessage, schema_message(data, frame.body, frame.end)).choice
        if not isinstance(answer, BrokerResponse):
            raise FormatError("NegotiationMessage", frame.body, "a broker that is dialed answers")
        refusal = self._refusal(answer)
        if refusal is not None:
            self._peers.refused(self._node_id, refusal)
            self.end(refusal)
            return
        identity = answer.broker_identity
        self.description = f"{identity.process_name}:{identity.pid}@{self.description}"
        self._broker = broker = PeerLink(self._peers, self._node_id, self)
        self._enter(TRANSITIONS[self.state, Trigger.IDENTIFIED])
        broker.begun()

    def _refusal(self, answer: BrokerResponse) -> str | None:
        if answer.result.category is not StatusCategory.SUCCESS:
            return f"refused this node: {answer.result.message}"
        me, them = self.host.identity, answer.broker_identity
        if (them.cluster_name, them.cluster_node_id) != (me.cluster_name, self._node_id):
            return (
                f"is node {them.cluster_node_id} of cluster '{them.cluster_name}', "
                f"not node {self._node_id} of '{me.cluster_name}'"
            )
        return None


class Peers:
    """Keeps one link to each other node.

    `dial(node_id)` is asked to connect; the outcome is `connected` or `failed`. The links are those of `member`.
    """

    def __init__(self, node: Node, member: Member, dial: Callable[[int], None]) -> None:
        self.member = member
        self._node = node
        self._dial = dial
        self._links: dict[int, PeerLink] = {}
        self._delays_ms: dict[int, int] = {}
        # Why a node cannot be a peer, as long as it cannot.
        self.faults: dict[int, str] = {}
        self._stopping = False
        node.admit = self.admit

    def start(self) -> None:
        """Dial those whom this node dials; watch over all."""
        self._tick()
        for node_id in self.member.links.other_ids:
            if self._dials(node_id):
                self._dial(node_id)

    def stop(self) -> None:
        """Let nobody in any more, and dial nobody."""
        self._stopping = True

    def _tick(self) -> None:
        for link in list(self._links.values()):
            link.session.tick()
        self._node.timers.at(self._node.now.ms + TICK_MS, self._tick)

    # -- dialing

    def connected(self, node_id: int, address: str) -> Session:
        """A connection to the node is there; the session that it is for."""
        return self._node.adopt(lambda session_id: DialedSession(self._node, session_id, address, self, node_id))

    def failed(self, node_id: int, reason: str) -> None:
        """The node could not be connected to; it is dialed again after a while."""
        if self._stopping:
            return
        delay_ms = self._delays_ms.get(node_id, REDIAL_MS)
        self._delays_ms[node_id] = max(delay_ms, min(delay_ms * 2, REDIAL_MS_MAX))
        if self.faults.get(node_id) != reason:
            self.faults[node_id] = reason
            log.warning("node %d cannot be connected to: %s", node_id, reason)
        self._node.timers.at(self._node.now.ms + delay_ms, lambda: self._redial(node_id))

    def refused(self, node_id: int, reason: str) -> None:
        """The node is there, and is no peer."""
        log.error("#CLUSTER_DISAGREEMENT node %d %s", node_id, reason)
        self.faults[node_id] = reason
        self._delays_ms[node_id] = REFUSED_MS

    def _redial(self, node_id: int) -> None:
        if node_id not in self._links and not self._stopping:
            self._dial(node_id)

    def _dials(self, node_id: int) -> bool:
        return self.member.links.own_id < node_id

    # -- links

    def admit(self, session: Session, identity: ClientIdentity) -> PeerLink | str:
        """See `Node.admit`: those of the same cluster may come in, if they are configured alike."""
        me, node_id = self._node.identity, identity.cluster_node_id
        refusal = None
        if identity.cluster_name != me.cluster_name:
            refusal = f"is of cluster '{identity.cluster_name}', this node of '{me.cluster_name}'"
        elif node_id not in self.member.links.other_ids:
            refusal = f"is node {node_id}, which the cluster does not have beside this one, node {me.node_id}"
        elif self._stopping:
            refusal = "comes while this node stops"
        else:
            difference = disagreement(me.cluster_features, identity.features)
            if difference:
                refusal = f"is configured otherwise: {difference}"
        if refusal is not None:
            if self.faults.get(node_id) != refusal:
                log.error("#CLUSTER_DISAGREEMENT a broker at %s %s", session.description, refusal)
            if node_id in self.member.links.other_ids:
                self.faults[node_id] = refusal
            return f"This broker {refusal}"
        return PeerLink(self, node_id, session)

    def begun(self, link: PeerLink) -> None:
        """Both sides know who the other is. A node that comes again has lost its older link."""
        node_id = link.node_id
        older = self._links.pop(node_id, None)
        self._links[node_id] = link
        self._delays_ms.pop(node_id, None)
        self.faults.pop(node_id, None)
        if older is not None:
            older.end("the node has connected anew")
        self._node.sessions.pop(link.session.session_id, None)
        self.member.peer_up(node_id, link)

    def ended(self, link: PeerLink) -> None:
        """The link is gone."""
        node_id = link.node_id
        if self._links.get(node_id) is not link:
            return
        del self._links[node_id]
        self.member.peer_down(node_id)
        if self._dials(node_id):
            self.failed(node_id, "the link was lost")
