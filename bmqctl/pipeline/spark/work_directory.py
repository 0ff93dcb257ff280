"""Temporary directories that are removed even if their process is killed, by the next process.

Each has a file that its process locks; the kernel releases the lock however the process ends. A process id in the name
would not do: ids are reused, and those of another container are invisible.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

__all__ = ["work_directory"]

_LOCK = ".bmqctl-lock"
_UNLOCKED_MAX_S = 3600


@contextmanager
def work_directory(prefix: str) -> Iterator[Path]:
    """Make a directory and remove it at the end; first remove directories of killed processes with the same prefix."""
    _remove_abandoned(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        unlocked = Path(name, f"{_LOCK}.new")
        with unlocked.open("w") as lock:
            flock(lock, LOCK_EX)
            # The name comes after the lock, so that an unlocked file is never found.
            unlocked.rename(Path(name, _LOCK))
            yield Path(name)


def _remove_abandoned(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                _remove_if_abandoned(path, status.st_mtime)


def _remove_if_abandoned(path: Path, changed_s: float) -> None:
    try:
        lock = (path / _LOCK).open("rb")
    except FileNotFoundError:
        # Another process is making it; or a JVM that briefly outlived its driver has made it again.
        if time.time() - changed_s > _UNLOCKED_MAX_S:
            shutil.rmtree(path)
        return
    with lock:
        flock(lock, LOCK_EX | LOCK_NB)
        shutil.rmtree(path)
