# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A broker below this one: another member of the cluster at the primary, or a proxy (source: mqbblp::QueueHandle).

It opens queues like a client, for all of its own clients together. Unlike a client, it gets the remaining delivery
attempts of each message, reports messages that may have crashed its consumers, gets a message for several apps only
once, and, if it is a member of the cluster, gets no payload that is in its own store.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from broker.bmq.core.messages import NO_PLACE, Buffer, Message
from broker.bmq.queue.handles import Handle
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import QueueHost, QueueRequests
from broker.bmq.session.outbox import Outbox
from broker.bmq.session.posting import take_confirms, take_posts
from broker.bmq.session.queue_user import PUSH_BYTES_HIGH, QueueUser
from formats.bmq.codes import DEFAULT_SUBSCRIPTION_ID, RDA_COUNTER_MAX, AckStatus
from formats.bmq.control.messages import ControlMessage, QueueHandleParameters
from formats.bmq.wire.event import EventType, Frame
from formats.bmq.wire.options import SUB_QUEUE_INFO, SubQueueInfo, pack_sub_queue_infos
from formats.bmq.wire.push import PUSH_HEADER, PushFlag, append_push_with_options
from formats.bmq.wire.rda import UNLIMITED, limited
from formats.bmq.wire.reject import iter_rejects

__all__ = ["Downstream"]

log: Final = logging.getLogger("broker.downstream")

_PUSH: Final = EventType.PUSH
_PUSH_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_IMPLICIT_PAYLOAD: Final = int(PushFlag.IMPLICIT_PAYLOAD)
_OUT_OF_ORDER: Final = int(PushFlag.OUT_OF_ORDER)
_SIZES: Final = struct.Struct(">II")
_INFO_WORDS: Final = SUB_QUEUE_INFO.size // 4


class Last:
    """The last message pushed, and its place in the outbox: the next app's consumer may be at this broker, too."""

    __slots__ = ("at", "data", "end", "infos_end", "message", "queue_id")

    def __init__(self) -> None:
        self.message: Message | None = None
        self.queue_id = 0
        self.data: bytearray | None = None
        self.at = self.infos_end = self.end = 0


def _decided_below(parameters: QueueHandleParameters) -> None:
    """Allow everything: the client's own broker has authorized it, and brokers trust each other's decisions."""


