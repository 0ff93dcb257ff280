"""A file read by range: never mapped, since another process may truncate it (SIGBUS), and never read as a whole."""

from __future__ import annotations

import errno
import os
from functools import cached_property
from pathlib import Path
from types import TracebackType

from bmqctl.common.regular import data_end, open_descriptor, read_into
from bmqctl.stores.blazingmq.read.files import NotAStoreFile

__all__ = ["FileSource"]

SECTOR_SIZE = 4096


class FileSource:
    """A read-only `formats.bmq.stores.source.Source` over a file.

    Leaves out a hole at the end, as made by preallocation. Bytes truncated while the file is read are zeros, as they
    were before they were written.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises NotAStoreFile if it is not a readable regular file."""
        self.path = path
        self.name = path.name
        self.unreadable: list[tuple[int, int]] = []
        """Ranges (offset, size in bytes) that the disk fails to read, in reading order: returned as zeros."""
        try:
            self._descriptor = open_descriptor(path)
        except OSError as error:
            raise NotAStoreFile(f"{path}: {error.strerror}") from None

    @cached_property
    def size(self) -> int:
        """The end of the file's data, cached from the first use."""
        return data_end(self._descriptor)

    def read(self, offset: int, size: int) -> memoryview:
        buffer = memoryview(bytearray(max(0, min(size, self.size - offset))))
        try:
            read_into(self._descriptor, buffer, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._read_around(buffer, offset)
        return buffer

    def _read_around(self, buffer: memoryview, offset: int) -> None:
        start = offset
        while start < offset + len(buffer):
            end = min((start // SECTOR_SIZE + 1) * SECTOR_SIZE, offset + len(buffer))
            try:
                read_into(self._descriptor, buffer[start - offset : end - offset], start)
            except OSError:
                buffer[start - offset : end - offset] = bytes(end - start)
                if (start, end - start) not in self.unreadable:
                    self.unreadable.append((start, end - start))
            start = end

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
