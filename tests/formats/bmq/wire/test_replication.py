"""STORAGE, PARTITION_SYNC, REPLICATION_RECEIPT and RECOVERY: what nodes send each other about their stores."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import RecoveryFileChunkType, StorageFlag, StorageMessageType
from formats.bmq.wire.receipt import Receipt, build_receipt_event, parse_receipt
from formats.bmq.wire.recovery import RECOVERY_HEADER, RecoveryChunk, append_chunk, is_sound, iter_chunks
from formats.bmq.wire.storage import STORAGE_HEADER, StorageMessage, append_storage, iter_storage
from formats.errors import FormatError

RECORD = bytes(range(60))
u32s = st.integers(0, (1 << 32) - 1)
words = st.lists(st.binary(min_size=4, max_size=4), max_size=5).map(b"".join)
messages = st.builds(
    StorageMessage,
    st.sampled_from([0, StorageFlag.RECEIPT_REQUESTED]),
    st.sampled_from(StorageMessageType),
    st.integers(0, (1 << 16) - 1),
    u32s,
    st.binary(min_size=60, max_size=60).map(memoryview),
    words.map(memoryview),
)
chunks = st.tuples(st.sampled_from(RecoveryFileChunkType), st.integers(0, (1 << 16) - 1), u32s, words, st.booleans())


def body(*items: StorageMessage) -> bytearray:
    out = bytearray()
    for each in items:
        append_storage(
            out,
            each.message_type,
            each.partition_id,
            each.journal_offset_words,
            each.record,
            each.data,
            each.flags,
        )
    return out


def stored(data: bytes | bytearray) -> list[StorageMessage]:
    return list(iter_storage(memoryview(data), 0, len(data)))


@given(st.lists(messages, max_size=4))
def test_records_come_back(wanted: list[StorageMessage]) -> None:
    assert stored(body(*wanted)) == wanted


ONE = StorageMessage(
    StorageFlag.RECEIPT_REQUESTED, StorageMessageType.DATA, 3, 0x0B0C, memoryview(RECORD), memoryview(b"data")
)


def test_the_bytes_of_a_record() -> None:
    assert body(ONE) == bytes.fromhex("08000013 13010003 00000b0c") + RECORD + b"data"


@pytest.mark.parametrize(
    "changes",
    [
        {"message_words": 0},
        {"message_words": 17},
        {"message_words": 20},
        {"header_words": 2},
        {"header_words": 5},
        {"storage_protocol_version": 0},
        {"storage_protocol_version": 2},
    ],
)
def test_impossible_storage_headers_are_refused(changes: dict[str, Any]) -> None:
    data = body(ONE)
    STORAGE_HEADER.pack_into(data, 0, STORAGE_HEADER.unpack(data)._replace(**changes))
    with pytest.raises(FormatError, match="StorageHeader"):
        stored(data)


def test_a_cut_record_is_refused() -> None:
    with pytest.raises(FormatError, match="71 left"):
        list(iter_storage(memoryview(body(ONE)), 0, 71))


@given(u32s, u32s, st.integers(0, (1 << 64) - 1))
def test_receipts_come_back(partition_id: int, primary_lease_id: int, sequence_number: int) -> None:
    event = build_receipt_event(partition_id, primary_lease_id, sequence_number)
    assert parse_receipt(event, 8, len(event)) == Receipt(partition_id, sequence_number, primary_lease_id)


def test_the_bytes_of_a_receipt() -> None:
    event = build_receipt_event(partition_id=1, primary_lease_id=2, sequence_number=3)
    assert event == bytes.fromhex("00000018 4e020000 00000001 00000000 00000003 00000002")


def test_a_cut_receipt_is_refused_even_if_more_bytes_follow_in_the_buffer() -> None:
    event = build_receipt_event(1, 2, 3)
    with pytest.raises(FormatError, match="15 left"):
        parse_receipt(event, 8, len(event) - 1)


@pytest.mark.slow
@given(st.lists(chunks, max_size=4))
def test_chunks_come_back(wanted: list[tuple[RecoveryFileChunkType, int, int, bytes, bool]]) -> None:
    out = bytearray()
    for each in wanted:
        append_chunk(out, *each)
    read = list(iter_chunks(memoryview(out), 0, len(out)))
    assert all(is_sound(chunk) for chunk in read)
    assert [
        (chunk.file_chunk_type, chunk.partition_id, chunk.chunk_sequence_number, bytes(chunk.data), chunk.final)
        for chunk in read
    ] == wanted


def chunk_body() -> bytearray:
    out = bytearray()
    append_chunk(out, RecoveryFileChunkType.JOURNAL, 3, 9, b"chunk...", final=True)
    return out


def test_the_bytes_of_a_chunk() -> None:
    digest = hashlib.md5(b"chunk...").hexdigest()
    assert chunk_body() == bytes.fromhex("80000009 00720003 00000009" + digest) + b"chunk..."


def test_a_changed_chunk_is_not_sound() -> None:
    out = chunk_body()
    out[-1] ^= 1
    (chunk,) = iter_chunks(memoryview(out), 0, len(out))
    assert not is_sound(chunk)


def test_a_chunk_without_a_digest_is_taken_as_it_is() -> None:
    assert is_sound(RecoveryChunk(False, RecoveryFileChunkType.DATA, 0, 0, bytes(16), memoryview(b"data")))


@pytest.mark.parametrize(
    "changes", [{"message_words": 0}, {"message_words": 10}, {"header_words": 6}, {"header_words": 10}]
)
def test_impossible_recovery_headers_are_refused(changes: dict[str, Any]) -> None:
    out = chunk_body()
    RECOVERY_HEADER.pack_into(out, 0, RECOVERY_HEADER.unpack(out)._replace(**changes))
    with pytest.raises(FormatError, match="RecoveryHeader"):
        list(iter_chunks(memoryview(out), 0, len(out)))


def test_a_cut_chunk_is_refused() -> None:
    with pytest.raises(FormatError, match="27 left"):
        list(iter_chunks(memoryview(chunk_body()), 0, 27))
