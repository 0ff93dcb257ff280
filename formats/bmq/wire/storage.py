# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""STORAGE and PARTITION_SYNC: journal records sent to replicas (source: bmqp::StorageHeader).

A message is a `StorageHeader`, the journal's record, 60 bytes, as on disk, and for DATA and QLIST the record's entry in
that file, header and padding included. A live record may request a receipt with RECEIPT_REQUESTED; to a node that is
catching up, the same messages come in PARTITION_SYNC events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from formats.bmq.codes import StorageFlag, StorageMessageType
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.padding import WORD
from formats.bmq.wire.layouts.storage_layout import STORAGE_HEADER, StorageHeader, StorageMessage
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = [
    "STORAGE_HEADER",
    "StorageFlag",
    "StorageHeader",
    "StorageMessage",
    "StorageMessageType",
    "append_storage",
    "iter_storage",
    "storage_partition_id",
    "storage_size",
]

STORAGE_PROTOCOL_VERSION: Final = 1
_HEADER_SIZE: Final = STORAGE_HEADER.size
_FLAGS_SHIFT: Final = STORAGE_HEADER.bit["flags"].shift
_SIZE_MIN: Final = _HEADER_SIZE + JOURNAL_RECORD_SIZE
_WORDS_MASK: Final = STORAGE_HEADER.mask("message_words")

_words: Final = STORAGE_HEADER.words.unpack_from
_pack: Final = STORAGE_HEADER.words.pack
_new: Final = tuple.__new__


def iter_storage(buffer: memoryview, start: int, end: int) -> Iterator[StorageMessage]:
    """Yield the messages of the body `buffer[start:end]`. FormatError at the first malformed one."""
    while start < end:
        if end - start < _SIZE_MIN:
            raise FormatError("StorageHeader", start, f"header and record need {_SIZE_MIN} bytes, {end - start} left")
        words, version, message_type, partition_id, offset_words = _words(buffer, start)
        message_end = start + (words & _WORDS_MASK) * WORD
        header_size = (version & 0xF) * WORD
        record = start + header_size
        data = record + JOURNAL_RECORD_SIZE
        if header_size < _HEADER_SIZE or data > message_end or message_end > end:
            reason = f"{words & _WORDS_MASK} words, {version & 0xF} of them header, {(end - start) // WORD} left"
            raise FormatError("StorageHeader.message_words", start, reason)
        if version >> 4 & 3 != STORAGE_PROTOCOL_VERSION:
            raise FormatError("StorageHeader.storage_protocol_version", start + 4, f"{version >> 4 & 3} is unknown")
        yield _new(
            StorageMessage,
            (words >> 27, message_type, partition_id, offset_words, buffer[record:data], buffer[data:message_end]),
        )
        start = message_end


def storage_size(buffer: Buffer, start: int) -> int:
    """The size of the message at `start` according to its header, in bytes, header included."""
    size: int = (_words(buffer, start)[0] & _WORDS_MASK) * WORD
    return size


def storage_partition_id(buffer: memoryview, start: int, end: int) -> int:
    """The partition of an event's first message. FormatError if there is none."""
    if end - start < _SIZE_MIN:
        raise FormatError("StorageHeader", start, f"header and record need {_SIZE_MIN} bytes, {end - start} left")
    partition_id: int = _words(buffer, start)[3]
    return partition_id


def append_storage(
    out: bytearray,
    message_type: int,
    partition_id: int,
    journal_offset_words: int,
    record: Buffer,
    data: Buffer = b"",
    flags: int = 0,
) -> None:
    """Append a message to a body; `data` must fill whole words."""
    out += _pack(
        flags << _FLAGS_SHIFT | (_HEADER_SIZE + len(record) + len(data)) // WORD,
        STORAGE_PROTOCOL_VERSION << 4 | _HEADER_SIZE // WORD,
        message_type,
        partition_id,
        journal_offset_words,
    )
    out += record
    out += data
