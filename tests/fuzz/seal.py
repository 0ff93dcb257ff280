"""Corrects checksums in damaged records, so that a fuzzer gets past them."""

from __future__ import annotations

from crc32c import crc32c

from formats.bmq.padding import WORD

__all__ = ["seal_ledger", "seal_ledger_record"]


def seal_ledger_record(buffer: bytearray, offset: int) -> int:
    """Put the checksum of the ledger's record at `offset` at its end by the header, if that is inside.

    Returns the record's end, or that of `buffer`.
    """
    if offset + 2 * WORD > len(buffer):
        return len(buffer)
    words = (buffer[offset] >> 4) + (int.from_bytes(buffer[offset + WORD : offset + 2 * WORD], "big") & 0xFFF_FFFF)
    end = offset + words * WORD
    if end > len(buffer) or words < 2:
        return len(buffer)
    buffer[end - WORD : end] = crc32c(memoryview(buffer)[offset : end - WORD]).to_bytes(WORD, "big")
    return end


def seal_ledger(buffer: bytearray, offset: int) -> None:
    while offset < len(buffer):
        offset = seal_ledger_record(buffer, offset)
