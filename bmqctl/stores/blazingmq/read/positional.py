"""Reading by position, and the holes of a file, whose places the file system knows."""

from __future__ import annotations

import errno
import os

__all__ = ["data_end", "next_data", "read_into"]


def next_data(descriptor: int, offset: int) -> int | None:
    """Return the first offset at or after `offset` that is in no hole; None if there is none."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def data_end(descriptor: int) -> int:
    """Return the start of the file's last hole, or its size: nothing is written from there on."""
    end = 0
    try:
        while (start := next_data(descriptor, end)) is not None:
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # the file was truncated between the two calls
            raise
    return end


def read_into(descriptor: int, view: memoryview, offset: int) -> int:
    """Read from `offset` to the end of `view` or of the file; return the number of bytes read."""
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            break
        done += count
    return done
