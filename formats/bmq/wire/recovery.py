"""RECOVERY: chunks of a partition's files for a node that is catching up (source: bmqp::RecoveryHeader).

A message is a `RecoveryHeader` and the chunk, a whole number of words; the last one, which is `final`, may be empty.
Brokers that recover by PARTITION_SYNC do not send it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from formats.bmq.codes import RecoveryFileChunkType
from formats.bmq.padding import WORD
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, raw, u8, u16, u32

__all__ = [
    "RECOVERY_HEADER",
    "RecoveryChunk",
    "RecoveryFileChunkType",
    "RecoveryHeader",
    "append_chunk",
    "is_sound",
    "iter_chunks",
]

NO_MD5 = bytes(16)


class RecoveryHeader(NamedTuple):
    """The header of a message; `md5` is the digest of the chunk, or zeros if the sender made none.

    bmqp::RecoveryHeader, 28 bytes:

         0 | final 1 | reserved_bits 3 | message_words 28                      |
         4 | reserved 8 | header_words 4 | file_chunk_type 4 | partition_id 16 |
         8 | chunk_sequence_number 32                                          |
        12 | md5 128                                                           |
    """

    final: Annotated[int, bits(1), "1 for the last chunk of the file."]
    reserved_bits: Annotated[int, bits(3), "Reserved; written as zero."]
    message_words: Annotated[int, bits(28), "Words of the whole message: header, chunk and padding."]
    reserved: Annotated[int, u8, "Reserved; written as zero."]
    header_words: Annotated[int, bits(4), "Words of this header."]
    file_chunk_type: Annotated[int, bits(4), "A RecoveryFileChunkType."]
    partition_id: Annotated[int, u16, "The partition's number."]
    chunk_sequence_number: Annotated[int, u32, "The chunk's number."]
    md5: Annotated[bytes, raw(16), "MD5 of the chunk; zeros if the sender made none."]


RECOVERY_HEADER = Layout(RecoveryHeader, size=28, upstream="bmqp::RecoveryHeader")
_HEADER_SIZE = RECOVERY_HEADER.size


class RecoveryChunk(NamedTuple):
    """A chunk; `data` is a view into the event's buffer."""

    final: bool
    file_chunk_type: int
    partition_id: int
    chunk_sequence_number: int
    md5: bytes
    data: memoryview


def iter_chunks(buffer: memoryview, start: int, end: int) -> Iterator[RecoveryChunk]:
    """Yield the chunks of the body `buffer[start:end]`. FormatError at the first malformed one."""
    while start < end:
        if end - start < _HEADER_SIZE:
            raise FormatError("RecoveryHeader", start, f"needs {_HEADER_SIZE} bytes, {end - start} left")
        head = RECOVERY_HEADER.unpack(buffer, start)
        data = start + head.header_words * WORD
        chunk_end = start + head.message_words * WORD
        if head.header_words * WORD < _HEADER_SIZE or data > chunk_end or chunk_end > end:
            reason = f"{head.message_words} words, {head.header_words} of them header, {(end - start) // WORD} left"
            raise FormatError("RecoveryHeader.message_words", start, reason)
        yield RecoveryChunk(
            bool(head.final),
            head.file_chunk_type,
            head.partition_id,
            head.chunk_sequence_number,
            head.md5,
            buffer[data:chunk_end],
        )
        start = chunk_end


def append_chunk(
    out: bytearray,
    file_chunk_type: RecoveryFileChunkType,
    partition_id: int,
    chunk_sequence_number: int,
    data: Buffer,
    final: bool = False,
) -> None:
    """Append a chunk with its MD5 to a body; `data` must fill whole words."""
    head = RecoveryHeader(
        final,
        0,
        (_HEADER_SIZE + len(data)) // WORD,
        0,
        _HEADER_SIZE // WORD,
        file_chunk_type,
        partition_id,
        chunk_sequence_number,
        _md5(data) if data else NO_MD5,
    )
    out += RECOVERY_HEADER.pack(head)
    out += data


def is_sound(chunk: RecoveryChunk) -> bool:
    """Return True unless the header has another digest."""
    return chunk.md5 == NO_MD5 or chunk.md5 == _md5(chunk.data)


def _md5(data: Buffer) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
