"""Whole events at the queue that stores them: the common case, done for many messages at once.

The files and the messages sent are the same, byte for byte, as if each message were taken by itself; only where
`EVENT_BYTES_SOFT` of acknowledgments wait to be sent, these may be divided into events elsewhere. All checks come
before the first write; an event with a rare or irregular message is left to the code for single messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.bmq.core.messages import Content, Message, Poster
from broker.bmq.partition.message_logs import FileLog
from broker.bmq.queue.handles import Handle
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.routing import NEVER_MS, App, Subscription
from broker.bmq.session.outbox import EVENT_BYTES_SOFT
from broker.bmq.session.session import Session
from broker.bmq.store.chunked import FULL
from broker.common.faults import Inconsistent
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.padding import WORD
from formats.bmq.wire.confirm import CONFIRM_MESSAGE, iter_confirms
from formats.bmq.wire.event import Frame
from formats.bmq.wire.push import PushFlag, append_push
from formats.bmq.wire.put import PUT_HEADER, PutFlag

__all__ = ["StoredEvents"]

# Maximum size of an event taken at once: its pushes fit one event.
EVENT_BYTES_MAX: Final = 1 << 18

_PUT_SIZE: Final = PUT_HEADER.size
_PUT_PLAIN: Final = _PUT_SIZE // WORD
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_WORDS_MASK: Final = PUT_HEADER.mask("message_words")
_ACK_REQUESTED: Final = int(PutFlag.ACK_REQUESTED)
_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES)
_PUSH_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_UNSET_GUID: Final = bytes(16)

_put: Final = PUT_HEADER.words.unpack_from
_new: Final = tuple.__new__


class Posts(NamedTuple):
    """The posts of an event, all of one queue; `size` is that of their data together."""

    guids: list[bytes]
    contents: list[Content]
    size: int


class StoredEvents:
    """Events of posts or confirms for one queue whose root is here; see `broker.bmq.node.role.Role.bulk`."""

    def puts(self, poster: Poster, number: int, handles: Mapping[int, Handle], data: memoryview, frame: Frame) -> bool:
        """Store posts, then deliver and acknowledge them. Returns False, without effect, if they need more than that.

        `number` is the poster's, for the schemas of its properties.
        """
        at, length = frame.body, frame.end - frame.body
        if not 2 * _PUT_SIZE < length <= EVENT_BYTES_MAX:
            return False
        words, _, queue_id, *_ = _put(data, at)
        handle = handles.get(queue_id)
        if (words & _WORDS_MASK) * WORD == length or handle is None or not handle.writes:
            return False
        queue, log = handle.queue, handle.queue.log
        if not isinstance(log, FileLog) or not queue.takes_events:
            return False
        posts = _posts(data, at, frame.end, queue_id)
        if posts is None or not queue.takes_all(posts.guids, posts.size):
            return False
        guids, contents, size = posts
        make_message = queue.make_message
        messages = [
            make_message(guid, len(content.data), content) for guid, content in zip(guids, contents, strict=True)
        ]
        if not log.has_room_for(messages, len(queue.apps)):
            return False
        try:
            for message in messages:
                if message.schema_id > 1:
                    message.schema_id = queue.schemas.translate(number, message.schema_id)
            log.append_all(messages, [content.data for content in contents], len(queue.apps))
            if queue.keep_all(messages, size):
                log.when_all_copied(messages, queue.await_all(messages, (poster, queue_id, 0)))
                return True
            _hand_out(queue, messages, contents, size)
            queue.statistics.acks += len(guids)
        except Exception as error:
            raise Inconsistent(f"taking messages into queue '{queue.uri}'", error) from error
        poster.acknowledge_kept(queue_id, 0, guids)
        return True

    def confirms(self, handles: Mapping[int, Handle], data: memoryview, frame: Frame) -> bool:
        """Take confirms of one consumer. Returns False, without effect, if more than that is needed."""
        if frame.end - frame.body < 2 * CONFIRM_MESSAGE.size:
            return False
        rows = list(iter_confirms(data, frame.body, frame.end))
        if len(rows) < 2:
            return False
        queue_id, _, sub_queue_id = rows[0]
        handle = handles.get(queue_id)
        stream = handle.streams.get(sub_queue_id) if handle is not None else None
        if handle is None or stream is None:
            return False
        queue, log = handle.queue, handle.queue.log
        if (
            not isinstance(log, FileLog)
            or queue.broadcast
            or not log.takes_removals
            or not _is_at_rest(stream.app)
            or any(row[0] != queue_id or row[2] != sub_queue_id for row in rows)
        ):
            return False
        newest = stream.unconfirmed.newest
        guids = {row[1] for row in rows}
        if len(guids) < len(rows) or not guids <= newest.keys():
            return False
        try:
            held = [newest.pop(row[1]) for row in rows]
            messages = [message for message, _ in held]
            queue.confirm_all(stream, held, sum([message.size for message in messages]))
            log.remove_all(messages, stream.app.key)
            queue.gone_all(messages)
        except Exception as error:
            raise Inconsistent(f"the confirmation of messages of queue '{queue.uri}'", error) from error
        return True


def _is_at_rest(app: App) -> bool:
    """Return True if confirms of an app let nothing through that waits, and have nothing else to clear."""
    return (
        app.delayed_until_ms == NEVER_MS
        and app.returning is None
        and not (app.redelivery or app.pending or app.aside or app.attempts)
    )


def _posts(data: memoryview, at: int, end: int, queue_id: int) -> Posts | None:
    """Return the posts in `data[at:end]`; None if one of them is malformed, more than plain, or of another queue."""
    guids: list[bytes] = []
    contents: list[Content] = []
    size = 0
    while at < end:
        if end - at <= _PUT_SIZE:
            return None
        words, sizes, for_id, guid, checksum, schema_id, _ = _put(data, at)
        flags = words >> 28
        body = at + _PUT_SIZE
        message_end = at + (words & _WORDS_MASK) * WORD
        if message_end > end or message_end <= body:
            return None
        padding = data[message_end - 1]
        body_end = message_end - padding
        content = data[body:body_end]
        if (
            for_id != queue_id
            or sizes & ~_ZLIB != _PUT_PLAIN
            or flags & ~_PROPERTIES != _ACK_REQUESTED
            or (schema_id and not flags & _PROPERTIES)
            or not 1 <= padding <= WORD
            or body_end <= body
            or guid == _UNSET_GUID
            or crc32c(content) != checksum
        ):
            return None
        guids.append(guid)
        contents.append(_new(Content, (content, checksum, sizes >> 5 & 7, flags & _PROPERTIES != 0, schema_id, b"")))
        size += body_end - body
        at = message_end
    return Posts(guids, contents, size)


def _hand_out(queue: Queue, messages: Sequence[Message], contents: Sequence[Content], size: int) -> None:
    """Deliver messages that were stored just now, in their order."""
    found = _only_consumer(queue, messages, size)
    if found is None:
        for message, content in zip(messages, contents, strict=True):
            queue.hand_out(message, content.data)
        return
    subscription, session = found
    stream, statistics = subscription.stream, queue.statistics
    queue_id, subscription_id = stream.queue_id, subscription.subscription_id
    stream.unconfirmed.newest.update([(message.guid, (message, subscription)) for message in messages])
    subscription.messages_left -= len(messages)
    subscription.bytes_left -= size
    stream.app.statistics.waits += len(messages)
    statistics.pushes += len(messages)
    statistics.push_bytes += size
    try:
        packed = bytearray()
        for message, content in zip(messages, contents, strict=True):
            flags = _PUSH_PROPERTIES if message.has_properties else 0
            append_push(packed, queue_id, message.guid, content.data, subscription_id, flags, message.compression, 0)
        session.push_packed(packed)
    except Exception as error:
        session.fail(error)


def _only_consumer(queue: Queue, messages: Sequence[Message], size: int) -> tuple[Subscription, Session] | None:
    """Return the consumer that gets all these messages now, in one event; None if there may be others."""
    if len(queue.apps) != 1:
        return None
    (app,) = queue.apps.values()
    group = app.only
    if group is None or len(group.subscriptions) != 1 or app.pending or app.redelivery or app.is_behind:
        return None
    subscription = group.subscriptions[0]
    session = subscription.stream.sink
    if (
        not isinstance(session, Session)
        or not session.ready
        or subscription.messages_left < len(messages)
        or subscription.bytes_left < size
        or len(subscription.stream.unconfirmed.newest) + len(messages) >= FULL
        or session.output_size() + 2 * EVENT_BYTES_MAX >= EVENT_BYTES_SOFT
        or any(message.schema_id for message in messages)
    ):
        return None
    return subscription, session
