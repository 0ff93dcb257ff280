"""The declarations of ACK, read at run time; `formats.bmq.wire.ack` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, bits, i32, raw, u8, zeros

__all__ = ["ACK_HEADER", "ACK_MESSAGE", "Ack", "AckHeader"]


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
