# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Handover of a queue's clients when its root moves from this node to another, or to this one.

Clients do not notice the move, and keep their handles: a consumer may still confirm its unconfirmed messages, and an
unacknowledged post is sent to the new root, which recognises a duplicate by its GUID.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from crc32c import crc32c

from broker.bmq.core.messages import PENDING, Buffer, Content, Full, Message, MessagePoster
from broker.bmq.queue.handles import Handle
from broker.bmq.queue.purges import abandon
from broker.bmq.queue.queue import Queue, Stream
from broker.bmq.relay.posts import Unacknowledged
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.takeover import find_held, let_go, set_aside, throw
from broker.bmq.store.chunked import Chunked
from formats.bmq.codes import AckStatus

__all__ = ["confirm_all", "retire", "to_relay", "to_root"]

log: Final = logging.getLogger("broker.queue")

# The poster's number for schemas of properties in posts that are handed over: different from all clients and brokers.
HANDED_OVER: Final = -(1 << 31)


class Nobody:
    """The sink of a disconnected consumer."""

    ready = False
    has_room = False
    takes_all = False
    description = "nobody"

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None:
        """Send nothing."""

    def takes_run(self, size: int) -> bool:
        return False

    def push_run(
        self, queue_id: int, messages: Sequence[Message], payloads: Sequence[Buffer], subscription_id: int
    ) -> None:
        """Send nothing."""

    def fail(self, error: Exception) -> None:
        """End nothing."""


def to_relay(old: Queue, new: RelayQueue, handles: Sequence[Handle]) -> None:
    """Turn a root queue into a relay. The messages must still be in the store; `new` has no upstream yet."""
    posts = list(_posts(old, new, handles))
    attempts = _move(old, new, handles)
    new.follow(old)
    for handle in handles:
        new.adopt(handle)
    new.inherit(old.delivery.inherited, attempts)
    if new.opens.writers:
        for guid, content, posters in posts:
            new.posts.adopt(guid, content, posters)
    retire(old)


def _posts(
    old: Queue, new: RelayQueue, handles: Sequence[Handle]
) -> Iterator[tuple[bytes, Content, list[tuple[MessagePoster, int, int]]]]:
    """Yield accepted messages that are not known to be stored, to be posted again for local posters.

    Other members post theirs themselves, and disconnected posters retry: another primary may have them already.
    """
    writers = {id(handle.sink) for handle in handles if handle.writes}

    def here(posters: list[tuple[MessagePoster, int, int]]) -> list[tuple[MessagePoster, int, int]]:
        return [each for each in posters if id(each[0]) in writers]

    for guid, posters in old.awaiting.items():
        if posters and not here(posters):
            continue
        content = _content(old, new, old.messages[guid])
        if content is not None:
            yield guid, content, here(posters)
            continue
        log.error(
            "queue '%s': the payload of message %s, which waits for copies, does not match its checksum: refused",
            old.uri,
            guid.hex().upper(),
        )
        old.answer(here(posters), guid, AckStatus.UNKNOWN)
    for guid, (content, posters) in old.held.items():
        if not posters or here(posters):
            schema_id = new.schemas.translate(HANDED_OVER, content.schema_id)
            yield guid, content._replace(schema_id=schema_id), here(posters)


def _content(old: Queue, new: RelayQueue, message: Message) -> Content | None:
    """Return the content of a message, to be posted again; None if its payload is corrupted."""
    data = bytes(old.log.read(message))
    if crc32c(data) != message.checksum:
        return None
    schema_id = new.schemas.translate(HANDED_OVER, message.schema_id)
    return Content(data, message.checksum, message.compression, message.has_properties, schema_id)


def retire(queue: Queue) -> None:
    queue.usage.remove(queue.usage.bytes, queue.usage.messages)
    queue.consumption.configure(0)
    queue.delivery.end()
    queue.held.clear()
    for app in queue.apps.values():
        app.streams.clear()
    abandon(queue)


def to_root(old: RelayQueue, new: Queue, handles: Sequence[Handle]) -> None:
    """Turn a relay into a root queue, whose messages are restored."""
    old.move()
    # First, while there are no consumers that could receive messages confirmed later in the list.
    confirm_all(new, old.confirms.take())
    old.delivery.end()
    attempts = _move(old, new, handles)
    inherited = dict(old.delivery.inherited)
    old.delivery.inherited.clear()
    for app in new.unregistered.values():
        for stream in app.streams:
            # They had it from a removed app; their confirms do not matter.
            held, stream.unconfirmed = stream.unconfirmed, Chunked()
            new.work.start(let_go(new, held))
    for app in new.apps.values():
        holds = set_aside(app, inherited)
        left = attempts.get(app.app_id, Chunked())
        if holds:
            new.delivery.inherited.update(holds)
            new.delivery.begin_with(app, find_held(new, app, holds, left))
        else:
            throw(new, left)
    for guid, put in old.unacknowledged.items():
        _post(new, guid, put)
    for app in new.apps.values():
        new.deliver(app)
    old.hand_over(new)


def confirm_all(root: Queue, confirms: Iterable[tuple[bytes, str]]) -> None:
    for guid, app_id in confirms:
        if app_id in root.apps:
            root.confirm(Stream(root.apps[app_id], Nobody(), 0, 0), (guid,))


def _post(queue: Queue, guid: bytes, put: Unacknowledged) -> None:
    content = put.content._replace(schema_id=queue.schemas.translate(HANDED_OVER, put.content.schema_id))
    status = AckStatus.SUCCESS
    try:
        if queue.post_one(guid, content) is PENDING:
            for poster, queue_id, correlation_id in put.posters:
                queue.acknowledge_later(guid, poster, queue_id, correlation_id)
            return
    except Full as full:
        status = AckStatus[full.status]
    for poster, queue_id, correlation_id in put.posters:
        poster.acknowledge(queue_id, correlation_id, guid, status)


def _move(old: Queue, new: Queue, handles: Sequence[Handle]) -> dict[str, Chunked[int]]:
    """Move handles from one queue to the other; consumers' unconfirmed messages are unchanged.

    Returns the attempts left at each app's rejected messages.
    """
    apps = set()
    for handle in handles:
        assert handle.queue is old
        handle.queue = new
        old.writers -= handle.writes
        new.writers += handle.writes
        for stream in handle.streams.values():
            stream.app.streams.remove(stream)
            stream.app = new.app(stream.app.app_id)
            stream.app.streams.append(stream)
            # The other queue numbers schemas of properties differently.
            stream.schemas_sent.clear()
            stream.last_sent = None
            apps.add(stream.app)
    for app in apps:
        new.rebuild(app)
    attempts = {}
    for app in old.apps.values():
        attempts[app.app_id], app.attempts = app.attempts, Chunked()
    return attempts
