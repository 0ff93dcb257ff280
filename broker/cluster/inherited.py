"""Taking over of consumers' unconfirmed messages after the root of their queue has moved, in slices.

The consumers join the new queue at once, with the room that they have left. Their messages are set aside and come back
in slices, and until then the app delivers nothing (`broker.core.delivery.Delivery.begin_with`): posts wait in their
order after existing messages. Each message goes in one move from where it is to the consumer that has it. So a confirm
that comes between two slices finds it in one place or the other, and messages that a leaving consumer has not got back
go to others: at a root they still wait, and a relay's next upstream sends them again. They count as delivered once
less in that case.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.core.delivery import release
from broker.core.messages import Message
from broker.core.purges import throw_away
from broker.core.queue import App, Queue, Stream, Subscription
from broker.core.work import Task
from broker.store.chunked import Chunked

__all__ = ["Inherited", "find_held", "let_go", "set_aside"]

Unconfirmed = Chunked[tuple[Message, Subscription]]


def set_aside(app: App, before: dict[Stream, Unconfirmed]) -> dict[Stream, Unconfirmed]:
    """Take the consumers' messages of an app from them; some may be set aside from `before`."""
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
    """Release messages from consumers' limits."""
    while held and not queue.delivery.is_over:
        while not queue.work.may_go_on():
            yield
        queue.work.left -= 1
        message, subscription = held.popitem()[1]
        release(subscription, message)


def find_held(queue: Queue, app: App, held: dict[Stream, Unconfirmed]) -> Task:
    """Give the consumers of an app at a root, with restored messages, those that they hold.

    They mostly have the first ones: the others are not examined.
    """
    work, pending = queue.work, app.pending
    while held and pending and app.pending is pending:
        if not work.may_go_on():
            yield
            if queue.delivery.is_over:
                return
            for stream in [each for each in held if each not in app.streams]:
                # Others get messages that it has not got back.
                del queue.delivery.inherited[stream]
                _throw(queue, held.pop(stream))
            continue
        work.left -= 1
        message = pending.popleft()
        holder = next((each for each in held if message.guid in held[each]), None)
        if holder is not None:
            was, subscription = held[holder][message.guid]
            del held[holder][message.guid]
            if not held[holder]:
                del held[holder]
            if message.outstanding & app.bit:
                holder.unconfirmed.add(message.guid, (message, subscription))
            else:
                release(subscription, was)
        elif message.outstanding & app.bit:
            app.redelivery.append(message)
    for stream in app.streams:
        queue.delivery.inherited.pop(stream, None)
    for left in held.values():
        # These messages no longer exist. A purge has given all consumers all their room.
        queue.work.start(let_go(queue, left) if app.pending is pending else throw_away(queue.work, [*left.chunks]))


def _throw(queue: Queue, left: Unconfirmed) -> None:
    queue.work.start(throw_away(queue.work, [*left.chunks]))


class Inherited:
    """The messages that a relay's consumers hold from a root that was here. `done` is called when all are taken in.

    `hold` makes a message one of the relay's. Until all are, it has no upstream, which might send them again.
    """

    def __init__(self, queue: Queue, hold: Callable[[App, Message], None], done: Callable[[], None]) -> None:
        self.held: dict[Stream, Unconfirmed] = queue.delivery.inherited
        self._queue = queue
        self._hold = hold
        self._done = done

    def begin(self, before: dict[Stream, Unconfirmed]) -> None:
        """Begin with the new consumers; the root itself may not have given them back some of their messages yet."""
        for app in self._queue.apps.values():
            held = set_aside(app, before)
            if held:
                self.held.update(held)
                self._queue.delivery.begin_with(app, self._take_all(held))

    def _take_all(self, held: dict[Stream, Unconfirmed]) -> Task:
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
        self._done()

    def take(self, guid: bytes) -> None:
        """Take a message in before its turn."""
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

    def leave(self, stream: Stream) -> None:
        """Drop the messages of a leaving consumer, which the next upstream sends again."""
        before = self.held.pop(stream, None)
        if before is not None:
            _throw(self._queue, before)

    def purge(self) -> None:
        """Drop all messages of the purged queue."""
        for stream in list(self.held):
            self.leave(stream)
