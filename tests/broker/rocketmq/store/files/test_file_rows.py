"""Rows of files: what is written goes into the file that is there, whatever was cut off or dropped before."""

from __future__ import annotations

import pytest

from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.files.file_rows import FileRow, OpenFiles
from tests.broker.rocketmq.folders import MemoryFolder

SIZE = 64


@pytest.fixture
def row() -> FileRow:
    return FileRow(MemoryFolder(), SIZE)


def write(row: FileRow, offset: int, data: bytes) -> None:
    buffer, place = row.spot(offset, len(data))
    buffer[place : place + len(data)] = data


def test_spots_are_in_the_file_that_has_the_offset(row: FileRow) -> None:
    for offset, data in ((0, b"one"), (SIZE, b"two"), (3, b"three"), (SIZE + 3, b"four")):
        write(row, offset, data)
    assert [bytes(file.buffer[:8]) for file in row.files] == [b"onethree", b"twofour\0"]


def test_file_that_was_cut_off_is_not_written_to(row: FileRow) -> None:
    write(row, SIZE - 8, b"12345678")
    write(row, SIZE, b"gone")
    row.cut(SIZE)
    write(row, SIZE, b"new")
    assert bytes(row.files[1].buffer[:4]) == b"new\0"


def test_file_that_was_dropped_is_not_written_to(row: FileRow) -> None:
    write(row, 0, b"first")
    row.drop_first()
    with pytest.raises(IndexError):
        row.spot(0, 4)


def test_file_that_the_system_does_not_open_is_refused_and_made_later() -> None:
    folder = MemoryFolder(is_out_of_descriptors=True)
    row = FileRow(folder, SIZE)
    with pytest.raises(DiskFull, match="00000000000000000064: Too many open files"):
        row.spot(SIZE, 4)
    assert (row.begin, row.end) == (0, 0)
    folder.is_out_of_descriptors = False
    write(row, SIZE, b"there")
    assert (row.begin, row.end) == (SIZE, 2 * SIZE)


def test_no_more_files_are_open_than_may_be() -> None:
    opened = OpenFiles(2)
    rows = [FileRow(MemoryFolder(), SIZE, opened) for _ in range(2)]
    for row in rows:
        write(row, 0, b"there")
    with pytest.raises(DiskFull, match=r"2 files of queues are open.*\(ulimit -n"):
        rows[0].spot(SIZE, 4)
    rows[1].close()
    write(rows[0], SIZE, b"there")
    assert opened.number == 2


def test_spot_without_disk_is_refused() -> None:
    row = FileRow(MemoryFolder(free=16), SIZE)
    write(row, 0, b"x" * 16)
    with pytest.raises(DiskFull):
        row.spot(16, 1)
    assert row.spot(0, 16)[1] == 0


def test_row_whose_files_were_all_cut_off_begins_anywhere(row: FileRow) -> None:
    write(row, 3 * SIZE, b"later")
    row.cut(0)
    write(row, SIZE, b"sooner")
    assert (row.begin, row.end) == (SIZE, 2 * SIZE)
    assert bytes(row.files[0].buffer[:6]) == b"sooner"
