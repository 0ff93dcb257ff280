"""A broker that is to stop gives its consumers no more, and lets them confirm what they have.

What they do not confirm goes to others, who may get it for a second time. How long they are waited for is the server's
to say. Source: mqbblp::ClusterQueueHelper::checkUnconfirmedV2.
"""

from __future__ import annotations

import logging

from broker.core.node import Node

__all__ = ["LastConfirms"]

log = logging.getLogger("broker.cluster")

SAY_AGAIN_MS = 1000


class LastConfirms:
    """One node's; `done` is asked again and again."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._said: int | None = None
        self._said_ms = 0

    def done(self) -> bool:
        """Whether no consumer here has anything unconfirmed; from now on they get no more."""
        count = 0
        for session in self._node.sessions.values():
            session.hold()
            for handle in session.handles.values():
                if not handle.queue.broadcast:
                    count += sum(len(stream.unconfirmed) for stream in handle.streams.values())
        now_ms = self._node.now.ms
        if count != self._said or (count and now_ms - self._said_ms >= SAY_AGAIN_MS):
            self._said, self._said_ms = count, now_ms
            # The words are the reference's: programs wait for them in the log.
            if count:
                log.info("waiting for %d unconfirmed message(s)", count)
            else:
                log.info("no unconfirmed message(s)")
        return not count
