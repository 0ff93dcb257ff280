"""The links of one member to the others, as far as they are up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from formats.schema import Buffer

__all__ = ["Peer", "PeerLinks"]


class Peer(Protocol):
    """The link to a node that has said who it is."""

    @property
    def backlog(self) -> int:
        """How many bytes wait to be sent to it, at most."""
        ...

    def send_event(self, event: Buffer) -> None:
        """Put whole events on their way."""
        ...

    def end(self, reason: str) -> None:
        """Close the link."""
        ...


class PeerLinks:
    """`Links` over whoever is connected; see `broker.cluster.links`."""

    def __init__(self, own_id: int, other_ids: Iterable[int]) -> None:
        self.own_id = own_id
        self.other_ids = tuple(other_ids)
        self.peers: dict[int, Peer] = {}

    def is_up(self, node_id: int) -> bool:
        return node_id in self.peers

    def send(self, node_id: int, event: Buffer) -> None:
        peer = self.peers.get(node_id)
        if peer is not None:
            peer.send_event(event)

    def backlog(self, node_id: int) -> int:
        peer = self.peers.get(node_id)
        return 0 if peer is None else peer.backlog
