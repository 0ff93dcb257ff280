# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The last confirms: a stopping broker pushes no more messages, and lets their holders confirm them.

The holders are clients, proxies, and the other members that have queues open at their primary. Messages confirmed here
are not redelivered elsewhere. The wait is limited. Source: mqbblp::ClusterQueueHelper::checkUnconfirmedV2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final, Protocol

from broker.bmq.node.node import Node
from broker.bmq.queue.handles import Handle

__all__ = ["LastConfirms", "MessageHolder"]

log: Final = logging.getLogger("broker.cluster")

SAY_AGAIN_MS: Final = 1000


class MessageHolder(Protocol):
    """A peer that may hold messages."""

    @property
    def handles(self) -> Mapping[int, Handle]: ...
    def hold(self) -> None: ...


class LastConfirms:
    """The last confirms of one node; `members` are the other members' holders. Call `done` repeatedly."""

    def __init__(self, node: Node, members: Callable[[], Iterable[MessageHolder]] = tuple) -> None:
        self._node = node
        self._members = members
        self._until_ms: int | None = None
        self._said: int | None = None
        self._said_ms = 0
        self._is_over = False

    def awaited(self) -> bool:
        return self._until_ms is not None and not self._is_over

    def done(self) -> bool:
        """Return True if this node's messages are no longer held, or for too long; stop sending more."""
        now_ms = self._node.now.ms
        if self._until_ms is None:
            self._until_ms = now_ms + self._node.shutdown_timeout_ms
        count = self._hold()
        is_late = now_ms >= self._until_ms
        # The texts are the reference's: programs wait for them in the log.
        if not count:
            if self._said != 0:
                log.info("no unconfirmed message(s)")
        elif is_late:
            if not self._is_over:
                log.warning("giving up on %d unconfirmed message(s)", count)
        elif count != self._said or now_ms - self._said_ms >= SAY_AGAIN_MS:
            log.info("waiting for %d unconfirmed message(s)", count)
            self._said_ms = now_ms
        self._said = count
        self._is_over = not count or is_late
        return self._is_over

    def _hold(self) -> int:
        holders: Iterable[MessageHolder] = chain(self._node.sessions.values(), self._members())
        count = 0
        for holder in holders:
            holder.hold()
            for handle in holder.handles.values():
                if not handle.queue.broadcast:
                    count += sum(len(stream.unconfirmed) for stream in handle.streams.values())
        return count
