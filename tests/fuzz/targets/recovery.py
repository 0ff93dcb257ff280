"""Any bytes as the body of a RECOVERY event are refused, or are chunks that can be written and read again.

A chunk with a wrong digest is read as unsound; one that was written here is sound.
"""

from __future__ import annotations

from formats.bmq.codes import RecoveryFileChunkType
from formats.bmq.wire.recovery import RecoveryChunk, append_chunk, is_sound, iter_chunks
from tests.fuzz.seeds import small_store

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[tuple[RecoveryChunk, bool]]:
    return [(chunk, is_sound(chunk)) for chunk in iter_chunks(memoryview(data), 0, len(data))]


def verify(data: bytes, chunks: list[tuple[RecoveryChunk, bool]]) -> None:
    out = bytearray()
    for chunk, _ in chunks:
        kind: RecoveryFileChunkType = chunk.file_chunk_type  # type: ignore[assignment]
        append_chunk(out, kind, chunk.partition_id, chunk.chunk_sequence_number, chunk.data, chunk.final)
    again = list(iter_chunks(memoryview(out), 0, len(out)))
    assert all(map(is_sound, again))
    assert [each._replace(md5=chunk.md5) for each, (chunk, _) in zip(again, chunks, strict=True)] == [
        chunk for chunk, _ in chunks
    ]


def seeds() -> list[bytes]:
    """No current broker sends the event: chunks of a store's files, written here."""
    out = []
    for number, buffer in enumerate(small_store().values(), 1):
        body = bytearray()
        whole = buffer[: len(buffer) // 4 * 4]
        append_chunk(body, RecoveryFileChunkType(number % 3 + 1), 1, 1, whole)
        append_chunk(body, RecoveryFileChunkType(number % 3 + 1), 1, 2, b"", final=True)
        out.append(bytes(body))
    return out
