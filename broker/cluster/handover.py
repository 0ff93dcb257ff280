"""What becomes of a queue's clients when its root moves: from this node to another, or to this one.

Their handles stay, and none of them notices: what a consumer holds unconfirmed it may still confirm, and a post that
nobody has acknowledged goes to the new root, which knows it again by its GUID.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from crc32c import crc32c

from broker.cluster.inherited import find_held, let_go, set_aside
from broker.cluster.posts import Unacknowledged
from broker.cluster.relay import RelayQueue
from broker.core.handles import Handle
from broker.core.messages import PENDING, Buffer, Content, Full, Message, Poster
from broker.core.purges import abandon
from broker.core.queue import Queue, Stream
from broker.store.chunked import Chunked
from formats.codes import AckStatus

__all__ = ["confirm_all", "retire", "to_relay", "to_root"]

log = logging.getLogger("broker.queue")

# Who numbered the shapes of properties in posts that are handed over: no client, and no broker.
HANDED_OVER = -(1 << 31)


class Nobody:
    """The sink of a consumer that is gone."""

    ready = False
    takes_all = False
    description = "nobody"

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None:
        """Nothing is sent."""

    def fail(self, error: Exception) -> None:
        """Nothing is to be ended."""


def to_relay(old: Queue, new: RelayQueue, handles: Sequence[Handle]) -> None:
    """This node is the root no longer. The messages must still be in the store; `new` has no upstream yet."""
    posts = list(_posts(old, new, handles))
    _move(old, new, handles)
    new.follow(old)
    for handle in handles:
        new.adopt(handle)
    new.inherit(old.delivery.inherited)
    if new.openings.writers:
        for guid, content, posters in posts:
            new.posts.adopt(guid, content, posters)
    retire(old)


def _posts(
    old: Queue, new: RelayQueue, handles: Sequence[Handle]
) -> Iterator[tuple[bytes, Content, list[tuple[Poster, int, int]]]]:
    """Messages that were taken but are not known to be kept, to be posted anew for those here who will hear of it.

    Other members do that themselves, and whoever has left posts it again: another primary may know it already.
    """
    writers = {id(handle.sink) for handle in handles if handle.writes}

    def here(posters: list[tuple[Poster, int, int]]) -> list[tuple[Poster, int, int]]:
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
    """The content of a message, to be posted anew; None if its payload has rotted."""
    data = bytes(old.log.read(message))
    if crc32c(data) != message.checksum:
        return None
    schema_id = new.schemas.translate(HANDED_OVER, message.schema_id)
    return Content(data, message.checksum, message.compression, message.has_properties, schema_id)


def retire(queue: Queue) -> None:
    """Nothing is in it any more."""
    queue.usage.remove(queue.usage.bytes, queue.usage.messages)
    queue.consumption.configure(0)
    queue.delivery.end()
    queue.held.clear()
    for app in queue.apps.values():
        app.streams.clear()
    abandon(queue)


def to_root(old: RelayQueue, new: Queue, handles: Sequence[Handle]) -> None:
    """This node is the root now, and the messages are restored."""
    old.move()
    # First, while nobody is there to be sent what the next of them confirms.
    confirm_all(new, old.confirms.take())
    old.delivery.end()
    _move(old, new, handles)
    inherited = dict(old.delivery.inherited)
    old.delivery.inherited.clear()
    for app in new.unregistered.values():
        for stream in app.streams:
            # They had it from an app that is no more; nobody waits for their confirms.
            held, stream.unconfirmed = stream.unconfirmed, Chunked()
            new.work.start(let_go(new, held))
    for app in new.apps.values():
        holds = set_aside(app, inherited)
        if holds:
            new.delivery.inherited.update(holds)
            new.delivery.begin_with(app, find_held(new, app, holds))
    for guid, put in old.unacknowledged.items():
        _post(new, guid, put)
    for app in new.apps.values():
        new.deliver(app)
    old.hand_over(new)


def confirm_all(root: Queue, confirms: Iterable[tuple[bytes, str]]) -> None:
    """Hops were to say that apps are done with messages; the root, restored, is here."""
    for guid, app_id in confirms:
        if app_id in root.apps:
            root.confirm(Stream(root.apps[app_id], Nobody(), 0, 0), guid)


def _post(queue: Queue, guid: bytes, put: Unacknowledged) -> None:
    content = put.content._replace(schema_id=queue.schemas.translate(HANDED_OVER, put.content.schema_id))
    status = AckStatus.SUCCESS
    try:
        if queue.post(guid, content) is PENDING:
            for poster, queue_id, correlation_id in put.posters:
                queue.acknowledge_later(guid, poster, queue_id, correlation_id)
            return
    except Full as full:
        status = AckStatus[full.status]
    for poster, queue_id, correlation_id in put.posters:
        poster.acknowledge(queue_id, correlation_id, guid, status)


def _move(old: Queue, new: Queue, handles: Sequence[Handle]) -> None:
    """Handles of the one are handles of the other; what consumers hold unconfirmed is as it was."""
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
            # The other numbers the shapes of properties anew.
            stream.schemas_sent.clear()
            stream.last_sent = None
            apps.add(stream.app)
    for app in apps:
        new.rebuild(app)
