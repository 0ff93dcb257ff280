"""PUSH: messages delivered to a consumer (source: bmqp::PushHeader, bmqp::PushEventBuilder).

Every message is a `PushHeader`, then the options (its recipients, see `formats.bmq.wire.options`), then the
application's data padded to words. With IMPLICIT_PAYLOAD, for a replica that has the message, only a word of padding
follows.

A broker gives a client its subscription in the older option, SUB_QUEUE_IDS_OLD; brokers and proxies among themselves
use SUB_QUEUE_INFOS, which has the remaining delivery attempts as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from formats.bmq.codes import CompressionAlgorithm, OptionType, PushFlag
from formats.bmq.padding import PADDING, WORD
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, i32, raw, u16, u32, zeros

__all__ = [
    "PUSH_HEADER",
    "PUSH_TO_ONE",
    "Push",
    "PushFlag",
    "PushHeader",
    "PushToOne",
    "append_push",
    "append_push_with_options",
    "iter_pushes",
]


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
_HEADER_SIZE = PUSH_HEADER.size
_HEADER_WORDS_MIN = 7  # without the schema id
_ONE_ID_OPTION = OptionType.SUB_QUEUE_IDS_OLD << 26 | 2
_EMPTY = memoryview(b"")
_IMPLICIT_PAYLOAD = int(PushFlag.IMPLICIT_PAYLOAD) << 28

# The low byte of the word of sizes of nearly every message, except the bit for zlib: the current header.
_PLAIN = _HEADER_SIZE // WORD

_pack = PUSH_HEADER.words.pack
_pack_to_one = PUSH_TO_ONE.words.pack
_words = PUSH_HEADER.words.unpack_from
_new = tuple.__new__


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
    """Append a message for one subscription of a client to an event's body."""
    size = 40 + len(data)
    padding = PADDING[WORD - size % WORD]
    out += _pack_to_one(
        flags << 28 | (size + len(padding)) // WORD,
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


def append_push_with_options(
    out: bytearray,
    queue_id: int,
    guid: bytes,
    options: Buffer,
    data: Buffer,
    flags: int,
    compression: int,
    schema_id: int,
) -> None:
    """Append a message to an event's body; `options` must fill whole words, `data` is empty for IMPLICIT_PAYLOAD."""
    size = _HEADER_SIZE + len(options) + len(data)
    padding = PADDING[WORD - size % WORD]
    out += _pack(
        flags << 28 | (size + len(padding)) // WORD,
        (len(options) // WORD) << 8 | compression << 5 | _HEADER_SIZE // WORD,
        queue_id,
        guid,
        schema_id,
        b"",
    )
    out += options
    out += data
    out += padding


def iter_pushes(buffer: memoryview, start: int, end: int) -> Iterator[Push]:
    """Yield the messages of an event's body, `buffer[start:end]`. FormatError at the first that is malformed."""
    while start < end:
        # Even an older, shorter header is followed by a word of padded data, so this much is always present.
        if end - start < _HEADER_SIZE:
            raise FormatError("PushHeader", start, f"needs {_HEADER_SIZE} bytes, {end - start} left")
        words, sizes, queue_id, guid, schema_id, _ = _words(buffer, start)
        message_end = start + (words & 0xFFF_FFFF) * WORD
        options = start + (sizes & 0x1F) * WORD
        data = options + (sizes >> 8) * WORD
        if data > message_end or message_end > end:
            reason = f"{words & 0xFFF_FFFF} words, {(end - start) // WORD} left, data at word {(data - start) // WORD}"
            raise FormatError("PushHeader.message_words", start, reason)
        if sizes & 0xDF != _PLAIN:
            _check_sizes(start, sizes)
            if sizes & 0x1F < _PLAIN:
                schema_id = 0
        if words & _IMPLICIT_PAYLOAD:
            data_view = _EMPTY
        else:
            padding = buffer[message_end - 1]
            data_end = message_end - padding
            if not 1 <= padding <= WORD or data_end <= data:
                raise FormatError("Push.padding", message_end - 1, f"padding of {padding} bytes, or no data before it")
            data_view = buffer[data:data_end]
        yield _new(
            Push,
            (words >> 28, queue_id, guid, sizes >> 5 & 7, schema_id, buffer[options:data], data_view),
        )
        start = message_end


def _check_sizes(start: int, sizes: int) -> None:
    """Raise FormatError unless a header of unusual size is a valid older or newer one."""
    if sizes & 0x1F < _HEADER_WORDS_MIN:
        raise FormatError("PushHeader.header_words", start + 7, f"{sizes & 0x1F} is below {_HEADER_WORDS_MIN}")
    if sizes >> 5 & 7 > CompressionAlgorithm.ZLIB:
        raise FormatError("PushHeader.compression", start + 7, f"{sizes >> 5 & 7} is no algorithm")
