"""The declarations of CONFIRM, read at run time; `formats.bmq.wire.confirm` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, bits, i32, raw, zeros

__all__ = ["CONFIRM_HEADER", "CONFIRM_MESSAGE", "Confirm", "ConfirmHeader"]


class ConfirmHeader(NamedTuple):
    """The header after the event's own: words of this header and of each message.

    bmqp::ConfirmHeader, 4 bytes:

        0 | header_words 4 | per_message_words 4 | reserved 24 |
    """

    header_words: Annotated[int, bits(4), "Words of this header."]
    per_message_words: Annotated[int, bits(4), "Words of each message that follows."]
    reserved: Annotated[bytes, zeros(3), "Reserved; written as zero."]


class Confirm(NamedTuple):
    """One message; `sub_queue_id` is the number that the consumer gave the app at its opening, 0 without fanout.

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
