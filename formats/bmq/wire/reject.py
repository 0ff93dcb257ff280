"""REJECT: messages whose consumer may have failed because of them (source: bmqp::RejectHeader, bmqp::RejectMessage).

A `RejectHeader` once, then a `Reject` for every message.

A proxy or replica sends it upstream when a consumer disconnects with messages unconfirmed: each message loses a
delivery attempt, and the primary drops messages without any left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from formats.bmq.codes import EventType
from formats.bmq.wire.batch import message_offsets
from formats.bmq.wire.event import build_event
from formats.schema import Annotated, Layout, bits, i32, raw, zeros

__all__ = [
    "REJECT_HEADER",
    "REJECT_HEADER_BYTES",
    "REJECT_MESSAGE",
    "Reject",
    "RejectHeader",
    "build_reject_event",
    "iter_rejects",
    "pack_reject",
]


class RejectHeader(NamedTuple):
    """The header after the event's own: words of this header and of each message.

    bmqp::RejectHeader, 4 bytes:

        0 | header_words 4 | per_message_words 4 | reserved 24 |
    """

    header_words: Annotated[int, bits(4), "Words of this header."]
    per_message_words: Annotated[int, bits(4), "Words of each message that follows."]
    reserved: Annotated[bytes, zeros(3), "Reserved; written as zero."]


class Reject(NamedTuple):
    """One message of one app.

    bmqp::RejectMessage, 24 bytes:

         0 | queue_id 32     |
         4 | guid 128        |
        20 | sub_queue_id 32 |
    """

    queue_id: Annotated[int, i32, "The id that the opener of the queue chose for it on this connection."]
    guid: Annotated[bytes, raw(16), "The message's GUID."]
    sub_queue_id: Annotated[
        int, i32, "The id that the consumer chose for the app when it opened the queue; 0 without fan-out."
    ]


REJECT_HEADER = Layout(RejectHeader, size=4, upstream="bmqp::RejectHeader")
REJECT_MESSAGE = Layout(Reject, size=24, upstream="bmqp::RejectMessage")
REJECT_HEADER_BYTES = REJECT_HEADER.pack(RejectHeader(1, REJECT_MESSAGE.size // 4, bytes(3)))

pack_reject = REJECT_MESSAGE.words.pack
"""Encode a message: queue id, GUID and sub-queue id. A body is `REJECT_HEADER_BYTES` and these."""

_words = REJECT_MESSAGE.words.unpack_from


def build_reject_event(rejects: Iterable[tuple[int, bytes, int]]) -> bytes:
    """Build an event from tuples of (queue id, GUID, sub-queue id)."""
    return build_event(EventType.REJECT, REJECT_HEADER_BYTES + b"".join(pack_reject(*each) for each in rejects))


def iter_rejects(buffer: memoryview, start: int, end: int) -> Iterator[tuple[int, bytes, int]]:
    """Iterate over the messages of a body as (queue id, GUID, sub-queue id).

    FormatError, before the first, if they do not fill `buffer[start:end]`.
    """
    offsets = message_offsets(buffer, start, end, REJECT_MESSAGE.size, "RejectHeader")
    return (_words(buffer, at) for at in offsets)
