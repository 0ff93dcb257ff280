# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The posts of a relay's clients: each is forwarded, and kept until its acknowledgment arrives.

Source: mqbblp::RemoteQueue.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import Final

from broker.bmq.core.messages import KEPT, PENDING, Content, MessagePoster, Posted
from broker.bmq.core.thrown import THROWN_PER_UNIT
from broker.bmq.core.work import UNIT_BYTES_BITS, Task
from broker.bmq.queue.queue import Queue
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.put_room import PutRoom
from broker.bmq.relay.upstream import UpstreamState
from broker.common.faults import Inconsistent
from formats.bmq.codes import AckStatus
from formats.bmq.wire.event import EventType
from formats.bmq.wire.put import PutFlag, append_put, iter_puts

__all__ = ["Posts", "Unacknowledged"]

log: Final = logging.getLogger("broker.relay")

# Time until a post is repeated to a root that was not ready for it.
RETRY_MS: Final = 200

# Number of posts sent again in a unit of work.
SENT_PER_UNIT: Final = 8

# Number of posts given up at a time.
EXPIRED_MAX: Final = 1 << 12

_OPEN: Final = UpstreamState.OPEN
_ACK_REQUESTED: Final = int(PutFlag.ACK_REQUESTED)
_PUT_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES)


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
        """The content of the post."""
        put = next(iter_puts(memoryview(self.message), 0, len(self.message)))
        has_properties = put.flags & _PUT_PROPERTIES != 0
        return Content(put.data, put.crc32c, put.compression, has_properties, put.schema_id, put.options)


