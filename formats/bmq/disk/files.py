"""The three files of a partition: their names, their grouping, and the headers at their start.

Source: mqbs::FileHeader, mqbs::DataFileHeader, mqbs::JournalFileHeader, mqbs::QlistFileHeader, mqbs::FileStoreUtil.

    bmq_<partition id>.<YYYYMMDD_HHMMSS>.bmq_{data,journal,qlist}

A file begins with a `FileHeader` and then, by type, a `DataFileHeader`, `JournalFileHeader` or `QlistFileHeader`. The
reference always writes the null key as file key, in the header and in every message record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from formats.bmq.disk.keys import KEY_SIZE, NULL_KEY
from formats.bmq.disk.padding import WORD
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, i32, raw, u8, u32, u64, zeros

__all__ = [
    "DATA_FILE_HEADER",
    "DATA_FILE_SIZE_MAX",
    "FILE_HEADER",
    "HEADERS_SIZE_MAX",
    "JOURNAL_FILE_HEADER",
    "JOURNAL_FILE_SIZE_MAX",
    "JOURNAL_RECORD_SIZE",
    "MAGIC1",
    "MAGIC2",
    "MAGIC_SIZE",
    "QLIST_FILE_HEADER",
    "QLIST_FILE_SIZE_MAX",
    "DataFileHeader",
    "FileHeader",
    "FileSet",
    "FileType",
    "JournalFileHeader",
    "OpenedFile",
    "QlistFileHeader",
    "StoreFileName",
    "file_name",
    "format_timestamp",
    "group_file_sets",
    "initial_bytes",
    "open_file",
    "parse_file_name",
    "recovery_set",
    "rollover_finished",
]

MAGIC1 = 0x21626D71  # !bmq
MAGIC2 = 0x424D5121  # BMQ!
MAGIC_SIZE = 8  # both, at the start of the file
PROTOCOL_VERSION = 1
BITNESS_64 = 1
JOURNAL_RECORD_SIZE = 60

# Limits of the offset fields of records.
DATA_FILE_SIZE_MAX = 0xFFFF_FFFF * 8
JOURNAL_FILE_SIZE_MAX = 0xFFFF_FFFF * 4
QLIST_FILE_SIZE_MAX = 0xFFFF_FFFF * 4


class FileType(IntEnum):
    """mqbs::FileType; `extension` ends the file's name."""

    UNDEFINED = 0
    DATA = 1
    JOURNAL = 2
    QLIST = 3

    @property
    def extension(self) -> str:
        return f".bmq_{self.name.lower()}"


class FileHeader(NamedTuple):
    """The first header of every partition file; the magics are "!bmq" and "BMQ!", `bitness` is 1 for a 64-bit writer.

    mqbs::FileHeader, 32 bytes:

         0 | magic1 32                                                                    |
         4 | magic2 32                                                                    |
         8 | protocol_version 2 | header_words 6 | bitness 1 | file_type 7 | reserved1 80 |
        20 | partition_id 32                                                              |
        24 | reserved2 64                                                                 |
    """

    magic1: Annotated[int, u32, '0x21626D71, "!bmq".']
    magic2: Annotated[int, u32, '0x424D5121, "BMQ!".']
    protocol_version: Annotated[int, bits(2), "Version of the file format: 1."]
    header_words: Annotated[int, bits(6), "Words of this header."]
    bitness: Annotated[int, bits(1), "1 for a 64-bit writer."]
    file_type: Annotated[int, bits(7), "A FileType."]
    reserved1: Annotated[bytes, zeros(10), "Reserved; written as zero."]
    partition_id: Annotated[int, i32, "The partition's number."]
    reserved2: Annotated[bytes, zeros(8), "Reserved; written as zero."]


class DataFileHeader(NamedTuple):
    """Follows the FileHeader of a DATA file.

    mqbs::DataFileHeader, 8 bytes:

        0 | header_words 8 | reserved1 8 | file_key 40 | reserved2 8 |
    """

    header_words: Annotated[int, u8, "Words of this header."]
    reserved1: Annotated[bytes, zeros(1), "Reserved; written as zero."]
    file_key: Annotated[bytes, raw(KEY_SIZE), "Not used; the null key."]
    reserved2: Annotated[bytes, zeros(1), "Reserved; written as zero."]


