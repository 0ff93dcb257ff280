"""The declarations of PUT, read at run time; `formats.bmq.wire.put` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, bits, i32, raw, u16, u32, zeros

__all__ = ["PUT_HEADER", "Put", "PutHeader"]


class PutHeader(NamedTuple):
    """The header of a message; `message_words` is the size of the whole message.

    bmqp::PutHeader, 36 bytes:

         0 | flags 4 | message_words 28                        |
         4 | options_words 24 | compression 3 | header_words 5 |
         8 | queue_id 32                                       |
        12 | guid 128                                          |
        28 | crc32c 32                                         |
        32 | schema_id 16 | reserved 16                        |
    """

    flags: Annotated[int, bits(4), "PutFlag."]
    message_words: Annotated[int, bits(28), "Words of the whole message: header, options, data and padding."]
    options_words: Annotated[int, bits(24), "Words of the options that follow the header."]
    compression: Annotated[int, bits(3), "A CompressionAlgorithm."]
    header_words: Annotated[int, bits(5), "Words of this header."]
    queue_id: Annotated[int, i32, "The id that the opener of the queue chose for it on this connection."]
    guid: Annotated[bytes, raw(16), "The message's GUID."]
    crc32c: Annotated[int, u32, "CRC32-C of properties and payload as they are sent, without padding."]
    schema_id: Annotated[
        int, u16, "The properties' encoding: 0 for the older one, else the wire form of the schema's id."
    ]
    reserved: Annotated[bytes, zeros(2), "Reserved; written as zero."]


PUT_HEADER = Layout(PutHeader, size=36, upstream="bmqp::PutHeader")


class Put(NamedTuple):
    """A message. `data` is properties and payload without padding; both views are into the event's buffer.

    With `schema_id` 0 and the flag for properties, they are in the older encoding and compressed with the payload.
    """

    flags: int
    queue_id: int
    guid: bytes
    crc32c: int
    compression: int
    schema_id: int
    options: memoryview
    data: memoryview
