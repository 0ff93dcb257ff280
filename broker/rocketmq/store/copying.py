"""Copies records of another broker's commit log into a store, byte for byte.

The bytes come from a network. Each record is checked before it is written: it must be whole and sound, be meant for its
offset, and fit into its file. A record that names an impossible queue is copied into the log, as in the other broker's,
and into no queue.
"""

from __future__ import annotations

from typing import Final

from broker.common.faults import Inconsistent
from broker.rocketmq.store.commit_log import Found
from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.errors import DiskFull, NoPlace
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.places import QUEUE_OFFSET_MAX, is_place
from broker.rocketmq.store.runs import QueuePart, Queues, Run
from broker.rocketmq.store.terms import Arrived
from formats.errors import FormatError
from formats.rocketmq.fast.plain_columns import PlainColumns, read_columns
from formats.rocketmq.fast.plain_records import LITE_MARK, PlainRecord, plain_records, read_keys
from formats.rocketmq.files.index import IndexKeys
from formats.rocketmq.files.record import BLANK_BYTES_MIN, Blank, Magic, Record, decode_record, read_head
from formats.rocketmq.java import index_hash, tag_hash

__all__ = ["RECORD_BYTES_MAX", "Arrived", "copy_records"]

# A blank record is smaller than the message that did not fit there.
RECORD_BYTES_MAX: Final = 64 << 20
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 8

# From this number of keys on, hashing them together is faster.
_MANY_KEYS: Final = 24
_DELAY_MARK: Final = b"\2DELAY\1"


class _ShortRun:
    """A run that is read record by record, up to the offset `end`; `stored_ms` is the storing time of the last one."""

    def __init__(self, offset: int) -> None:
        self.end = offset
        self.stored_ms = 0
        # The keys of the index: the texts that are hashed, the offsets of their messages, and their storing times.
        self._texts: list[bytes] = []
        self._offsets: list[int] = []
        self._key_times: list[int] = []
        # The part of each queue, and the storing times of its records.
        self._parts: dict[tuple[bytes, int], tuple[QueuePart, list[int]]] = {}

    @property
    def parts(self) -> list[QueuePart]:
        return [part for part, _ in self._parts.values() if part.count]

    @property
    def keys(self) -> list[tuple[int, int, int]] | IndexKeys:
        if len(self._texts) >= _MANY_KEYS:
            return IndexKeys.of(self._texts, self._offsets, self._key_times)
        hashes = [index_hash(text.decode(errors="replace")) for text in self._texts]
        return [*zip(hashes, self._offsets, self._key_times, strict=True)]

    def add(self, record: PlainRecord, queues: Queues) -> bool:
        offset, size, topic, queue_id, queue_offset, stored_ms, properties = record
        found = self._parts.get((topic, queue_id)) or self._open(topic, queue_id, queues)
        if found is None:
            return False
        part, part_times = found
        if queue_offset != part.first + part.count or part.count >= part.most or queue_offset >= QUEUE_OFFSET_MAX:
            return False
        # In their queues, delayed messages have a due time instead of tags; messages of lite topics are in a second
        # queue.
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

    A run ends before a record that is not plain or is invalid; the caller takes it by itself. Many records are read at
    once until only properties, or a place in a queue, end a run. Others like that record may follow, and the records
    after them would be examined repeatedly.
    """

    def __init__(self, queues: Queues, file_size: int, size_max: int) -> None:
        self._queues = queues
        self._file_size = file_size
        self._size_max = size_max
        self._may_be_long = True

    def read(self, offset: int, data: memoryview) -> Run | None:
        """Read the run at the front of `data`, which begins at `offset` of the log; None if there is none.

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


def copy_records(
    store: MessageStore, offset: int, data: memoryview, arrived: Arrived | None = None, confirmed: int = 0
) -> int:
    """Append the whole records at the front of `data`, which begins at `offset` of the other broker's log.

    `offset` is the end of the store's log, or anything for a log without files. The other broker's log is confirmed up
    to `confirmed`. Returns the number of bytes taken; the rest is the front of a record. Raises `FormatError` for an
    invalid record, and `DiskFull`; earlier records are taken then.
    """
    log = store.log
    if offset != log.end and log.files.files:
        raise FormatError("Copy", 0, f"offset {offset} is not the end of this log, {log.end}")
    if not log.files.files and offset % log.files.file_size:
        raise FormatError("Copy", 0, f"offset {offset} is not the start of a file, and this log has none")
    reader = RunReader(store, log.files.file_size, RECORD_BYTES_MAX)
    at, end = 0, len(data)
    while end - at >= _HEAD_BYTES:
        run = reader.read(offset + at, data[at:])
        if run is not None and _copy_run(store, run, arrived, confirmed):
            at = run.end - offset
            continue
        size = int.from_bytes(data[at : at + _SIZE_BYTES], "big", signed=True)
        _check_size(size, at, offset + at)
        _check_place(read_head(data, at, at + size), at, offset + at, log.files.file_size)
        if size > end - at:
            break
        _copy(store, offset + at, _decode(data, at, size, offset + at), data[at : at + size], arrived)
        at += size
    return at


def _copy_run(store: MessageStore, run: Run, arrived: Arrived | None, confirmed: int) -> bool:
    """Take plain records together; return False if the first must be taken alone."""
    try:
        store.put(run, confirmed)
    except DiskFull:
        # The disk may have room for the first of them.
        return False
    except Exception as error:
        raise Inconsistent("copying records", error) from error
    if arrived is not None:
        for each in run.parts:
            arrived(each.topic, each.queue_id, each.count, each.size)
    return True


def _copy(store: MessageStore, offset: int, record: Record | Blank, data: memoryview, arrived: Arrived | None) -> None:
    try:
        if isinstance(record, Blank):
            store.log.append(offset, data)
            return
        store.put(store.run_of(Found(offset, len(data), record), data), 0)
    except DiskFull:
        raise
    except Exception as error:
        raise Inconsistent("copying a record", error) from error
    if arrived is not None and is_place(record.topic, record.queue_id):
        arrived(record.topic, record.queue_id, 1, len(data))


def _check_size(size: int, at: int, offset: int) -> None:
    if not BLANK_BYTES_MIN <= size <= RECORD_BYTES_MAX:
        raise FormatError("Copy.size", at, f"no record at offset {offset} has {size} bytes")


def _check_place(head: tuple[int, Magic] | None, at: int, offset: int, file_size: int) -> None:
    """Raise `FormatError` unless a record leaves room for a blank one in its file, or is a blank one that fills it."""
    if head is None:
        raise FormatError("Copy", at, f"nothing is written at offset {offset}")
    size, magic = head
    left = file_size - offset % file_size
    if size != left if magic is Magic.BLANK else size + BLANK_BYTES_MIN > left:
        raise FormatError(
            "Copy.size",
            at,
            f"a record of {size} bytes at offset {offset} does not belong into a file of {file_size}; give both "
            "brokers the same mappedFileSizeCommitLog",
        )


def _decode(data: memoryview, at: int, size: int, offset: int) -> Record | Blank:
    record = decode_record(data, at, at + size)
    assert record is not None
    if isinstance(record, Blank):
        return record
    if record.physical_offset != offset or not record.is_body_sound:
        raise FormatError("Copy", at, f"the checksum or the own offset of the record for offset {offset} is wrong")
    return record
