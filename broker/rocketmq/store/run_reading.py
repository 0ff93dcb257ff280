"""Reads the runs of another broker's log.

A run ends before a record that is not plain or is invalid: the caller takes such records one at a time.
"""

from __future__ import annotations

from typing import Final

from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.errors import DiskFull, NoPlace
from broker.rocketmq.store.places import QUEUE_OFFSET_MAX
from broker.rocketmq.store.runs import QueuePart, Queues, Run
from formats.rocketmq.fast.plain_columns import PlainColumns, read_columns
from formats.rocketmq.fast.plain_records import LITE_MARK, PlainRecord, plain_records, read_keys
from formats.rocketmq.files.index import IndexKeys
from formats.rocketmq.java import index_hash, tag_hash

__all__ = ["RunReader"]

# From this number of keys on, hashing them together is faster.
_MANY_KEYS: Final = 24
_DELAY_MARK: Final = b"\2DELAY\1"


class _ShortRun:
    """A run that is read record by record; `end` is the offset after the last one, `stored_ms` its storing time."""

    def __init__(self, offset: int) -> None:
        self.end = offset
        self.stored_ms = 0
        # For each key of the index: the text that is hashed, the offset of its message, and its storing time.
        self._texts: list[bytes] = []
        self._offsets: list[int] = []
        self._key_times: list[int] = []
        # The part of each queue, and the storing times of its records.
        self._parts: dict[tuple[bytes, int], tuple[QueuePart, list[int]]] = {}

    @property
    def parts(self) -> list[QueuePart]:
        """The records by queue."""
        return [part for part, _ in self._parts.values() if part.count]

    @property
    def keys(self) -> list[tuple[int, int, int]] | IndexKeys:
        """The keys of the index."""
        if len(self._texts) >= _MANY_KEYS:
            return IndexKeys.of(self._texts, self._offsets, self._key_times)
        hashes = [index_hash(text.decode(errors="replace")) for text in self._texts]
        return [*zip(hashes, self._offsets, self._key_times, strict=True)]

    def add(self, record: PlainRecord, queues: Queues) -> bool:
        """Add the next record; return False if a run cannot have it."""
        offset, size, topic, queue_id, queue_offset, stored_ms, properties = record
        found = self._parts.get((topic, queue_id)) or self._open(topic, queue_id, queues)
        if found is None:
            return False
        part, part_times = found
        if queue_offset != part.first + part.count or part.count >= part.most or queue_offset >= QUEUE_OFFSET_MAX:
            return False
        # Delayed messages have a due time in their queue, and those of lite topics are in another one, too.
        if _DELAY_MARK in properties or LITE_MARK in properties:
            return False
        tags_code = 0
        names, tags = read_keys(properties)
        texts = [b"%b#%b" % (topic[1:], name) for name in names]
        if tags:
            tags_code = tag_hash(tags.decode(errors="replace"))
            texts.append(b"%b#T#%b" % (topic[1:], tags))
        self._texts += texts
        self._offsets += [offset] * len(texts)
        self._key_times += [stored_ms] * len(texts)
        part.add(offset, size, tags_code)
        part_times.append(stored_ms)
        self.end, self.stored_ms = offset + size, stored_ms
        return True

    def _open(self, field: bytes, queue_id: int, queues: Queues) -> tuple[QueuePart, list[int]] | None:
        queue = _open_queue(field, queue_id, queues)
        if queue is None:
            return None
        part, times = QueuePart(field[1:].decode(), queue_id, queue, queues.next_offset(queue)), list[int]()
        part.times = times
        found = self._parts[field, queue_id] = part, times
        return found


class RunReader:
    """Reads the runs of a piece of a log, one after the other.

    Many records are read at once, until they end before one that is not plain only by its properties or its place in
    its queue: others like it may follow, and the records after them would be examined again and again.
    """

    def __init__(self, queues: Queues, file_size: int, size_max: int) -> None:
        self._queues = queues
        self._file_size = file_size
        self._size_max = size_max
        self._may_be_long = True

    def read(self, offset: int, data: memoryview) -> Run | None:
        """Read the run at the front of `data`, which begins at `offset` of the log; None if it would have no records.

        The run keeps a view of `data`.
        """
        columns = read_columns(data, offset, self._file_size, self._size_max) if self._may_be_long else None
        if columns is not None:
            self._may_be_long = columns.is_whole
            run = _long_run(columns, offset, data, self._queues)
            if run is not None:
                return run
            self._may_be_long = False
        short = _ShortRun(offset)
        for record in plain_records(data, offset, self._file_size, self._size_max):
            if not short.add(record, self._queues):
                break
        parts = short.parts
        return Run(offset, data[: short.end - offset], parts, short.keys, short.stored_ms) if parts else None


def _long_run(columns: PlainColumns, offset: int, data: memoryview, queues: Queues) -> Run | None:
    """Make a run of columns; None if one of the queues does not accept them, or there are no records."""
    parts = []
    for each in columns.queues:
        queue = _open_queue(each.topic, each.queue_id, queues)
        if queue is None or each.first != queues.next_offset(queue):
            return None
        part = QueuePart(each.topic[1:].decode(), each.queue_id, queue, each.first)
        if each.length > part.most or each.first + each.length > QUEUE_OFFSET_MAX:
            return None
        part.count, part.size, part.entries, part.times = each.length, each.size, [each.entries], each.times.tolist()
        parts.append(part)
    return Run(offset, data[: columns.size], parts, columns.keys, columns.stored_ms) if parts else None


def _open_queue(field: bytes, queue_id: int, queues: Queues) -> ConsumeQueue | None:
    """Open the queue that a record names; None if it cannot exist."""
    try:
        topic = field[1:].decode()
    except UnicodeDecodeError:
        return None
    try:
        return queues.open_queue(topic, queue_id)
    except (DiskFull, NoPlace):
        return None
