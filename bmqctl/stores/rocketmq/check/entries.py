"""Entries of a consume queue, read by number, and a search for holes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bmqctl.common.regular import next_data, read_into
from bmqctl.stores.rocketmq.faults import fault
from bmqctl.stores.rocketmq.read.files import QueueFiles, RowFile
from bmqctl.stores.rocketmq.read.records import Numbers
from formats.bmq.stores.faults import Fault
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, FILLER

__all__ = ["ENTRY_BYTES", "QueueEntries", "Survey"]

ENTRY_BYTES: Final = CONSUME_QUEUE_ENTRY.size
CHUNK_ENTRIES: Final = 1 << 16


@dataclass
class Survey:
    """The first entry that the log may still have, and the number after the last.

    `first_offset` and `last_offset` are the log offsets of the first and the last entry's messages.
    """

    begin: int | None = None
    end: int = 0
    first_offset: int = 0
    last_offset: int = -1
    faults: list[Fault] = field(default_factory=list)


class QueueEntries:
    def __init__(self, queue: QueueFiles) -> None:
        self.queue = queue

    def read(self, first: int, count: int) -> NDArray[Any]:
        """Read entries from number `first` on; where a file is missing, unwritten ones."""
        buffer = bytearray(count * ENTRY_BYTES)
        begin, end = first * ENTRY_BYTES, (first + count) * ENTRY_BYTES
        view = memoryview(buffer)
        for file in self.queue.files:
            if file.begin < end and begin < file.end:
                low, high = max(begin, file.begin), min(end, file.end)
                _read(file, view[low - begin : high - begin], low - file.begin)
        return np.frombuffer(buffer, CONSUME_QUEUE_ENTRY.dtype)

    def at(self, numbers: Numbers) -> NDArray[Any]:
        low, high = int(numbers.min()), int(numbers.max())
        if high - low <= 4 * len(numbers) + CHUNK_ENTRIES:
            return self.read(low, high + 1 - low)[numbers - low]
        return np.concatenate([self.read(number, 1) for number in numbers.tolist()])

    def between(self, begin: int, end: int) -> Iterator[tuple[int, NDArray[Any]]]:
        for file in self.queue.files:
            low, high = max(begin, file.begin // ENTRY_BYTES), min(end, file.end // ENTRY_BYTES)
            for first in range(low, high, CHUNK_ENTRIES):
                yield first, self.read(first, min(CHUNK_ENTRIES, high - first))
            begin = max(begin, high)

    def place(self, number: int) -> tuple[str, int]:
        at = number * ENTRY_BYTES
        file = next((file for file in reversed(self.queue.files) if file.begin <= at), self.queue.files[0])
        return str(file.path), max(0, at - file.begin)

    def fault(self, code: str, number: int, reason: str) -> Fault:
        return fault(code, *self.place(number), reason)

    def survey(self, log_begin: int) -> Survey:
        survey = Survey(end=self.queue.begin // ENTRY_BYTES)
        survey.faults += _row_faults(self.queue)
        for number, entries in self.chunks(CHUNK_ENTRIES):
            offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
            is_filler = (offsets == FILLER.physical_offset) & (sizes == FILLER.size)
            self._survey_chunk(survey, number, offsets, (sizes > 0) & ~is_filler, is_filler, log_begin)
        return survey

    def _survey_chunk(
        self, survey: Survey, number: int, offsets: Numbers, is_entry: Any, is_filler: Any, log_begin: int
    ) -> None:
        if survey.begin is None:
            fillers = np.flatnonzero(is_filler)
            if len(fillers) and not is_entry[: fillers[-1] + 1].any() and survey.end == number:
                survey.end = number + int(fillers[-1]) + 1
        places = np.flatnonzero(is_entry)
        if not len(places):
            return
        numbers = places + number
        before = np.append(survey.end, numbers[:-1] + 1)
        for at in np.flatnonzero(numbers != before).tolist():
            first, after = int(before[at]), int(numbers[at])
            reason = f"entries {first} to {after - 1} are not written, but later ones are"
            survey.faults.append(self.fault("queue-hole", first, reason))
        survey.end = int(numbers[-1]) + 1
        there = offsets[places]
        follows = np.append(survey.last_offset, there[:-1])
        for at in np.flatnonzero(there <= follows).tolist():
            reason = f"the entry names offset {there[at]}, the one before it {follows[at]}"
            survey.faults.append(self.fault("entry-order", int(numbers[at]), reason))
        survey.last_offset = int(there[-1])
        kept = np.flatnonzero(there >= log_begin)
        if survey.begin is None and len(kept):
            survey.begin, survey.first_offset = int(numbers[kept[0]]), int(there[kept[0]])

    def chunks(self, count: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield at most `count` entries at a time, with the number of the first, without holes in the files."""
        for file in self.queue.files:
            at = 0
            while (found := _next_data(file, at)) is not None:
                at = found - found % ENTRY_BYTES
                first = (file.begin + at) // ENTRY_BYTES
                entries = self.read(first, min(count, (file.end - file.begin - at) // ENTRY_BYTES))
                if not len(entries):
                    break
                yield first, entries
                at += len(entries) * ENTRY_BYTES


def _row_faults(queue: QueueFiles) -> Iterator[Fault]:
    size = max(file.end - file.begin for file in queue.files)
    for file in queue.files:
        if file.end - file.begin != size or size % ENTRY_BYTES:
            reason = f"has {file.end - file.begin} bytes, the queue's largest file {size}"
            yield fault("queue-file-size", str(file.path), 0, reason)
    for file, after in zip(queue.files, queue.files[1:], strict=False):
        if after.begin > file.begin + size:
            reason = f"the file after it is missing: the next one begins at {after.begin}"
            yield fault("queue-file-missing", str(file.path), file.end - file.begin, reason)


def _next_data(file: RowFile, at: int) -> int | None:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return next_data(descriptor, at) if at < file.end - file.begin else None
    finally:
        os.close(descriptor)


def _read(file: RowFile, view: memoryview, at: int) -> None:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        read_into(descriptor, view, at)
    finally:
        os.close(descriptor)
