"""Consume queues of a RocketMQ store: their bounds, and the sizes, tags and times of their messages.

Entries are read in chunks. A queue has only hashes of tags; one record is read for each to get the tag itself. A crash
leaves records without an entry.

An entry counts as a message if its record exists, which requires reading the whole log.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bmqctl.common.regular import read_into
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.check.entries import QueueEntries
from bmqctl.stores.rocketmq.read.files import ABORT, QUEUE_FOLDER, LogFile, QueueFiles, StoreFiles, log_files
from bmqctl.stores.rocketmq.read.losses import LogLosses
from bmqctl.stores.rocketmq.read.records import RECORD_BYTES_MAX, LogRecords, search
from bmqctl.stores.rocketmq.read.scan import Loss
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, FILLER
from formats.rocketmq.properties import decode_properties

__all__ = [
    "QueueFigures",
    "count_gone",
    "entry_at",
    "entry_chunks",
    "lost_messages",
    "queue_figures",
    "read_queues",
    "record_of",
    "stored_ms_at",
]

_ENTRY_BYTES: Final = CONSUME_QUEUE_ENTRY.size
_CHUNK_ENTRIES: Final = 1 << 15
# Further tags of a queue are not counted.
_CODES_MAX: Final = 1 << 16
_TAGS_MAX: Final = 16

Progress = Callable[[int, int], None]


@dataclass
class QueueFigures:
    """A queue: the offset of its first message still in the log, the offset after its last, and its content.

    `entries` counts the messages whose records exist, `size` is the size of those records. `damaged` and `missing`
    count the messages whose record or entry is lost; `unfinished` counts those after the end of a log that was cut.
    `unwritten` counts missing messages that lack only their entry, as far as the queue shows. `tags` are the most
    frequent ones, `tag_count` counts all. Times are in milliseconds since the epoch, None without a message. `log_end`
    is the end of the last entry's record. `place` describes entries that do not match their messages, which count as
    damaged, and messages without an entry.
    """

    topic: str
    queue_id: int
    begin: int = 0
    end: int = 0
    entries: int = 0
    size: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    tags: dict[str, int] = field(default_factory=dict)
    tag_count: int = 0
    log_end: int = 0
    damaged: int = 0
    missing: int = 0
    unfinished: int = 0
    unwritten: int = 0
    place: str | None = None


def read_queues(
    store: StoreFiles,
    losses: LogLosses,
    wanted: Callable[[str], bool] = lambda topic: True,
    on_progress: Progress = lambda done, total: None,
) -> list[QueueFigures]:
    """The queues of the wanted topics, by topic and number; `losses` are those of the store's log.

    Includes queues with messages but without entries, unless a broker will enter them. Raises `OSError` and
    `NotAStoreFile`.
    """
    queues = [queue for queue in store.queues() if wanted(queue.topic)]
    names: dict[tuple[str, int], str | None] = {}
    found = []
    for number, queue in enumerate(queues):
        on_progress(number, len(queues))
        found.append(queue_figures(store, queue, losses, names))
    if not (store.root / ABORT).exists():
        _add_lacking(store, losses, found, wanted)
    return sorted(found, key=lambda queue: (queue.topic, queue.queue_id))


def lost_messages(queues: Iterable[QueueFigures]) -> int:
    return sum(queue.damaged + queue.missing for queue in queues)


def count_gone(store: StoreFiles, end: int, wanted: Callable[[str], bool] = lambda topic: True) -> tuple[int, int]:
    """Count the damaged and the missing messages that queues name outside a log whose last record ends at `end`.

    The log's reader counts messages within the log, and those without an entry. Raises like `read_queues`.
    """
    queues = read_queues(store, LogLosses(Account(), end, ()), wanted)
    return sum(queue.damaged for queue in queues), sum(queue.missing - queue.unwritten for queue in queues)


def _add_lacking(
    store: StoreFiles, losses: LogLosses, found: list[QueueFigures], wanted: Callable[[str], bool]
) -> None:
    """Count the messages in the log that no entry names; `found` are the queues with files.

    Gaps before a queue's last entry have already been counted.
    """
    # Imported here: `journal dump` imports this module at each start, and needs no checks.
    from bmqctl.stores.rocketmq.check.progress import read_topics
    from bmqctl.stores.rocketmq.check.queues import may_lack_entries

    by_name = {(queue.topic, queue.queue_id): queue for queue in found}
    topics = read_topics(store)
    for topic, queue_id, logged in losses.queues.items():
        if not wanted(topic):
            continue
        queue = by_name.get((topic, queue_id))
        if (queue is None or queue.begin == queue.end) and may_lack_entries(topic, topics):
            continue
        if queue is None:
            queue = QueueFigures(topic, queue_id)
            found.append(queue)
        name = f"{QUEUE_FOLDER}/{topic}/{queue_id}"
        if queue.begin < queue.end:
            numbers, offsets = logged.lacking(queue.end, losses.queues.entered_to)
            if len(numbers):
                queue.begin, queue.end = min(queue.begin, int(numbers.min())), max(queue.end, int(numbers.max()) + 1)
                _lack(queue, len(numbers), f"{name} has no entries for", int(offsets.min()))
        elif queue.end < logged.end:  # otherwise the queue was that far, and its files for these messages are gone
            queue.begin, queue.end, queue.log_end = logged.begin, logged.end, logged.log_end
            _lack(queue, logged.count, f"{name} has no entries: the commit log has", logged.first_offset)


def _lack(queue: QueueFigures, count: int, text: str, offset: int) -> None:
    queue.missing += count
    queue.unwritten += count
    queue.place = queue.place or f"{text} {count} messages for it, the first at offset {offset}"


def queue_figures(
    store: StoreFiles, queue: QueueFiles, losses: LogLosses, names: dict[tuple[str, int], str | None]
) -> QueueFigures:
    """The figures of a queue; `names` caches the tags of a topic by hash."""
    figures = QueueFigures(queue.topic, queue.queue_id)
    codes: Counter[int] = Counter()
    samples: dict[int, tuple[int, int]] = {}
    first = last = None
    if not (store.root / ABORT).exists():
        figures.missing = _count_dropped(store, queue)
    logged = losses.queues.get(queue.topic, queue.queue_id)
    wrong = 0
    at = queue.begin // _ENTRY_BYTES
    for index, entries in entry_chunks(queue):
        offsets = entries["physical_offset"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        is_filler = (offsets == FILLER.physical_offset) & (sizes == FILLER.size)
        is_wrong = np.zeros(len(entries), np.bool_)
        if logged is not None:
            is_wrong = logged.is_wrong(np.arange(index, index + len(entries)), offsets) & (sizes > 0) & ~is_filler
        named = np.flatnonzero((offsets >= store.begin) & (sizes > 0) & ~is_filler | is_wrong)
        # A file of the queue, or its content, is missing.
        figures.unwritten += _count_unwritten(queue, at, index) + int(np.count_nonzero(sizes <= 0))
        at = index + len(entries)
        if not len(named):
            continue
        if figures.begin == figures.end:
            figures.begin = index + int(named[0])
        figures.end = index + int(named[-1]) + 1
        wrong += int(np.count_nonzero(is_wrong))
        there = named[~is_wrong[named]]
        if not len(there):
            continue
        first = first or _place(offsets, sizes, int(there[0]))
        last = _place(offsets, sizes, int(there[-1]))
        there = _count_lost(figures, store, losses, entries, there)
        figures.entries += len(there)
        figures.size += int(sizes[there].sum())
        if queue.topic != DELAY_TOPIC and len(codes) < _CODES_MAX:
            _count_codes(entries[there], codes, samples)
    figures.missing += figures.unwritten
    if wrong:
        figures.damaged += wrong
        figures.place = (
            f"{QUEUE_FOLDER}/{queue.topic}/{queue.queue_id} has {wrong} entries that are not those of their messages"
        )
    if figures.begin == figures.end:
        figures.begin = figures.end = _end_without_entries(queue)
    if first is None or last is None:
        return figures
    figures.log_end = last[0] + last[1]
    figures.first_ms, figures.last_ms = stored_ms_at(store.log, *first), stored_ms_at(store.log, *last)
    codes.pop(0, None)
    figures.tag_count = len(codes)
    for code, count in codes.most_common(_TAGS_MAX):
        tag = _tag(store.log, names, queue.topic, code, samples[code])
        figures.tags[tag] = figures.tags.get(tag, 0) + count
    return figures


def _count_lost(
    figures: QueueFigures, store: StoreFiles, losses: LogLosses, entries: NDArray[Any], there: NDArray[np.int64]
) -> NDArray[np.int64]:
    begins = entries["physical_offset"][there].astype(np.int64)
    ends = begins + entries["size"][there].astype(np.int64)
    damaged, missing = (losses.lost(begins, loss) for loss in (Loss.DAMAGED, Loss.MISSING))
    behind = begins >= losses.end
    if behind.any():
        log = log_files(store.root)
        begin, end = int(begins[behind][-1]), int(ends[behind][-1])
        if record_of(log, begin, end - begin) is not None:
            behind[:] = False  # the broker has written them since the log was read
        file_end = log[-1].end if log else 0
        damaged |= behind & (ends <= file_end)
        behind &= ends > file_end
        if losses.end == file_end:
            # The last file is full: the next one is missing. Otherwise it was cut.
            missing |= behind
            behind[:] = False
    figures.damaged += int(damaged.sum())
    figures.missing += int(missing.sum())
    figures.unfinished += int(behind.sum())
    return there[~(damaged | missing | behind)]


def _place(offsets: NDArray[np.int64], sizes: NDArray[np.int64], at: int) -> tuple[int, int]:
    return int(offsets[at]), int(sizes[at])


def _count_codes(entries: NDArray[Any], codes: Counter[int], samples: dict[int, tuple[int, int]]) -> None:
    found, firsts, counts = np.unique(entries["tags_code"].astype(np.int64), return_index=True, return_counts=True)
    for code, first, count in zip(found.tolist(), firsts.tolist(), counts.tolist(), strict=True):
        codes[code] += count
        if code not in samples:
            samples[code] = (int(entries["physical_offset"][first]), int(entries["size"][first]))


def _tag(
    log: Sequence[LogFile], names: dict[tuple[str, int], str | None], topic: str, code: int, place: tuple[int, int]
) -> str:
    """The tag with a hash, or the hash as text if the record is not available."""
    if names.get((topic, code)) is None:
        record = record_of(log, *place)
        names[topic, code] = None if record is None else decode_properties(record.properties()[0]).get("TAGS")
    return names[topic, code] or f"#{code}"


def entry_chunks(queue: QueueFiles) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield chunks of entries up to the last one, each with its first number; unwritten entries have size 0."""
    files = QueueEntries(queue)
    for index, entries in files.chunks(_CHUNK_ENTRIES):
        written = np.flatnonzero(entries["size"] > 0)
        if not len(written):
            continue
        end = int(written[-1]) + 1
        # A broker may have written these after they were read, and before it wrote later ones.
        yield index, entries[:end] if len(written) == end else files.read(index, end)


