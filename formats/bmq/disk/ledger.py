"""The cluster-state ledger: the log of partitions' primaries and of the cluster's queues.

Source: mqbc::ClusterStateFileHeader, mqbc::ClusterStateRecordHeader, mqbc::ClusterStateLedgerUtil.

    bmq_csl_<YYYYMMDD_HHMMSS>_<log id in hex>.bmq_csl

A `LedgerFileHeader`, then records, and possibly zeros. A record is a `LedgerRecordHeader`, a body (a BER-encoded
bmqp_ctrlmsg::ClusterMessage, padded to words), and the CRC32-C of both in the last word.
"""

from __future__ import annotations

import re
import struct
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from formats.bmq.disk.files import format_timestamp
from formats.bmq.disk.keys import KEY_SIZE, NULL_KEY
from formats.bmq.disk.padding import WORD, padding, unpadded_size
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, raw, u64, zeros

__all__ = [
    "LEDGER_EXTENSION",
    "LEDGER_FILE_HEADER",
    "LEDGER_RECORD_HEADER",
    "LedgerFileHeader",
    "LedgerFileName",
    "LedgerRecord",
    "LedgerRecordHeader",
    "LedgerRecordType",
    "build_ledger_record",
    "initial_ledger_bytes",
    "ledger_file_name",
    "open_ledger",
    "parse_ledger_file_name",
    "parse_ledger_record",
]

LEDGER_EXTENSION = ".bmq_csl"
PROTOCOL_VERSION = 1
_CRC = struct.Struct(">I")


class LedgerRecordType(IntEnum):
    """mqbc::ClusterStateRecordType."""

    UNDEFINED = 0
    SNAPSHOT = 1
    UPDATE = 2
    COMMIT = 3
    ACK = 4


class LedgerFileHeader(NamedTuple):
    """The header of the file; `file_key` is the log id, which is also in its name.

    mqbc::ClusterStateFileHeader, 8 bytes:

        0 | protocol_version 2 | header_words 6 | file_key 40 | reserved 16 |
    """

    protocol_version: Annotated[int, bits(2), "Version of the ledger's format: 1."]
    header_words: Annotated[int, bits(6), "Words of this header."]
    file_key: Annotated[bytes, raw(KEY_SIZE), "The log's id, which the file's name holds too."]
    reserved: Annotated[bytes, zeros(2), "Reserved; written as zero."]


class LedgerRecordHeader(NamedTuple):
    """The header of a record; `leader_advisory_words` counts body, padding and checksum, `timestamp` is in seconds.

    mqbc::ClusterStateRecordHeader, 32 bytes:

         0 | header_words 4 | record_type 4 | reserved 24 |
         4 | reserved_bits 4 | leader_advisory_words 28   |
         8 | elector_term 64                              |
        16 | sequence_number 64                           |
        24 | timestamp 64                                 |
    """

    header_words: Annotated[int, bits(4), "Words of this header."]
    record_type: Annotated[int, bits(4), "A LedgerRecordType."]
    reserved: Annotated[bytes, zeros(3), "Reserved; written as zero."]
    reserved_bits: Annotated[int, bits(4), "Reserved; written as zero."]
    leader_advisory_words: Annotated[int, bits(28), "Words of what follows the header: message, padding and checksum."]
    elector_term: Annotated[int, u64, "The term of the leader that wrote the record."]
    sequence_number: Annotated[int, u64, "The record's number within the term."]
    timestamp: Annotated[int, u64, "When the record was written, in seconds since the epoch."]


LEDGER_FILE_HEADER = Layout(LedgerFileHeader, size=8, upstream="mqbc::ClusterStateFileHeader")
LEDGER_RECORD_HEADER = Layout(LedgerRecordHeader, size=32, upstream="mqbc::ClusterStateRecordHeader")


class LedgerRecord(NamedTuple):
    """One record; `body` is the BER of a ClusterMessage without padding, `offset` and `end` are in bytes."""

    header: LedgerRecordHeader
    body: bytes
    crc32c: int
    offset: int
    end: int


class LedgerFileName(NamedTuple):
    """The parts of a ledger file's name."""

    timestamp: str
    log_id: bytes

    def __str__(self) -> str:
        return f"bmq_csl_{self.timestamp}_{self.log_id.hex().upper()}{LEDGER_EXTENSION}"