class Posts:
    """The posts of one queue, whose number upstream is `queue_id`. Beyond `room` they are refused."""

    def __init__(self, queue: Queue, queue_id: int, opens: ClientHandles, room: PutRoom) -> None:
        self.unacknowledged: dict[bytes, Unacknowledged] = {}
        self.room = room
        self._queue = queue
        self._queue_id = queue_id
        self._opens = opens
        self._expires = False
        self._unsent: deque[bytes] = deque()  # the upstream gets them in slices, before further ones
        self._resending_to = 0  # the upstream's generation, see `ClientHandles`
        self._refused: set[bytes] = set()  # the root was not ready for them, or they came after such a post

    def post(self, guid: bytes, content: Content) -> Posted:
        """Forward a message to the upstream. Raises `Full` if too many are in flight already."""
        if guid in self.unacknowledged:
            return PENDING
        queue = self._queue
        size = len(content.data)
        is_open = self._opens.state is _OPEN
        queue.statistics.puts += 1
        queue.statistics.put_bytes += size
        # A message that the root hands out while it knows of no consumer here is lost for those.
        if queue.broadcast and is_open and not self._opens.is_leaving:
            self._send(self._packed(guid, content))
            return KEPT
        self.room.check(size)
        message = self._packed(guid, content)
        try:
            self._keep(guid, content, message, ())
        except Exception as error:
            raise Inconsistent(f"keeping a post to queue '{queue.uri}'", error) from error
        if queue.broadcast:
            return KEPT
        if not is_open:
            return PENDING
        if self._refused:
            # An earlier post of the same client may be among those.
            self._refused.add(guid)
        else:
            self._send(message)
        return PENDING

    def adopt(self, guid: bytes, content: Content, posters: list[tuple[MessagePoster, int, int]]) -> None:
        """Adopt a post that was begun at a root, to be sent up; while there is no upstream."""
        self._keep(guid, content, self._packed(guid, content), tuple(posters))

    def _keep(
        self, guid: bytes, content: Content, message: bytes, posters: tuple[tuple[MessagePoster, int, int], ...]
    ) -> None:
        size = len(content.data)
        self.unacknowledged[guid] = Unacknowledged(message, size, self._queue.now.ms, posters)
        if self._is_resending:
            self._unsent.append(guid)
        self.room.take(size)
        self.expire_later()

    def acknowledge_later(self, guid: bytes, poster: MessagePoster, queue_id: int, correlation_id: int) -> None:
        """See `broker.bmq.queue.queue.Queue`."""
        put = self.unacknowledged[guid]
        put.posters = (*put.posters, (poster, queue_id, correlation_id))

    def begin_resending(self) -> None:
        """Begin to resend the kept posts to an upstream that knows the opens.

        Call `send_some` until none are left; posts that come until the queue is open again are included.
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
        """Return True if there are posts to be sent by `send_some`."""
        return bool(self._unsent)

    @property
    def _is_resending(self) -> bool:
        opens = self._opens
        return self._resending_to == opens.generation and opens.state is UpstreamState.OPENING

    def send_some(self) -> int:
        """Send some of the kept posts again; return the units of work that took."""
        size = 0
        for _ in range(min(len(self._unsent), SENT_PER_UNIT)):
            size += self._send_kept(self._unsent.popleft())
        return 1 + (size >> UNIT_BYTES_BITS)

    def _send_kept(self, guid: bytes) -> int:
        """Send a post unless it has been acknowledged; return its size."""
        put = self.unacknowledged.get(guid)
        if put is None:
            return 0
        if self._queue.broadcast:
            self._send(self._packed(guid, put.content))
            self._forget(guid)
        elif self._refused:
            self._refused.add(guid)
        else:
            self._send(put.message)
        return put.size

    def forget_all(self) -> None:
        """Discard all posts, since their posters are gone; pending ones are not sent.

        Their room is released when their memory is freed, in slices if they are many.
        """
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

    def on_ack(self, guid: bytes, status: int) -> None:
        """Handle the ack of a post. After a former root's NOT_READY the post is sent to the next one."""
        if status != AckStatus.NOT_READY:
            self._acknowledge(guid, status)
        elif self.unacknowledged:
            # The root may be the same again, without notice.
            if guid not in self.unacknowledged:
                # Its poster is gone. All posts that were sent after it may be refused, too.
                guid = next(iter(self.unacknowledged))
            if not self._refused:
                self._resend_refused_later()
            self._refused.add(guid)

    @property
    def is_waiting(self) -> bool:
        """Return True if posts wait to be repeated to a root that was not ready; further ones have to follow them."""
        return bool(self._refused)

    def _resend_refused_later(self) -> None:
        self._queue.timers.at(self._queue.now.ms + RETRY_MS, self._resend_refused)

    def _resend_refused(self) -> None:
        if self._is_resending:
            self._resend_refused_later()  # the upstream may have got these before
            return
        refused, self._refused = self._refused, set()
        if not refused or self._opens.state is not _OPEN:
            return  # all posts have been sent again, or will be
        is_later = False
        for guid, put in self.unacknowledged.items():
            # All that follow the first: the refusals of some may be on their way yet, and later posts come after them.
            is_later = is_later or guid in refused
            if is_later:
                self._send(put.message)

    def expire_later(self) -> None:
        """Schedule the expiry of kept posts."""
        if not self._expires and self.unacknowledged:
            self._expires = True
            oldest = next(iter(self.unacknowledged.values()))
            self._queue.timers.at(oldest.posted_ms + self._queue.config.deduplication_time_ms, self._expire)

    def _expire(self) -> None:
        """Fail posts that are unacknowledged for so long that a retry would not be recognised as a duplicate."""
        self._expires = False
        limit_ms = self._queue.now.ms - self._queue.config.deduplication_time_ms
        for guid, put in list(islice(self.unacknowledged.items(), EXPIRED_MAX)):
            if put.posted_ms > limit_ms:
                break
            self._acknowledge(guid, AckStatus.UNKNOWN)
        # If there are more, with the next tick.
        self.expire_later()

    def _acknowledge(self, guid: bytes, status: int) -> None:
        put = self._forget(guid)
        if put is None:
            return
        if status == AckStatus.SUCCESS:
            self._queue.statistics.acks += 1
        else:
            self._queue.statistics.nacks += 1
        for poster, queue_id, correlation_id in put.posters:
            try:
                poster.acknowledge(queue_id, correlation_id, guid, status)
            except Exception as error:
                poster.fail(error)

    def _forget(self, guid: bytes) -> Unacknowledged | None:
        put = self.unacknowledged.pop(guid, None)
        if put is not None:
            self.room.give(put.size)
        return put

    def _packed(self, guid: bytes, content: Content) -> bytes:
        """Encode a post for the upstream."""
        flags = 0 if self._queue.broadcast else _ACK_REQUESTED
        if content.has_properties:
            flags |= _PUT_PROPERTIES
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
        return bytes(out)

    def _send(self, message: bytes) -> None:
        upstream = self._opens.upstream
        assert upstream is not None
        try:
            out = upstream.event(EventType.PUT)
            out += message
        except Exception as error:
            # It is kept for the next upstream.
            upstream.fail(error)
