"""The declaration of the frame, read at run time; `formats.bmq.wire.event` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, bits, u8, zeros

__all__ = ["EVENT_HEADER", "EVENT_HEADER_SIZE", "EventHeader"]


class EventHeader(NamedTuple):
    """The header of an event; `length` counts bytes, header included.

    `type_specific` of events that carry schema messages: the top three bits say the encoding, 0 for BER and 1 for JSON.

    bmqp::EventHeader, 8 bytes:

        0 | fragment 1 | length 31                                                      |
        4 | protocol_version 2 | type 6 | header_words 8 | type_specific 8 | reserved 8 |
    """

    fragment: Annotated[int, bits(1), "Always 0: events are not split."]
    length: Annotated[int, bits(31), "Bytes of the event, this header included."]
    protocol_version: Annotated[int, bits(2), "Version of the protocol: 1."]
    type: Annotated[int, bits(6), "An EventType."]
    header_words: Annotated[int, u8, "Words of this header."]
    type_specific: Annotated[
        int, u8, "For schema messages: the encoding (EncodingType) in the top three bits. Otherwise 0."
    ]
    reserved: Annotated[bytes, zeros(1), "Reserved; written as zero."]


EVENT_HEADER = Layout(EventHeader, size=8, upstream="bmqp::EventHeader")

EVENT_HEADER_SIZE = EVENT_HEADER.size
