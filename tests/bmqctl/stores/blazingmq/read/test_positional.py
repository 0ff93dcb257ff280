"""Holes and data of files, and reading by position."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bmqctl.common.regular import data_end, next_data, read_into

BLOCK = 1 << 16


@pytest.fixture
def descriptor(tmp_path: Path) -> int:
    """A hole, data, a hole, data and a hole, of a block each."""
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(opened, b"a" * BLOCK, BLOCK)
    os.pwrite(opened, b"b" * BLOCK, 3 * BLOCK)
    os.ftruncate(opened, 5 * BLOCK)
    return opened


def test_data_is_found_behind_holes(descriptor: int) -> None:
    found = [next_data(descriptor, block * BLOCK) for block in range(6)]
    assert found == [BLOCK, BLOCK, 3 * BLOCK, 3 * BLOCK, None, None]
    assert data_end(descriptor) == 4 * BLOCK


def test_a_file_without_data_or_without_holes_ends_where_it_does(tmp_path: Path) -> None:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert data_end(opened) == 0
    os.ftruncate(opened, BLOCK)
    assert data_end(opened) == 0
    os.pwrite(opened, b"a" * BLOCK, 0)
    assert data_end(opened) == BLOCK


def test_reading_stops_at_the_end_of_the_view_or_of_the_file(descriptor: int) -> None:
    view = memoryview(bytearray(8))
    assert read_into(descriptor, view, BLOCK - 4) == 8
    assert bytes(view) == bytes(4) + b"aaaa"
    assert read_into(descriptor, view, 5 * BLOCK - 3) == 3
    assert read_into(descriptor, view, 5 * BLOCK) == 0
