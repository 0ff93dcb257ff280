"""The declarations of PUSH, read at run time; `formats.bmq.wire.push` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, bits, i32, raw, u16, u32, zeros

__all__ = ["PUSH_HEADER", "PUSH_TO_ONE", "Push", "PushHeader", "PushToOne"]


class PushHeader(NamedTuple):
    """The header of a message; `message_words` is the size of the whole message.

    bmqp::PushHeader, 32 bytes:

         0 | flags 4 | message_words 28                        |
         4 | options_words 24 | compression 3 | header_words 5 |
         8 | queue_id 32                                       |
        12 | guid 128                                          |
        28 | schema_id 16 | reserved 16                        |
    """

    flags: Annotated[int, bits(4), "PushFlag."]
    message_words: Annotated[int, bits(28), "Words of the whole message: header, options, data and padding."]
    options_words: Annotated[int, bits(24), "Words of the options that follow the header."]
    compression: Annotated[int, bits(3), "A CompressionAlgorithm."]
    header_words: Annotated[int, bits(5), "Words of this header."]
    queue_id: Annotated[int, i32, "The id that the opener of the queue chose for it on this connection."]
    guid: Annotated[bytes, raw(16), "The message's GUID."]
    schema_id: Annotated[
        int, u16, "The properties' encoding: 0 for the older one, else the wire form of the schema's id."
    ]
    reserved: Annotated[bytes, zeros(2), "Reserved; written as zero."]


class PushToOne(NamedTuple):
    """A header and the option that names one subscription: the start of nearly every push to a client.

    bmqp::PushHeader, bmqp::OptionHeader, 40 bytes:

         0 | flags 4 | message_words 28                                          |
         4 | options_words 24 | compression 3 | header_words 5                   |
         8 | queue_id 32                                                         |
        12 | guid 128                                                            |
        28 | schema_id 16 | reserved 16                                          |
        32 | option_type 6 | packed 1 | option_type_specific 4 | option_words 21 |
        36 | subscription_id 32                                                  |
    """

    flags: Annotated[int, bits(4), "PushFlag."]
    message_words: Annotated[int, bits(28), "Words of the whole message: header, options, data and padding."]
    options_words: Annotated[int, bits(24), "Words of the options that follow the header."]
    compression: Annotated[int, bits(3), "A CompressionAlgorithm."]
    header_words: Annotated[int, bits(5), "Words of this header."]
    queue_id: Annotated[int, i32, "The id that the opener of the queue chose for it on this connection."]
    guid: Annotated[bytes, raw(16), "The message's GUID."]
    schema_id: Annotated[
        int, u16, "The properties' encoding: 0 for the older one, else the wire form of the schema's id."
    ]
    reserved: Annotated[bytes, zeros(2), "Reserved; written as zero."]
    option_type: Annotated[int, bits(6), "An OptionType: SUB_QUEUE_IDS_OLD."]
    packed: Annotated[int, bits(1), "0."]
    option_type_specific: Annotated[int, bits(4), "0."]
    option_words: Annotated[int, bits(21), "Words of the option: 2."]
    subscription_id: Annotated[int, u32, "The consumer's subscription that the message goes to."]


PUSH_HEADER = Layout(PushHeader, size=32, upstream="bmqp::PushHeader")
PUSH_TO_ONE = Layout(PushToOne, size=40, upstream="bmqp::PushHeader, bmqp::OptionHeader")


class Push(NamedTuple):
    """A message. `data` is properties and payload without padding; both views are into the event's buffer."""

    flags: int
    queue_id: int
    guid: bytes
    compression: int
    schema_id: int
    options: memoryview
    data: memoryview
