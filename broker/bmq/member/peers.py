"""The links to the other nodes of the cluster: dialing, admission, and redialing after a loss.

Of two nodes the one with the lower id dials (source: mqbnet::TransportManager, its mixed mode), so there is one link
between any two. Both sides send their identities, then their statuses. A broker that claims to be a node must pass
`Admission`; nothing that a stranger sends reaches the member or ends a node's link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.bmq.links.admission import Admission
from broker.bmq.links.agreement import disagreement
from broker.bmq.links.dialing import REDIAL_MS_MAX, DialedSession, Redialer
from broker.bmq.links.peer_links import PeerLink
from broker.bmq.member.member import Member
from broker.bmq.node.node import Node
from broker.bmq.session.credentials import Credentials
from broker.bmq.session.negotiation import NO_NODE_ID, own_identity
from broker.bmq.session.session import Session
from broker.bmq.session.session_ports import BrokerPeer
from formats.bmq.control.messages import BrokerResponse, ClientIdentity

__all__ = ["Peers"]

log: Final = logging.getLogger("broker.peers")

TICK_MS: Final = 1_000

# Minimum times before the same refusal is logged again, and before another one is: strangers must not fill the log.
TOLD_MS: Final = 60_000
TOLD_MS_MIN: Final = 1_000


class Peers:
    """The keeper of one link to each other node of `member`; a `Dialer`.

    `dial(node_id)` is called to connect; the outcome is `connected` or `failed`.
    """

    def __init__(
        self,
        node: Node,
        member: Member,
        dial: Callable[[int], None],
        admission: Admission,
        credentials: Credentials | None = None,
    ) -> None:
        self.member = member
        self.credentials = credentials
        self._admission = admission
        self._node = node
        self._dial = dial
        self._links: dict[int, PeerLink] = {}
        self._redialer = Redialer(node.now, node.timers, dial, self._wants, REDIAL_MS_MAX)
        # The reason why a node cannot be a peer, while that holds.
        self.faults = self._redialer.faults
        # The last refusal logged and its time, by node; None stands for brokers outside the cluster.
        self._told: dict[int | None, tuple[str, int]] = {}
        self._stopping = False

    def start(self) -> None:
        self._admission.origins.start()
        self._tick()
        for node_id in self.member.links.other_ids:
            if self._dials(node_id):
                self._dial(node_id)

    def stop(self) -> None:
        self._stopping = True

    def _tick(self) -> None:
        for link in list(self._links.values()):
            self._node.tick_session(link.session)
        self._node.timers.at(self._node.now.ms + TICK_MS, self._tick)

    def connected(self, node_id: int, address: str) -> Session:
        return self._node.adopt(lambda session_id: DialedSession(self._node, session_id, address, self, node_id))

    def introduce(self, session_id: int) -> ClientIdentity:
        return own_identity(self._node.identity, session_id, self._node.identity.cluster_name)

    def accept(self, node_id: int, session: Session, answer: BrokerResponse) -> PeerLink | str:
        me, them = self._node.identity, answer.broker_identity
        if (them.cluster_name, them.cluster_node_id) != (me.cluster_name, node_id):
            return (
                f"is node {them.cluster_node_id} of cluster '{them.cluster_name}', "
                f"not node {node_id} of '{me.cluster_name}'"
            )
        difference = disagreement(me.cluster_features, them.features)
        if difference is not None:
            return f"has a different configuration: {difference}"
        return self._link(node_id, session, them.features)

    def failed(self, node_id: int, reason: str) -> None:
        if not self._stopping and self._redialer.failed(node_id, reason):
            log.warning("node %d cannot be connected to: %s", node_id, reason)

    def refused(self, node_id: int, reason: str) -> None:
        log.error("#CLUSTER_DISAGREEMENT node %d %s", node_id, reason)
        self._redialer.refused(node_id, reason)

    def _wants(self, node_id: int) -> bool:
        return node_id not in self._links and not self._stopping

    def _dials(self, node_id: int) -> bool:
        return self.member.links.own_id < node_id

    def admit(self, session: Session, identity: ClientIdentity) -> BrokerPeer | str | None:
        """See `Role`: nodes of the same cluster are admitted if they are configured alike, and so are proxies."""
        if identity.cluster_node_id == NO_NODE_ID and not self._stopping:
            return self.member.guests.admit(session, identity)
        me, node_id = self._node.identity, identity.cluster_node_id
        is_member = identity.cluster_name == me.cluster_name and node_id in self.member.links.other_ids
        if is_member:
            refusal = self._admission.refusal(node_id, session.entrance)
            if refusal is not None:
                if self._admission.may_have_moved(node_id, session.entrance):
                    return None
                self._tell(node_id, session, refusal)
                return f"This broker {refusal}"
        refusal = self._mismatch(identity)
        if refusal is None:
            return self._link(node_id, session, identity.features)
        if is_member:
            self.faults[node_id] = refusal
        self._tell(node_id if is_member else None, session, refusal)
        return f"This broker {refusal}"

    def _mismatch(self, identity: ClientIdentity) -> str | None:
        """Return the reason why a broker is not another node of this cluster, configured alike; None if it is."""
        me, node_id = self._node.identity, identity.cluster_node_id
        if identity.cluster_name != me.cluster_name:
            return f"is of cluster '{identity.cluster_name}', this node of '{me.cluster_name}'"
        if node_id not in self.member.links.other_ids:
            return f"is node {node_id}, which is not another node of this cluster (this is node {me.node_id})"
        if self._stopping:
            return "connects while this node is stopping"
        difference = disagreement(me.cluster_features, identity.features)
        return None if difference is None else f"has a different configuration: {difference}"

    def _tell(self, key: int | None, session: Session, refusal: str) -> None:
        now_ms = self._node.now.ms
        last, told_ms = self._told.get(key, ("", now_ms - TOLD_MS))
        if now_ms - told_ms >= (TOLD_MS if refusal == last else TOLD_MS_MIN):
            self._told[key] = refusal, now_ms
            log.error("#CLUSTER_DISAGREEMENT a broker at %s %s", session.description, refusal)

    def _link(self, node_id: int, session: Session, features: str) -> PeerLink:
        missed_max = self._node.identity.peer_heartbeats_missed_max
        return PeerLink(self, node_id, session, self.member.receive, missed_max, features)

    def begun(self, link: PeerLink) -> None:
        """Take up a link whose two ends know each other; a node that connects again has lost its older link."""
        node_id = link.node_id
        older = self._links.pop(node_id, None)
        self._links[node_id] = link
        self._redialer.begun(node_id)
        if older is not None:
            older.end("the node has connected again")
        self._node.sessions.pop(link.session.session_id, None)
        self.member.peer_up(node_id, link)

    def ended(self, link: PeerLink) -> None:
        node_id = link.node_id
        if self._links.get(node_id) is not link:
            return
        del self._links[node_id]
        self.member.peer_down(node_id)
        if self._dials(node_id):
            self.failed(node_id, "the link was lost")