class JournalFileHeader(NamedTuple):
    """Follows the FileHeader of a JOURNAL file.

    `first_sync_point_after_rollover_offset_words` is 0 until a rollover into this file has completed. It is written
    last, and shows that the file holds everything that was alive in its predecessor.

    mqbs::JournalFileHeader, 12 bytes:

        0 | header_words 8 | record_words 8 | reserved 16   |
        4 | first_sync_point_after_rollover_offset_words 64 |
    """

    header_words: Annotated[int, u8, "Words of this header."]
    record_words: Annotated[int, u8, "Words of each record: 15."]
    reserved: Annotated[bytes, zeros(2), "Reserved; written as zero."]
    first_sync_point_after_rollover_offset_words: Annotated[
        int,
        u64,
        "Where the first sync point after a rollover lies, in words; 0 until the rollover into this file is complete.",
    ]


class QlistFileHeader(NamedTuple):
    """Follows the FileHeader of a QLIST file.

    mqbs::QlistFileHeader, 4 bytes:

        0 | header_words 8 | reserved 24 |
    """

    header_words: Annotated[int, u8, "Words of this header."]
    reserved: Annotated[bytes, zeros(3), "Reserved; written as zero."]


FILE_HEADER = Layout(FileHeader, size=32, upstream="mqbs::FileHeader")
DATA_FILE_HEADER = Layout(DataFileHeader, size=8, upstream="mqbs::DataFileHeader")
JOURNAL_FILE_HEADER = Layout(JournalFileHeader, size=12, upstream="mqbs::JournalFileHeader")
QLIST_FILE_HEADER = Layout(QlistFileHeader, size=4, upstream="mqbs::QlistFileHeader")

# Each header gives its own size in words, in 6 and in 8 bits.
HEADERS_SIZE_MAX = (FILE_HEADER.mask("header_words") + 0xFF) * WORD

TypeHeader = DataFileHeader | JournalFileHeader | QlistFileHeader


class OpenedFile(NamedTuple):
    """The headers of a file, and the offset of its first record in bytes."""

    file: FileHeader
    header: TypeHeader
    file_type: FileType
    first_record_offset: int


