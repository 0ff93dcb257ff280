# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Pushes of whole events at a relay, handed out to the consumers of their app.

Messages in a row differ in little: what comes before the GUID and what comes after it are compared with those of the
message before, and are read only where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.bmq.core.messages import Message
from broker.bmq.queue.routing import App, Group, Subscription
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.session.session import Session
from broker.bmq.store.chunked import FULL
from broker.common.faults import Inconsistent
from formats.bmq.codes import CompressionAlgorithm, OptionType
from formats.bmq.padding import PADDING, WORD
from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.push import PUSH_HEADER, PUSH_TO_ONE, PushFlag

__all__ = ["hand_out"]

_WORDS_MASK: Final = PUSH_HEADER.mask("message_words")
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_SIZE: Final = PUSH_HEADER.size
_PLAIN: Final = PUSH_HEADER.size // WORD
_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_QUEUE_ID_AT: Final = PUSH_HEADER.offset("queue_id")
_GUID_AT: Final = PUSH_HEADER.offset("guid")
_SCHEMA_ID_AT: Final = PUSH_HEADER.offset("schema_id")
_TO_ONE_SIZE: Final = PUSH_TO_ONE.size
_ONE_ID_OPTION: Final = OptionType.SUB_QUEUE_IDS_OLD << 26 | 2
_UNSET_GUID: Final = bytes(16)
_PADDING: Final = PADDING

_word: Final = PUSH_HEADER.word("message_words").unpack_from
_schema_id: Final = PUSH_HEADER.word("schema_id").unpack_from
_pack_to_one: Final = PUSH_TO_ONE.words.pack


class PushForm:
    """The common parts of messages in a row: `before` and `after` the GUID, as in the event, and what they say.

    `size` is that of the whole message, in bytes.
    """

    __slots__ = ("_options", "after", "before", "compression", "flags", "schema_id", "size")

    def __init__(self, options: bytes) -> None:
        self.before = self.after = b""
        self.size = self.flags = self.compression = self.schema_id = 0
        self._options = options

    def read(self, raw: bytes, at: int) -> bool:
        """Take the form of the message whose header and options begin at `at`; return False if it is not a common one.

        A common form has the expected options, and differs from the form before at most in size, compression,
        properties and their schema.
        """
        words: int
        sizes: int
        (words,) = _word(raw, at)
        (sizes,) = _word(raw, at + WORD)
        options = self._options
        before = raw[at : at + _GUID_AT]
        after = raw[at + _SCHEMA_ID_AT : at + _SIZE + len(options)]
        size = (words & _WORDS_MASK) * WORD
        if (
            sizes & ~_ZLIB != len(options) // WORD << 8 | _PLAIN
            or words >> 28 & ~_PROPERTIES
            or size <= _SIZE + len(options)
            or (self.before and before[_QUEUE_ID_AT:] != self.before[_QUEUE_ID_AT:])
            or after[_SIZE - _SCHEMA_ID_AT :] != options
        ):
            return False
        self.before, self.after = before, after
        self.size, self.flags, self.compression = size, words >> 28, sizes >> 5 & 7
        schema_id: int
        (schema_id,) = _schema_id(after)
        self.schema_id = schema_id
        return True


def _one_app(
    relay: RelayQueue, raw: bytes, at: int, end: int, infos_of: Callable[[bytes], Sequence[SubQueueInfo]]
) -> tuple[App, Group, bytes] | None:
    """Return the app of the message at `at`, its only group, which awaits messages, and the message's options.

    Returns None if the message needs more work than that.
    """
    if relay.broadcast or end - at <= _SIZE:
        return None
    sizes: int
    (sizes,) = _word(raw, at + WORD)
    body = at + _SIZE + (sizes >> 8) * WORD
    if end <= body:
        return None
    options = raw[at + _SIZE : body]
    app = relay.only_app(infos_of(options))
    if app is None or app.only is None or app.redelivery or app.pending or app.is_behind or app.attempts:
        return None
    return app, app.only, options


