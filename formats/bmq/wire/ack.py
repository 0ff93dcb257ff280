"""ACK: results of posts (source: bmqp::AckHeader, bmqp::AckMessage).

An event has one `AckHeader` and then an `Ack` for every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from formats.bmq.codes import AckStatus, EventType
from formats.bmq.wire.batch import message_offsets
from formats.bmq.wire.event import build_event
from formats.schema import Annotated, Buffer, Layout, bits, i32, raw, u8, zeros

__all__ = [
    "ACK_HEADER",
    "ACK_HEADER_BYTES",
    "ACK_MESSAGE",
    "Ack",
    "AckHeader",
    "AckStatus",
    "build_ack_event",
    "iter_ack_words",
    "iter_acks",
    "pack_ack",
]


class AckHeader(NamedTuple):
    """The header of the event, with the sizes of itself and of each message in words.

    bmqp::AckHeader, 4 bytes:

        0 | header_words 4 | per_message_words 4 | flags 8 | reserved 16 |
    """

    header_words: Annotated[int, bits(4), "Words of this header."]
    per_message_words: Annotated[int, bits(4), "Words of each message that follows."]
    flags: Annotated[int, u8, "Not used."]
    reserved: Annotated[bytes, zeros(2), "Reserved; written as zero."]


class Ack(NamedTuple):
    """The result of one post; `correlation_id` is 0 for a client that makes its own GUIDs.

    bmqp::AckMessage, 24 bytes:

         0 | reserved 4 | status 4 | correlation_id 24 |
         4 | guid 128                                  |
        20 | queue_id 32                               |
    """

    reserved: Annotated[int, bits(4, word=32), "Reserved; written as zero."]
    status: Annotated[int, bits(4), "An AckStatus."]
    correlation_id: Annotated[
        int, bits(24), "The producer's number for the message; 0 for a client that makes its own GUIDs."
    ]
    guid: Annotated[bytes, raw(16), "The message's GUID."]
    queue_id: Annotated[int, i32, "The id that the opener of the queue chose for it on this connection."]


ACK_HEADER = Layout(AckHeader, size=4, upstream="bmqp::AckHeader")
ACK_MESSAGE = Layout(Ack, size=24, upstream="bmqp::AckMessage")
ACK_HEADER_BYTES = ACK_HEADER.pack(AckHeader(ACK_HEADER.size // 4, ACK_MESSAGE.size // 4, 0, b"\0\0"))

_pack = ACK_MESSAGE.words.pack
_words = ACK_MESSAGE.words.unpack_from


def pack_ack(status: int, correlation_id: int, guid: bytes, queue_id: int) -> bytes:
    """Encode one message; an event's body is `ACK_HEADER_BYTES` followed by messages."""
    return _pack(status << 24 | correlation_id, guid, queue_id)


def build_ack_event(acks: Iterable[tuple[int, int, bytes, int]]) -> bytes:
    """Build an event from tuples of (status, correlation id, GUID, queue id)."""
    return build_event(EventType.ACK, ACK_HEADER_BYTES + b"".join(pack_ack(*ack) for ack in acks))


def iter_acks(buffer: Buffer, start: int, end: int) -> Iterator[Ack]:
    """Iterate over the messages of an event's body, `buffer[start:end]`. FormatError at once if they do not fill it."""
    offsets = message_offsets(buffer, start, end, ACK_MESSAGE.size, "AckHeader")
    return map(partial(ACK_MESSAGE.unpack, buffer), offsets)


def iter_ack_words(buffer: memoryview, start: int, end: int) -> Iterator[tuple[int, bytes, int]]:
    """Iterate like `iter_acks` over (word of the fields before the GUID, GUID, queue id)."""
    offsets = message_offsets(buffer, start, end, ACK_MESSAGE.size, "AckHeader")
    if offsets.step == ACK_MESSAGE.size:
        return ACK_MESSAGE.words.iter_unpack(buffer[offsets.start : end])
    return (_words(buffer, at) for at in offsets)
