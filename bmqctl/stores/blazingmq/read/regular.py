"""Opening of a store's files: regular files only, without waiting.

Opening a pipe would wait for its writer, and reading a device might never end.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

__all__ = ["open_buffered", "open_descriptor", "open_unbuffered", "regular_size"]


def open_descriptor(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file. Raises `OSError` with the path if it cannot be opened, or is none."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def regular_size(path: Path) -> int:
    """Return the size of a regular file, in bytes, without opening it. Raises like `open_descriptor`."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path)
    return status.st_size


def _not_regular(path: str | Path) -> OSError:
    return OSError(errno.EINVAL, "is not a regular file", str(path))


def open_buffered(path: Path) -> BufferedReader:
    """Open a regular file for reading; raises like `open_descriptor`."""
    return open(path, "rb", opener=open_descriptor)


def open_unbuffered(path: Path) -> FileIO:
    """Open a regular file for reading by position; raises like `open_descriptor`."""
    return open(path, "rb", buffering=0, opener=open_descriptor)
