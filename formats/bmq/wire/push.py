# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""PUSH: messages delivered to a consumer (source: bmqp::PushHeader, bmqp::PushEventBuilder).

A message is a `PushHeader`, the options (its recipients, see `formats.bmq.wire.options`), and the application's data
padded to words. With IMPLICIT_PAYLOAD, for a replica that has the message, a word of padding replaces the data.

A broker gives a client its subscription in the older option, SUB_QUEUE_IDS_OLD; brokers and proxies exchange
SUB_QUEUE_INFOS, which includes the remaining delivery attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from formats.bmq.codes import CompressionAlgorithm, OptionType, PushFlag
from formats.bmq.padding import PADDING, WORD
from formats.bmq.wire.layouts.push_layout import PUSH_HEADER, PUSH_TO_ONE, Push, PushHeader, PushToOne
from formats.errors import FormatError
from formats.schema import Buffer

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
    "push_frame",
    "pushes_to_one",
]


T = TypeVar("T", bound=tuple[object, ...])

_HEADER_SIZE: Final = PUSH_HEADER.size
_TO_ONE_SIZE: Final = PUSH_TO_ONE.size
# The word of sizes of a message for one subscription with the current header, except the bit for zlib.
_TO_ONE_SIZES: Final = 2 << 8 | _HEADER_SIZE // WORD
_HEADER_WORDS_MIN: Final = 7  # without the schema id
_ONE_ID_OPTION: Final = OptionType.SUB_QUEUE_IDS_OLD << 26 | 2
_GUID_AT: Final = PUSH_HEADER.offset("guid")
_SCHEMA_ID_AT: Final = PUSH_HEADER.offset("schema_id")
_UNSET_GUID: Final = bytes(16)
_EMPTY: Final = memoryview(b"")
_IMPLICIT_PAYLOAD: Final = int(PushFlag.IMPLICIT_PAYLOAD) << 28

# The low byte of the word of sizes of nearly every message, except the bit for zlib: the current header.
_PLAIN: Final = _HEADER_SIZE // WORD

_pack: Final = PUSH_HEADER.words.pack
_pack_to_one: Final = PUSH_TO_ONE.words.pack
_words: Final = PUSH_HEADER.words.unpack_from
_words_to_one: Final = PUSH_TO_ONE.words.unpack_from
_new: Final = tuple.__new__


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
    """Append a message for one subscription of a client to a body."""
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


def push_frame(
    queue_id: int, size: int, subscription_id: int, flags: int, compression: int
) -> tuple[bytes, bytes, bytes]:
    """Return the bytes of `append_push` around `size` bytes of data: before the GUID, after it, and after the data.

    The message's properties have no schema.
    """
    padding = PADDING[WORD - size % WORD]
    head: bytes = _pack_to_one(
        flags << 28 | (_TO_ONE_SIZE + size + len(padding)) // WORD,
        compression << 5 | _TO_ONE_SIZES,
        queue_id,
        _UNSET_GUID,
        0,
        b"",
        _ONE_ID_OPTION,
        subscription_id,
    )
    return head[:_GUID_AT], head[_SCHEMA_ID_AT:], padding


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
    """Append a message to a body; `options` must fill whole words, `data` is empty for IMPLICIT_PAYLOAD."""
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
    """Yield the messages of the body `buffer[start:end]`. FormatError at the first malformed one."""
    while start < end:
        # Even an older, shorter header precedes a word of padded data: valid messages have at least this size.
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


def pushes_to_one(buffer: bytes, start: int, end: int, make: type[T]) -> tuple[list[T], int]:
    """Read the first messages of `buffer[start:end]` that are for one and the same subscription.

    Each is a `make` of flags, GUID, compression, schema id, subscription id, size of the options, and data: a copy,
    since a client keeps it longer than the event. Also returns the offset of the first message for `iter_pushes`: with
    another subscription, several or none, another header or no payload, or malformed.
    """
    found: list[T] = []
    add = found.append
    wanted = -1
    while end - start > _TO_ONE_SIZE:
        words, sizes, _, guid, schema_id, _, option, subscription_id = _words_to_one(buffer, start)
        if subscription_id != wanted:
            if found:
                break
            wanted = subscription_id
        message_end = start + (words & 0xFFF_FFFF) * WORD
        if sizes & ~0x20 != _TO_ONE_SIZES or option != _ONE_ID_OPTION or words & _IMPLICIT_PAYLOAD or message_end > end:
            break
        padding = buffer[message_end - 1]
        data, data_end = start + _TO_ONE_SIZE, message_end - padding
        if not 1 <= padding <= WORD or data_end <= data:
            break
        add(_new(make, (words >> 28, guid, sizes >> 5 & 7, schema_id, subscription_id, 8, buffer[data:data_end])))
        start = message_end
    return found, start


def _check_sizes(start: int, sizes: int) -> None:
    """Raise FormatError unless a header of unusual size is a valid older or newer one."""
    if sizes & 0x1F < _HEADER_WORDS_MIN:
        raise FormatError("PushHeader.header_words", start + 7, f"{sizes & 0x1F} is below {_HEADER_WORDS_MIN}")
    if sizes >> 5 & 7 > CompressionAlgorithm.ZLIB:
        raise FormatError("PushHeader.compression", start + 7, f"{sizes >> 5 & 7} is no algorithm")
