# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The posts of a relay's clients: each is forwarded, and kept until its acknowledgment arrives.

Successive messages of one client differ in little: the bytes before the GUID are compared with the previous message's,
and parsed only where they differ. The event is copied once: bytes are cheaper to compare and to slice than views.

Source: mqbblp::RemoteQueue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import dropwhile, islice, takewhile
from typing import Final

from crc32c import crc32c

from broker.bmq.core.messages import KEPT, PENDING, Content, MessagePoster, Posted
from broker.bmq.core.thrown import THROWN_PER_UNIT
from broker.bmq.core.work import UNIT_BYTES_BITS, Task
from broker.bmq.queue.queue import Queue
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.put_room import PutRoom
from broker.bmq.relay.upstream import UpstreamState
from broker.common.faults import Inconsistent
from formats.bmq.codes import AckStatus, CompressionAlgorithm
from formats.bmq.padding import WORD
from formats.bmq.wire.event import EventType, Frame
from formats.bmq.wire.put import PUT_HEADER, PutFlag, append_put, iter_puts

__all__ = ["Posts", "Unacknowledged"]

log: Final = logging.getLogger("broker.relay")

# Time until a post is repeated to a root that was not ready for it.
RETRY_MS: Final = 200

# Posts sent again in a unit of work.
SENT_PER_UNIT: Final = 8

# Maximum size of events that are taken at once.
EVENT_BYTES_MAX: Final = 1 << 20

# Posts given up at a time.
EXPIRED_MAX: Final = 1 << 12

_OPEN: Final = UpstreamState.OPEN
_OPENING: Final = UpstreamState.OPENING
_ACK_REQUESTED: Final = int(PutFlag.ACK_REQUESTED)
_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES)
_WORDS_MASK: Final = PUT_HEADER.mask("message_words")
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_SIZE: Final = PUT_HEADER.size
_PLAIN: Final = PUT_HEADER.size // WORD
_QUEUE_ID_AT: Final = PUT_HEADER.offset("queue_id")
_GUID_AT: Final = PUT_HEADER.offset("guid")
_CRC_AT: Final = PUT_HEADER.offset("crc32c")
_SCHEMA_ID_AT: Final = PUT_HEADER.offset("schema_id")
_RESERVED_AT: Final = PUT_HEADER.offset("reserved")
_NO_SCHEMA: Final = bytes(PUT_HEADER.size - PUT_HEADER.offset("schema_id"))
_UNSET_GUID: Final = bytes(16)

_word: Final = PUT_HEADER.word("message_words").unpack_from
_crc: Final = PUT_HEADER.word("crc32c").unpack_from
_schema_id: Final = PUT_HEADER.word("schema_id").unpack_from
_pack_schema_id: Final = PUT_HEADER.word("schema_id").pack
_pack_queue_id: Final = PUT_HEADER.word("queue_id").pack


class Unacknowledged:
    """A post in flight, with `size` bytes of data, as it is forwarded.

    Its acknowledgment goes to `posters`, each with its queue id and correlation id.
    """

    __slots__ = ("message", "posted_ms", "posters", "size")

    def __init__(
        self, message: bytes, size: int, posted_ms: int, posters: tuple[tuple[MessagePoster, int, int], ...]
    ) -> None:
        self.message = message
        self.size = size
        self.posted_ms = posted_ms
        self.posters = posters

    @property
    def content(self) -> Content:
        put = next(iter_puts(memoryview(self.message), 0, len(self.message)))
        has_properties = put.flags & _PROPERTIES != 0
        return Content(put.data, put.crc32c, put.compression, has_properties, put.schema_id, put.options)


