# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The links of one member to the others that are up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from broker.bmq.session.negotiation import EARLY_FEATURE, REMOVALS_FEATURE
from broker.bmq.session.outbox import Outbox
from broker.bmq.session.session import Session
from broker.common.standing import Standing
from formats.bmq.wire.event import Frame
from formats.schema import Buffer

__all__ = ["LinkOwner", "Peer", "PeerLink", "PeerLinks"]

CONTROL_BYTES_MAX: Final = 64 << 20
BACKLOG_BYTES_MAX: Final = 512 << 20


class Peer(Protocol):
    """The negotiated link to a node."""

    @property
    def backlog(self) -> int:
        """Maximum number of bytes that wait to be sent."""
        ...

    @property
    def takes_removals(self) -> bool: ...

    @property
    def takes_early(self) -> bool: ...

    def send_event(self, event: Buffer) -> None: ...

    def end(self, reason: str) -> None: ...

    def fail(self, error: Exception) -> None:
        """Close the link after this step: preparing its output failed."""
        ...


class PeerLinks:
    """`Links` to the connected members."""

    def __init__(self, own_id: int, other_ids: Iterable[int]) -> None:
        self.own_id = own_id
        self.other_ids = tuple(other_ids)
        self.peers: dict[int, Peer] = {}

    def is_up(self, node_id: int) -> bool:
        return node_id in self.peers

    def send(self, node_id: int, event: Buffer) -> None:
        peer = self.peers.get(node_id)
        if peer is not None:
            try:
                peer.send_event(event)
            except Exception as error:
                peer.fail(error)

    def fail(self, node_id: int, error: Exception) -> None:
        peer = self.peers.get(node_id)
        if peer is not None:
            peer.fail(error)

    def backlog(self, node_id: int) -> int:
        peer = self.peers.get(node_id)
        return 0 if peer is None else peer.backlog

    def takes_removals(self, node_id: int) -> bool:
        peer = self.peers.get(node_id)
        return peer is not None and peer.takes_removals

    def takes_early(self, node_id: int) -> bool:
        peer = self.peers.get(node_id)
        return peer is not None and peer.takes_early


class LinkOwner(Protocol):
    """The owner of links, which handles their begin and end."""

    def begun(self, link: PeerLink) -> None: ...

    def ended(self, link: PeerLink) -> None: ...


class PeerLink:
    """The link to one node: a `Peer` for sending, and the receiver of its session's events.

    Members send each other all queues of the cluster in one message. A link's output may hold posts through this broker
    (256 MiB at most), records for a lagging replica (64 MiB), and what heals it: less than the bound.
    """

    def __init__(
        self,
        owner: LinkOwner,
        node_id: int,
        session: Session,
        receive: Callable[[int, memoryview, Frame], None],
        heartbeats_missed_max: int,
        features: str = "",
    ) -> None:
        self.node_id = node_id
        self.session = session
        self.control_bytes_max = CONTROL_BYTES_MAX
        self.backlog_bytes_max = BACKLOG_BYTES_MAX
        self.standing = Standing.PEER
        self.heartbeats_missed_max = heartbeats_missed_max
        self.takes_removals = REMOVALS_FEATURE in features.split(";")
        self.takes_early = EARLY_FEATURE in features.split(";")
        self._owner = owner
        self._receive = receive

    @property
    def backlog(self) -> int:
        return self.session.backlog

    def send_event(self, event: Buffer) -> None:
        self.session.send_event(event)

    def outbox(self) -> Outbox:
        session = self.session
        session.host.dirty.add(session)
        return session.out

    def end(self, reason: str) -> None:
        self.session.end(reason)

    def fail(self, error: Exception) -> None:
        self.session.fail(error)

    def begun(self) -> None:
        self._owner.begun(self)

    def receive(self, data: memoryview, frame: Frame) -> None:
        self._receive(self.node_id, data, frame)

    def ended(self) -> None:
        self._owner.ended(self)

    def output_sent(self) -> None:
        """Do nothing: senders on this link check the backlog."""

    def hold(self) -> None:
        """Do nothing: members hand their partitions over."""
