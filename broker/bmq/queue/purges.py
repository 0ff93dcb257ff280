# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Purges: removal of all messages of a queue, or of all that one app has not confirmed, at once.

One record covers all of them, and in memory the queue or the app starts empty. The old objects are freed in slices.
Until then the queue still knows the GUIDs of purged messages (`History.bury`), and reserves the app's old bit
(`Queue.ghosts`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from itertools import chain, islice
from typing import Any, Final

from broker.bmq.core.messages import Full, Message
from broker.bmq.core.redelivery import Returning
from broker.bmq.core.thrown import THROWN_PER_UNIT, Discarded, throw_away
from broker.bmq.core.work import Task
from broker.bmq.queue.backlog import Backlog, Part
from broker.bmq.queue.queue import Queue, Waiting
from broker.bmq.queue.routing import App
from broker.bmq.store.chunked import Chunked
from broker.common.faults import Change
from formats.bmq.codes import AckStatus

__all__ = ["abandon", "first_of", "purge", "purge_app", "strip", "take_all", "throw_away"]

# A record of an app's purge names a message before which the app has none. The search for it is limited to this number.
FIRST_SEARCHED_MAX: Final = 10_000


def purge(queue: Queue) -> tuple[int, int]:
    """Remove all messages of a queue; return their number and their size in bytes.

    One record states the purge, and which messages were never acknowledged; posts of these are refused in slices.
    Raises `Full`, without effect, if the purge cannot be recorded.
    """
    count, size = len(queue.messages), queue.bytes
    with Change(f"the purge of queue '{queue.uri}'", Full):
        if queue.messages:
            # They are the last: later messages do not overtake a waiting one.
            first = next(iter(queue.awaiting), None)
            queue.log.purge(first=None if first is None else queue.messages[first], awaiting=queue.awaiting)
            take_all(queue)
    return count, size


def take_all(queue: Queue) -> None:
    messages, refused = queue.messages, queue.awaiting
    queue.statistics.observe(len(messages), queue.usage.bytes)
    queue.log.release(sum(app.messages for app in queue.apps.values()) + sum(queue.ghosts.values()))
    for bit in queue.ghosts:
        queue.ghosts[bit] = 0
    queue.usage.remove(queue.usage.bytes, len(messages))
    queue.messages, queue.awaiting = Backlog(), Chunked()
    queue.log.holds(queue.messages)
    thrown = [container for app in queue.apps.values() for container in _empty(app)]
    queue.work.start(_clear_away(queue, messages, refused, thrown))


def _empty(app: App) -> list[Discarded]:
    app.statistics.observe(app.messages, app.bytes)
    app.messages = app.bytes = 0
    thrown: list[Discarded] = [app.pending, app.redelivery, *app.aside.chunks, *app.attempts.chunks]
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
            subscription.clear()
    return thrown


class _Remembered(Container[bytes]):
    """The purged messages without refused ones, which may be posted again."""

    def __init__(self, messages: Backlog, refused: Chunked[Waiting]) -> None:
        self._messages = messages
        self._refused = refused

    def __contains__(self, guid: object) -> bool:
        return guid in self._messages and guid not in self._refused


def _clear_away(queue: Queue, messages: Backlog, refused: Chunked[Waiting], thrown: list[Discarded]) -> Task:
    work, history = queue.work, queue.history
    buried = _Remembered(messages, refused) if refused else messages
    history.bury(buried)
    for guid, posters in refused.items():
        while not work.may_go_on():
            yield
        work.left -= 1
        queue.answer(posters, guid, AckStatus.UNKNOWN)
    while messages:
        while queue.log.is_copying or not work.may_go_on():
            yield
        guids = messages.take_newest(work.left * THROWN_PER_UNIT)
        work.left -= 1 + len(guids) // THROWN_PER_UNIT
        for guid in guids:
            if guid not in refused:
                history.add(guid, queue.now.ms)
    history.unbury(buried)
    yield from throw_away(work, [*thrown, *refused.chunks])


def abandon(queue: Queue) -> None:
    thrown: list[Discarded] = [*queue.messages.clear(), *queue.awaiting.chunks]
    queue.messages, queue.awaiting = Backlog(), Chunked()
    for app in queue.apps.values():
        thrown += _empty(app)
    queue.work.start(throw_away(queue.work, thrown))


def purge_app(queue: Queue, app: App) -> tuple[int, int]:
    """Remove all messages that one app has not confirmed; return and raise like `purge`."""
    count, size = app.messages, app.bytes
    first = first_of(queue, app)
    if first is not None:
        with Change(f"the purge of queue '{queue.uri}' for app '{app.app_id}'", Full):
            queue.log.purge(app.key, first, queue.awaiting)
            strip(queue, app)
    return count, size


def first_of(queue: Queue, app: App) -> Message | None:
    """Return the oldest message that an app has not confirmed, or an older one."""
    message = None
    if app.messages:
        for message in islice(queue.messages.peek(), FIRST_SEARCHED_MAX):
            if message.outstanding & app.bit:
                break
    # Not a copy: a rollover may come first, and sets the messages' positions.
    return None if message is None else queue.messages[message.guid]


def strip(queue: Queue, app: App) -> None:
    """Release all messages that an app has not confirmed, after a recorded purge.

    The app gets another bit at once; messages that no other app wants are removed in slices.
    """
    if not app.messages:
        return
    old = app.bit
    queue.ghosts[old] = app.messages
    app.bit = queue.free_bit()
    task = _strip(queue, old, queue.awaiting.chunks, _empty(app))
    queue.apps_changed()
    if queue.work.start(task):
        queue.log.begin_purge(task)


def _strip(queue: Queue, bit: int, awaiting: list[dict[bytes, Waiting]], containers: list[Discarded]) -> Task:
    work = queue.work
    held = chain.from_iterable([_take_out(queue, each) for each in containers])
    for message in chain(_of_awaiting(queue, awaiting), held):
        while not work.may_go_on():
            yield
        if queue.delivery.is_over:
            return
        work.left -= 1
        # It may have been removed in the meantime, alone or with the queue's other messages.
        if message is None or not message.outstanding & bit or queue.messages.get(message.guid) is not message:
            continue
        queue.forget_ghost(message, bit)
    del queue.ghosts[bit]


def _of_awaiting(queue: Queue, chunks: list[dict[bytes, Waiting]]) -> Iterator[Message | None]:
    """Yield the messages that wait for copies; None for each that has been removed or replicated in the meantime.

    The keys are copied one chunk at a time.
    """
    for chunk in chunks:
        yield from map(queue.messages.get, list(chunk))


def _take_out(queue: Queue, container: Discarded) -> Iterator[Message | None]:
    """Yield the messages of a container while emptying it; None for each other item."""
    if isinstance(container, Returning):
        yield from container
        return
    for _ in range(len(container)):
        value: Any = container.popleft() if isinstance(container, deque) else container.popitem()[1]
        message = value[0] if isinstance(value, tuple) else value
        if isinstance(message, Part):
            # Otherwise all of them have been removed.
            if message.home is queue.messages:
                part = list(message.unpack().values())
                message.let_go()
                yield from part
            continue
        yield message if isinstance(message, Message) else None