class Downstream(QueueUser):
    """One broker's handles of this node's queues; see `QueueUser`.

    `number` is negative, unlike any client's. A `member` has the messages of the cluster's stores itself.
    """

    takes_all = True

    def __init__(
        self,
        host: QueueHost,
        number: int,
        description: str,
        out: Outbox,
        wake: Callable[[], None],
        fail: Callable[[Exception], None],
        *,
        member: bool,
    ) -> None:
        assert number < 0
        super().__init__(description, out, wake, fail)
        self.requests = QueueRequests(host, self, _decided_below)
        self.handles = self.requests.handles
        self.number = number
        self.member = member
        self._last = Last()
        # The newest message sent to the broker, by queue id.
        self._newest: dict[int, Message] = {}

    def lost(self) -> None:
        self.requests.drop()

    def forget(self, queues: Iterable[Queue]) -> None:
        """Drop queues that are no longer served here: the broker opens them elsewhere."""
        gone = set(queues)
        for queue_id in [queue_id for queue_id, handle in self.handles.items() if handle.queue in gone]:
            self.handles.pop(queue_id)
            self._newest.pop(queue_id, None)

    @property
    def is_waiting(self) -> bool:
        """True if `output_sent` lets it have messages again."""
        return not self.has_room

    def on_request(self, message: ControlMessage) -> bool:
        """Handle a request about a queue; return False for anything else."""
        return self.requests.serve(message)

    def on_put(self, data: memoryview, frame: Frame) -> None:
        """Raises FormatError for malformed posts."""
        take_posts(self, self.number, self.handles, data, [frame])

    def refuse(self, status: AckStatus, correlation_id: int, guid: bytes, queue_id: int, reason: str) -> None:
        """See `broker.bmq.session.posting.Posting`; the broker keeps a message until it has opened the queue here."""
        handle = self.handles.get(queue_id)
        if handle is None or not handle.writes:
            status = AckStatus.NOT_READY
        elif status is not AckStatus.UNKNOWN:
            handle.queue.statistics.nacks += 1
        log.info("%s: refused PUT %s %s: %s", self.description, guid.hex().upper(), reason, status.name)
        self.acknowledge(queue_id, 0, guid, status)

    def note_duplicate(self, queue: Queue, guid: bytes) -> None:
        """Ignore a duplicate: a broker posts again what a former primary did not acknowledge."""

    def on_confirm(self, data: memoryview, frame: Frame) -> None:
        """Raises FormatError for malformed confirms."""
        take_confirms(self, self.handles, data, [frame])

    def log_improper(self, what: str) -> None:
        """Log nothing: a confirm may cross a change of the primary; it is sent again if it matters."""

    def on_reject(self, data: memoryview, frame: Frame) -> None:
        """Raises FormatError for malformed rejects."""
        for queue_id, guid, sub_queue_id in iter_rejects(data, frame.body, frame.end):
            handle = self.handles.get(queue_id)
            stream = handle.streams.get(sub_queue_id) if handle else None
            if handle is not None and stream is not None:
                handle.queue.reject(stream, guid)

    def takes_run(self, size: int) -> bool:
        return False

    def push_run(
        self, queue_id: int, messages: Sequence[Message], payloads: Sequence[Buffer], subscription_id: int
    ) -> None:
        for message, payload in zip(messages, payloads, strict=True):
            self.push(queue_id, message, payload, subscription_id, 0)

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None:
        handle = self.handles[queue_id]
        info = SubQueueInfo(subscription_id, self._rda(handle, message, subscription_id))
        if not self._add_to_last(queue_id, message, info):
            self._push(handle, message, data, info, schema_id)
        self._wake()

    def _rda(self, handle: Handle, message: Message, subscription_id: int) -> int:
        """Return the remaining delivery attempts of the message for the app, as a byte."""
        queue = handle.queue
        if queue.attempts_max is None:
            return UNLIMITED
        for stream in handle.streams.values():
            if any(each.subscription_id == subscription_id for each in stream.subscriptions):
                left = stream.app.attempts.get(message.guid)
                if left is not None:
                    return limited(min(left, RDA_COUNTER_MAX), poisonous=True)
        return limited(min(queue.attempts_max, RDA_COUNTER_MAX))

    def _add_to_last(self, queue_id: int, message: Message, info: SubQueueInfo) -> bool:
        """Add another app to the last message, if nothing was sent since."""
        last = self._last
        data = last.data
        if (
            last.message is not message
            or last.queue_id != queue_id
            or data is not self._out.data
            or last.end != len(data)
            or self._out.kind is not _PUSH
        ):
            return False
        data[last.infos_end : last.infos_end] = SUB_QUEUE_INFO.pack(info)
        last.infos_end += SUB_QUEUE_INFO.size
        last.end = len(data)
        words, sizes = _SIZES.unpack_from(data, last.at)
        _SIZES.pack_into(data, last.at, words + _INFO_WORDS, sizes + (_INFO_WORDS << 8))
        # The option's length is in its header's low bits.
        option = last.at + PUSH_HEADER.size
        (head,) = struct.unpack_from(">I", data, option)
        struct.pack_into(">I", data, option, head + _INFO_WORDS)
        return True

    def _push(self, handle: Handle, message: Message, data: Buffer, info: SubQueueInfo, schema_id: int) -> None:
        queue_id = handle.queue_id
        flags = _PUSH_PROPERTIES if message.has_properties else 0
        compression = message.compression
        if self.member and handle.queue.log.is_replicated:
            flags = _IMPLICIT_PAYLOAD
            data = b""
            compression = schema_id = 0
        newest = self._newest.get(queue_id)
        # The reference's relays deliver a flagged message at once, and others after it: no app may get a message
        # without the flag before one with it. So the flag of a relay's upstream holds here, too.
        if message.offset == NO_PLACE or (newest is not None and not _is_newer(message, newest)):
            # Broadcast messages are delivered once, in order, and have no offset to tell it by.
            if not handle.queue.broadcast:
                flags |= _OUT_OF_ORDER
        else:
            self._newest[queue_id] = message
            if len(self._newest) > 2 * len(self.handles):
                self._newest = {each: kept for each, kept in self._newest.items() if each in self.handles}
        out = self._out.event(_PUSH)
        at = len(out)
        options = _options(info)
        append_push_with_options(out, queue_id, message.guid, options, data, flags, compression, schema_id)
        if len(out) > PUSH_BYTES_HIGH:
            self.block()
        last = self._last
        last.message = None if info.sub_queue_id == DEFAULT_SUBSCRIPTION_ID else message
        last.queue_id = queue_id
        last.data = out
        last.at = at
        last.infos_end = at + PUSH_HEADER.size + len(options)
        last.end = len(out)


@lru_cache(maxsize=1024)
def _options(info: SubQueueInfo) -> bytes:
    """Encode a push's options: nearly all messages of a queue have the same."""
    return pack_sub_queue_infos((info,))


def _is_newer(message: Message, other: Message) -> bool:
    """Return True if a message came after another. The offset alone does not tell: it restarts in a newer file."""
    return message is not other and (message.arrived_ms, message.offset) > (other.arrived_ms, other.offset)