def _count_unwritten(queue: QueueFiles, begin: int, end: int) -> int:
    """Count entries in [`begin`, `end`) that are unwritten or have no file."""
    if end - begin > _CHUNK_ENTRIES:
        return end - begin
    return int(np.count_nonzero(QueueEntries(queue).read(begin, end - begin)["size"] <= 0)) if end > begin else 0


def _count_dropped(store: StoreFiles, queue: QueueFiles) -> int:
    """Count the entries in files whose messages are all before the log.

    A broker that removes the first log files removes these files, too: here something else removed the log's files.
    """
    count = 0
    for file in queue.files[:-1]:
        last = _entries(file.path, file.end - file.begin - _ENTRY_BYTES, 1)
        if len(last) and last["size"][0] > 0 and int(last["physical_offset"][0]) < store.begin:
            for _, entries in QueueEntries(queue).between(file.begin // _ENTRY_BYTES, file.end // _ENTRY_BYTES):
                is_filler = (entries["physical_offset"] == FILLER.physical_offset) & (entries["size"] == FILLER.size)
                count += int(np.count_nonzero((entries["size"] > 0) & ~is_filler))
    return count


def _entries(path: Path, at: int, count: int) -> NDArray[Any]:
    buffer = memoryview(bytearray(count * _ENTRY_BYTES))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return np.empty(0, CONSUME_QUEUE_ENTRY.dtype)
    try:
        size = read_into(descriptor, buffer, at)
    finally:
        os.close(descriptor)
    return np.frombuffer(buffer, CONSUME_QUEUE_ENTRY.dtype, size // _ENTRY_BYTES)


def _end_without_entries(queue: QueueFiles) -> int:
    """The end of a queue that is empty, or whose messages the log no longer has."""
    end = queue.begin // _ENTRY_BYTES
    for index, entries in entry_chunks(queue):
        end = index + len(entries)
    return end


def entry_at(queue: QueueFiles, offset: int) -> tuple[int, int] | None:
    """The log place and size of the message with this queue offset; None if there is none."""
    at = offset * _ENTRY_BYTES
    for file in queue.files:
        if file.begin <= at < file.end:
            entries = _entries(file.path, at - file.begin, 1)
            if len(entries) and int(entries["size"][0]) > 0:
                return int(entries["physical_offset"][0]), int(entries["size"][0])
    return None


def stored_ms_at(log: Sequence[LogFile], offset: int, size: int) -> int | None:
    """The storing time of the record at a log offset; None if there is none."""
    record = record_of(log, offset, size)
    return None if record is None else int(record.stored_ms[0])


def record_of(log: Sequence[LogFile], offset: int, size: int) -> LogRecords | None:
    """The sound record at a log offset with this size; None otherwise."""
    for file in log:
        if file.begin <= offset and offset + size <= file.end and 0 < size <= RECORD_BYTES_MAX:
            buffer = memoryview(bytearray(size))
            try:
                descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                read = read_into(descriptor, buffer, offset - file.begin)
            finally:
                os.close(descriptor)
            found = search(buffer[:read], offset, file.end).records
            return found if len(found) and found.starts[0] == 0 else None
    return None
