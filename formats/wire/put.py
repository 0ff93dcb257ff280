"""PUT: messages that a producer posts (source: bmqp::PutHeader, bmqp::PutEventBuilder, bmqp::PutMessageIterator).

    | Flags 4 |          MessageWords 28               |
    |       OptionsWords 24         | CAT 3 | HW 5     |
    |                  QueueId                         |
    |      MessageGUID, 16 bytes; or the 24-bit        |
    |      correlation id of a client that makes none  |
    |                  CRC32-C                         |
    |      SchemaId 16      |        Reserved 16       |

then the options, then the application's data (message properties if the flag says so, then the payload) padded to
words. Older senders leave the last word away: their HeaderWords say so. The checksum covers the application's data.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag
from typing import NamedTuple

from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, i32, raw, u16, u32, zeros

__all__ = ["PUT_HEADER", "Put", "PutFlag", "PutHeader", "append_put", "iter_puts"]


class PutFlag(IntFlag):
    """bmqp::PutHeaderFlags."""

    ACK_REQUESTED = 1
    MESSAGE_PROPERTIES = 2


class PutHeader(NamedTuple):
    """First in every message of the event."""

    flags: Annotated[int, bits(4)]
    message_words: Annotated[int, bits(28)]
    options_words: Annotated[int, bits(24)]
    compression: Annotated[int, bits(3)]
    header_words: Annotated[int, bits(5)]
    queue_id: Annotated[int, i32]
    guid: Annotated[bytes, raw(16)]
    crc32c: Annotated[int, u32]
    schema_id: Annotated[int, u16]
    reserved: Annotated[bytes, zeros(2)]


PUT_HEADER = Layout(PutHeader, size=36, upstream="bmqp::PutHeader")
_HEADER_SIZE = PUT_HEADER.size
_HEADER_SIZE_MIN = 32  # without the schema id
_WORD = 4
_PADDING = (b"", b"\1", b"\2\2", b"\3\3\3", b"\4\4\4\4")

_words = PUT_HEADER.words.unpack_from
_pack = PUT_HEADER.words.pack


class Put(NamedTuple):
    """One message. `data` is properties and payload without padding; both views are into the event's buffer."""

    flags: int
    queue_id: int
    guid: bytes
    crc32c: int
    compression: int
    schema_id: int
    options: memoryview
    data: memoryview


def iter_puts(buffer: memoryview, start: int, end: int) -> Iterator[Put]:
    """The messages of an event's body, `buffer[start:end]`. FormatError at the first that is malformed."""
    while start < end:
        if end - start < _HEADER_SIZE_MIN:
            raise FormatError("PutHeader", start, f"needs {_HEADER_SIZE_MIN} bytes, {end - start} left")
        if end - start < _HEADER_SIZE:
            yield _short(buffer, start, end)
            return
        words, sizes, queue_id, guid, crc32c, schema_id, _ = _words(buffer, start)
        message_end = start + (words & 0xFFF_FFFF) * _WORD
        header_size = (sizes & 0x1F) * _WORD
        options = start + header_size
        data = options + (sizes >> 8) * _WORD
        if header_size < _HEADER_SIZE:
            if header_size < _HEADER_SIZE_MIN:
                raise FormatError(
                    "PutHeader.header_words", start + 7, f"{sizes & 0x1F} is below {_HEADER_SIZE_MIN // 4}"
                )
            schema_id = 0
        if message_end > end or data >= message_end:
            reason = (
                f"{words & 0xFFF_FFFF} words, {(end - start) // _WORD} left, data begins at word {(data - start) // 4}"
            )
            raise FormatError("PutHeader.message_words", start, reason)
        padding = buffer[message_end - 1]
        if not 1 <= padding <= _WORD or message_end - padding < data:
            raise FormatError("Put.padding", message_end - 1, f"padding of {padding} bytes, not 1..{_WORD}")
        yield Put(
            words >> 28,
            queue_id,
            guid,
            crc32c,
            sizes >> 5 & 7,
            schema_id,
            buffer[options:data],
            buffer[data : message_end - padding],
        )
        start = message_end


def _short(buffer: memoryview, start: int, end: int) -> Put:
    """The last message, shorter than today's header: an older sender's."""
    head = PUT_HEADER.unpack(bytes(buffer[start:end]).ljust(_HEADER_SIZE, b"\0"))
    reason = f"{head.header_words} header words in the last {end - start} bytes"
    if head.header_words * _WORD != _HEADER_SIZE_MIN or head.message_words * _WORD != end - start:
        raise FormatError("PutHeader", start, reason)
    data = start + (head.header_words + head.options_words) * _WORD
    padding = buffer[end - 1]
    if data >= end or not 1 <= padding <= _WORD or end - padding < data:
        raise FormatError("PutHeader", start, reason)
    options = buffer[start + _HEADER_SIZE_MIN : data]
    return Put(
        head.flags, head.queue_id, head.guid, head.crc32c, head.compression, 0, options, buffer[data : end - padding]
    )


def append_put(
    out: bytearray,
    queue_id: int,
    guid: bytes,
    data: Buffer,
    crc32c: int,
    flags: int = PutFlag.ACK_REQUESTED,
    compression: int = 0,
    schema_id: int = 0,
    options: Buffer = b"",
) -> None:
    """Add one message to an event's body; `options` must fill whole words."""
    size = _HEADER_SIZE + len(options) + len(data)
    padding = _PADDING[_WORD - size % _WORD]
    out += _pack(
        flags << 28 | (size + len(padding)) // _WORD,
        (len(options) // _WORD) << 8 | compression << 5 | _HEADER_SIZE // _WORD,
        queue_id,
        guid,
        crc32c,
        schema_id,
        b"",
    )
    out += options
    out += data
    out += padding