class Posts:
    """The posts of one queue, whose number upstream is `queue_id`. Beyond `room` they are refused."""

    def __init__(self, queue: Queue, queue_id: int, opens: ClientHandles, room: PutRoom) -> None:
        self.unacknowledged: dict[bytes, Unacknowledged] = {}
        self.room = room
        self._queue = queue
        self._queue_id = queue_id
        self._up_id: bytes = _pack_queue_id(queue_id)
        self._opens = opens
        self._expires = False
        self._unsent: deque[bytes] = deque()  # the upstream gets them in slices, before further ones
        self._resending_to = 0  # the upstream's generation, see `ClientHandles`
        self._refused: set[bytes] = set()  # the root was not ready for them, or they came after such a post

    def post(self, guid: bytes, content: Content) -> Posted:
        """Forward a message to the upstream. Raises `Full` if too many are in flight already."""
        if guid in self.unacknowledged:
            return PENDING
        queue, size = self._queue, len(content.data)
        statistics = queue.statistics
        statistics.puts += 1
        statistics.put_bytes += size
        if not (queue.broadcast and self._passes_through):
            self.room.check(size)
        self.take({guid: self._packed(guid, content, ())}, size)
        return KEPT if queue.broadcast else PENDING

    def forward(
        self, poster: MessagePoster, number: int, queue_id: int, data: memoryview, frames: Sequence[Frame]
    ) -> bool:
        """See `broker.bmq.queue.queue.Queue`; only the queue id of the posts changes."""
        queue = self._queue
        if queue.broadcast or frames[-1].end - frames[0].body > EVENT_BYTES_MAX:
            return False
        run = self._read(poster, queue_id, data, frames)
        if run is None:
            return False
        posts, size, schemas = run
        count = len(posts)
        if not self.room.has(size, count):
            return False
        try:
            for post, schema_id in schemas:
                message = post.message
                schema: bytes = _pack_schema_id(queue.schemas.translate(number, schema_id))
                post.message = message[:_SCHEMA_ID_AT] + schema + message[_RESERVED_AT:]
            statistics = queue.statistics
            statistics.puts += count
            statistics.put_bytes += size
        except Exception as error:
            raise Inconsistent(f"keeping posts to queue '{queue.uri}'", error) from error
        self.take(posts, size)
        return True

    def _read(
        self, poster: MessagePoster, queue_id: int, data: memoryview, frames: Sequence[Frame]
    ) -> tuple[dict[bytes, Unacknowledged], int, list[tuple[Unacknowledged, int]]] | None:
        """Read posts to the poster's queue `queue_id`, with the queue id that they have upstream.

        Returns them by GUID, the size of their data together, and those whose properties have a schema, with its id as
        given. Returns None if one is malformed, more than plain, of another queue, or known.
        """
        start: int = frames[0].body
        raw = bytes(data[start : frames[-1].end])
        known, now_ms = self.unacknowledged, self._queue.now.ms
        up_id = self._up_id
        down_id: bytes = _pack_queue_id(queue_id)
        posters = ((poster, queue_id, 0),)
        found: dict[bytes, Unacknowledged] = {}
        schemas: list[tuple[Unacknowledged, int]] = []
        usual = head = b""
        size = message_size = 0
        has_properties = False
        for _, _, frame_body, frame_end in frames:
            at: int = frame_body - start
            end: int = frame_end - start
            while at < end:
                body = at + _SIZE
                if body >= end:
                    return None
                if raw[at : at + _GUID_AT] != usual:
                    words: int
                    (words,) = _word(raw, at)
                    flags = words >> 28
                    message_size = (words & _WORDS_MASK) * WORD
                    if not _is_plain(raw, at, flags, down_id) or message_size <= _SIZE:
                        return None
                    usual = raw[at : at + _GUID_AT]
                    head = raw[at : at + _QUEUE_ID_AT] + up_id
                    has_properties = flags & _PROPERTIES != 0
                message_end = at + message_size
                if message_end > end:
                    return None
                padding = raw[message_end - 1]
                body_end = message_end - padding
                guid = raw[at + _GUID_AT : at + _CRC_AT]
                checksum: int
                (checksum,) = _crc(raw, at + _CRC_AT)
                if (
                    not 1 <= padding <= WORD
                    or body_end <= body
                    or guid in known
                    or guid in found
                    or guid == _UNSET_GUID
                    or crc32c(raw[body:body_end]) != checksum
                ):
                    return None
                message = head + raw[at + _GUID_AT : message_end]
                post = found[guid] = Unacknowledged(message, body_end - body, now_ms, posters)
                if raw[at + _SCHEMA_ID_AT : body] != _NO_SCHEMA:
                    schema_id = _schema(raw, at) if has_properties else 0
                    if not schema_id:
                        return None
                    if schema_id > 1:
                        schemas.append((post, schema_id))
                size += body_end - body
                at = message_end
        return (found, size, schemas) if found else None

    def take(self, posts: dict[bytes, Unacknowledged], size: int) -> None:
        """Forward new posts, of `size` bytes together, in their order; without an upstream they wait for the next."""
        queue, opens = self._queue, self._opens
        if queue.broadcast and self._passes_through:
            self._send(posts.values())
            return
        try:
            self.unacknowledged.update(posts)
            self.room.take(size, len(posts))
            if not self._expires:
                self.expire_later()
            if opens.state is _OPENING and self._resending_to == opens.generation:
                self._unsent.extend(posts)
        except Exception as error:
            raise Inconsistent(f"keeping posts to queue '{queue.uri}'", error) from error
        if opens.state is not _OPEN or queue.broadcast:
            return
        if self._refused:
            # An earlier post of the same client may be among those.
            self._refused.update(posts)
        else:
            self._send(posts.values())

    @property
    def _passes_through(self) -> bool:
        """Return True if posts to this broadcast queue are sent and not kept.

        A message that its root delivers before it knows of a consumer here does not come here.
        """
        return self._opens.state is _OPEN and not self._opens.is_leaving

    def adopt(self, guid: bytes, content: Content, posters: list[tuple[MessagePoster, int, int]]) -> None:
        """Adopt a post that was begun at a root; while there is no upstream."""
        self.take({guid: self._packed(guid, content, tuple(posters))}, len(content.data))

    def acknowledge_later(self, guid: bytes, poster: MessagePoster, queue_id: int, correlation_id: int) -> None:
        put = self.unacknowledged[guid]
        put.posters = (*put.posters, (poster, queue_id, correlation_id))

    def begin_resending(self) -> None:
        """Begin to resend the kept posts to an upstream that knows the opens.

        Call `send_some` until none are left; posts that come meanwhile are included.
        """
        if not self._opens.writers:
            # The upstream would refuse them, and their posters are gone.
            self.forget_all()
        if self.unacknowledged:
            log.info("queue '%s': resending %d posts", self._queue.uri, len(self.unacknowledged))
        self._refused.clear()
        self._unsent = deque(self.unacknowledged)
        self._resending_to = self._opens.generation

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send_some(self) -> int:
        size = 0
        for _ in range(min(len(self._unsent), SENT_PER_UNIT)):
            size += self._send_kept(self._unsent.popleft())
        return 1 + (size >> UNIT_BYTES_BITS)

    def _send_kept(self, guid: bytes) -> int:
        put = self.unacknowledged.get(guid)
        if put is None:
            return 0
        if self._queue.broadcast:
            del self.unacknowledged[guid]
            self.room.give(put.size)
            self._send((self._packed(guid, put.content, ()),))
        elif self._refused:
            self._refused.add(guid)
        else:
            self._send((put,))
        return put.size

    def forget_all(self) -> None:
        """Discard all posts, whose posters are gone. Their room is released with their memory, maybe in slices."""
        gone, self.unacknowledged = self.unacknowledged, {}
        self._queue.work.start(self._let_go(gone))

    def _let_go(self, gone: dict[bytes, Unacknowledged]) -> Task:
        work = self._queue.work
        while gone:
            while not work.may_go_on():
                yield
            count = min(len(gone), work.left * THROWN_PER_UNIT)
            work.left -= 1 + count // THROWN_PER_UNIT
            self.room.give(sum(gone.popitem()[1].size for _ in range(count)), count)

    def on_acks(self, guids: Sequence[bytes], status: int) -> None:
        """Handle acks with the same status. After a former root's NOT_READY posts are sent to the next one."""
        try:
            if status != AckStatus.NOT_READY:
                self._acknowledge(guids, status)
                return
            for guid in guids:
                self._refuse(guid)
        except Exception as error:
            raise Inconsistent("acknowledging posts", error) from error

    def _refuse(self, guid: bytes) -> None:
        """Note that the root, which may be the same as before, was not ready for a post."""
        if not self.unacknowledged:
            return
        if guid not in self.unacknowledged:
            # Its poster is gone. All posts that were sent after it may be refused, too.
            guid = next(iter(self.unacknowledged))
        if not self._refused:
            self._resend_refused_later()
        self._refused.add(guid)

    def _resend_refused_later(self) -> None:
        self._queue.around.timers.at(self._queue.now.ms + RETRY_MS, self._resend_refused)

    def _resend_refused(self) -> None:
        if self._opens.state is _OPENING and self._resending_to == self._opens.generation:
            self._resend_refused_later()  # the upstream may have got these before
            return
        refused, self._refused = self._refused, set()
        if not refused or self._opens.state is not _OPEN:
            return  # all posts have been sent again, or will be
        # All that follow the first: refusals may still be on their way, and later posts come after them.
        later = dropwhile(lambda item: item[0] not in refused, self.unacknowledged.items())
        for _, put in later:
            self._send((put,))

    def expire_later(self) -> None:
        if not self._expires and self.unacknowledged:
            self._expires = True
            oldest = next(iter(self.unacknowledged.values()))
            self._queue.around.timers.at(oldest.posted_ms + self._queue.config.deduplication_time_ms, self._expire)

    def _expire(self) -> None:
        """Fail posts that are unacknowledged for so long that a retry would not be recognised as a duplicate."""
        self._expires = False
        limit_ms = self._queue.now.ms - self._queue.config.deduplication_time_ms
        oldest = islice(self.unacknowledged.items(), EXPIRED_MAX)
        expired = takewhile(lambda item: item[1].posted_ms <= limit_ms, oldest)
        self._acknowledge([guid for guid, _ in expired], AckStatus.UNKNOWN)
        self.expire_later()

    def _acknowledge(self, guids: Sequence[bytes], status: int) -> None:
        """Pass the result of posts on; consecutive ones of the same posters together."""
        unacknowledged = self.unacknowledged
        posters: tuple[tuple[MessagePoster, int, int], ...] = ()
        together: list[bytes] = []
        size = count = 0
        for guid in guids:
            put = unacknowledged.pop(guid, None)
            if put is None:
                continue
            if put.posters is not posters and put.posters != posters:
                _answer(posters, together, status)
                posters, together = put.posters, []
            together.append(guid)
            size += put.size
            count += 1
        self.room.give(size, count)
        if status == AckStatus.SUCCESS:
            self._queue.statistics.acks += count
        else:
            self._queue.statistics.nacks += count
        _answer(posters, together, status)

    def _packed(
        self, guid: bytes, content: Content, posters: tuple[tuple[MessagePoster, int, int], ...]
    ) -> Unacknowledged:
        flags = 0 if self._queue.broadcast else _ACK_REQUESTED
        if content.has_properties:
            flags |= _PROPERTIES
        out = bytearray()
        append_put(
            out,
            self._queue_id,
            guid,
            content.data,
            content.crc32c,
            flags,
            content.compression,
            content.schema_id,
            content.options,
        )
        return Unacknowledged(bytes(out), len(content.data), self._queue.now.ms, posters)

    def _send(self, posts: Iterable[Unacknowledged]) -> None:
        upstream = self._opens.upstream
        assert upstream is not None
        try:
            out = upstream.event(EventType.PUT)
            for post in posts:
                out += post.message
        except Exception as error:
            # They are kept for the next upstream.
            upstream.fail(error)


def _answer(posters: tuple[tuple[MessagePoster, int, int], ...], guids: Sequence[bytes], status: int) -> None:
    for poster, queue_id, correlation_id in posters:
        try:
            if status == AckStatus.SUCCESS:
                poster.acknowledge_kept(queue_id, correlation_id, guids)
            else:
                for guid in guids:
                    poster.acknowledge(queue_id, correlation_id, guid, status)
        except Exception as error:
            poster.fail(error)


def _is_plain(raw: bytes, at: int, flags: int, down_id: bytes) -> bool:
    """Return True if the part of the header before the GUID is a common one, of the queue with this id."""
    sizes: int
    (sizes,) = _word(raw, at + WORD)
    return (
        sizes & ~_ZLIB == _PLAIN
        and flags & ~_PROPERTIES == _ACK_REQUESTED
        and raw[at + _QUEUE_ID_AT : at + _GUID_AT] == down_id
    )


def _schema(raw: bytes, at: int) -> int:
    """Return the schema id of a post's properties; 0 if there is none, or the header is not a common one."""
    schema_id: int
    (schema_id,) = _schema_id(raw, at + _SCHEMA_ID_AT)
    return schema_id if raw[at + _RESERVED_AT : at + _SIZE] == b"\0\0" else 0
