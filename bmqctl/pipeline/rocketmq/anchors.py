"""Places in a commit log where reading can begin.

A message's body may look like a record, so records cannot be found from an arbitrary offset; entries of consume queues
name them. Each named record is compared with its queue, since an entry may be damaged. Without entries, reading begins
at the start of the file: no record spans two files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.read.files import LogFile, QueueFiles, StoreFiles
from bmqctl.stores.rocketmq.read.queues import record_of
from bmqctl.stores.rocketmq.read.records import LogRecords
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, FILLER, ConsumeQueueEntry

__all__ = ["anchor", "queues_of"]

_ENTRY_BYTES: Final = CONSUME_QUEUE_ENTRY.size
_NEAR_BYTES: Final = 1 << 20
_QUEUES_MAX: Final = 256
_STEPS_BACK: Final = 4


def queues_of(root: Path) -> list[QueueFiles]:
    """The consume queues of the store `root`; none if they cannot be listed."""
    try:
        return StoreFiles(root, (), ()).queues()
    except NotAStoreFile:
        return []


def anchor(files: Sequence[LogFile], queues: Iterable[QueueFiles], offset: int) -> int:
    """The offset of a record, or of a file's start, at or before `offset`, which is in one of `files`."""
    file = next(file for file in files if file.begin <= offset < file.end)
    best = file.begin
    for number, queue in enumerate(queues):
        if offset - best <= _NEAR_BYTES or number >= _QUEUES_MAX:
            break
        found = _record_of(queue, file, offset)
        if found is not None:
            best = max(best, found)
    return best


def _record_of(queue: QueueFiles, file: LogFile, offset: int) -> int | None:
    """The offset of a queue's last record at or before `offset` in a file."""
    low, high = queue.begin // _ENTRY_BYTES, queue.files[-1].end // _ENTRY_BYTES
    first = low
    while low < high:
        middle = (low + high) // 2
        entry = _entry(queue, middle)
        if entry is not None and entry.physical_offset <= offset:
            low = middle + 1
        else:
            high = middle
    for index in range(low - 1, max(first, low - _STEPS_BACK) - 1, -1):
        entry = _entry(queue, index)
        if entry is None or entry == FILLER or entry.physical_offset < file.begin:
            return None
        found = record_of([file], entry.physical_offset, entry.size)
        if found is not None and _is_of(found, queue, index):
            return entry.physical_offset
    return None


def _is_of(found: LogRecords, queue: QueueFiles, index: int) -> bool:
    place = int(found.front("queue_id")[0]), int(found.front("queue_offset")[0])
    return place == (queue.queue_id, index) and found.topics()[0] == queue.topic.encode(errors="surrogateescape")


def _entry(queue: QueueFiles, index: int) -> ConsumeQueueEntry | None:
    """Return an entry of a queue; None if it was not written, or is not available."""
    at = index * _ENTRY_BYTES
    for file in queue.files:
        if file.begin <= at < file.end:
            try:
                descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                data = os.pread(descriptor, _ENTRY_BYTES, at - file.begin)
            finally:
                os.close(descriptor)
            if len(data) < _ENTRY_BYTES:
                return None
            entry = CONSUME_QUEUE_ENTRY.unpack(data)
            return entry if entry.size > 0 else None
    return None
