"""Files that grow at their end, on real disks and full ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.shell.files.appended_file import AppendedFile
from broker.shell.host.calls import HOST


def test_pieces_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log"
    file = AppendedFile(path)
    assert (file.read(), file.is_sound) == (b"", False)
    file.replace(b"one")
    file.append(b"two")
    assert path.read_bytes() == b"onetwo"
    file.close()
    again = AppendedFile(path)
    assert again.read() == b"onetwo"
    again.append(b"three")
    assert path.read_bytes() == b"onetwothree"
    again.replace(b"four")
    again.append(b"five")
    assert path.read_bytes() == b"fourfive"
    assert sorted(each.name for each in path.parent.iterdir()) == ["log"]


def test_piece_that_does_not_fit_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendedFile(tmp_path / "log")
    file.replace(b"one")
    pwrite = os.pwrite

    def write_half(fd: int, data: memoryview, at: int) -> int:
        if len(data) < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data[:3], at)

    monkeypatch.setattr(os, "pwrite", write_half)
    with pytest.raises(OSError, match="No space"):
        file.append(b"abcdef")
    monkeypatch.undo()
    assert file.is_sound
    assert (tmp_path / "log").read_bytes() == b"one"
    file.append(b"two")
    assert (tmp_path / "log").read_bytes() == b"onetwo"


def test_file_is_not_sound_after_a_flush_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendedFile(tmp_path / "log")
    file.replace(b"one")

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(HOST, "flush_data", fail)
    sound = [file.is_sound]
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"two")
    sound.append(file.is_sound)
    with pytest.raises(OSError, match="Input/output"):
        file.replace(b"three")
    sound.append(file.is_sound)
    monkeypatch.undo()
    file.replace(b"three")
    assert [*sound, file.is_sound] == [True, False, False, True]
    assert (tmp_path / "log").read_bytes() == b"three"


def test_every_piece_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    flush_data = HOST.flush_data

    def count(fd: int) -> None:
        flushed.append(os.fstat(fd).st_size)
        flush_data(fd)

    monkeypatch.setattr(HOST, "flush_data", count)
    file = AppendedFile(tmp_path / "log")
    file.replace(b"one")
    file.append(b"two")
    assert flushed == [3, 6]
