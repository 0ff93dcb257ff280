# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Whole events at the queue that stores them: the common case, done for many messages at once.

The files and the messages sent are the same, byte for byte, as if each message were taken by itself; only where
`EVENT_BYTES_SOFT` of acknowledgments wait to be sent, these may be divided into events elsewhere. All checks come
before the first write; events with a rare or irregular message are left to the code for single messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.bmq.core.messages import Message, MessagePoster
from broker.bmq.partition.message_logs import FileLog
from broker.bmq.queue.handles import Handle
from broker.bmq.session.session import RUN_BYTES_MAX
from broker.common.faults import Inconsistent
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.disk.data import data_record_size
from formats.bmq.padding import WORD
from formats.bmq.wire.confirm import CONFIRM_MESSAGE, iter_confirms
from formats.bmq.wire.event import Frame
from formats.bmq.wire.put import PUT_HEADER, PutFlag

__all__ = ["StoredEvents"]

# Maximum size of events taken at once: their pushes are a run.
EVENT_BYTES_MAX: Final = RUN_BYTES_MAX

_PUT_SIZE: Final = PUT_HEADER.size
_PUT_PLAIN: Final = _PUT_SIZE // WORD
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_PLAIN_OR_ZLIB: Final = (_PUT_PLAIN, _PUT_PLAIN | _ZLIB)
_WORDS_MASK: Final = PUT_HEADER.mask("message_words")
_ACK_REQUESTED: Final = int(PutFlag.ACK_REQUESTED)
_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES)
_CONFIRM_SIZE: Final = CONFIRM_MESSAGE.size
_UNSET_GUID: Final = bytes(16)

_put: Final = PUT_HEADER.words.unpack_from


class EventPosts(NamedTuple):
    """The posts of events, all of one queue: `size` is that of their data together, `stored_size` of their records."""

    messages: list[Message]
    payloads: list[memoryview]
    size: int
    stored_size: int


class StoredEvents:
    """Events of posts or confirms for one queue whose root is here; see `broker.bmq.node.role.Role.bulk`."""

    def puts(
        self,
        poster: MessagePoster,
        number: int,
        handles: Mapping[int, Handle],
        data: memoryview,
        frames: Sequence[Frame],
    ) -> bool:
        """Store posts, then deliver and acknowledge them. Returns False, without effect, if they need more than that.

        `number` is the poster's, for the schemas of its properties.
        """
        at, end = frames[0].body, frames[-1].end
        if not 2 * _PUT_SIZE < end - at <= EVENT_BYTES_MAX:
            return False
        words: int
        queue_id: int
        words, _, queue_id, _, _, _, _ = _put(data, at)
        handle = handles.get(queue_id)
        if (words & _WORDS_MASK) * WORD == end - at or handle is None or not handle.writes:
            return False
        queue, log = handle.queue, handle.queue.log
        if not isinstance(log, FileLog) or not queue.takes_events:
            return False
        posts = _posts(data, frames, queue_id, queue.all_apps, queue.now.ms)
        if posts is None:
            return False
        messages, payloads, size, stored_size = posts
        guids = [message.guid for message in messages]
        ref_count = len(queue.apps)
        if not log.has_room_for(len(messages), stored_size, ref_count) or not queue.takes_all(guids, size):
            return False
        try:
            for message in messages:
                if message.schema_id > 1:
                    message.schema_id = queue.schemas.translate(number, message.schema_id)
            if not log.append_all(messages, payloads, ref_count):
                return False
            if queue.keep_all(messages, size):
                log.when_all_copied(messages, queue.await_all(messages, (poster, queue_id, 0)))
                return True
            queue.hand_out(messages, payloads, size)
            queue.statistics.acks += len(guids)
        except Exception as error:
            raise Inconsistent(f"taking messages into queue '{queue.uri}'", error) from error
        poster.acknowledge_kept(queue_id, 0, guids)
        return True

    def confirms(self, handles: Mapping[int, Handle], data: memoryview, frames: Sequence[Frame]) -> bool:
        """Take confirms of one consumer. Returns False, without effect, if more than that is needed."""
        if frames[-1].end - frames[0].body < 2 * _CONFIRM_SIZE:
            return False
        rows: list[tuple[int, bytes, int]] = []
        for frame in frames:
            rows += iter_confirms(data, frame.body, frame.end)
        if len(rows) < 2:
            return False
        queue_id, _, sub_queue_id = rows[0]
        handle = handles.get(queue_id)
        stream = handle.streams.get(sub_queue_id) if handle is not None else None
        if handle is None or stream is None:
            return False
        queue, log = handle.queue, handle.queue.log
        if not isinstance(log, FileLog) or queue.broadcast or not log.takes_removals or not stream.app.is_at_rest:
            return False
        newest = stream.unconfirmed.newest
        guids: list[bytes] = []
        for each_id, guid, each_sub_id in rows:
            if each_id != queue_id or each_sub_id != sub_queue_id or guid not in newest:
                return False
            guids.append(guid)
        if len(set(guids)) < len(guids):
            return False
        try:
            held = [newest.pop(guid) for guid in guids]
            messages = [message for message, _ in held]
            size = 0
            for message in messages:
                size += message.size
            queue.confirm_all(stream, held, size)
            log.remove_all(messages, stream.app.key)
            queue.gone_all(messages)
        except Exception as error:
            raise Inconsistent(f"the confirmation of messages of queue '{queue.uri}'", error) from error
        return True


def _posts(
    data: memoryview, frames: Sequence[Frame], queue_id: int, outstanding: int, now_ms: int
) -> EventPosts | None:
    """Return the posts in `frames`; None if one of them is malformed, more than plain, or of another queue."""
    messages: list[Message] = []
    payloads: list[memoryview] = []
    total = stored_size = 0
    for frame in frames:
        at, end = frame.body, frame.end
        while at < end:
            if end - at <= _PUT_SIZE:
                return None
            words: int
            sizes: int
            for_id: int
            guid: bytes
            checksum: int
            schema_id: int
            words, sizes, for_id, guid, checksum, schema_id, _ = _put(data, at)
            flags = words >> 28
            body = at + _PUT_SIZE
            message_end = at + (words & _WORDS_MASK) * WORD
            if message_end > end or message_end <= body:
                return None
            padding = data[message_end - 1]
            size = message_end - padding - body
            if (
                for_id != queue_id
                or sizes not in _PLAIN_OR_ZLIB
                or flags & ~_PROPERTIES != _ACK_REQUESTED
                or (schema_id != 0 and flags & _PROPERTIES == 0)
                or not 1 <= padding <= WORD
                or size <= 0
                or guid == _UNSET_GUID
            ):
                return None
            payload = data[body : body + size]
            if crc32c(payload) != checksum:
                return None
            has_properties = flags & _PROPERTIES != 0
            messages.append(Message(guid, size, checksum, sizes >> 5, has_properties, schema_id, outstanding, now_ms))
            payloads.append(payload)
            total += size
            stored_size += data_record_size(0, size)
            at = message_end
    return EventPosts(messages, payloads, total, stored_size)
