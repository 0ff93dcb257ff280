# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Records of the DATA file: a header, options, the application's data, and padding to a double word.

Source: mqbs::DataHeader and mqbs::FileStore::writeMessageRecord.

The application's data is the client's post: message properties if the header's flag says so, then the payload,
compressed or not as the journal's record says. The journal's CRC32-C covers this data, without the padding.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from formats.bmq.disk.data_layout import DATA_HEADER, DataHeader, DataHeaderFlags
from formats.bmq.disk.padding import DWORD, PADDING, WORD, unpadded_size
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = [
    "DATA_HEADER",
    "HEADER_WORDS_SHIFT",
    "MESSAGE_WORDS_MASK",
    "OPTIONS_WORDS_SHIFT",
    "DataHeader",
    "DataHeaderFlags",
    "DataRecord",
    "data_extent",
    "data_record_frame",
    "data_record_size",
    "parse_data_record",
    "unpack_sizes",
    "write_data_record",
]


HEADER_SIZE: Final = DATA_HEADER.size

# Shifts of the sizes in a header's first two words, for callers of `unpack_sizes`.
HEADER_WORDS_SHIFT: Final = DATA_HEADER.bit["header_words"].shift
MESSAGE_WORDS_MASK: Final = DATA_HEADER.mask("message_words")
OPTIONS_WORDS_SHIFT: Final = DATA_HEADER.bit["options_words"].shift
unpack_sizes: Final = DATA_HEADER.partial("message_words", "options_words").unpack_from


class DataRecord(NamedTuple):
    """A record and the offsets of its parts, in bytes from the start of the parsed buffer."""

    offset: int
    header: DataHeader
    options_offset: int
    app_data_offset: int
    app_data_size: int
    end: int

    def options(self, buffer: Buffer) -> memoryview:
        return memoryview(buffer)[self.options_offset : self.app_data_offset]

    def app_data(self, buffer: Buffer) -> memoryview:
        """Properties and payload, without the padding."""
        return memoryview(buffer)[self.app_data_offset : self.app_data_offset + self.app_data_size]

    def crc32c(self, buffer: Buffer) -> int:
        """The checksum that the journal's record must hold."""
        return crc32c(self.app_data(buffer))


def data_record_size(options_size: int, app_data_size: int) -> int:
    """Size of a record in bytes, with header and padding."""
    size = HEADER_SIZE + options_size + app_data_size
    return size + DWORD - size % DWORD


def parse_data_record(buffer: Buffer, offset: int) -> DataRecord:
    """Parse the record at `offset`. FormatError if it is misaligned, cut short or its lengths are inconsistent."""
    if offset % DWORD:
        raise FormatError("DataHeader", offset, f"not a multiple of {DWORD}")
    header = DATA_HEADER.unpack(buffer, offset)
    start, end = data_extent(header, offset, len(buffer))
    size = unpadded_size(buffer, start, end, DWORD, "DataHeader.padding")
    return DataRecord(offset, header, offset + header.header_words * WORD, start, size, end)


def data_extent(header: DataHeader, offset: int, file_size: int) -> tuple[int, int]:
    """Return the start of the application's data of the record at `offset`, and the end of its padding.

    FormatError if the lengths in `header` are inconsistent or exceed the file's size.
    """
    header_words, message_words, options_words, *_ = header
    end = offset + message_words * WORD
    if header_words * WORD < HEADER_SIZE:
        raise FormatError("DataHeader.header_words", offset, f"{header_words} is below {HEADER_SIZE // WORD}")
    if end > file_size:
        reason = f"{message_words} words, {(file_size - offset) // WORD} left"
        raise FormatError("DataHeader.message_words", offset, reason)
    if message_words % 2:
        raise FormatError("DataHeader.message_words", offset, f"{message_words} is odd, records fill double words")
    start = offset + (header_words + options_words) * WORD
    if start >= end:
        reason = f"header of {header_words} and options of {options_words} words fill all {message_words}"
        raise FormatError("DataHeader.options_words", offset + 4, reason)
    return start, end


def write_data_record(
    buffer: bytearray | memoryview,
    offset: int,
    app_data: Buffer,
    options: Buffer = b"",
    flags: int = 0,
    schema_id: int = 0,
) -> int:
    """Write a record at `offset`, a multiple of 8, and return the offset after it.

    `options` must fill whole words; the buffer must have room for `data_record_size` bytes.
    """
    size, head, padding = data_record_frame(len(app_data), flags, schema_id, options)
    buffer[offset : offset + size] = b"".join((head, app_data, padding))
    return offset + size


def data_record_frame(
    app_data_size: int, flags: int, schema_id: int, options: Buffer = b""
) -> tuple[int, bytes, bytes]:
    """Return the size of a record, and the bytes that `write_data_record` writes before and after its data."""
    options_size = len(options)
    size = HEADER_SIZE + options_size + app_data_size
    pad = DWORD - size % DWORD
    size += pad
    head = _header(_HEADER_WORD | size // WORD, options_size // WORD << 8 | flags, schema_id, b"")
    return size, head + options if options_size else head, PADDING[pad]


_HEADER_WORD: Final = HEADER_SIZE // WORD << 29
_header: Final = DATA_HEADER.words.pack
