"""Scan of journals of any size in constant memory, even while a broker writes or truncates them.

Each chunk overwrites the previous one's buffer. The file is not mapped, since a broker may truncate it (see
`bmqctl.stores.blazingmq.read.files`); bytes truncated during the read count as absent. Holes, which also show a
preallocated journal's end, and blocks of zeros are skipped.

A broker that copies several records may write the beginning of the first one last. `extent` and `record_end` are
therefore determined when no record near them is half written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.common.regular import data_end, next_data, open_unbuffered, read_into
from bmqctl.stores.blazingmq.read.settling import settling
from formats.bmq.disk.columns import sound_kinds
from formats.bmq.disk.files import HEADERS_SIZE_MAX, JOURNAL_RECORD_SIZE, FileType, OpenedFile, open_file
from formats.bmq.disk.journal import ANY_RECORD, Record, decode_record
from formats.bmq.stores.recover import JournalExtent, find_journal_extent

__all__ = ["CHUNK_RECORDS", "JournalScan", "RecordChunk"]

CHUNK_RECORDS = 1 << 16
PROBE_RECORDS = 1 << 7
# The most that a broker copies at once.
COPIED_RECORDS_MAX = 1 << 10
# A processor's longest store is 64 bytes, and touches two records.
HALF_WRITTEN_MAX = 2


class RecordChunk(NamedTuple):
    """Consecutive unchecked records: `first` is the first one's slot in the journal, `offset` its first byte.

    The next chunk overwrites `records` (shape (n,), `ANY_RECORD.dtype`).
    """

    first: int
    offset: int
    records: NDArray[Any]

    @property
    def indexes(self) -> NDArray[np.int64]:
        return np.arange(self.first, self.first + len(self.records), dtype=np.int64)


class JournalScan:
    """An open journal; a context manager. Raises FormatError if its headers are wrong, and OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_unbuffered(path)
        try:
            self.opened: OpenedFile = open_file(self.read(0, HEADERS_SIZE_MAX), FileType.JOURNAL)
        except BaseException:
            self._file.close()
            raise

    @property
    def partition_id(self) -> int:
        return self.opened.file.partition_id

    @property
    def first_record_offset(self) -> int:
        return self.opened.first_record_offset

    def __enter__(self) -> JournalScan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def data_end(self) -> int:
        return data_end(self._file.fileno())

    @cached_property
    def extent(self) -> JournalExtent:
        """The written part of the journal, by the reference's rule."""
        settle = settling()
        while True:
            extent = find_journal_extent(self._read_unless_hole, self.data_end)
            if not self._is_half_written(extent.record_count) or not settle():
                return extent

    def record_end(self) -> int:
        """The slot after the last record, which may be after the `extent` if records before it are damaged."""
        settle = settling()
        while True:
            end = self.find(lambda record: False)
            if not self._is_half_written(end) or not settle():
                return end

    def find(self, is_beyond: Callable[[Record], bool]) -> int:
        """Find the first slot for which `is_beyond` by bisection: False before it, True after it."""
        low, high = 0, max(0, -(-(self.data_end - self.first_record_offset) // JOURNAL_RECORD_SIZE))
        while low < high:
            middle = (low + high) // 2
            place, record = self._first_record(middle, high)
            if record is None or is_beyond(record):
                high = middle
            else:
                low = place + 1
        return low

    def _first_record(self, start: int, end: int) -> tuple[int, Record | None]:
        for found in self.chunks(start, end, PROBE_RECORDS):
            sound = np.flatnonzero(sound_kinds(found.records))
            if len(sound):
                at = int(sound[0])
                return found.first + at, decode_record(found.records[at].tobytes())
        return end, None

    def _is_half_written(self, end: int) -> bool:
        """Return whether a record near slot `end` lacks its beginning, although later ones are written."""
        start = max(0, end - COPIED_RECORDS_MAX)
        read = self._read_unless_hole(
            self.first_record_offset + start * JOURNAL_RECORD_SIZE,
            (end - start + COPIED_RECORDS_MAX) * JOURNAL_RECORD_SIZE,
        )
        records = np.frombuffer(read, ANY_RECORD.dtype, len(read) // JOURNAL_RECORD_SIZE)
        sound = np.flatnonzero(sound_kinds(records))
        gaps = np.diff(sound, prepend=-1) - 1
        begins = (sound - gaps)[(gaps > 0) & (gaps <= HALF_WRITTEN_MAX)]
        return bool((records.view(np.uint8).reshape(-1, JOURNAL_RECORD_SIZE)[begins, 0] == 0).any())

    def chunks(
        self, start: int = 0, end: int | None = None, chunk_records: int = CHUNK_RECORDS
    ) -> Iterator[RecordChunk]:
        """Yield slots [`start`, `end`) (None: the end of the file), without blocks of zeros.

        Chunks begin at `start` plus a multiple of `chunk_records`. For the written part, `end` is
        `extent.record_count`.
        """
        first = self.first_record_offset
        size = chunk_records * JOURNAL_RECORD_SIZE
        buffer = bytearray(size)
        view = memoryview(buffer)
        at = start
        while end is None or at < end:
            offset = first + at * JOURNAL_RECORD_SIZE
            skipped = next_data(self._file.fileno(), offset)
            if skipped is None:
                return
            at += (skipped - offset) // size * chunk_records
            offset = first + at * JOURNAL_RECORD_SIZE
            wanted = size if end is None else min(size, (end - at) * JOURNAL_RECORD_SIZE)
            if wanted <= 0:
                return
            read = read_into(self._file.fileno(), view[:wanted], offset)
            count = read // JOURNAL_RECORD_SIZE
            if not count:
                return
            if any(view[:JOURNAL_RECORD_SIZE]) or buffer.count(0, 0, read) != read:
                yield RecordChunk(at, offset, np.frombuffer(buffer, ANY_RECORD.dtype, count))
            at += count

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes of the file from `offset`."""
        return os.pread(self._file.fileno(), size, offset)

    def _read_unless_hole(self, offset: int, size: int) -> bytes:
        start = next_data(self._file.fileno(), offset)
        return b"" if start is None or start >= offset + size else self.read(offset, size)
