"""Layouts of index files: finds the numbers of slots and entries, which the files do not state.

A file's size allows many layouts. The right one is that in which slots and entries refer to each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats.rocketmq.files.index import INDEX_ENTRY, INDEX_HEADER, SLOT_BYTES, IndexEntry, IndexFile, IndexHeader

__all__ = ["DEFAULT_LAYOUT", "IndexBytes", "IndexLayout", "most_common_layout"]

_ENTRY_BYTES: Final = INDEX_ENTRY.size
_HEADER_BYTES: Final = INDEX_HEADER.size
_PLACES_MAX: Final = 1000
_SAMPLE: Final = 512
_SCORE_MIN: Final = 0.7
# Java maps a file as a whole, so this is the largest.
_FILE_BYTES_MAX: Final = (1 << 31) - 1


class IndexLayout(NamedTuple):
    """The number of slots of a file, and its capacity in entries, entry 0 included."""

    slots: int
    entries: int

    @property
    def size(self) -> int:
        """The size of a file, in bytes."""
        return IndexFile.size_of(self.slots, self.entries)

    @property
    def entries_at(self) -> int:
        """The offset of entry 0, in bytes."""
        return _HEADER_BYTES + self.slots * SLOT_BYTES


DEFAULT_LAYOUT: Final = IndexLayout(5_000_000, 20_000_000)


class IndexBytes(ABC):
    """An index file that is read by position. `size` is its length, in bytes."""

    size: int

    @abstractmethod
    def read(self, at: int, size: int) -> bytes:
        """Read bytes; zeros stand for bytes after the file's end."""
        ...

    @abstractmethod
    def places_of(self, wanted: bytes) -> Iterator[int]:
        """Yield the offsets at which `wanted` occurs."""
        ...

    @property
    def header(self) -> IndexHeader:
        return INDEX_HEADER.unpack(self.read(0, _HEADER_BYTES))

    def entries(self, layout: IndexLayout, first: int, count: int) -> NDArray[Any]:
        data = self.read(layout.entries_at + first * _ENTRY_BYTES, count * _ENTRY_BYTES)
        return np.frombuffer(data, INDEX_ENTRY.dtype)

    def entry(self, layout: IndexLayout, number: int) -> IndexEntry:
        return INDEX_ENTRY.unpack(self.read(layout.entries_at + number * _ENTRY_BYTES, _ENTRY_BYTES))

    def slots(self, layout: IndexLayout) -> NDArray[np.int32]:
        found: NDArray[np.int32] = np.frombuffer(self.read(_HEADER_BYTES, layout.slots * SLOT_BYTES), ">i4").astype(
            "i4"
        )
        return found

    def slot(self, layout: IndexLayout, key_hash: int) -> int:
        at = _HEADER_BYTES + key_hash % layout.slots * SLOT_BYTES
        return int.from_bytes(self.read(at, SLOT_BYTES), "big", signed=True)


def most_common_layout(files: Iterable[IndexBytes]) -> IndexLayout | None:
    """Return the layout of most files of a store, as a damaged file may show a wrong one; None if no file shows one."""
    found = Counter(layout for file in files if (layout := _layout_of(file)) is not None)
    return found.most_common(1)[0][0] if found else None


def _layout_of(file: IndexBytes) -> IndexLayout | None:
    if file.size == DEFAULT_LAYOUT.size:
        return DEFAULT_LAYOUT
    if file.size > _FILE_BYTES_MAX:
        return None
    header = file.header
    scores = {layout: _score(file, layout, header) for layout in set(_candidates(file, header))}
    best = max(scores, key=lambda layout: scores[layout], default=None)
    return best if best is not None and scores[best] > _SCORE_MIN else None


def _candidates(file: IndexBytes, header: IndexHeader) -> Iterator[IndexLayout]:
    """Yield the layouts in which the last entry has the header's last offset."""
    last = header.index_count - 1
    rest = file.size - _HEADER_BYTES
    if last < 1 or rest <= 0 or rest % SLOT_BYTES or last * _ENTRY_BYTES > rest:
        return
    # By default there are four entries for each slot.
    slots = rest // (SLOT_BYTES + 4 * _ENTRY_BYTES)
    layouts = [IndexLayout(slots, 4 * slots)]
    if header.end_offset > 0:
        for place in islice(file.places_of(header.end_offset.to_bytes(8, "big")), _PLACES_MAX):
            slot_bytes = place - 4 - last * _ENTRY_BYTES - _HEADER_BYTES
            layouts.append(IndexLayout(slot_bytes // SLOT_BYTES, (rest - slot_bytes) // _ENTRY_BYTES))
    yield from (layout for layout in layouts if layout.slots > 0 and layout.size == file.size and layout.entries > last)


def _score(file: IndexBytes, layout: IndexLayout, header: IndexHeader) -> float:
    """The part of the last entries that fits a layout: each links to an earlier entry, and its slot to the entry or a
    later one.

    Slots that lead to the last entries rarely do so by chance, unlike slots that lead past the first ones.
    """
    end = header.index_count
    first = max(1, end - _SAMPLE)
    count = end - first
    entries = file.entries(layout, first, count)
    numbers = np.arange(first, end)
    slots = entries["key_hash"].astype(np.int64) % layout.slots
    tables = np.array([file.slot(layout, slot) for slot in slots.tolist()])
    fits = (tables >= numbers) & (tables < end)
    before = entries["previous"].astype(np.int64)
    fits &= (before >= 0) & (before < numbers)
    there = np.flatnonzero(before >= first)
    fits[there] &= slots[np.minimum(before[there] - first, count - 1)] == slots[there]
    is_end = entries["physical_offset"][-1] == header.end_offset
    return float(np.count_nonzero(fits)) / count if is_end else 0.0
