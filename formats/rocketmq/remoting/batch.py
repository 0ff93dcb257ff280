"""The body of a SEND_BATCH_MESSAGE request: several messages of one topic (source: MessageDecoder.encodeMessages)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, i32, u32

__all__ = ["BATCH_FRONT", "BatchFront", "BatchMessage", "CompressedMessage", "encode_batch", "iter_batch"]

PROPERTIES_BYTES_MAX = 0x7FFF


class BatchFront(NamedTuple):
    """The head of a message in a batch. Clients leave magic number and checksum 0.

    rocketmq::MessageDecoder, 20 bytes:

         0 | size 32      |
         4 | magic 32     |
         8 | body_crc 32  |
        12 | flag 32      |
        16 | body_size 32 |
    """

    size: Annotated[int, i32, "Bytes of the message, this field included."]
    magic: Annotated[int, u32, "0."]
    body_crc: Annotated[int, u32, "0: clients leave the checksum out."]
    flag: Annotated[int, i32, "The application's own number."]
    body_size: Annotated[
        int, i32, "Bytes of the body, which follows; behind it, after two bytes of length, the properties."
    ]


BATCH_FRONT = Layout(BatchFront, size=20, upstream="rocketmq::MessageDecoder")


class BatchMessage(NamedTuple):
    flag: int
    body: Buffer
    properties: bytes


class CompressedMessage(NamedTuple):
    """A message that is sent alone: a batch has no place for the `system_flags` that give its compression."""

    flag: int
    body: Buffer
    properties: bytes
    system_flags: int


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """Encode a batch. Raises `ValueError` for properties above 32,767 bytes."""
    parts: list[Buffer] = []
    for flag, body, properties in messages:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise ValueError(f"the properties have {len(properties)} bytes, more than {PROPERTIES_BYTES_MAX}")
        size = BATCH_FRONT.size + len(body) + 2 + len(properties)
        parts.append(BATCH_FRONT.pack(BatchFront(size, 0, 0, flag, len(body))))
        parts.append(body)
        parts.append(len(properties).to_bytes(2, "big") + properties)
    return b"".join(parts)


def iter_batch(body: Buffer) -> Iterator[BatchMessage]:
    """Yield the messages of a batch. Raises `FormatError` where a message's parts do not fill its size."""
    view = memoryview(body)
    at = 0
    while at < len(view):
        front = BATCH_FRONT.unpack(view, at)
        body_at = at + BATCH_FRONT.size
        properties_at = body_at + front.body_size + 2
        if front.body_size < 0 or properties_at > len(view):
            raise FormatError("BatchMessage.body_size", at + 16, f"{front.body_size} bytes are not there")
        properties_size = int.from_bytes(view[properties_at - 2 : properties_at], "big")
        end = properties_at + properties_size
        if end > len(view):
            raise FormatError(
                "BatchMessage.properties_size", properties_at - 2, f"{properties_size} bytes are not there"
            )
        if front.size != end - at:
            raise FormatError("BatchMessage.size", at, f"{front.size} bytes, but its parts fill {end - at}")
        yield BatchMessage(front.flag, view[body_at : properties_at - 2], bytes(view[properties_at:end]))
        at = end
