"""The declaration of the DATA file's records, read at run time; `formats.bmq.disk.data` has the codec."""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

from formats.schema import Annotated, Layout, bits, u16, zeros

__all__ = ["DATA_HEADER", "DataHeader", "DataHeaderFlags"]


class DataHeaderFlags(IntFlag):
    """mqbs::DataHeaderFlags; the other bits are unused."""

    MESSAGE_PROPERTIES = 1


class DataHeader(NamedTuple):
    """The header of a record; `message_words` is the size of the whole record, padding included.

    `schema_id` is the wire value, 0 for properties without a schema.

    mqbs::DataHeader, 12 bytes:

        0 | header_words 3 | message_words 29 |
        4 | options_words 24 | flags 8        |
        8 | schema_id 16 | reserved 16        |
    """

    header_words: Annotated[int, bits(3), "Words of this header."]
    message_words: Annotated[int, bits(29), "Words of the whole record: header, options, data and padding."]
    options_words: Annotated[int, bits(24), "Words of the options that follow the header."]
    flags: Annotated[int, bits(8), "DataHeaderFlags."]
    schema_id: Annotated[
        int, u16, "The properties' encoding: 0 for the older one, else the wire form of the schema's id."
    ]
    reserved: Annotated[bytes, zeros(2), "Reserved; written as zero."]


DATA_HEADER = Layout(DataHeader, size=12, upstream="mqbs::DataHeader")
