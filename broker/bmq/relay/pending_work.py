# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Discarding of a relay's waiting messages in slices, and the actions that must wait for that.

A lost upstream leaves messages that no consumer has; the next one sends them again. They leave the apps at once and are
discarded one by one. Until then the relay gets no other upstream, whose repeated messages it could not distinguish from
these, and keeps posts and confirms.

Messages that no consumer of an app wants or may receive any longer are filtered out when messages are returned (see
`broker.bmq.core.redelivery`). Until all are in order again, the app delivers nothing, and the upstream, which may
resend a message at once, gets no news of its consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.bmq.core.messages import Message
from broker.bmq.core.redelivery import Lot
from broker.bmq.core.work import Task
from broker.bmq.queue.queue import App, Queue
from broker.bmq.relay.takeover import Takeover
from broker.bmq.relay.upstream import Upstream

__all__ = ["DelayedActions", "Discards", "PendingWork"]


class Discards:
    """The messages that one queue discards. `done` is called when a task has discarded the last of them."""

    def __init__(self, queue: Queue, done: Callable[[], None]) -> None:
        self.bits: list[int] = []  # bits of the apps with messages left to discard
        self._queue = queue
        self._done = done

    def forget_waiting(self, app: App) -> None:
        """Discard an app's waiting messages that no consumer has; later arrivals are kept."""
        lots = app.take_waiting()
        if lots:
            self.bits.append(app.bit)
            self._queue.work.start(self._forget(app, app.bit, lots))

    def _forget(self, app: App, bit: int, lots: list[Lot]) -> Task:
        queue = self._queue
        work = queue.work
        while lots:
            lot = lots[-1]
            while not work.may_go_on():
                yield
            for _ in range(min(len(lot), work.left)):
                held = lot.pop() if isinstance(lot, deque) else lot.popitem()[1]
                message = held[0] if isinstance(held, tuple) else held
                work.left -= 1
                # It may have been removed in the meantime, alone or with the queue's other messages.
                if not message.outstanding & bit or queue.messages.get(message.guid) is not message:
                    continue
                if app.bit == bit:
                    app.forget(message)
                else:
                    message.outstanding &= ~bit
                if not message.outstanding:
                    queue.gone((message,))
            if not lot:
                lots.pop()
        self.bits.remove(bit)
        self._done()


class DelayedActions:
    """Actions for apps of one queue, taken in order once no messages are being returned to the app."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: dict[App, deque[Callable[[], None]]] = {}

    def add(self, app: App, action: Callable[[], None]) -> None:
        waiting = self._waiting.get(app)
        if waiting is not None:
            waiting.append(action)
        elif self._queue.delivery.is_settled(app):
            action()
        else:
            self._waiting[app] = deque([action])
            self._queue.work.add(self._wait(app))

    def _wait(self, app: App) -> Task:
        delivery = self._queue.delivery
        while app in self._waiting and not (delivery.is_settled(app) or delivery.is_over):
            yield
        self._act(app)

    def finish(self) -> None:
        for app in list(self._waiting):
            self._act(app)

    def _act(self, app: App) -> None:
        waiting = self._waiting.pop(app, None)
        while waiting:
            waiting.popleft()()


class PendingWork:
    """Work that a queue must finish before an upstream may send it messages, or gets news of its consumers.

    Then `found` is called with `upstream`, the next one; `hold` is passed to `Takeover`.
    """

    def __init__(self, queue: Queue, hold: Callable[[App, Message], None], found: Callable[[Upstream], None]) -> None:
        self.forgetting = Discards(queue, self._settled)
        self.inherited = Takeover(queue, hold, self._settled)
        self.later = DelayedActions(queue)
        self.upstream: Upstream | None = None
        self._found = found

    @property
    def is_busy(self) -> bool:
        return bool(self.forgetting.bits or self.inherited.held)

    def _settled(self) -> None:
        upstream = self.upstream
        if upstream is not None and not self.is_busy:
            self.upstream = None
            self._found(upstream)
