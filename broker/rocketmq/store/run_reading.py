"""Runs of plain records of another broker's log, which are entered into queues and index together.

A run ends before a record that is not plain or is invalid: the caller takes such records one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Protocol

from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.errors import DiskFull, NoPlace
from broker.rocketmq.store.files.index_files import IndexFiles
from broker.rocketmq.store.holding import HeldMessage
from broker.rocketmq.store.places import QUEUE_OFFSET_MAX
from formats.rocketmq.fast.plain_columns import PlainColumns, QueueColumns, read_columns
from formats.rocketmq.fast.plain_records import PlainRecord, plain_records, read_property
from formats.rocketmq.java import string_hash
from formats.rocketmq.lite import LITE_TOPIC

__all__ = ["QueuePart", "Queues", "Run", "RunReader"]

# Names of properties between the separators of properties.
_UNIQUE_KEY: Final = b"\2UNIQ_KEY\1"
_KEYS: Final = b"\2KEYS\1"
_TAGS: Final = b"\2TAGS\1"
_DELAY: Final = b"\2DELAY\1"
_LITE: Final = b"\2%b\1" % LITE_TOPIC.encode()


@lru_cache(maxsize=512)
def _tags_code(tags: bytes) -> int:
    return string_hash(tags.decode(errors="replace"))


class Queues(Protocol):
    """The queues that a run is for; see `MessageStore`."""

    def open_queue(self, topic: str, queue_id: int) -> ConsumeQueue: ...
    def next_offset(self, queue: ConsumeQueue) -> int: ...


class QueuePart(Protocol):
    """The records of a run in one queue, `count` from its offset `first` on, with `size` bytes of the log.

    They are in one file of the queue.
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue(self) -> ConsumeQueue: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...

    def rows(self) -> Iterable[tuple[int, int, int, int]]:
        """Return offset, size, tags code and storing time of each record."""
        ...

    def enter(self) -> None:
        """Enter the records into the queue, which has room for them."""
        ...


class Run(Protocol):
    """Consecutive records in one file of a log; `end` is the offset after the last one.

    `stored_ms` is the storing time of the last one.
    """

    @property
    def offset(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def stored_ms(self) -> int: ...
    @property
    def queues(self) -> Sequence[QueuePart]:
        """The records by queue."""
        ...

    def messages(self) -> Iterator[HeldMessage]:
        """Yield all records in the order of the log."""
        ...

    def put_keys(self, index: IndexFiles) -> None:
        """Add the records to an index. Raises `DiskFull`; some are added then."""
        ...


class QueueRun:
    """The records of a run in one queue, from its offset `first` to before `next`.

    `found` has offset, size, tags code and storing time of each. They are in one file of the queue.
    """

    __slots__ = ("first", "found", "front", "last", "next", "queue", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, queue: ConsumeQueue, first: int) -> None:
        self.topic, self.queue_id, self.queue = topic, queue_id, queue
        self.first = self.next = first
        self.last = min(queue.file_end(first), QUEUE_OFFSET_MAX) - 1
        self.front = b"%b#" % topic.encode()
        self.found: list[tuple[int, int, int, int]] = []

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.found)

    @property
    def size(self) -> int:
        """Bytes of the records in the log."""
        return sum(size for _, size, _, _ in self.found)

    def rows(self) -> Iterable[tuple[int, int, int, int]]:
        """Return offset, size, tags code and storing time of each record."""
        return self.found

    def enter(self) -> None:
        """Enter the records into the queue, where there is room for them."""
        self.queue.add_all((offset, size, tags_code) for offset, size, tags_code, _ in self.found)


