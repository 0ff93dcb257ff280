"""Purges: all messages of a queue go at once, or all that one app has not confirmed.

One record stands for all of them, and so do a few assignments: the queue or the app begins anew with nothing. What is
left over is cleared away in slices. Until then the queue still knows the GUIDs of what was purged (`History.bury`), and
the bit that the app had is nobody else's (`Queue.ghosts`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, MutableMapping
from itertools import chain, islice
from typing import Any

from broker.core.faults import Change
from broker.core.messages import Full, Message
from broker.core.queue import Queue
from broker.core.redelivery import Returning
from broker.core.routing import App
from broker.core.work import Task, Work
from broker.store.chunked import Chunked
from formats.disk.journal import DeletionRecordFlag

__all__ = ["abandon", "first_of", "purge", "purge_app", "strip", "take_all", "throw_away"]

# So many things are thrown away for a unit of work.
THROWN_PER_UNIT = 8

# A record of an app's purge names a message before which there is none of the app's. It is looked for among so many.
FIRST_SEARCHED_MAX = 10_000

Container = MutableMapping[Any, Any] | deque[Message] | Returning


def purge(queue: Queue) -> tuple[int, int]:
    """Remove all messages; how many, and their bytes.

    Those that were never acknowledged go one by one, so that their records say so; the others with one record. `Full`,
    none of these removed, if that cannot be recorded.
    """
    count, size = len(queue.messages), queue.bytes
    with Change(f"the purge of queue '{queue.uri}'", Full):
        for message in [queue.messages[guid] for guid in queue.awaiting]:
            queue.drop(message, DeletionRecordFlag.NO_SC_QUORUM)
        if queue.messages:
            queue.log.purge()
            take_all(queue)
    return count, size


def take_all(queue: Queue) -> None:
    """All messages of a queue are gone, which a purge has recorded."""
    messages = queue.messages
    queue.statistics.observe(len(messages), queue.usage.bytes)
    queue.log.release(sum(app.messages for app in queue.apps.values()) + sum(queue.ghosts.values()))
    for bit in queue.ghosts:
        queue.ghosts[bit] = 0
    queue.usage.remove(queue.usage.bytes, len(messages))
    queue.messages = Chunked()
    queue.log.holds(queue.messages)
    thrown = [container for app in queue.apps.values() for container in _empty(app)]
    queue.history.bury(messages)
    queue.work.start(_clear_away(queue, messages, thrown))


def _empty(app: App) -> list[Container]:
    """An app begins anew: it waits for nothing, and its consumers hold nothing; what there was."""
    app.statistics.observe(app.messages, app.bytes)
    app.messages = app.bytes = 0
    thrown: list[Container] = [app.pending, app.redelivery, *app.aside.chunks, *app.attempts.chunks]
    if app.returning is not None:
        thrown.append(app.returning)
    app.pending, app.redelivery, app.returning, app.aside, app.attempts = deque(), deque(), None, Chunked(), Chunked()
    for group in {id(group): group for group in chain(app.groups.values(), app.sorted_by.values())}.values():
        thrown.append(group.waiting)
        group.waiting = deque()
        group.blocked = False
    for stream in app.streams:
        thrown += stream.unconfirmed.chunks
        stream.unconfirmed = Chunked()
        stream.former = []
        for subscription in stream.subscriptions:
            subscription.messages_left, subscription.bytes_left = subscription.messages_max, subscription.bytes_max
    return thrown


def _clear_away(queue: Queue, messages: Chunked[Message], thrown: list[Container]) -> Task:
    """What was purged is remembered as gone, and its memory is given back."""
    work, history = queue.work, queue.history
    while messages:
        while queue.log.is_copying or not work.may_go_on():
            yield
        count = min(len(messages), work.left * THROWN_PER_UNIT)
        work.left -= 1 + count // THROWN_PER_UNIT
        for _ in range(count):
            history.add(messages.popitem()[0], queue.now.ms)
    history.unbury(messages)
    yield from throw_away(work, thrown)


def throw_away(work: Work, thrown: list[Container]) -> Task:
    """To let go of a million objects takes its time, too."""
    while thrown:
        container = thrown[-1]
        if not isinstance(container, Returning):
            take = container.pop if isinstance(container, deque) else container.popitem
            while container:
                while not work.may_go_on():
                    yield
                count = min(len(container), work.left * THROWN_PER_UNIT)
                work.left -= 1 + count // THROWN_PER_UNIT
                for _ in range(count):
                    take()
        thrown.pop()


def abandon(queue: Queue) -> None:
    """Nothing is in a queue any more: somebody else has its messages."""
    thrown: list[Container] = [*queue.messages.chunks]
    queue.messages = Chunked()
    for app in queue.apps.values():
        thrown += _empty(app)
    queue.work.start(throw_away(queue.work, thrown))


def purge_app(queue: Queue, app: App) -> tuple[int, int]:
    """Remove all that one app has not confirmed; how many messages, and their bytes. `Full` as in `purge`."""
    count, size = app.messages, app.bytes
    first = first_of(queue, app)
    if first is not None:
        with Change(f"the purge of queue '{queue.uri}' for app '{app.app_id}'", Full):
            queue.log.purge(app.key, first)
            strip(queue, app)
    return count, size


def first_of(queue: Queue, app: App) -> Message | None:
    """The oldest message that an app has not confirmed, or one that is older; None if there is none."""
    message = None
    if app.messages:
        for message in islice(queue.messages.values(), FIRST_SEARCHED_MAX):
            if message.outstanding & app.bit:
                break
    return message


def strip(queue: Queue, app: App) -> None:
    """An app is done with all that it has not confirmed, which a purge has recorded.

    It gets another bit, so that it is so at once; what nobody else wants is removed in slices.
    """
    if not app.messages:
        return
    old = app.bit
    queue.ghosts[old] = app.messages
    app.bit = queue.free_bit()
    awaiting = [message for guid in queue.awaiting if (message := queue.messages[guid]).outstanding & old]
    containers = [deque(awaiting), *_empty(app)]
    queue.apps_changed()
    task = _strip(queue, old, containers)
    if queue.work.start(task):
        queue.log.begin_purge(task)


def _strip(queue: Queue, bit: int, containers: list[Container]) -> Task:
    work = queue.work
    for message in chain.from_iterable(map(_take_out, containers)):
        while not work.may_go_on():
            yield
        if queue.delivery.is_over:
            return
        work.left -= 1
        # It may have gone in the meantime, with the queue's other messages or by itself.
        if message is None or not message.outstanding & bit or queue.messages.get(message.guid) is not message:
            continue
        queue.ghosts[bit] -= 1
        if message.outstanding == bit:
            queue.record_removal(message)
            message.outstanding = 0
            queue.gone(message)
        else:
            queue.log.release(1)
            message.outstanding &= ~bit
    del queue.ghosts[bit]


def _take_out(container: Container) -> Iterator[Message | None]:
    """The messages of a container, which is emptied; None for each other thing in it."""
    if isinstance(container, Returning):
        yield from container
        return
    values: Iterable[Any]
    if isinstance(container, deque):
        values = (container.popleft() for _ in range(len(container)))
    else:
        values = (container.popitem()[1] for _ in range(len(container)))
    for value in values:
        message = value[0] if isinstance(value, tuple) else value
        yield message if isinstance(message, Message) else None
