"""Folders of the file system with folders in them; see `broker.rocketmq.store.ports.Folder`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from broker.common.files import StoreFile, put_away
from broker.shell.files import MappedFile, make_folder, set_aside
from broker.shell.host import HOST

__all__ = ["FileFolder", "flush_folder"]


class FileFolder:
    """A folder, made when it is missing. Whoever holds the store sees to it that nobody else does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        make_folder(path)

    @property
    def path(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._path.iterdir() if entry.is_file())

    def folders(self) -> list[str]:
        return sorted(entry.name for entry in self._path.iterdir() if entry.is_dir())

    def folder(self, name: str) -> FileFolder:
        return FileFolder(self._path / name)

    def open(self, name: str, size: int) -> MappedFile:
        return MappedFile(self._path / name, size)

    def remove(self, name: str) -> None:
        (self._path / name).unlink()

    def archive(self, name: str) -> None:
        self.remove(name)

    def put_away(self, files: Sequence[tuple[StoreFile, int]], failed: Callable[[Exception], None]) -> None:
        put_away(self, files, failed)

    def set_aside(self, name: str) -> str:
        return set_aside(self._path, name)

    def remove_folder(self, name: str) -> None:
        shutil.rmtree(self._path / name)

    def flush(self) -> None:
        # One that was removed, while a thread has files flushed, has nothing that could be lost.
        with suppress(FileNotFoundError):
            flush_folder(self._path)


def flush_folder(path: Path) -> None:
    """Wait until it is on the disk what is in a folder, by name."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        HOST.flush(folder)
    finally:
        os.close(folder)
