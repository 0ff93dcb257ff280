"""Files read by range: what is no file, disks that fail, files that are cut off meanwhile."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.read.source import SECTOR_SIZE, FileSource
from tests.golden.archives import only

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]


def test_ranges(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with FileSource(path) as file:
        assert (file.name, file.size) == ("file", 10)
        assert [bytes(file.read(*each)) for each in ((0, 4), (8, 10), (10, 1), (20, 5))] == [b"0123", b"89", b"", b""]


def test_a_file_that_is_cut_off_reads_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with FileSource(path) as file:
        assert file.size == 10
        os.truncate(path, 4)
        assert bytes(file.read(2, 6)) == b"23\0\0\0\0"


def test_a_hole_at_the_end_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    os.truncate(path, 1 << 40)
    with FileSource(path) as file:
        assert file.size <= 1 << 20


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere"), lambda path: None])
def test_path_that_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "file")
    with pytest.raises(NotAStoreFile):
        FileSource(tmp_path / "file")


@pytest.mark.parametrize("command", [["validate"], ["repair", "--out", "out"]])
def test_a_directory_in_the_place_of_a_file_is_refused_in_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store" / "bmq_0.20261121_051104.bmq_journal").mkdir(parents=True)
    outcome = run(command[0], "store", *command[1:])
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)


@pytest.fixture
def failing(copy: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """A store on a disk with a bad sector: the name of the DATA file, and where in it."""
    data, bad = only(copy, ".bmq_data"), 3 * SECTOR_SIZE
    read, inode = os.preadv, data.stat().st_ino

    def preadv(descriptor: int, buffers: list[Any], offset: int) -> int:
        end = offset + sum(map(len, buffers))
        if os.fstat(descriptor).st_ino == inode and offset < bad + SECTOR_SIZE and end > bad:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    return data.name, bad


def test_a_bad_sector_is_a_fault(run: Run, copy: Path, failing: tuple[str, int]) -> None:
    outcome = run("validate", "--json", copy)
    found = json.loads(outcome.out)["faults"]
    assert outcome.code == 1
    assert [(f["file"], f["offset"]) for f in found if f["code"] == "unreadable"] == [failing]
    assert {f["code"] for f in found} & {"payload-checksum", "data-record"}


def test_repair_keeps_records_around_a_bad_sector(
    run: Run, copy: Path, tmp_path: Path, failing: tuple[str, int]
) -> None:
    outcome = run("repair", copy, "--out", tmp_path / "out", "--json")
    report = json.loads(outcome.out)
    assert (outcome.code, report["errors"]) == (1, 0)
    assert [(n["file"], n["offset"], n["size"]) for n in report["left_out"]] == [(*failing, SECTOR_SIZE)]
    lost = [note for note in report["partitions"][0]["left_out"] if note["what"] == "MESSAGE"]
    assert 0 < len(lost) < 30
    assert report["partitions"][0]["records"]["MESSAGE"] == 297 - len(lost)
