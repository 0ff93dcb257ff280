# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""PUT: messages posted by a producer (source: bmqp::PutHeader, bmqp::PutEventBuilder, bmqp::PutMessageIterator).

A message is a `PutHeader`, the options (formats.bmq.wire.options), and the application's data: message properties if
the flag says so, then the payload, padded to words. The checksum covers the application's data as sent, compressed or
not. Older senders omit the last word of the header, as their `header_words` shows.

Current clients make the GUID. Others write a correlation id in its place: a zero byte, 24 bits, 12 zero bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from formats.bmq.codes import CompressionAlgorithm, PutFlag
from formats.bmq.padding import PADDING, WORD
from formats.bmq.wire.layouts.put_layout import PUT_HEADER, Put, PutHeader
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = [
    "PUT_HEADER",
    "Put",
    "PutFields",
    "PutFlag",
    "PutHeader",
    "append_put",
    "correlation_id",
    "iter_put_fields",
    "iter_puts",
]


_HEADER_SIZE: Final = PUT_HEADER.size
_HEADER_WORDS_MIN: Final = 8  # without the schema id
_NO_OPTIONS: Final = memoryview(b"")
_HAS_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES) << 28

# The word of sizes of nearly every message, except the bit for zlib: no options, the current header.
_PLAIN: Final = _HEADER_SIZE // WORD
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5

_words: Final = PUT_HEADER.words.unpack_from
_pack: Final = PUT_HEADER.words.pack


PutFields = tuple[int, int, bytes, int, int, int, memoryview, memoryview]


def iter_puts(buffer: memoryview, start: int, end: int) -> Iterator[Put]:
    """Yield the messages of the body `buffer[start:end]`. FormatError at the first malformed one."""
    return map(Put._make, iter_put_fields(buffer, start, end))


def iter_put_fields(buffer: memoryview, start: int, end: int) -> Iterator[PutFields]:
    """Yield the messages like `iter_puts`, as plain tuples, which are faster to make and to unpack."""
    while start < end:
        # Even an older, shorter header precedes a word of padded data: valid messages have at least this size.
        if end - start < _HEADER_SIZE:
            raise FormatError("PutHeader", start, f"needs {_HEADER_SIZE} bytes, {end - start} left")
        words, sizes, queue_id, guid, crc32c, schema_id, _ = _words(buffer, start)
        message_end = start + (words & 0xFFF_FFFF) * WORD
        data = start + ((sizes >> 8) + (sizes & 0x1F)) * WORD
        if message_end > end or data >= message_end:
            reason = f"{words & 0xFFF_FFFF} words, {(end - start) // WORD} left, data at word {(data - start) // WORD}"
            raise FormatError("PutHeader.message_words", start, reason)
        if sizes & ~_ZLIB == _PLAIN:
            options = _NO_OPTIONS
        else:
            options = _options(buffer, start, sizes, data)
            if sizes & 0x1F < _PLAIN:
                schema_id = 0
        padding = buffer[message_end - 1]
        data_end = message_end - padding
        if not 1 <= padding <= WORD or data_end <= data:
            raise FormatError("Put.padding", message_end - 1, f"padding of {padding} bytes, or no data before it")
        if schema_id and not words & _HAS_PROPERTIES:
            raise FormatError("PutHeader.schema_id", start + 32, f"{schema_id} without message properties")
        yield words >> 28, queue_id, guid, crc32c, sizes >> 5 & 7, schema_id, options, buffer[data:data_end]
        start = message_end


def _options(buffer: memoryview, start: int, sizes: int, data: int) -> memoryview:
    """The options of a message that has any, or whose header is older or newer than the current one."""
    header_words = sizes & 0x1F
    if header_words < _HEADER_WORDS_MIN:
        raise FormatError("PutHeader.header_words", start + 7, f"{header_words} is below {_HEADER_WORDS_MIN}")
    if sizes >> 5 & 7 > CompressionAlgorithm.ZLIB:
        raise FormatError("PutHeader.compression", start + 7, f"{sizes >> 5 & 7} is no algorithm")
    return buffer[start + header_words * WORD : data]


def correlation_id(guid: bytes) -> int:
    """Extract the correlation id that a client writes in place of a GUID."""
    return int.from_bytes(guid[1:4], "big")


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
    """Append a message to a body; `options` must fill whole words."""
    size = _HEADER_SIZE + len(options) + len(data)
    padding = PADDING[WORD - size % WORD]
    out += _pack(
        flags << 28 | (size + len(padding)) // WORD,
        (len(options) // WORD) << 8 | compression << 5 | _HEADER_SIZE // WORD,
        queue_id,
        guid,
        crc32c,
        schema_id,
        b"",
    )
    out += options
    out += data
    out += padding
