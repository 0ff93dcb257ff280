"""Takes records of another broker's commit log into a store, so that both logs are the same byte for byte.

The bytes come from a network. So each record is looked at before it is written: that it is whole and sound, that it is
meant for the offset where it is to go, and that it fits into the file there as it did into the other broker's. One that
names a queue that cannot exist is copied into the log, as in the other broker's, and into no queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.common.faults import Inconsistent
from broker.rocketmq.store.commit_log import Found
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore, Stored
from broker.rocketmq.store.places import is_place
from broker.rocketmq.store.runs import RunReader
from formats.errors import FormatError
from formats.rocketmq.files.record import BLANK_BYTES_MIN, Blank, Magic, Record, decode_record, read_head

__all__ = ["RECORD_BYTES_MAX", "Arrived", "copy_records"]

# No message is larger; a blank record is smaller than the message that did not fit there.
RECORD_BYTES_MAX: Final = 64 << 20
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 8

# Told of messages that were copied: their topic, queue, number and bytes.
Arrived = Callable[[str, int, int, int], None]


def copy_records(
    store: MessageStore, offset: int, data: memoryview, arrived: Arrived | None = None, confirmed: int = 0
) -> int:
    """Append the whole records at the front of `data`, which begins at `offset` of the other broker's log.

    That is the end of the store's log; a log without files may begin with any of them. Up to `confirmed` the other
    broker's log is confirmed. Returns the number of bytes that were taken; the rest is the front of a record. Raises
    `FormatError` for what cannot be a record there, and `DiskFull`; what was before it is taken then.
    """
    log = store.log
    if offset != log.end and log.files.files:
        raise FormatError("Copy", 0, f"offset {offset} is not the end of this log, {log.end}")
    if not log.files.files and offset % log.files.file_size:
        raise FormatError("Copy", 0, f"offset {offset} is not the start of a file, and this log has none")
    reader = RunReader(store, log.files.file_size, RECORD_BYTES_MAX)
    at, end = 0, len(data)
    while end - at >= _HEAD_BYTES:
        taken = _copy_run(store, reader, offset + at, data[at:], arrived, confirmed)
        if taken:
            at += taken
            continue
        size = int.from_bytes(data[at : at + _SIZE_BYTES], "big", signed=True)
        # What cannot be is refused before the rest of it has come.
        _check_size(size, at, offset + at)
        _check_place(read_head(data, at, at + size), at, offset + at, log.files.file_size)
        if size > end - at:
            break
        _copy(store, offset + at, _decode(data, at, size, offset + at), data[at : at + size], arrived)
        at += size
    return at


def _copy_run(
    store: MessageStore, reader: RunReader, offset: int, data: memoryview, arrived: Arrived | None, confirmed: int
) -> int:
    """Take the plain records at the front, all at once; their bytes. 0 if the first one has to be taken by itself."""
    run = reader.read(offset, data)
    if run.end == offset:
        return 0
    try:
        store.put_run(run, data[: run.end - offset], confirmed)
    except DiskFull:
        # Perhaps there is disk for the first of them.
        return 0
    except Exception as error:
        raise Inconsistent("copying records", error) from error
    if arrived is not None:
        for each in run.queues:
            arrived(each.topic, each.queue_id, each.count, each.size)
    return run.end - offset


def _copy(store: MessageStore, offset: int, record: Record | Blank, data: memoryview, arrived: Arrived | None) -> None:
    try:
        if isinstance(record, Blank):
            store.log.append_copy(offset, data)
            return
        place = store.branches.reserve_copy(record)
        store.put_copy(Found(offset, len(data), record), data)
        if place is not None:
            store.branches.enter(place, Stored(offset, len(data), record.queue_offset), record.stored_ms)
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
    """Raise `FormatError` unless a record ends in its file, with room for a blank one, and a blank one at its end."""
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
