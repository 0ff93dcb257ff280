"""Removal of idle queues through the leader, and the opens that wait until a removal is decided.

A leader may commit a recorded removal even after it lost its followers, or the link to this node, and erase a queue
that a client has opened meanwhile. So a queue stays closed until its removal is committed, is certain not to be
recorded, or a new leader's state is agreed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.bmq.consensus.metadata import Metadata
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.member.queues import ClusterQueues
from broker.bmq.node.node import Node
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import Opened
from formats.bmq.control.messages import QueueHandleParameters, QueueInfo, StatusCategory

__all__ = ["QueueRemovals", "Removal"]

log: Final = logging.getLogger("broker.cluster")

# Delay before this node asks the leader again about a removal that may have been recorded.
ASK_AGAIN_MS: Final = 500
# Maximum number of opens that wait for the removal of one queue.
OPENINGS_MAX: Final = 10_000
# Errors of a leader that has found no recorded removal.
NOT_RECORDED: Final = frozenset({ClusterError.CSL_FAILURE, ClusterError.NOT_PRIMARY})


class Removal:
    """A removal that this node has requested; uncertain once a leader may have recorded it without confirming it."""

    __slots__ = ("info", "is_uncertain", "openings")

    def __init__(self, info: QueueInfo) -> None:
        self.info = info
        self.is_uncertain = False
        self.openings: list[Callable[[], None]] = []


class QueueRemovals:
    """The removals requested by a partition's primary. `take_away` and `place` are those of its role; see `Role`.

    `removals` are the undecided ones, by URI, whose queues `queues` does not serve.
    """

    def __init__(self, node: Node, metadata: Metadata, queues: ClusterQueues, removals: dict[str, Removal]) -> None:
        self._node = node
        self._metadata = metadata
        self._queues = queues
        self._removals = removals

    def take_away(self, queue: Queue) -> None:
        uri = queue.uri
        info = self._metadata.state.queues.get(uri)
        if uri in self._removals or info is None or not self._queues.serves(uri):
            return
        self._removals[uri] = removal = Removal(info)
        self._request(removal)

    def _request(self, removal: Removal) -> None:
        self._metadata.unassign(removal.info, lambda refusal: self._answered(removal, refusal))

    def _answered(self, removal: Removal, refusal: Refusal | None) -> None:
        uri = removal.info.uri
        if self._removals.get(uri) is not removal:
            # It was decided before the answer arrived.
            return
        known = self._metadata.state.queues.get(uri)
        if known is None or known.key != removal.info.key:
            self._settle(removal)
        elif refusal is not None and _is_certain(removal, refusal):
            log.info("queue '%s' is kept for now: %s", uri, refusal)
            self._settle(removal)
        else:
            if not removal.is_uncertain:
                log.info(
                    "queue '%s' cannot be opened until its removal is decided: %s", uri, refusal or "not committed"
                )
            removal.is_uncertain = True
            self._node.timers.at(self._node.now.ms + ASK_AGAIN_MS, lambda: self._ask_again(removal))

    def _ask_again(self, removal: Removal) -> None:
        if self._removals.get(removal.info.uri) is not removal:
            return
        if self._queues.serves_partition(removal.info.partition_id):
            self._request(removal)
        else:
            self._settle(removal)

    def _settle(self, removal: Removal) -> None:
        """Let a queue be opened again; a removed one is then assigned again."""
        del self._removals[removal.info.uri]
        for opening in removal.openings:
            opening()

    def committed(self, info: QueueInfo) -> None:
        removal = self._removals.get(info.uri)
        if removal is not None and removal.info.key == info.key:
            self._settle(removal)

    def healed(self) -> None:
        """Handle a new leader's agreed state, which decides all removals that earlier leaders recorded."""
        for removal in list(self._removals.values()):
            if removal.is_uncertain:
                self._settle(removal)

    def place(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        """Open a queue, after a decision on its removal if there is one. May raise `Refusal` instead."""
        removal = self._removals.get(name)
        if removal is None:
            self._queues.place(name, domain, parameters, opened)
            return
        if len(removal.openings) >= OPENINGS_MAX:
            message = f"{OPENINGS_MAX} requests wait until the removal of '{name}' is decided"
            raise Refusal(StatusCategory.NOT_READY, message, ClusterError.UNKNOWN)

        def again() -> None:
            try:
                self._queues.place(name, domain, parameters, opened)
            except Refusal as refusal:
                opened(refusal)

        removal.openings.append(again)


def _is_certain(removal: Removal, refusal: Refusal) -> bool:
    if refusal.status.category is not StatusCategory.REFUSED:
        return False
    return not removal.is_uncertain or refusal.status.code in NOT_RECORDED
