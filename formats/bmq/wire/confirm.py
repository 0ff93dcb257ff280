"""CONFIRM: a consumer is done with messages (source: bmqp::ConfirmHeader, bmqp::ConfirmMessage).

A `ConfirmHeader` once, then a `Confirm` for every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from formats.bmq.codes import EventType
from formats.bmq.wire.batch import message_offsets
from formats.bmq.wire.event import build_event
from formats.schema import Annotated, Layout, bits, i32, raw, zeros

__all__ = [
    "CONFIRM_HEADER",
    "CONFIRM_HEADER_BYTES",
    "CONFIRM_MESSAGE",
    "Confirm",
    "ConfirmHeader",
    "build_confirm_event",
    "iter_confirms",
    "pack_confirm",
]


class ConfirmHeader(NamedTuple):
    """The header after the event's own: words of this header and of each message.

    bmqp::ConfirmHeader, 4 bytes:

        0 | header_words 4 | per_message_words 4 | reserved 24 |
    """

    header_words: Annotated[int, bits(4), "Words of this header."]
    per_message_words: Annotated[int, bits(4), "Words of each message that follows."]
    reserved: Annotated[bytes, zeros(3), "Reserved; written as zero."]


class Confirm(NamedTuple):
    """One message; `sub_queue_id` is what the consumer announced when it opened the app, 0 without fanout.

    bmqp::ConfirmMessage, 24 bytes:

         0 | queue_id 32     |
         4 | guid 128        |
        20 | sub_queue_id 32 |
    """

    queue_id: Annotated[int, i32, "The id that the opener of the queue chose for it on this connection."]
    guid: Annotated[bytes, raw(16), "The message's GUID."]
    sub_queue_id: Annotated[
        int, i32, "The id that the consumer chose for the app when it opened the queue; 0 without fan-out."
    ]


CONFIRM_HEADER = Layout(ConfirmHeader, size=4, upstream="bmqp::ConfirmHeader")
CONFIRM_MESSAGE = Layout(Confirm, size=24, upstream="bmqp::ConfirmMessage")
CONFIRM_HEADER_BYTES = CONFIRM_HEADER.pack(ConfirmHeader(1, CONFIRM_MESSAGE.size // 4, bytes(3)))

pack_confirm = CONFIRM_MESSAGE.words.pack
"""The bytes of one message, from queue id, GUID and sub-queue id; a body is `CONFIRM_HEADER_BYTES` and these."""

_words = CONFIRM_MESSAGE.words.unpack_from

_HEADER_SIZE = CONFIRM_HEADER.size
_ONE_SIZE = _HEADER_SIZE + CONFIRM_MESSAGE.size
_PLAIN = CONFIRM_HEADER_BYTES[0]  # the sizes that today's senders give


def build_confirm_event(confirms: Iterable[tuple[int, bytes, int]]) -> bytes:
    """A whole event of (queue id, GUID, sub-queue id)."""
    return build_event(EventType.CONFIRM, CONFIRM_HEADER_BYTES + b"".join(pack_confirm(*each) for each in confirms))


def iter_confirms(buffer: memoryview, start: int, end: int) -> Iterator[tuple[int, bytes, int]]:
    """The messages of an event's body as (queue id, GUID, sub-queue id).

    FormatError, before the first, if they do not fill `buffer[start:end]`.
    """
    if end - start == _ONE_SIZE and buffer[start] == _PLAIN:
        # One message of today's size, as clients send most.
        return iter((_words(buffer, start + _HEADER_SIZE),))
    offsets = message_offsets(buffer, start, end, CONFIRM_MESSAGE.size, "ConfirmHeader")
    if offsets.step == CONFIRM_MESSAGE.size:
        return CONFIRM_MESSAGE.words.iter_unpack(buffer[offsets.start : end])
    return (_words(buffer, at) for at in offsets)
