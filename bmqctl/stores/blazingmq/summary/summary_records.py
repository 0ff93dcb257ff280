"""A summary's counts besides messages: records, leases, times, and message sizes."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.files import map_data
from bmqctl.stores.blazingmq.read.scan import JournalScan, RecordChunk
from bmqctl.stores.blazingmq.read.source import FileSource
from formats.bmq.disk.data import DATA_HEADER, HEADER_WORDS_SHIFT, MESSAGE_WORDS_MASK, OPTIONS_WORDS_SHIFT
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, JournalFileHeader
from formats.bmq.disk.journal import ANY_RECORD, RecordType
from formats.bmq.padding import DWORD, WORD

__all__ = ["DATA_SIZE_READ", "LeaseSummary", "MessageSizes", "PartitionSummary", "RecordCounts"]

DATA_SIZE_READ = 1 << 30
"""The largest DATA file read for message sizes by default, in bytes."""

WINDOW_SIZE = 1 << 25
LEASES_MAX = 1024
TIMESTAMP_MAX = 1 << 62


@dataclass(slots=True)
class LeaseSummary:
    """The records of one primary lease."""

    primary_lease_id: int
    records: int
    first_sequence_number: int
    last_sequence_number: int
    first_timestamp: int
    last_timestamp: int


@dataclass(slots=True)
class PartitionSummary:
    """One journal. `records` are by type; `unreadable` counts slots up to its end without a record.

    `misfits` are by their names in `formats.bmq.stores.lives.Step`. `leases` is bounded; `lease_count` counts all.
    Rates are over `seconds`: from the first record not copied by a rollover to the last one, at least one second.
    """

    partition_id: int
    journal: str
    records: dict[str, int]
    unreadable: int
    rolled_over_records: int
    leases: list[LeaseSummary]
    lease_count: int
    first_timestamp: int | None
    last_timestamp: int | None
    seconds: int
    misfits: dict[str, int]


class RecordCounts:
    """Counts records by type and lease, a chunk at a time.

    `rolled_over` is the index of the first record that no rollover copied.
    """

    def __init__(self, header: object) -> None:
        assert isinstance(header, JournalFileHeader)
        self.rolled_over = 0
        self._first_sync_point = header.first_sync_point_after_rollover_offset_words * WORD
        self._kinds = np.zeros(len(RecordType), np.int64)
        self._leases: dict[int, LeaseSummary] = {}
        self._lease_count = 0
        self._first: int | None = None
        self._since: int | None = None
        self._last: int | None = None

    def take(self, chunk: RecordChunk, kinds: NDArray[Any]) -> None:
        self._kinds += np.bincount(kinds, minlength=len(RecordType))
        sound = np.flatnonzero(kinds)
        if not len(sound):
            return
        records = chunk.records if len(sound) == len(kinds) else chunk.records.take(sound)
        times = np.minimum(ANY_RECORD.column(records, "timestamp"), np.uint64(TIMESTAMP_MAX)).astype(np.int64)
        if self._first_sync_point > chunk.offset:
            self.rolled_over = (self._first_sync_point - chunk.offset) // JOURNAL_RECORD_SIZE + chunk.first
        own = times[sound + chunk.first >= self.rolled_over]
        self._first = int(times.min()) if self._first is None else min(self._first, int(times.min()))
        if len(own):
            self._since = int(own[0]) if self._since is None else self._since
            self._last = int(own[-1])
        elif self._last is None:
            self._last = int(times.max())
        self._take_leases(records, times)

    def _take_leases(self, records: NDArray[Any], times: NDArray[Any]) -> None:
        leases = ANY_RECORD.column(records, "primary_lease_id")
        starts = np.flatnonzero(np.diff(leases.astype(np.int64), prepend=-1))
        ends = np.append(starts[1:], len(leases))
        numbers = ANY_RECORD.column(records, "sequence_number")
        runs = (leases[starts], ends - starts, numbers[starts], numbers[ends - 1], times[starts], times[ends - 1])
        for lease, *run in zip(*(column.tolist() for column in runs), strict=True):
            known = self._leases.get(lease)
            if known is not None:
                known.records += run[0]
                known.last_sequence_number, known.last_timestamp = run[2], run[4]
                continue
            self._lease_count += 1
            if len(self._leases) < LEASES_MAX:
                self._leases[lease] = LeaseSummary(lease, *run)

    def summary(self, scan: JournalScan, misfits: dict[str, int]) -> PartitionSummary:
        extent = scan.extent
        count = int(self._kinds[1:].sum())
        elapsed = 0 if self._since is None or self._last is None else self._last - self._since
        return PartitionSummary(
            scan.partition_id,
            scan.path.name,
            {kind.name: int(self._kinds[kind]) for kind in RecordType if kind},
            extent.record_count - count,
            min(self.rolled_over, extent.record_count),
            list(self._leases.values()),
            self._lease_count,
            self._first,
            self._last,
            max(1, elapsed),
            misfits,
        )


class MessageSizes:
    """Sizes of messages in a DATA file; a context manager.

    `has_file` says whether there is one, `is_read` whether its messages are read.
    """

    def __init__(self, data: Path | None, read_data: bool | None) -> None:
        """`data` is None without a file; `read_data` None reads it unless it is too large."""
        self._source = None if data is None else FileSource(data)
        self._view = memoryview(b"")
        if data is not None and self._source is not None:
            small = self._source.size <= DATA_SIZE_READ
            self._view = map_data(data) if read_data or (small and read_data is None) else self._view
        self.has_file = self._source is not None
        self.is_read = len(self._view) > DATA_HEADER.size
        self._words = np.frombuffer(self._view, ">u4", len(self._view) // WORD)
        self._bytes = np.frombuffer(self._view, np.uint8)

    def __enter__(self) -> MessageSizes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._source is not None:
            self._source.close()

    def stored_sizes(self, places: NDArray[Any]) -> NDArray[np.int64]:
        """Sizes of messages in the file, headers and padding included, in bytes.

        The messages must be consecutive in the journal, and so in the file: each one, at its place in double words,
        ends where the next one begins. Only the last one is looked up.
        """
        offsets = places.astype(np.int64) * DWORD
        sizes = np.diff(offsets, append=offsets[-1:])
        if self._source is not None and len(offsets):
            header = self._source.read(int(offsets[-1]), DATA_HEADER.size)
            if len(header) == DATA_HEADER.size:
                sizes[-1] = DATA_HEADER.unpack(header).message_words * WORD
        return np.maximum(sizes, 0)

    def payload_sizes(self, places: NDArray[Any]) -> NDArray[np.int64]:
        """Sizes of properties and payload of messages at `places` (in double words), in bytes; 0 without a message."""
        offsets = places.astype(np.int64) * DWORD
        offsets[offsets + DATA_HEADER.size >= len(self._view)] = 0
        order = np.argsort(offsets, kind="stable")
        windows = offsets[order] // WINDOW_SIZE
        sizes = np.zeros(len(offsets), np.int64)
        # Unmap the pages of each window after reading.
        for at in np.split(order, np.flatnonzero(np.diff(windows)) + 1):
            sizes[at] = self._sizes_at(offsets[at])
            if isinstance(self._view.obj, mmap.mmap):
                self._view.obj.madvise(mmap.MADV_DONTNEED)
        return sizes

    def _sizes_at(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        first, second = (self._words[offsets // WORD + word].astype(np.int64) for word in (0, 1))
        ends = offsets + (first & MESSAGE_WORDS_MASK) * WORD
        starts = offsets + ((first >> HEADER_WORDS_SHIFT) + (second >> OPTIONS_WORDS_SHIFT)) * WORD
        inside = (starts < ends) & (ends <= len(self._view)) & (offsets > 0)
        padding = self._bytes[np.where(inside, ends - 1, 0)].astype(np.int64)
        return np.where(inside & (padding <= DWORD), np.maximum(ends - starts - padding, 0), 0)
