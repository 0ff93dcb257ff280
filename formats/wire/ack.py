"""ACK: what became of posted messages (source: bmqp::AckHeader, bmqp::AckMessage).

| HW 4 | PMW 4 | Flags 8 | Reserved 16 |        once, then for every message:

| Reserved 4 | Status 4 | CorrelationId 24 |
|        MessageGUID, 16 bytes             |
|                QueueId                   |
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from formats.errors import FormatError
from formats.schema import Annotated, Layout, bits, i32, raw, u8, zeros

__all__ = ["ACK_HEADER", "ACK_HEADER_BYTES", "ACK_MESSAGE", "Ack", "AckHeader", "AckStatus", "iter_acks", "pack_ack"]


class AckStatus(IntEnum):
    """The status as it is on the wire (bmqp::ProtocolUtil::ackResultToCode); 5 stands for every other failure."""

    SUCCESS = 0
    LIMIT_MESSAGES = 1
    LIMIT_BYTES = 2
    UNKNOWN = 5
    STORAGE_FAILURE = 6
    NOT_READY = 7


class AckHeader(NamedTuple):
    """First in the event; words of this header and of each message."""

    header_words: Annotated[int, bits(4)]
    per_message_words: Annotated[int, bits(4)]
    flags: Annotated[int, u8]
    reserved: Annotated[bytes, zeros(2)]


class Ack(NamedTuple):
    """One message's fate; `correlation_id` is 0 for a client that makes its own GUIDs."""

    reserved: Annotated[int, bits(4, word=32)]
    status: Annotated[int, bits(4)]
    correlation_id: Annotated[int, bits(24)]
    guid: Annotated[bytes, raw(16)]
    queue_id: Annotated[int, i32]


ACK_HEADER = Layout(AckHeader, size=4, upstream="bmqp::AckHeader")
ACK_MESSAGE = Layout(Ack, size=24, upstream="bmqp::AckMessage")
ACK_HEADER_BYTES = ACK_HEADER.pack(AckHeader(ACK_HEADER.size // 4, ACK_MESSAGE.size // 4, 0, b"\0\0"))

_pack = ACK_MESSAGE.words.pack


def pack_ack(status: int, correlation_id: int, guid: bytes, queue_id: int) -> bytes:
    """The bytes of one message; an event's body is `ACK_HEADER_BYTES` and these."""
    return _pack(status << 24 | correlation_id, guid, queue_id)


def iter_acks(buffer: memoryview, start: int, end: int) -> Iterator[Ack]:
    """The messages of an event's body, `buffer[start:end]`; of longer ones, as much as is known here."""
    if end - start < ACK_HEADER.size:
        raise FormatError("AckHeader", start, f"needs {ACK_HEADER.size} bytes, {end - start} left")
    header = ACK_HEADER.unpack(buffer, start)
    step = header.per_message_words * 4
    start += header.header_words * 4
    if not header.header_words or step < ACK_MESSAGE.size or start > end or (end - start) % step:
        raise FormatError("AckHeader", start, f"{end - start} bytes are no whole number of {step}-byte messages")
    for at in range(start, end, step):
        yield ACK_MESSAGE.unpack(buffer, at)
