"""Small files that are written as a whole, with a copy of the previous content (source: MixAll.string2File)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from broker.shell.files.folders import flush_folder
from broker.shell.files.mapped_files import PRIVATE_FILE, make_folder, open_private, read_regular
from broker.shell.host.calls import HOST

__all__ = ["ConfigFile"]


class ConfigFile:
    """One file, for the node's account only. It is replaced atomically: a crash leaves the old or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._backup = path.with_name(f"{path.name}.bak")
        make_folder(path.parent)
        self._is_folder_kept = False

    @property
    def path(self) -> Path:
        return self._path

    def read(self) -> bytes:
        """Read the file, or its previous copy if it is missing or empty; return b"" if there is neither."""
        for path in (self._path, self._backup):
            try:
                data = read_regular(path)
            except FileNotFoundError:
                continue
            if data.strip(b"\0 \n"):
                return data
        return b""

    def write(self, data: bytes) -> None:
        """Replace the content by `data`, on the disk, too.

        Raises `OSError`. The file then has its old content, unless only the flush of the folder failed.
        """
        fresh = self._path.with_name(f"{self._path.name}.tmp")
        descriptor = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as file:
            # A file left by a crash may have another mode.
            os.fchmod(descriptor, PRIVATE_FILE)
            file.write(data)
            file.flush()
            HOST.flush_data(descriptor)
        self._backup.unlink(missing_ok=True)
        if self._path.exists():
            os.link(self._path, self._backup)
        fresh.replace(self._path)
        self._flush_folder()

    def remove(self) -> None:
        """Remove the file and its previous copy, on the disk, too. Raises `OSError`."""
        self._path.unlink(missing_ok=True)
        self._backup.unlink(missing_ok=True)
        self._flush_folder()

    def _flush_folder(self) -> None:
        flush_folder(self._path.parent)
        if not self._is_folder_kept:
            # The folder may be new. If it cannot be read, another account created it.
            with suppress(PermissionError):
                flush_folder(self._path.parent.parent)
            self._is_folder_kept = True