def hand_out(
    relay: RelayQueue, raw: bytes, at: int, end: int, infos_of: Callable[[bytes], Sequence[SubQueueInfo]]
) -> int:
    """Deliver the messages of `raw[at:end]` to the consumers of their only app; return the offset of the first left.

    Stops at a message that needs anything else. `infos_of` reads a message's options.
    """
    found = _one_app(relay, raw, at, end, infos_of)
    if found is None:
        return at
    app, group, options = found
    payload_at = _SIZE + len(options)
    messages, bit, now_ms = relay.messages, app.bit, relay.now.ms
    newest, older = messages.newest, messages.older
    number = first = relay.pushed
    size = 0
    form = PushForm(options)
    pieces = Pieces(relay, group)
    try:
        while end - at > payload_at:
            body = at + payload_at
            if raw[at : at + _GUID_AT] != form.before or raw[at + _SCHEMA_ID_AT : body] != form.after:
                if not form.read(raw, at):
                    break
                pieces.begin(form, form.size - payload_at)
            message_end = at + form.size
            if message_end > end:
                break
            padding = raw[message_end - 1]
            body_end = message_end - padding
            guid = raw[at + _GUID_AT : at + _SCHEMA_ID_AT]
            if not 1 <= padding <= WORD or body_end <= body or guid in newest or (older and guid in messages):
                break
            subscription = group.choose()
            if subscription is None:
                break
            message = Message(guid, body_end - body, 0, form.compression, form.flags != 0, form.schema_id, bit, now_ms)
            newest[guid] = message
            number += 1
            message.offset = number
            message.payload = payload = raw[body:body_end]
            size += body_end - body
            if pieces.sink is None or form.schema_id:
                pieces.send()
                relay.delivery.send(subscription, message, payload)
            else:
                pieces.add(subscription, message, payload, padding)
            at = message_end
        pieces.send()
        if len(newest) >= FULL:
            messages.turn()
        relay.pushed = number
        app.messages += number - first
        app.bytes += size
        relay.usage.add(size, number - first)
    except Exception as error:
        raise Inconsistent(f"handing out messages of queue '{relay.uri}'", error) from error
    return at


class Pieces:
    """Messages for the only consumer of a group, a client: what is to be sent, in pieces."""

    __slots__ = ("_after", "_before", "_count", "_pieces", "_relay", "_size", "_subscription", "sink")

    def __init__(self, relay: RelayQueue, group: Group) -> None:
        subscriptions = group.subscriptions
        sink = subscriptions[0].stream.sink if len(subscriptions) == 1 else None
        self.sink = sink if isinstance(sink, Session) else None
        self._subscription = subscriptions[0] if subscriptions else None
        self._relay = relay
        self._pieces: list[bytes] = []
        self._count = self._size = 0
        self._before = self._after = b""

    def begin(self, form: PushForm, padded_size: int) -> None:
        """Begin with messages of another form, whose data are of `padded_size` bytes."""
        sink, subscription = self.sink, self._subscription
        if sink is None or subscription is None:
            return
        try:
            head: bytes = _pack_to_one(
                form.flags << 28 | (_TO_ONE_SIZE + padded_size) // WORD,
                2 << 8 | form.compression << 5 | _PLAIN,
                subscription.stream.queue_id,
                _UNSET_GUID,
                0,
                b"",
                _ONE_ID_OPTION,
                subscription.subscription_id,
            )
        except Exception as error:
            sink.fail(error)
            return
        self._before, self._after = head[:_GUID_AT], head[_SCHEMA_ID_AT:]

    def add(self, subscription: Subscription, message: Message, payload: bytes, padding: int) -> None:
        """Add a message of the form that was begun with; `padding` is the size of its padding."""
        guid = message.guid
        subscription.stream.unconfirmed.newest[guid] = (message, subscription)
        subscription.messages_left -= 1
        subscription.bytes_left -= message.size
        self._pieces += (self._before, guid, self._after, payload, _PADDING[padding])
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
