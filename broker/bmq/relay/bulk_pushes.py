# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Pushes of whole events at a relay, handed out to the consumers of their app.

Messages in a row differ in little: what comes before the GUID and what comes after it are compared with those of the
message before, and are read only where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.bmq.core.messages import Message
from broker.bmq.queue.routing import App
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.session.posting import RUN_BYTES_MAX
from broker.bmq.store.chunked import FULL
from broker.common.faults import Inconsistent
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.padding import WORD
from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.push import PUSH_HEADER, PushFlag

__all__ = ["hand_out"]

_WORDS_MASK: Final = PUSH_HEADER.mask("message_words")
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_SIZE: Final = PUSH_HEADER.size
_PLAIN: Final = PUSH_HEADER.size // WORD
_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_QUEUE_ID_AT: Final = PUSH_HEADER.offset("queue_id")
_GUID_AT: Final = PUSH_HEADER.offset("guid")
_SCHEMA_ID_AT: Final = PUSH_HEADER.offset("schema_id")

_word: Final = PUSH_HEADER.word("message_words").unpack_from
_schema_id: Final = PUSH_HEADER.word("schema_id").unpack_from


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
) -> tuple[App, bytes] | None:
    """Return the only app of the message at `at`, which has one group and awaits messages, and the message's options.

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
    return app, options


def hand_out(
    relay: RelayQueue, raw: bytes, at: int, end: int, infos_of: Callable[[bytes], Sequence[SubQueueInfo]]
) -> int:
    """Deliver a run of the messages of `raw[at:end]` to their only app; return the offset of the first left.

    It ends before a message that needs anything else. `infos_of` reads a message's options.
    """
    found = _one_app(relay, raw, at, end, infos_of)
    if found is None:
        return at
    app, options = found
    payload_at = _SIZE + len(options)
    messages, bit, now_ms = relay.messages, app.bit, relay.now.ms
    newest, older = messages.newest, messages.older
    number = first = relay.pushed
    size = 0
    form = PushForm(options)
    run: list[Message] = []
    payloads: list[bytes] = []
    try:
        while end - at > payload_at and size <= RUN_BYTES_MAX:
            body = at + payload_at
            is_other = raw[at : at + _GUID_AT] != form.before or raw[at + _SCHEMA_ID_AT : body] != form.after
            if is_other and not form.read(raw, at):
                break
            message_end = at + form.size
            if message_end > end:
                break
            padding = raw[message_end - 1]
            body_end = message_end - padding
            guid = raw[at + _GUID_AT : at + _SCHEMA_ID_AT]
            if not 1 <= padding <= WORD or body_end <= body or guid in newest or (older and guid in messages):
                break
            message = Message(guid, body_end - body, 0, form.compression, form.flags != 0, form.schema_id, bit, now_ms)
            newest[guid] = message
            number += 1
            message.offset = number
            message.payload = payload = raw[body:body_end]
            run.append(message)
            payloads.append(payload)
            size += body_end - body
            at = message_end
        if len(newest) >= FULL:
            messages.turn()
        relay.pushed = number
        app.messages += number - first
        app.bytes += size
        relay.usage.add(size, number - first)
        if run and not relay.delivery.send_run(run, payloads, size, app):
            for message, payload in zip(run, payloads, strict=True):
                relay.give(app, message, payload)
    except Exception as error:
        raise Inconsistent(f"handing out messages of queue '{relay.uri}'", error) from error
    return at
