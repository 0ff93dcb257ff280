"""The index files of a store: how many slots and entries they have, which they do not say, and their entries."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.journal.read.positional import next_data, read_into
from formats.rocketmq.index import INDEX_ENTRY, INDEX_HEADER, SLOT_BYTES, IndexFile, IndexHeader

__all__ = ["DEFAULT_LAYOUT", "IndexLayout", "OpenIndexFile", "find_layout", "opened"]

_ENTRY_BYTES: Final = INDEX_ENTRY.size
_HEADER_BYTES: Final = INDEX_HEADER.size
CHUNK_ENTRIES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 20


class IndexLayout(NamedTuple):
    """The number of slots of a file, and its room for entries, that with the number 0 included."""

    slots: int
    entries: int

    @property
    def size(self) -> int:
        """The size of a file."""
        return IndexFile.size_of(self.slots, self.entries)

    @property
    def entries_at(self) -> int:
        """The place of the entry with the number 0."""
        return _HEADER_BYTES + self.slots * SLOT_BYTES


DEFAULT_LAYOUT: Final = IndexLayout(5_000_000, 20_000_000)


class OpenIndexFile:
    """An index file that is read by position."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def read(self, at: int, size: int) -> bytes:
        """Read bytes; zeros behind the end of the file."""
        buffer = bytearray(size)
        read_into(self._descriptor, memoryview(buffer), at)
        return bytes(buffer)

    @property
    def header(self) -> IndexHeader:
        """The header as it is stored."""
        return INDEX_HEADER.unpack(self.read(0, _HEADER_BYTES))

    def entries(self, layout: IndexLayout, first: int, count: int) -> NDArray[Any]:
        """Read entries from a number on."""
        data = self.read(layout.entries_at + first * _ENTRY_BYTES, count * _ENTRY_BYTES)
        return np.frombuffer(data, INDEX_ENTRY.dtype)

    def slots(self, layout: IndexLayout) -> NDArray[np.int32]:
        """Read the table of slots."""
        found: NDArray[np.int32] = np.frombuffer(self.read(_HEADER_BYTES, layout.slots * SLOT_BYTES), ">i4").astype(
            "i4"
        )
        return found

    def slot(self, layout: IndexLayout, key_hash: int) -> int:
        """Read the slot into which a hash falls."""
        at = _HEADER_BYTES + key_hash % layout.slots * SLOT_BYTES
        return int.from_bytes(self.read(at, SLOT_BYTES), "big", signed=True)

    def places_of(self, wanted: bytes) -> Iterator[int]:
        """Find bytes anywhere in the file."""
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
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        return OpenIndexFile(self._path, self._descriptor)

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def find_layout(paths: Sequence[Path]) -> IndexLayout | None:
    """Find how many slots and entries the files of a store have; None if none of them shows it.

    With one size many numbers are possible. The right ones are those with which the entries are where the header and
    the slots say that they are.
    """
    for path in paths:
        with opened(path) as file:
            found = None if file is None else _layout_of(file)
            if found is not None:
                return found
    return None


def _layout_of(file: OpenIndexFile) -> IndexLayout | None:
    if file.size == DEFAULT_LAYOUT.size:
        return DEFAULT_LAYOUT
    header = file.header
    last = header.index_count - 1
    rest = file.size - _HEADER_BYTES
    if rest <= 0 or rest % SLOT_BYTES:
        return None
    # By default there are four entries for each slot.
    likely = IndexLayout(rest // (SLOT_BYTES + 4 * _ENTRY_BYTES), rest // (SLOT_BYTES + 4 * _ENTRY_BYTES) * 4)
    if likely.size == file.size and likely.slots and _fits(file, likely, header):
        return likely
    if last < 1 or last * _ENTRY_BYTES > rest or header.end_offset <= 0:
        return None
    for place in file.places_of(header.end_offset.to_bytes(8, "big")):
        slot_bytes = place - 4 - last * _ENTRY_BYTES - _HEADER_BYTES
        layout = IndexLayout(slot_bytes // SLOT_BYTES, (rest - slot_bytes) // _ENTRY_BYTES)
        if layout.slots > 0 and layout.size == file.size and _fits(file, layout, header):
            return layout
    return None


def _fits(file: OpenIndexFile, layout: IndexLayout, header: IndexHeader) -> bool:
    """Return whether first and last entry are where they are if the file has a layout."""
    last = header.index_count - 1
    if not 1 <= last < layout.entries:
        return False
    one, end = (INDEX_ENTRY.unpack(file.entries(layout, number, 1).tobytes()) for number in (1, last))
    if (one.physical_offset, end.physical_offset) != (header.begin_offset, header.end_offset):
        return False
    return one.previous == 0 and 1 <= file.slot(layout, end.key_hash) <= last and end.previous < last


def map_file(path: Path, size: int) -> mmap.mmap:
    """Map a file for writing, of a size to which it is brought."""
    with path.open("r+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)
