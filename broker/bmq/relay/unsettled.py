"""Work that a relay must finish before an upstream may send it messages, or gets news of its consumers."""

from __future__ import annotations

from collections.abc import Callable

from broker.bmq.core.messages import Message
from broker.bmq.queue.queue import App, Queue
from broker.bmq.relay.pending_work import Actions, Forgetting
from broker.bmq.relay.takeover import Inherited
from broker.bmq.relay.upstream import Upstream

__all__ = ["Unsettled"]


class Unsettled:
    """The unfinished work of one queue. `found` is called with `upstream`, the next one, when the work is done.

    `hold` is that of `Inherited`.
    """

    def __init__(self, queue: Queue, hold: Callable[[App, Message], None], found: Callable[[Upstream], None]) -> None:
        self.forgetting = Forgetting(queue, self._settled)
        self.inherited = Inherited(queue, hold, self._settled)
        self.later = Actions(queue)
        self.upstream: Upstream | None = None
        self._found = found

    @property
    def is_busy(self) -> bool:
        """Return True if messages are to be discarded or taken over."""
        return bool(self.forgetting.bits or self.inherited.held)

    def _settled(self) -> None:
        """Continue after all messages, or all of one app, are discarded or taken over."""
        upstream = self.upstream
        if upstream is not None and not self.is_busy:
            self.upstream = None
            self._found(upstream)
