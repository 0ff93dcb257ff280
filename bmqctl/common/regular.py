"""Opening of regular files only, and reading by position without holes.

Opening a pipe would wait for its writer; reading a device might never end.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

__all__ = ["data_end", "next_data", "open_buffered", "open_descriptor", "open_unbuffered", "read_into", "regular_size"]


def open_descriptor(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file. Raises `OSError` with the path if it cannot be opened, or is not regular."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def regular_size(path: Path) -> int:
    """The size of a regular file in bytes, without opening it. Raises like `open_descriptor`."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path)
    return status.st_size


def _not_regular(path: str | Path) -> OSError:
    return OSError(errno.EINVAL, "is not a regular file", str(path))


def open_buffered(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises like `open_descriptor`."""
    return open(path, "rb", opener=open_descriptor)


def open_unbuffered(path: Path) -> FileIO:
    """Open a regular file for reading by position. Raises like `open_descriptor`."""
    return open(path, "rb", buffering=0, opener=open_descriptor)


def next_data(descriptor: int, offset: int) -> int | None:
    """The first offset at or after `offset` outside any hole; None if there is none."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def data_end(descriptor: int) -> int:
    """The start of the file's last hole, or its size: nothing is written from there on."""
    end = 0
    try:
        while (start := next_data(descriptor, end)) is not None:
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # the file was truncated between the two calls
            raise
    return end


def read_into(descriptor: int, view: memoryview, offset: int) -> int:
    """Read from `offset` to the end of `view` or of the file; return the number of bytes."""
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            break
        done += count
    return done
