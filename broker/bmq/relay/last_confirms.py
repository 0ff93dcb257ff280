"""The last confirms: a stopping broker gives its consumers no more messages, and lets them confirm what they have.

Unconfirmed messages are redelivered to other consumers. The server decides how long to wait for confirms. Source:
mqbblp::ClusterQueueHelper::checkUnconfirmedV2.
"""

from __future__ import annotations

import logging

from broker.bmq.node.node import Node

__all__ = ["LastConfirms"]

log = logging.getLogger("broker.cluster")

SAY_AGAIN_MS = 1000


class LastConfirms:
    """The last confirms of one node; `done` is called repeatedly."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._said: int | None = None
        self._said_ms = 0

    def done(self) -> bool:
        """Return True if no consumer here has unconfirmed messages; stop sending them more."""
        count = 0
        for session in self._node.sessions.values():
            session.hold()
            for handle in session.handles.values():
                if not handle.queue.broadcast:
                    count += sum(len(stream.unconfirmed) for stream in handle.streams.values())
        now_ms = self._node.now.ms
        if count != self._said or (count and now_ms - self._said_ms >= SAY_AGAIN_MS):
            self._said, self._said_ms = count, now_ms
            # The text is the reference's: programs wait for it in the log.
            if count:
                log.info("waiting for %d unconfirmed message(s)", count)
            else:
                log.info("no unconfirmed message(s)")
        return not count
