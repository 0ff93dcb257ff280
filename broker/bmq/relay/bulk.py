# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Whole events at a relay: the common case, done for many messages at once.

One by one, a message costs a relay as much as the root, which also stores it. Rare or irregular messages
are left to the code for single messages, so these functions return how far they got, or do nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.bmq.core.messages import MessagePoster
from broker.bmq.queue.delivery import release
from broker.bmq.queue.handles import Handle
from broker.bmq.queue.routing import NEVER_MS, Stream
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.upstream import UpstreamState
from broker.common.faults import Inconsistent
from formats.bmq.wire.confirm import CONFIRM_HEADER_BYTES, CONFIRM_MESSAGE
from formats.bmq.wire.event import Frame
from formats.bmq.wire.put import PUT_HEADER

__all__ = ["WholeEvents"]

_PUT_SIZE: Final = PUT_HEADER.size
_QUEUE_ID_AT: Final = PUT_HEADER.offset("queue_id")
_CONFIRM_HEADER: Final = CONFIRM_HEADER_BYTES
_CONFIRM_SIZE: Final = CONFIRM_MESSAGE.size
_GUID_AT: Final = CONFIRM_MESSAGE.offset("guid")
_SUB_QUEUE_ID_AT: Final = CONFIRM_MESSAGE.offset("sub_queue_id")
_OPEN: Final = UpstreamState.OPEN

# A queue id is the same number of bytes everywhere, and so is the id of a sub-queue.
_id: Final = PUT_HEADER.word("queue_id").unpack_from


class WholeEvents:
    """Events of posts and confirms for one queue; see `broker.bmq.node.role.Role.bulk`.

    Those for queues whose root is here are left to `broker.bmq.session.posting`.
    """

    def puts(
        self,
        poster: MessagePoster,
        number: int,
        handles: Mapping[int, Handle],
        data: memoryview,
        frames: Sequence[Frame],
    ) -> bool:
        """Take posts to one queue; see `Posts.take_event`."""
        start = frames[0].body
        if frames[-1].end - start <= _PUT_SIZE:
            return False
        (queue_id,) = _id(data, start + _QUEUE_ID_AT)
        handle = handles.get(queue_id)
        if handle is None or not handle.writes:
            return False
        relay = handle.queue
        if not isinstance(relay, RelayQueue):
            return False
        return relay.posts.take_event(poster, number, queue_id, data, frames)

    def confirms(self, handles: Mapping[int, Handle], data: memoryview, frames: Sequence[Frame]) -> bool:
        """Take confirms of one consumer. Returns False, without effect, if more than that is needed."""
        first: int = frames[0].body + len(_CONFIRM_HEADER)
        if frames[0].end - first < _CONFIRM_SIZE:
            return False
        queue_id: int
        sub_queue_id: int
        (queue_id,) = _id(data, first)
        (sub_queue_id,) = _id(data, first + _SUB_QUEUE_ID_AT)
        handle = handles.get(queue_id)
        if handle is None:
            return False
        relay = handle.queue
        if not isinstance(relay, RelayQueue):
            return False
        stream = handle.streams.get(sub_queue_id)
        if (
            stream is None
            or relay.broadcast
            or stream.app.attempts
            or stream.app.delayed_until_ms != NEVER_MS
            or relay.opens.state is not _OPEN
        ):
            return False
        guids = _read_confirms(data, frames)
        if guids is None:
            return False
        _confirm(relay, stream, guids)
        return True


def _read_confirms(data: memoryview, frames: Sequence[Frame]) -> list[bytes] | None:
    """Return the GUIDs of confirms; None if they are not all of one consumer, or not as today's senders give them."""
    start: int = frames[0].body
    raw = bytes(data[start : frames[-1].end])
    guids: list[bytes] = []
    queue_id = sub_queue_id = b""
    for _, _, frame_body, frame_end in frames:
        at: int = frame_body - start
        end: int = frame_end - start
        body = at + len(_CONFIRM_HEADER)
        if raw[at:body] != _CONFIRM_HEADER or (end - body) % _CONFIRM_SIZE:
            return None
        if not guids:
            queue_id = raw[body : body + _GUID_AT]
            sub_queue_id = raw[body + _SUB_QUEUE_ID_AT : body + _CONFIRM_SIZE]
        for one in range(body, end, _CONFIRM_SIZE):
            sub_at = one + _SUB_QUEUE_ID_AT
            if raw[one : one + _GUID_AT] != queue_id or raw[sub_at : one + _CONFIRM_SIZE] != sub_queue_id:
                return None
            guids.append(raw[one + _GUID_AT : sub_at])
    return guids


def _confirm(relay: RelayQueue, stream: Stream, guids: list[bytes]) -> None:
    """Confirm each message like `RelayQueue.confirm`."""
    app, now_ms, messages, unconfirmed = stream.app, relay.now.ms, relay.messages, stream.unconfirmed
    not_bit = ~app.bit
    try:
        confirmed: list[bytes] = []
        count = size = gone = gone_bytes = 0
        for guid in guids:
            held = unconfirmed.newest.pop(guid, None)
            if held is None and unconfirmed.older:
                held = unconfirmed.take(guid)
            if held is None:
                # In their order.
                relay.confirms.send(app.app_id, confirmed)
                confirmed = []
                relay.confirm(stream, (guid,))
                continue
            message, subscription = held
            release(subscription, message)
            app.statistics.answered(now_ms - message.sent_ms)
            confirmed.append(guid)
            count += 1
            size += message.size
            message.outstanding &= not_bit
            if not message.outstanding:
                if messages.newest.pop(guid, None) is None:
                    del messages[guid]
                gone += 1
                gone_bytes += message.size
        if count:
            app.statistics.observe(app.messages, app.bytes)
            app.messages -= count
            app.bytes -= size
            relay.statistics.confirms += count
        if gone:
            relay.statistics.observe(relay.usage.messages, relay.usage.bytes)
            relay.usage.remove(gone_bytes, gone)
        relay.confirms.send(app.app_id, confirmed)
        if app.redelivery or app.pending or app.aside.newest or app.aside.older:
            relay.deliver(app)
    except Exception as error:
        raise Inconsistent(f"the confirmation of messages of queue '{relay.uri}'", error) from error
