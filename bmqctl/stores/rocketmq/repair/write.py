"""The files of the repaired store: the log's sound parts, and the data derived from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

from bmqctl.common.regular import next_data, read_into
from bmqctl.stores.rocketmq.build_files import IndexWriter, QueueWriter, StoreSizes
from bmqctl.stores.rocketmq.read.derived import QueueKeys, Rows, read_columns
from bmqctl.stores.rocketmq.read.files import StoreFiles, log_files
from bmqctl.stores.rocketmq.read.scan import LogScan
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC
from bmqctl.stores.rocketmq.repair.fill import fill_area
from bmqctl.stores.rocketmq.repair.parts import RepairReport
from bmqctl.stores.rocketmq.repair.plan import Plan
from formats.rocketmq.files.consume_queue import ConsumeQueueEntry
from formats.rocketmq.files.names import offset_name

__all__ = ["Derived", "derive", "write_log"]

Progress = Callable[[int, int], None]

_CHUNK_BYTES: Final = 1 << 20
_NUMBER_MAX: Final = 1 << 58


def write_log(store: StoreFiles, plan: Plan, out: Path, file_bytes: int, on_progress: Progress) -> None:
    if plan.end <= plan.begin:
        return
    begins = range(plan.begin - plan.begin % file_bytes, plan.end, file_bytes)
    for begin in begins:
        on_progress(begin - begins[0], plan.end - begins[0])
        _write_file(store, plan, out / offset_name(begin), begin, file_bytes)


def _write_file(store: StoreFiles, plan: Plan, path: Path, begin: int, file_bytes: int) -> None:
    file_end = begin + file_bytes
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(target, file_bytes)
        areas = [area for area in plan.areas if begin <= area.begin < file_end]
        sound = zip([begin, *(area.end for area in areas)], [*(area.begin for area in areas), file_end], strict=True)
        for low, high in sound:
            _copy(store, target, begin, low, min(high, plan.end))
        for area in areas:
            damaged = _read(store, area.begin, area.end) if area.is_record else b""
            for at, data in fill_area(area, file_end, damaged):
                _write(target, data, at - begin)
        for patch in plan.patches:
            if begin <= patch.offset < file_end:
                _write(target, patch.data, patch.offset - begin)
        os.fsync(target)
    finally:
        os.close(target)


def _copy(store: StoreFiles, target: int, begin: int, low: int, high: int) -> None:
    """Copy the bytes between two log offsets into the file that begins at `begin`, without the holes."""
    for file in store.log:
        first, end = max(low, file.begin), min(high, file.end)
        if first >= end:
            continue
        source = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            buffer = memoryview(bytearray(_CHUNK_BYTES))
            at = first
            while at < end and (there := next_data(source, at - file.begin)) is not None:
                at = max(at, file.begin + there)
                read = read_into(source, buffer[: max(0, min(_CHUNK_BYTES, end - at))], at - file.begin)
                if not read:
                    break
                _write(target, buffer[:read], at - begin)
                at += read
        finally:
            os.close(source)


def _read(store: StoreFiles, low: int, high: int) -> bytes:
    buffer = memoryview(bytearray(high - low))
    for file in store.log:
        if file.begin <= low and high <= file.end:
            source = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                read_into(source, buffer, low - file.begin)
            finally:
                os.close(source)
    return bytes(buffer)


def _write(target: int, data: bytes | memoryview, at: int) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(target, view, at)
        view, at = view[written:], at + written


class Derived:
    """Figures of a log: the ends of its queues, and the time of its last message."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.last_ms = 0
        self.full_ms = 0
        self.records = 0


def derive(
    root: Path,
    sizes: StoreSizes,
    is_wanted: Callable[[str, int], bool],
    due_ms: Callable[[int, int, int, int], int],
    report: RepairReport,
    on_progress: Progress,
) -> Derived:
    """Make the consume queues and the index of the log in `root`.

    `is_wanted` selects the queues. `due_ms` gives the due time of a delayed message by its queue, number, offset and
    storing time.
    """
    found, keys = Derived(), QueueKeys()
    queues = QueueWriter(root / "consumequeue", sizes.consume_queue_file_bytes)
    index = IndexWriter(root / "index", sizes.index_slots, sizes.index_entries)
    files = log_files(root)
    scan = LogScan(files)
    for chunk in scan.chunks():
        if not len(chunk.records):
            continue
        columns = read_columns(chunk.records, keys)
        found.records += len(chunk.records)
        found.last_ms = int(chunk.records.stored_ms[-1])
        for topic, queue_id, number, entry in _entries(columns.rows, keys, due_ms):
            if is_wanted(topic, queue_id) and 0 <= number < _NUMBER_MAX:
                queues.add(topic, queue_id, number, entry)
                found.ends[topic, queue_id] = number + 1
        hashes, offsets, times, _ = columns.keys
        for key_hash, offset, stored_ms in zip(hashes.tolist(), offsets.tolist(), times.tolist(), strict=True):
            index.add(key_hash, offset, stored_ms)
        on_progress(chunk.end - files[0].begin, files[-1].end - files[0].begin)
    queues.flush()
    index.close()
    found.full_ms = index.full_ms
    report.queues, report.index_files = len(queues), index.files
    return found


def _entries(
    rows: Rows, keys: QueueKeys, due_ms: Callable[[int, int, int, int], int]
) -> Iterator[tuple[str, int, int, ConsumeQueueEntry]]:
    names: dict[int, tuple[str, int]] = {}
    for key, number, offset, size, code, stored_ms in zip(*(column.tolist() for column in rows), strict=True):
        name = names.get(key)
        if name is None:
            name = names[key] = keys.queue(key)
        if name[0] == DELAY_TOPIC:
            code = due_ms(name[1], number, offset, stored_ms)
        yield *name, number, ConsumeQueueEntry(offset, size, code)


def sizes_of(store: StoreFiles) -> tuple[int, int]:
    """The file sizes of the log and of the consume queues, where the store shows them; otherwise 0."""
    begins = [file.begin for file in store.log]
    largest = max((file.end - file.begin for file in store.log), default=0)
    steps = [after - before for before, after in pairwise(begins)]
    if any(begin % max(largest, 1) for begin in begins) and steps:
        largest = min(steps)
    found = chain.from_iterable(queue.files for queue in store.queues())
    return largest, max((file.end - file.begin for file in found), default=0)
