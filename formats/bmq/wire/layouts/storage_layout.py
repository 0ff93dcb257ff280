"""The declaration of STORAGE, read at run time; `formats.bmq.wire.storage` has the codec."""

from __future__ import annotations

from typing import NamedTuple

from formats.schema import Annotated, Layout, bits, u8, u16, u32

__all__ = ["STORAGE_HEADER", "StorageHeader", "StorageMessage"]


class StorageHeader(NamedTuple):
    """The header of a message.

    `journal_offset_words` is the record's offset in the sender's journal, in words: replicas check that theirs is the
    same.

    bmqp::StorageHeader, 12 bytes:

        0 | flags 5 | message_words 27                                                                  |
        4 | reserved 2 | storage_protocol_version 2 | header_words 4 | message_type 8 | partition_id 16 |
        8 | journal_offset_words 32                                                                     |
    """

    flags: Annotated[int, bits(5), "StorageFlag."]
    message_words: Annotated[int, bits(27), "Words of the whole message: header, journal record and what it points to."]
    reserved: Annotated[int, bits(2), "Reserved; written as zero."]
    storage_protocol_version: Annotated[int, bits(2), "Version of the file format: 1."]
    header_words: Annotated[int, bits(4), "Words of this header."]
    message_type: Annotated[int, u8, "A StorageMessageType."]
    partition_id: Annotated[int, u16, "The partition's number."]
    journal_offset_words: Annotated[int, u32, "Where the sender's journal has the record, in words."]


STORAGE_HEADER = Layout(StorageHeader, size=12, upstream="bmqp::StorageHeader")


class StorageMessage(NamedTuple):
    """A record and its data, if the type has any; both are views into the event's buffer."""

    flags: int
    message_type: int
    partition_id: int
    journal_offset_words: int
    record: memoryview
    data: memoryview