def initial_bytes(file_type: FileType, partition_id: int) -> bytes:
    """The headers of a new file: 40 bytes for DATA, 44 for JOURNAL, 36 for QLIST."""
    file = FileHeader(
        MAGIC1,
        MAGIC2,
        PROTOCOL_VERSION,
        FILE_HEADER.size // WORD,
        BITNESS_64,
        file_type,
        bytes(10),
        partition_id,
        bytes(8),
    )
    if file_type is FileType.DATA:
        second = DATA_FILE_HEADER.pack(DataFileHeader(DATA_FILE_HEADER.size // WORD, b"\0", NULL_KEY, b"\0"))
    elif file_type is FileType.JOURNAL:
        words = JOURNAL_FILE_HEADER.size // WORD
        second = JOURNAL_FILE_HEADER.pack(JournalFileHeader(words, JOURNAL_RECORD_SIZE // WORD, bytes(2), 0))
    elif file_type is FileType.QLIST:
        second = QLIST_FILE_HEADER.pack(QlistFileHeader(QLIST_FILE_HEADER.size // WORD, bytes(3)))
    else:
        raise ValueError(f"no file of type {file_type.name}")
    return FILE_HEADER.pack(file) + second


def open_file(buffer: Buffer, expected: FileType | None = None) -> OpenedFile:
    """Read both headers at the start of `buffer`. FormatError if they or the file type are wrong.

    Like the reference, it accepts headers that are longer than the known ones, by their declared size.
    """
    file = FILE_HEADER.unpack(buffer)
    if (file.magic1, file.magic2) != (MAGIC1, MAGIC2):
        raise FormatError("FileHeader.magic", 0, f"{file.magic1:#010x} {file.magic2:#010x} is not '!bmqBMQ!'")
    if file.protocol_version != PROTOCOL_VERSION:
        raise FormatError("FileHeader.protocol_version", 8, f"{file.protocol_version} is unknown")
    if file.header_words * WORD < FILE_HEADER.size:
        raise FormatError("FileHeader.header_words", 8, f"{file.header_words} is below {FILE_HEADER.size // WORD}")
    if file.file_type not in (FileType.DATA, FileType.JOURNAL, FileType.QLIST):
        raise FormatError("FileHeader.file_type", 9, f"{file.file_type} is none of DATA, JOURNAL, QLIST")
    if file.partition_id < 0:
        raise FormatError("FileHeader.partition_id", 20, f"{file.partition_id} is negative")
    file_type = FileType(file.file_type)
    if expected is not None and file_type is not expected:
        raise FormatError("FileHeader.file_type", 9, f"this is a {file_type.name} file, not a {expected.name} file")
    offset = file.header_words * WORD
    if offset > len(buffer):
        raise FormatError("FileHeader.header_words", 8, f"the file ends before byte {offset}")
    header = _type_header(buffer, offset, file_type)
    end = offset + header.header_words * WORD
    if end > len(buffer):
        raise FormatError(f"{type(header).__name__}.header_words", offset, f"the file ends before byte {end}")
    return OpenedFile(file, header, file_type, end)


def _type_header(buffer: Buffer, offset: int, file_type: FileType) -> TypeHeader:
    if file_type is FileType.JOURNAL:
        header = JOURNAL_FILE_HEADER.unpack(buffer, offset)
        if header.record_words * WORD != JOURNAL_RECORD_SIZE:
            reason = f"records of {header.record_words} words, not {JOURNAL_RECORD_SIZE // WORD}"
            raise FormatError("JournalFileHeader.record_words", offset + 1, reason)
        return _sized(header, JOURNAL_FILE_HEADER.size, offset)
    if file_type is FileType.DATA:
        return _sized(DATA_FILE_HEADER.unpack(buffer, offset), DATA_FILE_HEADER.size, offset)
    return _sized(QLIST_FILE_HEADER.unpack(buffer, offset), QLIST_FILE_HEADER.size, offset)


def _sized(header: TypeHeader, size: int, offset: int) -> TypeHeader:
    if header.header_words * WORD < size:
        reason = f"{header.header_words} is below {size // WORD}"
        raise FormatError(f"{type(header).__name__}.header_words", offset, reason)
    return header


class StoreFileName(NamedTuple):
    """The parts of a file's name; `timestamp` is text, since names are ordered by it."""

    partition_id: int
    timestamp: str
    file_type: FileType

    def __str__(self) -> str:
        return f"bmq_{self.partition_id}.{self.timestamp}{self.file_type.extension}"


_NAME = re.compile(r"bmq_(0|[1-9]\d{0,9})\.(\d{8}_\d{6})\.bmq_(data|journal|qlist)", re.ASCII)


def format_timestamp(created: datetime) -> str:
    """Format `created`, which must be UTC, for a file name.

    The reference prints the ISO 8601 week-based year (strftime %G): around New Year its names are a year off and sort
    wrongly. Names made here have the calendar year.
    """
    return created.strftime("%Y%m%d_%H%M%S")


def file_name(partition_id: int, created: datetime, file_type: FileType) -> str:
    """The name of a file created at `created` (UTC)."""
    return str(StoreFileName(partition_id, format_timestamp(created), file_type))


def parse_file_name(name: str) -> StoreFileName | None:
    """Parse a file name without its directory; None if it is not that of a partition's file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return StoreFileName(int(match[1]), match[2], FileType[match[3].upper()])


class FileSet(NamedTuple):
    """The files of a partition that were created together; an absent one is None."""

    partition_id: int
    timestamp: str
    data: str | None
    journal: str | None
    qlist: str | None

    @property
    def complete(self) -> bool:
        """Return True if no file is absent; the reference leaves other sets out of recovery."""
        return None not in (self.data, self.journal, self.qlist)


def group_file_sets(names: Iterable[str]) -> list[FileSet]:
    """Group `names` (no directories) into file sets, by partition and then age, oldest first; ignore other names."""
    sets: dict[tuple[int, str], dict[FileType, str]] = {}
    for name in names:
        parsed = parse_file_name(name)
        if parsed is not None:
            sets.setdefault((parsed.partition_id, parsed.timestamp), {})[parsed.file_type] = name
    return [
        FileSet(partition_id, timestamp, *(found.get(t) for t in (FileType.DATA, FileType.JOURNAL, FileType.QLIST)))
        for (partition_id, timestamp), found in sorted(sets.items(), key=lambda item: item[0])
    ]


def rollover_finished(start: Buffer) -> bool:
    """Return True if a rollover completed the journal that begins with `start`. FormatError if it is not a journal."""
    header = open_file(start, FileType.JOURNAL).header
    assert isinstance(header, JournalFileHeader)
    return header.first_sync_point_after_rollover_offset_words != 0


def recovery_set(sets: Sequence[FileSet], finished: Callable[[FileSet], bool]) -> FileSet:
    """Choose the file set that a broker recovers from, among those of one partition, oldest first.

    It is the newest set that no unfinished rollover made, or else the oldest. `finished` is called only for sets with a
    predecessor (source: mqbs::FileStoreUtil::openRecoveryFileSet).
    """
    return next((files for files in reversed(sets[1:]) if finished(files)), sets[0])
