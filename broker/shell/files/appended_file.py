"""A file that grows at its end by small pieces; each is on the disk when its write returns."""

from __future__ import annotations

import os
from pathlib import Path

from broker.shell.files.folders import flush_folder
from broker.shell.files.mapped_files import make_folder, open_private, open_regular, read_regular
from broker.shell.host.calls import HOST

__all__ = ["AppendedFile"]


class AppendedFile:
    """One file, created with its first piece. Only this object writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        make_folder(path.parent)
        self._fd: int | None = None
        self._end = 0
        self._is_sound = False

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def is_sound(self) -> bool:
        return self._is_sound

    def read(self) -> bytes:
        """Return its content; nothing if there is no such file. Raises `OSError`."""
        try:
            self._open(self._path)
        except FileNotFoundError:
            return b""
        data = read_regular(self._path)
        self._end = len(data)
        return data

    def _open(self, path: Path) -> None:
        fd = open_regular(path, os.O_WRONLY)
        self.close()
        self._fd = fd
        self._is_sound = True

    def append(self, data: bytes) -> None:
        """Write at the end, and wait for the disk.

        Raises `OSError`: after a full disk nothing has changed, otherwise the file is no longer sound.
        """
        assert self._fd is not None
        assert self._is_sound
        self._is_sound = False
        try:
            _write_all(self._fd, data, self._end)
        except OSError:
            os.ftruncate(self._fd, self._end)
            self._is_sound = True
            raise
        HOST.flush_data(self._fd)
        self._end += len(data)
        self._is_sound = True

    def replace(self, data: bytes) -> None:
        """Replace its content, atomically, on the disk.

        Raises `OSError`: it then has its old content, or has the new one and is not sound.
        """
        fresh = self._path.with_name(f"{self._path.name}.tmp")
        fd = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_all(fd, data, 0)
            HOST.flush_data(fd)
            fresh.replace(self._path)
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd, self._end = fd, len(data)
        # Until then, a power failure may bring the old file back: nothing may be appended to the new one.
        flush_folder(self._path.parent)
        self._is_sound = True

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self._is_sound = False


def _write_all(fd: int, data: bytes, at: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, at)
        left, at = left[written:], at + written
