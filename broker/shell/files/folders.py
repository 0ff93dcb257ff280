"""Folders of the file system with folders in them; see `broker.rocketmq.store.ports.Folder`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from broker.common.files import StoreFile, put_away
from broker.shell.files.mapped_files import MappedFile, make_folder, set_aside
from broker.shell.host.calls import HOST

__all__ = ["FileFolder", "FolderView", "RootFolder", "SpreadFolder", "flush_folder"]


class FileFolder:
    """A folder, created if missing. The holder of the store ensures that no other process uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        make_folder(path)

    @property
    def path(self) -> str:
        return str(self._path)

    def path_of(self, name: str) -> str:
        return str(self._path / name)

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
        # A folder removed while a thread has files flushed has nothing to lose.
        with suppress(FileNotFoundError):
            flush_folder(self._path)


class RootFolder(FileFolder):
    """A folder of which some folders are elsewhere: `elsewhere` has them by their names."""

    def __init__(self, path: Path, elsewhere: Mapping[str, FileFolder]) -> None:
        super().__init__(path)
        self._elsewhere = elsewhere

    def folders(self) -> list[str]:
        return sorted({*super().folders(), *self._elsewhere})

    def folder(self, name: str) -> FileFolder:
        return self._elsewhere.get(name) or super().folder(name)


class SpreadFolder(FileFolder):
    """Several folders whose files make one row, each file named by its offset (source: MultiPathMappedFileQueue).

    New files are created in the folders in turn, except in the `read_only` ones and, if another one is left, those for
    which `is_full` is true. A file that two folders have is in `names` twice.
    """

    def __init__(self, paths: Sequence[Path], read_only: Sequence[Path], is_full: Callable[[Path], bool]) -> None:
        self._written = sorted({*paths} - {*read_only}, key=str)
        self._all = [*self._written, *read_only]
        self._is_full = is_full
        for path in self._written:
            make_folder(path)
        self._path = self._written[0]

    @property
    def path(self) -> str:
        return ",".join(map(str, self._all))

    def path_of(self, name: str) -> str:
        return str(self._find(name) or self._path / name)

    def _find(self, name: str) -> Path | None:
        return next((path / name for path in self._all if (path / name).exists()), None)

    def names(self) -> list[str]:
        return _names(self._all)

    def folders(self) -> list[str]:
        return []

    def open(self, name: str, size: int) -> MappedFile:
        found = self._find(name)
        if found is None:
            free = [path for path in self._written if not self._is_full(path)] or self._written
            found = free[int(name) // size % len(free)] / name
        return MappedFile(found, size)

    def remove(self, name: str) -> None:
        (self._find(name) or self._path / name).unlink()

    def set_aside(self, name: str) -> str:
        return set_aside((self._find(name) or self._path / name).parent, name)

    def flush(self) -> None:
        for path in self._written:
            flush_folder(path)


def _names(paths: Sequence[Path]) -> list[str]:
    return sorted(entry.name for path in paths for entry in _entries(path) if entry.is_file())


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return [*found]
    except FileNotFoundError:
        return []


class FolderView:
    """A folder, or several whose files make one row, for reading only. A missing folder is empty.

    `elsewhere` has the folders in it that are at other paths, by their names.
    """

    def __init__(self, *paths: Path, elsewhere: Mapping[str, Sequence[Path]] | None = None) -> None:
        self._paths = paths
        self._elsewhere = elsewhere or {}

    @property
    def path(self) -> str:
        return ",".join(map(str, self._paths))

    def path_of(self, name: str) -> str:
        return str(self._path(name))

    def _path(self, name: str) -> Path:
        return next((path / name for path in self._paths if (path / name).exists()), self._paths[0] / name)

    def names(self) -> list[str]:
        """Return the files' names, in order; one that two folders have comes twice."""
        return _names(self._paths)

    def folders(self) -> list[str]:
        there = {entry.name for path in self._paths for entry in _entries(path) if entry.is_dir()}
        return sorted({*there, *self._elsewhere})

    def folder(self, name: str) -> FolderView:
        return FolderView(*self._elsewhere.get(name, [path / name for path in self._paths]))

    def size_of(self, name: str) -> int:
        """Return the length of a file, in bytes. Raises `OSError`."""
        return self._path(name).stat().st_size

    @contextmanager
    def reading(self, name: str) -> Iterator[Callable[[int, int], bytes]]:
        """Open a file for the context: the function returns bytes from an offset on, fewer at its end.

        Raises `OSError`.
        """
        with self._path(name).open("rb", buffering=0) as file:
            yield lambda at, size: os.pread(file.fileno(), size, at)


def flush_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        HOST.flush(folder)
    finally:
        os.close(folder)
