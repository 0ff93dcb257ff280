"""Small files that are written as a whole: what of them is on the disk when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.shell.files.config_files import ConfigFile
from broker.shell.host.calls import HOST


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, list[bytes]]]:
    """Note the folders that are flushed, and what is in their files then."""
    noted: list[tuple[Path, list[bytes]]] = []
    flush = HOST.flush

    def noting(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            noted.append((path, [each.read_bytes() for each in sorted(path.iterdir()) if each.is_file()]))
        flush(descriptor)

    monkeypatch.setattr(HOST, "flush", noting)
    return noted


def test_file_is_in_its_folder_for_good_when_it_is_written(
    tmp_path: Path, flushed: list[tuple[Path, list[bytes]]]
) -> None:
    folder = tmp_path / "config"
    file = ConfigFile(folder / "topics.json")
    file.write(b"old")
    # The folder itself is new, too.
    assert flushed == [(folder, [b"old"]), (tmp_path, [])]
    file.write(b"new")
    assert flushed[2:] == [(folder, [b"new", b"old"])]
    assert file.read() == b"new"
    file.path.unlink()
    assert file.read() == b"old"


def test_file_in_a_folder_whose_own_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ConfigFile(tmp_path / "config" / "topics.json")
    os_open = os.open

    def refusing(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if path == tmp_path:
            raise PermissionError(path)
        return os_open(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing)
    file.write(b"data")
    assert file.read() == b"data"
