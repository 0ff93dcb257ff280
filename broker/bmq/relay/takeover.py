# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Takeover of consumers' unconfirmed messages, in slices, after the root of their queue has moved.

The consumers join the new queue at once, with their remaining room. Their messages are set aside and returned in
slices; until then the app delivers nothing (`broker.bmq.queue.delivery.Delivery.begin_with`). Each message moves in one
operation, with its attempts, so a confirm between two slices finds it in its old place or in the new one. Messages of a
consumer that leaves before go to others: at a root they still wait, and a relay's next upstream sends them again. Their
delivery count is then one lower.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.bmq.core.messages import Message
from broker.bmq.core.work import Task
from broker.bmq.queue.backlog import Part
from broker.bmq.queue.delivery import release
from broker.bmq.queue.purges import throw_away
from broker.bmq.queue.queue import App, Queue, Stream, Subscription
from broker.bmq.store.chunked import Chunked

__all__ = ["Takeover", "find_held", "let_go", "set_aside", "throw"]

Unconfirmed = Chunked[tuple[Message, Subscription]]


def set_aside(app: App, before: dict[Stream, Unconfirmed]) -> dict[Stream, Unconfirmed]:
    """Remove the messages of an app from its consumers; some may still be set aside from `before`."""
    held: dict[Stream, Unconfirmed] = {}
    for stream in app.streams:
        chunks = stream.unconfirmed.chunks
        if stream in before:
            chunks = [*chunks, *before[stream].chunks]
        if any(chunks):
            held[stream] = Chunked()
            held[stream].older = [chunk for chunk in chunks if chunk]
            stream.unconfirmed = Chunked()
    return held


def let_go(queue: Queue, held: Unconfirmed) -> Task:
    while held and not queue.delivery.is_over:
        while not queue.work.may_go_on():
            yield
        queue.work.left -= 1
        message, subscription = held.popitem()[1]
        release(subscription, message)


def find_held(queue: Queue, app: App, held: dict[Stream, Unconfirmed], attempts: Chunked[int]) -> Task:
    """Return the messages that the consumers of an app hold to them, at a root with restored messages.

    `attempts` has the remaining delivery attempts of messages, by GUID. Consumers mostly hold the first messages: the
    rest is not examined.
    """
    work, pending = queue.work, app.pending
    while held and pending and app.pending is pending:
        if not work.may_go_on():
            yield
            if queue.delivery.is_over:
                return
            for stream in [each for each in held if each not in app.streams]:
                # Other consumers get the messages not returned to it.
                del queue.delivery.inherited[stream]
                throw(queue, held.pop(stream))
            continue
        if isinstance(pending[0], Part):
            app.unfold()
            continue
        work.left -= 1
        message = pending.popleft()
        assert isinstance(message, Message)
        holder = next((each for each in held if message.guid in held[each]), None)
        if holder is not None:
            was, subscription = held[holder][message.guid]
            del held[holder][message.guid]
            if not held[holder]:
                del held[holder]
            if message.outstanding & app.bit:
                holder.unconfirmed.add(message.guid, (message, subscription))
                _move_attempts(attempts, app, message.guid)
            else:
                release(subscription, was)
        elif message.outstanding & app.bit:
            app.redelivery.append(message)
    for stream in app.streams:
        queue.delivery.inherited.pop(stream, None)
    throw(queue, attempts)
    for left in held.values():
        # These messages no longer exist. A purge has freed all the consumers' room.
        queue.work.start(let_go(queue, left) if app.pending is pending else throw_away(queue.work, [*left.chunks]))


def throw(queue: Queue, left: Unconfirmed | Chunked[int]) -> None:
    if left:
        queue.work.start(throw_away(queue.work, [*left.chunks]))


def _move_attempts(before: Chunked[int], app: App, guid: bytes) -> None:
    left = before.take(guid) if before else None
    if left is not None:
        app.attempts[guid] = left


class Takeover:
    """The messages that a relay's consumers hold from a former root here. `done` is called when all are taken over.

    `hold` adds a message to the relay. Until all are added the relay has no upstream, which might send them again.
    """

    def __init__(self, queue: Queue, hold: Callable[[App, Message], None], done: Callable[[], None]) -> None:
        self.held: dict[Stream, Unconfirmed] = queue.delivery.inherited
        self._queue = queue
        self._hold = hold
        self._done = done
        self._attempts: dict[App, Chunked[int]] = {}  # until all messages of the app are taken over

    def begin(self, before: dict[Stream, Unconfirmed], attempts: dict[str, Chunked[int]]) -> None:
        """Begin with the new consumers, whose messages the root may not have returned yet.

        `attempts` has the remaining delivery attempts at the root, by app id and GUID.
        """
        for app in self._queue.apps.values():
            held = set_aside(app, before)
            left = attempts.get(app.app_id, Chunked())
            if held:
                self.held.update(held)
                self._attempts[app] = left
                self._queue.delivery.begin_with(app, self._take_all(app, held))
            else:
                throw(self._queue, left)

    def _take_all(self, app: App, held: dict[Stream, Unconfirmed]) -> Task:
        work = self._queue.work
        for stream, before in held.items():
            # Oldest first: that is their order from now on.
            for chunk in before.chunks:
                for guid in list(chunk):
                    while not work.may_go_on():
                        yield
                    if self.held.get(stream) is not before:
                        break
                    work.left -= 1
                    self._take(stream, guid)
        throw(self._queue, self._attempts.pop(app))
        self._done()

    def take(self, guid: bytes) -> None:
        for stream in list(self.held):
            self._take(stream, guid)

    def _take(self, stream: Stream, guid: bytes) -> None:
        before = self.held[stream]
        entry = before.take(guid)
        if not before:
            del self.held[stream]
        if entry is None:
            return
        app, known = stream.app, self._queue.messages.get(guid)
        message = entry[0] if known is None else known
        if known is None:
            message.outstanding = 0
        if message.outstanding & app.bit:
            # Two consumers had it.
            release(entry[1], message)
        else:
            self._hold(app, message)
            stream.unconfirmed.add(guid, entry if message is entry[0] else (message, entry[1]))
            _move_attempts(self._attempts[app], app, guid)

    def leave(self, stream: Stream) -> None:
        """Drop a leaving consumer's messages, which the next upstream sends again."""
        before = self.held.pop(stream, None)
        if before is not None:
            throw(self._queue, before)

    def purge(self) -> None:
        for stream in list(self.held):
            self.leave(stream)
