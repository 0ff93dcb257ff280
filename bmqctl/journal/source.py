"""A file read by range: never mapped, since another process may cut it off (SIGBUS), and never as a whole."""

from __future__ import annotations

import errno
import os
from functools import cached_property
from pathlib import Path
from types import TracebackType

__all__ = ["FileSource"]


class FileSource:
    """A `formats.disk.source.Source` over a file, opened for reading only.

    A hole at its end, as preallocation makes one, is left out. Bytes that a broker cuts off while the file is read
    come as zeros, as they were before they were written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @cached_property
    def size(self) -> int:
        """Where the file's bytes end: taken at the first use, and kept."""
        end = 0
        while True:
            try:
                end = os.lseek(self._descriptor, os.lseek(self._descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return end

    def read(self, offset: int, size: int) -> memoryview:
        """The `size` bytes from `offset`, or fewer where the file ends."""
        buffer = memoryview(bytearray(max(0, min(size, self.size - offset))))
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            if not count:
                break
            done += count
        return buffer

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
