# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Files as the store sees them: writable buffers that may run out of disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from formats.schema import Buffer

__all__ = ["Directory", "StoreFile", "put_away"]


class StoreFile(Protocol):
    """One preallocated file.

    `buffer` is its whole length, in bytes, zero where nothing was written. Writes below the end that `reserve` granted
    cannot fail; other bytes may have no disk space allocated.
    """

    @property
    def name(self) -> str: ...

    @property
    def buffer(self) -> memoryview: ...

    @property
    def granted(self) -> int:
        """Disk is allocated for the bytes before this."""
        ...

    @property
    def data_end(self) -> int:
        """The offset from which all bytes are known to be zero without reading them; the file's length if unknown."""
        ...

    def reserve(self, end: int) -> bool:
        """Reserve disk space for the bytes before `end`. Return False and change nothing if the disk is full."""
        ...

    def write(self, start: int, data: Buffer) -> bool:
        """Reserve disk space and write there, which is faster than through `buffer` for long data.

        Return False and change nothing if the disk is full.
        """
        ...

    def flush(self) -> None:
        """Wait until all writes are on the disk."""
        ...

    def close(self, size: int | None = None) -> None:
        """Close the file; cut it to `size` bytes when given."""
        ...


class Directory(Protocol):
    """The folder of a store."""

    @property
    def path(self) -> str: ...

    def names(self) -> Iterable[str]: ...

    def open(self, name: str, size: int) -> StoreFile:
        """Open `name` for writing, created with `size` bytes if missing; an existing file keeps its size."""
        ...

    def remove(self, name: str) -> None: ...

    def archive(self, name: str) -> None:
        """Take a file out of service; keep or delete it, as configured."""
        ...

    def put_away(self, files: Sequence[tuple[StoreFile, int]], failed: Callable[[Exception], None]) -> None:
        """Close unused files, cut each to its size, and archive them, in this order.

        This may continue in a thread after the call; `failed` is called there on failure.
        """
        ...

    def set_aside(self, name: str) -> str:
        """Take a damaged file out of service, keep it for people, and return its new place."""
        ...

    def flush(self) -> None:
        """Wait until the names of the files are on the disk."""
        ...


def put_away(directory: Directory, files: Sequence[tuple[StoreFile, int]], failed: Callable[[Exception], None]) -> None:
    names = [file.name for file, _ in files]
    try:
        for file, size in files:
            file.close(size)
        for name in names:
            directory.archive(name)
    except (OSError, BufferError) as error:
        failed(error)
