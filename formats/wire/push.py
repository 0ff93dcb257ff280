"""PUSH: messages on their way to a consumer (source: bmqp::PushHeader, bmqp::PushEventBuilder).

    | Flags 4 |          MessageWords 28               |
    |       OptionsWords 24         | CAT 3 | HW 5     |
    |                  QueueId                         |
    |             MessageGUID, 16 bytes                |
    |      SchemaId 16      |        Reserved 16       |

then the options (to whom it goes), then the application's data padded to words; no data with IMPLICIT_PAYLOAD.
A client is told its subscription in an option of the older kind, SUB_QUEUE_IDS_OLD: a list of 32-bit ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag
from typing import NamedTuple

from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, i32, raw, u16, u32, zeros

__all__ = [
    "PUSH_HEADER",
    "Push",
    "PushFlag",
    "PushHeader",
    "append_push",
    "iter_pushes",
]


class PushFlag(IntFlag):
    """bmqp::PushHeaderFlags."""

    IMPLICIT_PAYLOAD = 1
    MESSAGE_PROPERTIES = 2
    OUT_OF_ORDER = 4


class PushHeader(NamedTuple):
    """First in every message of the event."""

    flags: Annotated[int, bits(4)]
    message_words: Annotated[int, bits(28)]
    options_words: Annotated[int, bits(24)]
    compression: Annotated[int, bits(3)]
    header_words: Annotated[int, bits(5)]
    queue_id: Annotated[int, i32]
    guid: Annotated[bytes, raw(16)]
    schema_id: Annotated[int, u16]
    reserved: Annotated[bytes, zeros(2)]


class _PushToOne(NamedTuple):
    """A header and the option that names one subscription: what nearly every push to a client starts with."""

    flags: Annotated[int, bits(4)]
    message_words: Annotated[int, bits(28)]
    options_words: Annotated[int, bits(24)]
    compression: Annotated[int, bits(3)]
    header_words: Annotated[int, bits(5)]
    queue_id: Annotated[int, i32]
    guid: Annotated[bytes, raw(16)]
    schema_id: Annotated[int, u16]
    reserved: Annotated[bytes, zeros(2)]
    option_type: Annotated[int, bits(6)]
    packed: Annotated[int, bits(1)]
    option_type_specific: Annotated[int, bits(4)]
    option_words: Annotated[int, bits(21)]
    subscription_id: Annotated[int, u32]


PUSH_HEADER = Layout(PushHeader, size=32, upstream="bmqp::PushHeader")
_PUSH_TO_ONE = Layout(_PushToOne, size=40, upstream="bmqp::PushHeader, bmqp::OptionHeader")
_WORD = 4
_PADDING = (b"", b"\1", b"\2\2", b"\3\3\3", b"\4\4\4\4")
_SUB_QUEUE_IDS_OLD = 1
_ONE_ID_OPTION = _SUB_QUEUE_IDS_OLD << 26 | 2

_pack_to_one = _PUSH_TO_ONE.words.pack
_words = PUSH_HEADER.words.unpack_from


class Push(NamedTuple):
    """One message. `data` is properties and payload without padding; both views are into the event's buffer."""

    flags: int
    queue_id: int
    guid: bytes
    compression: int
    schema_id: int
    options: memoryview
    data: memoryview


def append_push(
    out: bytearray,
    queue_id: int,
    guid: bytes,
    data: Buffer,
    subscription_id: int,
    flags: int,
    compression: int,
    schema_id: int,
) -> None:
    """Add a message for one subscription of a client to an event's body."""
    size = 40 + len(data)
    padding = _PADDING[_WORD - size % _WORD]
    out += _pack_to_one(
        flags << 28 | (size + len(padding)) // _WORD,
        2 << 8 | compression << 5 | 8,
        queue_id,
        guid,
        schema_id,
        b"",
        _ONE_ID_OPTION,
        subscription_id,
    )
    out += data
    out += padding


def iter_pushes(buffer: memoryview, start: int, end: int) -> Iterator[Push]:
    """The messages of an event's body, `buffer[start:end]`. FormatError at the first that is malformed."""
    while start < end:
        if end - start < PUSH_HEADER.size:
            raise FormatError("PushHeader", start, f"needs {PUSH_HEADER.size} bytes, {end - start} left")
        words, sizes, queue_id, guid, schema_id, _ = _words(buffer, start)
        message_end = start + (words & 0xFFF_FFFF) * _WORD
        options = start + (sizes & 0x1F) * _WORD
        data = options + (sizes >> 8) * _WORD
        flags = words >> 28
        if options < start + PUSH_HEADER.size or data > message_end or message_end > end:
            reason = (
                f"{words & 0xFFF_FFFF} words, {(end - start) // _WORD} left, data begins at word {(data - start) // 4}"
            )
            raise FormatError("PushHeader.message_words", start, reason)
        data_end = message_end
        if not flags & PushFlag.IMPLICIT_PAYLOAD:
            padding = buffer[message_end - 1]
            data_end -= padding
            if not 1 <= padding <= _WORD or data_end < data:
                raise FormatError("Push.padding", message_end - 1, f"padding of {padding} bytes, not 1..{_WORD}")
        yield Push(flags, queue_id, guid, sizes >> 5 & 7, schema_id, buffer[options:data], buffer[data:data_end])
        start = message_end
