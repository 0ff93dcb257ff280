"""Whole events at a relay: the common case, done for many messages at once.

One by one, a message costs a relay as much as the root, which also stores it. Rare or irregular messages
are left to the code for single messages, so these functions return how far they got, or do nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from crc32c import crc32c

from broker.bmq.core.messages import Content, Message, Poster, message_of
from broker.bmq.queue.delivery import release
from broker.bmq.queue.handles import Handle
from broker.bmq.queue.routing import NEVER_MS, App, Group, Stream, Subscription
from broker.bmq.relay.posts import Unacknowledged
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.upstream import UpstreamState
from broker.bmq.session.session import Session
from broker.bmq.session.stored_events import StoredEvents
from broker.bmq.store.chunked import FULL
from broker.common.faults import Inconsistent
from formats.bmq.codes import CompressionAlgorithm, EventType, OptionType
from formats.bmq.padding import WORD
from formats.bmq.wire.confirm import iter_confirms
from formats.bmq.wire.event import Frame
from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.push import PUSH_HEADER, PUSH_TO_ONE, PushFlag
from formats.bmq.wire.put import PUT_HEADER, PutFlag
from formats.errors import FormatError

__all__ = ["WholeEvents", "acknowledge", "hand_out"]

# Maximum size of an event that is sent up unchanged.
EVENT_BYTES_MAX: Final = 1 << 20

# Equal in both headers, as the size of the message and the queue id are.
_WORDS_MASK: Final = PUT_HEADER.mask("message_words")
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_PUT_SIZE: Final = PUT_HEADER.size
_PUSH_SIZE: Final = PUSH_HEADER.size
_PUT_PLAIN: Final = _PUT_SIZE // WORD
_PUSH_PLAIN: Final = _PUSH_SIZE // WORD
_ACK_REQUESTED: Final = int(PutFlag.ACK_REQUESTED)
_PUT_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES)
_PUSH_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_PUSH_TO_ONE_SIZE: Final = PUSH_TO_ONE.size
_ONE_ID_OPTION: Final = OptionType.SUB_QUEUE_IDS_OLD << 26 | 2
_QUEUE_ID_AT: Final = PUT_HEADER.offset("queue_id")
_SCHEMA_ID_AT: Final = PUT_HEADER.offset("schema_id")
_UNSET_GUID: Final = bytes(16)
_OPEN: Final = UpstreamState.OPEN

_put: Final = PUT_HEADER.words.unpack_from
_push: Final = PUSH_HEADER.words.unpack_from
_pack_push: Final = PUSH_TO_ONE.words.pack
_queue_id_word: Final = PUT_HEADER.word("queue_id")
_queue_id: Final = _queue_id_word.unpack_from
_set_queue_id: Final = _queue_id_word.pack_into
_set_schema_id: Final = PUT_HEADER.word("schema_id").pack_into
_new: Final = tuple.__new__


class WholeEvents:
    """Events of posts and confirms for one queue; see `broker.bmq.node.role.Role.bulk`.

    Those for queues whose root is here are left to `StoredEvents`.
    """

    def __init__(self) -> None:
        self._stored = StoredEvents()

    def puts(
        self, poster: Poster, number: int, handles: Mapping[int, Handle], data: memoryview, frames: Sequence[Frame]
    ) -> bool:
        """Forward posts to the upstream, unchanged except for the queue id.

        Returns False, without effect, if they need more than that. `number` is the poster's, for the schemas of its
        properties.
        """
        start, end = frames[0].body, frames[-1].end
        length = end - start
        if not _PUT_SIZE < length <= EVENT_BYTES_MAX:
            return False
        (queue_id,) = _queue_id(data, start + _QUEUE_ID_AT)
        handle = handles.get(queue_id)
        if handle is None or not handle.writes:
            return False
        relay = handle.queue
        if not isinstance(relay, RelayQueue):
            return self._stored.puts(poster, number, handles, data, frames)
        if relay.broadcast or relay.opens.state is not _OPEN or relay.posts.is_waiting:
            return False
        event = bytearray(b"".join([data[frame.body : frame.end] for frame in frames]))
        view = memoryview(event)
        length = len(event)
        ends = list(accumulate([frame.end - frame.body for frame in frames]))
        ends.reverse()
        known, now_ms, up_id = relay.unacknowledged, relay.now.ms, relay.queue_id
        posters = ((poster, queue_id, 0),)
        found: dict[bytes, Unacknowledged] = {}
        at = size = count = 0
        while at < length:
            if length - at <= _PUT_SIZE:
                return False
            words, sizes, for_id, guid, checksum, schema_id, reserved = _put(event, at)
            message_end = at + (words & _WORDS_MASK) * WORD
            body = at + _PUT_SIZE
            if message_end > ends[-1] or message_end <= body:
                return False
            if message_end == ends[-1]:
                ends.pop()
            padding = event[message_end - 1]
            body_end = message_end - padding
            if (
                sizes & ~_ZLIB != _PUT_PLAIN
                or for_id != queue_id
                or words >> 28 & ~_PUT_PROPERTIES != _ACK_REQUESTED
                or not 1 <= padding <= WORD
                or body_end <= body
                or guid in known
                or guid == _UNSET_GUID
                or reserved != b"\0\0"
                or crc32c(view[body:body_end]) != checksum
            ):
                return False
            if schema_id:
                if not words >> 28 & _PUT_PROPERTIES:
                    return False
                if schema_id > 1:
                    _set_schema_id(event, at + _SCHEMA_ID_AT, relay.schemas.translate(number, schema_id))
            _set_queue_id(event, at + _QUEUE_ID_AT, up_id)
            message = bytes(event) if message_end - at == length else bytes(view[at:message_end])
            found[guid] = _new(Unacknowledged, (message, body_end - body, now_ms, posters))
            size += body_end - body
            count += 1
            at = message_end
        room = relay.posts.room
        upstream = relay.opens.upstream
        if len(found) < count or not room.has(size, count) or upstream is None:
            return False
        try:
            known.update(found)
            room.take(size, count)
            relay.statistics.puts += count
            relay.statistics.put_bytes += size
            relay.posts.expire_later()
        except Exception as error:
            raise Inconsistent(f"keeping posts to queue '{relay.uri}'", error) from error
        try:
            out = upstream.event(EventType.PUT)
            out += event
        except Exception as error:
            # They are kept for the next upstream.
            upstream.fail(error)
        return True

    def confirms(self, handles: Mapping[int, Handle], data: memoryview, frames: Sequence[Frame]) -> bool:
        """Take confirms of one consumer. Returns False, without effect, if more than that is needed."""
        rows: list[tuple[int, bytes, int]] = []
        for frame in frames:
            rows += iter_confirms(data, frame.body, frame.end)
        if not rows:
            return True
        queue_id, _, sub_queue_id = rows[0]
        handle = handles.get(queue_id)
        stream = handle.streams.get(sub_queue_id) if handle is not None else None
        if handle is None or stream is None:
            return False
        relay, app = handle.queue, stream.app
        if not isinstance(relay, RelayQueue):
            return self._stored.confirms(handles, data, frames)
        if (
            relay.broadcast
            or app.attempts
            or app.delayed_until_ms != NEVER_MS
            or relay.opens.state is not _OPEN
            or (len(rows) > 1 and any(row[0] != queue_id or row[2] != sub_queue_id for row in rows))
        ):
            return False
        _confirm(relay, stream, [row[1] for row in rows])
        return True


def _confirm(relay: RelayQueue, stream: Stream, guids: Sequence[bytes]) -> None:
    """Confirm each message like `RelayQueue.confirm`."""
    app, now_ms, messages, unconfirmed = stream.app, relay.now.ms, relay.messages, stream.unconfirmed
    not_bit = ~app.bit
    try:
        app.statistics.observe(app.messages, app.bytes)
        relay.statistics.observe(relay.usage.messages, relay.usage.bytes)
        confirmed: list[bytes] = []
        size = gone = gone_bytes = 0
        for guid in guids:
            held = unconfirmed.newest.pop(guid, None)
            if held is None and unconfirmed.older:
                held = unconfirmed.take(guid)
            if held is None:
                relay.confirm(stream, guid)
                continue
            message, subscription = held
            release(subscription, message)
            app.statistics.answered(now_ms - message.sent_ms)
            confirmed.append(guid)
            size += message.size
            message.outstanding &= not_bit
            if not message.outstanding:
                if messages.newest.pop(guid, None) is None:
                    del messages[guid]
                gone += 1
                gone_bytes += message.size
        app.messages -= len(confirmed)
        app.bytes -= size
        relay.statistics.confirms += len(confirmed)
        if gone:
            relay.usage.remove(gone_bytes, gone)
        if confirmed:
            relay.confirms.send(app.app_id, confirmed)
        if app.redelivery or app.pending or app.aside.newest or app.aside.older:
            relay.deliver(app)
    except Exception as error:
        raise Inconsistent(f"the confirmation of messages of queue '{relay.uri}'", error) from error


def acknowledge(rows: Iterable[tuple[int, bytes, int]], relay_of: Callable[[int], RelayQueue | None]) -> None:
    """Forward acknowledgments to posters: words with the status, GUIDs, queue ids (see `formats.bmq.wire.ack.Ack`)."""
    relay: RelayQueue | None = None
    last_id: int | None = None
    run = AckRun()
    try:
        for word, guid, queue_id in rows:
            if queue_id != last_id:
                if run.guids:
                    run.end()
                last_id, relay = queue_id, relay_of(queue_id)
                run.relay = relay
            if relay is None:
                continue
            status = word >> 24 & 0xF
            if status:
                run.end()
                relay.posts.on_ack(guid, status)
                continue
            put = relay.unacknowledged.pop(guid, None)
            if put is None:
                continue
            if put.posters != run.posters:
                if run.guids:
                    run.end()
                run.posters = put.posters
            run.guids.append(guid)
            run.size += put.size
        run.end()
    except FormatError:
        # Acks before the malformed part are still forwarded.
        run.end()
        raise
    except Exception as error:
        raise Inconsistent("acknowledging posts", error) from error


class AckRun:
    """Consecutive successful posts of a queue by one poster."""

    __slots__ = ("guids", "posters", "relay", "size")

    def __init__(self) -> None:
        self.relay: RelayQueue | None = None
        self.posters: tuple[tuple[Poster, int, int], ...] = ()
        self.guids: list[bytes] = []
        self.size = 0

    def end(self) -> None:
        """Acknowledge the posts of the run."""
        if self.guids and self.relay is not None:
            self.relay.posts.room.give(self.size, len(self.guids))
            self.relay.statistics.acks += len(self.guids)
            for poster, queue_id, correlation_id in self.posters:
                try:
                    poster.acknowledge_kept(queue_id, correlation_id, self.guids)
                except Exception as error:
                    poster.fail(error)
            self.guids = []
            self.size = 0


def _one_app(
    relay: RelayQueue, data: memoryview, at: int, end: int, infos_of: Callable[[bytes], Sequence[SubQueueInfo]]
) -> tuple[App, Group, bytes] | None:
    """Return the app of the message at `at`, its only group, which awaits messages, and the message's options.

    Returns None if the message needs more work than that.
    """
    if relay.broadcast or end - at <= _PUSH_SIZE:
        return None
    _, sizes, *_ = _push(data, at)
    payload_at = _PUSH_SIZE + (sizes >> 8) * WORD
    if end - at <= payload_at:
        return None
    options = bytes(data[at + _PUSH_SIZE : at + payload_at])
    app = relay.only_app(infos_of(options))
    if app is None or app.only is None or app.redelivery or app.pending or app.is_behind or app.attempts:
        return None
    return app, app.only, options


def hand_out(
    relay: RelayQueue, data: memoryview, at: int, end: int, infos_of: Callable[[bytes], Sequence[SubQueueInfo]]
) -> int:
    """Deliver the messages from `at` to the consumers of their only app; return the offset of the first one left.

    Stops at a message that needs anything else. `infos_of` reads a message's options.
    """
    found = _one_app(relay, data, at, end, infos_of)
    if found is None:
        return at
    app, group, options = found
    _, sizes, queue_id, *_ = _push(data, at)
    payload_at = _PUSH_SIZE + len(options)
    plain_sizes = sizes & ~0xFF | _PUSH_PLAIN
    messages, bit, now_ms, send = relay.messages, app.bit, relay.now.ms, relay.delivery.send
    newest, older = messages.newest, messages.older
    number = first = relay.pushed
    size = 0
    last_form: object = None
    pieces = Pieces(relay, group)
    try:
        while end - at > payload_at:
            words, sizes, for_id, guid, schema_id, _ = _push(data, at)
            body = at + payload_at
            message_end = at + (words & _WORDS_MASK) * WORD
            if message_end > end or message_end <= body:
                break
            padding = data[message_end - 1]
            body_end = message_end - padding
            if (
                for_id != queue_id
                or sizes & ~_ZLIB != plain_sizes
                or words >> 28 & ~_PUSH_PROPERTIES
                or not 1 <= padding <= WORD
                or body_end <= body
                or guid in newest
                or (older and guid in messages)
                or data[at + _PUSH_SIZE : body] != options
            ):
                break
            subscription = group.choose()
            if subscription is None:
                break
            form = words >> 28, sizes, schema_id
            if form != last_form:
                last_form = form
                content = Content(b"", 0, sizes >> 5 & 7, words >> 28 != 0, schema_id)
            message = newest[guid] = message_of(guid, body_end - body, content, bit, now_ms)
            message.offset = number = number + 1
            message.payload = bytes(data[body:body_end])
            size += message.size
            if pieces.sink is None or schema_id:
                pieces.send()
                send(subscription, message, message.payload)
            else:
                pieces.add(subscription, message, words >> 28, data[body:message_end])
            at = message_end
        pieces.send()
        if len(newest) >= FULL:
            messages.turn()
        relay.pushed = number
        app.messages += number - first
        app.bytes += size
        relay.usage.add_many(size, number - first)
    except Exception as error:
        raise Inconsistent(f"handing out messages of queue '{relay.uri}'", error) from error
    return at


class Pieces:
    """Messages for the only consumer of a group, a client: heads and payloads in turn."""

    __slots__ = ("_count", "_pieces", "_relay", "_size", "_subscription", "sink")

    def __init__(self, relay: RelayQueue, group: Group) -> None:
        subscriptions = group.subscriptions
        sink = subscriptions[0].stream.sink if len(subscriptions) == 1 else None
        self.sink = sink if isinstance(sink, Session) else None
        self._subscription = subscriptions[0] if subscriptions else None
        self._relay = relay
        self._pieces: list[bytes | memoryview] = []
        self._count = self._size = 0

    def add(self, subscription: Subscription, message: Message, flags: int, data: memoryview) -> None:
        """Add a message; `data` is its payload, padded."""
        stream, guid = subscription.stream, message.guid
        stream.unconfirmed.newest[guid] = (message, subscription)
        subscription.messages_left -= 1
        subscription.bytes_left -= message.size
        try:
            head = _pack_push(
                flags << 28 | (_PUSH_TO_ONE_SIZE + len(data)) // WORD,
                2 << 8 | message.compression << 5 | _PUSH_PLAIN,
                stream.queue_id,
                guid,
                0,
                b"",
                _ONE_ID_OPTION,
                subscription.subscription_id,
            )
        except Exception as error:
            stream.sink.fail(error)
            return
        self._pieces += (head, data)
        self._count += 1
        self._size += message.size

    def send(self) -> None:
        """Send them to the consumer."""
        if self._count and self.sink is not None and self._subscription is not None:
            # These messages were delivered on arrival.
            self._subscription.stream.app.statistics.waits += self._count
            unconfirmed = self._subscription.stream.unconfirmed
            if len(unconfirmed.newest) >= FULL:
                unconfirmed.turn()
            self._relay.statistics.pushes += self._count
            self._relay.statistics.push_bytes += self._size
            try:
                self.sink.push_packed(b"".join(self._pieces))
            except Exception as error:
                self.sink.fail(error)
            self._pieces = []
            self._count = self._size = 0