class ShortRun:
    """A run that is read record by record.

    `keys` has, for each key of the index, the text that is hashed, the offset of its message, and its storing time.
    """

    def __init__(self, offset: int) -> None:
        self.offset = self.end = offset
        self.stored_ms = 0
        self.keys: tuple[list[bytes], list[int], list[int]] = ([], [], [])
        self._queues: dict[tuple[bytes, int], QueueRun] = {}

    @property
    def queues(self) -> list[QueueRun]:
        """The records by queue."""
        return [each for each in self._queues.values() if each.found]

    def messages(self) -> Iterator[HeldMessage]:
        """Yield all records in the order of the log."""
        yield from _in_order(self.queues)

    def add(self, record: PlainRecord, queues: Queues) -> bool:
        """Add the next record; return False if a run cannot have it."""
        offset, size, topic, queue_id, queue_offset, stored_ms, properties = record
        each = self._queues.get((topic, queue_id)) or self._open(topic, queue_id, queues)
        if each is None or queue_offset != each.next or queue_offset > each.last:
            return False
        # Delayed messages have a due time in their queue, and those of lite topics are in another one, too.
        if _DELAY in properties or _LITE in properties:
            return False
        tags_code = 0
        texts, offsets, times = self.keys
        names = [read_property(properties, _UNIQUE_KEY)]
        if _KEYS in properties:
            names += read_property(properties, _KEYS).split(b" ")
        for name in names:
            if name:
                texts.append(each.front + name)
                offsets.append(offset)
                times.append(stored_ms)
        if tags := read_property(properties, _TAGS):
            tags_code = _tags_code(tags)
            texts.append(b"%bT#%b" % (each.front, tags))
            offsets.append(offset)
            times.append(stored_ms)
        each.found.append((offset, size, tags_code, stored_ms))
        each.next = queue_offset + 1
        self.end, self.stored_ms = offset + size, stored_ms
        return True

    def put_keys(self, index: IndexFiles) -> None:
        """Add the records to an index. Raises `DiskFull`; some are added then."""
        index.put_keys(*self.keys)

    def _open(self, field: bytes, queue_id: int, queues: Queues) -> QueueRun | None:
        queue = _open_queue(field, queue_id, queues)
        if queue is None:
            return None
        self._queues[field, queue_id] = found = QueueRun(field[1:].decode(), queue_id, queue, queues.next_offset(queue))
        return found


def _in_order(queues: Sequence[QueuePart]) -> list[HeldMessage]:
    """Make messages of the records of some queues, in the order of the log."""
    placed = [
        HeldMessage(offset, size, stored_ms, each.topic, each.queue_id, each.queue, each.first + number, tags_code)
        for each in queues
        for number, (offset, size, tags_code, stored_ms) in enumerate(each.rows())
    ]
    return sorted(placed, key=lambda message: message.offset)


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

    def read(self, offset: int, data: memoryview) -> Run:
        """Read the run at the front of `data`, which begins at `offset` of the log; it may have no records."""
        columns = read_columns(data, offset, self._file_size, self._size_max) if self._may_be_long else None
        if columns is not None:
            self._may_be_long = columns.is_whole
            run = _long_run(columns, offset, self._queues)
            if run is not None:
                return run
            self._may_be_long = False
        return self._read_short(offset, data)

    def _read_short(self, offset: int, data: memoryview) -> ShortRun:
        run = ShortRun(offset)
        for record in plain_records(data, offset, self._file_size, self._size_max):
            if not run.add(record, self._queues):
                break
        return run


class _LongQueueRun:
    """Records of a run in one queue, in columns; see `QueueRun`."""

    __slots__ = ("_columns", "count", "first", "queue", "queue_id", "size", "topic")

    def __init__(self, topic: str, queue: ConsumeQueue, columns: QueueColumns) -> None:
        self.topic, self.queue = topic, queue
        self.queue_id, self.first, self.count, self.size = columns[1:5]
        self._columns = columns

    def rows(self) -> Iterable[tuple[int, int, int, int]]:
        return self._columns.rows()

    def enter(self) -> None:
        self.queue.add_packed(self._columns.entries)


class _LongRun:
    """A run that is read in columns."""

    def __init__(self, offset: int, columns: PlainColumns, queues: list[_LongQueueRun]) -> None:
        self.offset, self.end = offset, offset + columns.size
        self.stored_ms = columns.stored_ms
        self.queues = queues
        self._columns = columns

    def messages(self) -> Iterator[HeldMessage]:
        yield from _in_order(self.queues)

    def put_keys(self, index: IndexFiles) -> None:
        index.put_columns(self._columns.keys)


def _long_run(columns: PlainColumns, offset: int, queues: Queues) -> _LongRun | None:
    """Make a run of columns; None if one of the queues does not accept them, or there are no records."""
    found = []
    for each in columns.queues:
        queue = _open_queue(each.topic, each.queue_id, queues)
        if queue is None or each.first != queues.next_offset(queue):
            return None
        if each.first + each.length > min(queue.file_end(each.first), QUEUE_OFFSET_MAX):
            return None
        found.append(_LongQueueRun(each.topic[1:].decode(), queue, each))
    return _LongRun(offset, columns, found) if found else None


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