_NAME = re.compile(r"bmq_csl_(\d{8}_\d{6})_([0-9A-F]{10})\.bmq_csl", re.ASCII)


def ledger_file_name(created: datetime, log_id: bytes) -> str:
    """The name of a ledger created at `created` (UTC); see `format_timestamp`."""
    return str(LedgerFileName(format_timestamp(created), log_id))


def parse_ledger_file_name(name: str) -> LedgerFileName | None:
    """Parse a file name without its directory; None if it is not that of a ledger."""
    match = _NAME.fullmatch(name)
    return None if match is None else LedgerFileName(match[1], bytes.fromhex(match[2]))


def initial_ledger_bytes(log_id: bytes) -> bytes:
    header = LedgerFileHeader(PROTOCOL_VERSION, LEDGER_FILE_HEADER.size // WORD, log_id, bytes(2))
    return LEDGER_FILE_HEADER.pack(header)


def open_ledger(buffer: Buffer) -> tuple[LedgerFileHeader, int]:
    """Read the file header; return it and the first record's offset. FormatError if it is not a ledger's."""
    header = LEDGER_FILE_HEADER.unpack(buffer)
    if header.protocol_version != PROTOCOL_VERSION:
        raise FormatError("LedgerFileHeader.protocol_version", 0, f"{header.protocol_version} is unknown")
    if header.header_words * WORD < LEDGER_FILE_HEADER.size:
        raise FormatError("LedgerFileHeader.header_words", 0, f"{header.header_words} is below 2")
    if header.file_key == NULL_KEY:
        raise FormatError("LedgerFileHeader.file_key", 1, "is null")
    offset = header.header_words * WORD
    if offset > len(buffer):
        raise FormatError("LedgerFileHeader.header_words", 0, f"the file ends before byte {offset}")
    return header, offset


def build_ledger_record(
    record_type: LedgerRecordType, elector_term: int, sequence_number: int, timestamp: int, body: bytes
) -> bytes:
    """Encode a record with its checksum; `body` is the BER of a ClusterMessage, `timestamp` is in seconds."""
    pad = padding(len(body), WORD)
    words = (len(body) + len(pad) + _CRC.size) // WORD
    header = LedgerRecordHeader(
        LEDGER_RECORD_HEADER.size // WORD, record_type, bytes(3), 0, words, elector_term, sequence_number, timestamp
    )
    record = LEDGER_RECORD_HEADER.pack(header) + body + pad
    return record + _CRC.pack(crc32c(record))


def parse_ledger_record(buffer: Buffer, offset: int) -> LedgerRecord:
    """Parse the record at `offset`. FormatError if it is cut short, of unknown type, or its checksum is wrong."""
    header = LEDGER_RECORD_HEADER.unpack(buffer, offset)
    start = offset + header.header_words * WORD
    end = start + header.leader_advisory_words * WORD
    if header.header_words * WORD < LEDGER_RECORD_HEADER.size:
        reason = f"{header.header_words} is below {LEDGER_RECORD_HEADER.size // WORD}"
        raise FormatError("LedgerRecordHeader.header_words", offset, reason)
    if not LedgerRecordType.SNAPSHOT <= header.record_type <= LedgerRecordType.ACK:
        raise FormatError("LedgerRecordHeader.record_type", offset, f"{header.record_type} is no record type")
    if end > len(buffer) or header.leader_advisory_words < 2:
        reason = f"{header.leader_advisory_words} words, {(len(buffer) - start) // WORD} left"
        raise FormatError("LedgerRecordHeader.leader_advisory_words", offset + 4, reason)
    (stored,) = _CRC.unpack_from(buffer, end - _CRC.size)
    computed = crc32c(memoryview(buffer)[offset : end - _CRC.size])
    if stored != computed:
        raise FormatError("LedgerRecord.crc32c", end - _CRC.size, f"{stored:#010x}, computed {computed:#010x}")
    size = unpadded_size(buffer, start, end - _CRC.size, WORD, "LedgerRecord.padding")
    return LedgerRecord(header, bytes(buffer[start : start + size]), stored, offset, end)
