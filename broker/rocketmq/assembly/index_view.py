"""The layout of a store's index files, read without changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from broker.shell.files.folders import FolderView
from formats.rocketmq.files.index_sizes import IndexBytes, IndexLayout, most_common_layout

__all__ = ["index_layout"]

_CHUNK_BYTES: Final = 1 << 20


class _File(IndexBytes):
    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self.size = size
        self._read = read

    def read(self, at: int, size: int) -> bytes:
        return self._read(at, size).ljust(size, b"\0")

    def places_of(self, wanted: bytes) -> Iterator[int]:
        for at in range(0, self.size, _CHUNK_BYTES):
            data = self._read(at, _CHUNK_BYTES + len(wanted) - 1)
            place = data.find(wanted)
            while place >= 0:
                yield at + place
                place = data.find(wanted, place + 1)


def index_layout(folder: FolderView, names: Sequence[str]) -> IndexLayout | None:
    """Return the numbers of slots and entries of a store's index files; None if no file shows them."""
    return most_common_layout(_open_each(folder, names))


def _open_each(folder: FolderView, names: Sequence[str]) -> Iterator[IndexBytes]:
    for name in names:
        with folder.reading(name) as read:
            yield _File(folder.size_of(name), read)
