"""The scan of a file: its content, a chunk of it in memory at a time, while a broker writes to it."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bmqctl.stores.blazingmq.read.scan import JournalScan
from formats.bmq.disk.columns import count_kinds, kinds_of, sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.journal import ANY_RECORD, RecordType, decode_record
from formats.bmq.disk.journal_packing import pack_confirm, pack_sync_point
from formats.bmq.stores.recover import journal_extent
from formats.errors import FormatError
from tests.golden.archives import STORES, only

Golden = Callable[[str], Path]
HEADERS = initial_bytes(FileType.JOURNAL, 0)


def records(count: int, first: int = 1) -> bytes:
    out = bytearray(count * JOURNAL_RECORD_SIZE)
    for number in range(count):
        offset = number * JOURNAL_RECORD_SIZE
        pack_confirm(out, offset, 1, first + number, 100, 0, b"queue", b"appid", bytes(15) + b"1")
    return bytes(out)


def sequence_numbers(scan: JournalScan, start: int = 0, end: int | None = None, chunk_records: int = 7) -> list[int]:
    """Return the sequence numbers of all records in the chunks, after checking the chunks' own figures."""
    out: list[int] = []
    for chunk in scan.chunks(start, end, chunk_records):
        assert chunk.offset == scan.first_record_offset + chunk.first * JOURNAL_RECORD_SIZE
        assert chunk.indexes.tolist() == list(range(chunk.first, chunk.first + len(chunk.records)))
        out += ANY_RECORD.column(chunk.records, "sequence_number").tolist()
    return out


@pytest.mark.parametrize("name", STORES)
def test_golden_journals(golden: Golden, name: str) -> None:
    path = only(golden(name), ".bmq_journal")
    content = path.read_bytes()
    wanted = journal_extent(content)
    with JournalScan(path) as scan:
        assert scan.extent == wanted
        chunks = [chunk.records.copy() for chunk in scan.chunks(0, scan.extent.record_count, 100)]
    assert b"".join(chunk.tobytes() for chunk in chunks) == content[wanted.first_record_offset : wanted.end]


def test_any_part(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(HEADERS + records(100))
    with JournalScan(path) as scan:
        for start, end in [(0, None), (0, 100), (13, 14), (99, None), (100, None), (200, None), (5, 5), (7, 500)]:
            wanted = list(range(1, 101))[start:end]
            assert sequence_numbers(scan, start, end) == wanted
            assert sequence_numbers(scan, start, end, chunk_records=1000) == wanted


def test_an_unfinished_last_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(HEADERS + records(10)[:-1])
    with JournalScan(path) as scan:
        assert sequence_numbers(scan) == list(range(1, 10))
        assert scan.extent.record_count == 9


def test_holes_are_skipped(tmp_path: Path) -> None:
    """Sixteen GiB of holes around some records."""
    path = tmp_path / "journal"
    sync_point = bytearray(JOURNAL_RECORD_SIZE)
    pack_sync_point(sync_point, 0, 1, 7, 100, 1, 1, 7, 0, 5, 9)
    far = (8 << 30) // JOURNAL_RECORD_SIZE
    with path.open("wb") as file:
        file.write(HEADERS + records(5))
        file.seek(len(HEADERS) + far * JOURNAL_RECORD_SIZE)
        file.write(records(1, 6) + sync_point + records(2, 8))
        file.truncate(16 << 30)
    with JournalScan(path) as scan:
        assert scan.data_end < 9 << 30
        assert scan.extent.record_count == far + 4
        assert scan.extent.last_sync_point_offset == len(HEADERS) + (far + 1) * JOURNAL_RECORD_SIZE
        found = sequence_numbers(scan, chunk_records=1 << 16)
        assert [number for number in found if number] == list(range(1, 10))
        assert len(found) < 1 << 18


def test_memory_is_that_of_a_chunk(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(HEADERS + records(1000) * 500)
    with JournalScan(path) as scan:
        tracemalloc.start()
        try:
            assert scan.extent.record_count == 500_000
            total = sum(count_kinds(chunk.records)[RecordType.CONFIRM] for chunk in scan.chunks(chunk_records=1000))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert total == 500_000
    # Of thirty megabytes: the chunk, or the two blocks (of 65,536 records) that the search for the end has in hand.
    assert peak < 9 << 20


def test_a_file_cut_off_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(HEADERS + records(100))
    with JournalScan(path) as scan:
        chunks = scan.chunks(chunk_records=10)
        assert len(next(chunks).records) == 10
        os.truncate(path, len(HEADERS) + 15 * JOURNAL_RECORD_SIZE)
        assert [len(chunk.records) for chunk in chunks] == [5]
        assert scan.extent.record_count == 15
        os.truncate(path, 10)
        assert list(scan.chunks()) == []


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for content in (b"", HEADERS[:40], initial_bytes(FileType.DATA, 0), bytes(100)):
        path.write_bytes(content)
        with pytest.raises(FormatError):
            JournalScan(path)


def test_columns_see_what_the_decoder_takes(golden: Golden) -> None:
    """Flip bytes that make records unreadable, and bytes that do not."""
    content = bytearray(only(golden("single-clean"), ".bmq_journal").read_bytes())
    first = journal_extent(content).first_record_offset
    rng = np.random.default_rng(1)
    count = (len(content) - first) // JOURNAL_RECORD_SIZE
    for index in range(0, count, 2):
        at = first + index * JOURNAL_RECORD_SIZE
        where = int(rng.choice([0, 2, 8, 56, 30]))
        width = {0: 1, 2: 6, 8: 4, 56: 4, 30: 1}[where]
        content[at + where : at + where + width] = (
            rng.integers(0, 256, width, np.uint8).tobytes() if index % 3 else bytes(width)
        )
    found = np.frombuffer(content, ANY_RECORD.dtype, count, first)
    wanted = []
    for index in range(count):
        try:
            wanted.append(int(decode_record(content, first + index * JOURNAL_RECORD_SIZE).type))
        except FormatError:
            wanted.append(0)
    assert sound_kinds(found).tolist() == wanted
    assert 0 in wanted
    assert kinds_of(found).tolist() == [content[first + n * JOURNAL_RECORD_SIZE] >> 4 for n in range(count)]
    assert count_kinds(found).tolist() == np.bincount(kinds_of(found), minlength=16).tolist()
