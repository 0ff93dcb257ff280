"""Temporary directories that do not outlive a killed process for long: the next one removes what it left.

Each has a file that its process holds locked. The kernel lets go of the lock however the process ends, which a process
id in the name would not tell: ids are used again, and those of another container are not to be seen.
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
    """A directory of our own, gone at the end; first, those of the same prefix go whose processes were killed."""
    _remove_abandoned(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        unlocked = Path(name, f"{_LOCK}.new")
        with unlocked.open("w") as lock:
            flock(lock, LOCK_EX)
            # It has its name when it is locked, so that nobody finds it otherwise.
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
        # It is being made; or a JVM that outlived its driver for a moment has made it again after it was removed.
        if time.time() - changed_s > _UNLOCKED_MAX_S:
            shutil.rmtree(path)
        return
    with lock:
        flock(lock, LOCK_EX | LOCK_NB)
        shutil.rmtree(path)
