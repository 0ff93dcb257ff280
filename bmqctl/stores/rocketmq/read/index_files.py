"""The index files of a store, read by position: a broker may be writing them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bmqctl.common.regular import next_data, open_descriptor, read_into
from formats.rocketmq.files.index_sizes import DEFAULT_LAYOUT, IndexBytes, IndexLayout, most_common_layout

__all__ = ["DEFAULT_LAYOUT", "IndexLayout", "OpenIndexFile", "find_layout", "opened"]

CHUNK_ENTRIES: Final = 1 << 16
_ASKED: Final = 8
_CHUNK_BYTES: Final = 1 << 20


class OpenIndexFile(IndexBytes):
    """An index file that is read by position."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def read(self, at: int, size: int) -> bytes:
        buffer = bytearray(size)
        read_into(self._descriptor, memoryview(buffer), at)
        return bytes(buffer)

    def places_of(self, wanted: bytes) -> Iterator[int]:
        at = next_data(self._descriptor, 0)
        while at is not None and at < self.size:
            data = self.read(at, min(_CHUNK_BYTES, self.size - at))
            place = data.find(wanted)
            while place >= 0:
                yield at + place
                place = data.find(wanted, place + 1)
            if at + len(data) >= self.size:
                return
            at = next_data(self._descriptor, at + len(data) - len(wanted) + 1)


class opened:
    """Open an index file while a context lasts; None if it has vanished."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> OpenIndexFile | None:
        try:
            self._descriptor = open_descriptor(self._path)
        except FileNotFoundError:
            return None
        return OpenIndexFile(self._path, self._descriptor)

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def find_layout(paths: Sequence[Path]) -> IndexLayout | None:
    """Find the numbers of slots and entries in a store's files; None if no file shows them."""
    return most_common_layout(_open_each(paths[:_ASKED]))


def _open_each(paths: Sequence[Path]) -> Iterator[IndexBytes]:
    for path in paths:
        with opened(path) as file:
            if file is not None:
                yield file
