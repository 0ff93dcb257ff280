"""Takes records of another broker's commit log into a store, so that both logs are the same byte for byte.

The bytes come from a network, so each record is checked before it is written: it must be whole and sound, be meant for
the offset where it goes, and fit into the file there as it did into the other broker's. One that names a queue that
cannot exist is copied into the log, as in the other broker's, and into no queue.
"""

from __future__ import annotations

from typing import Final

from broker.common.faults import Inconsistent
from broker.rocketmq.store.commit_log import Found
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.places import is_place
from broker.rocketmq.store.run_reading import RunReader
from broker.rocketmq.store.runs import Run
from broker.rocketmq.store.terms import Arrived
from formats.errors import FormatError
from formats.rocketmq.files.record import BLANK_BYTES_MIN, Blank, Magic, Record, decode_record, read_head

__all__ = ["RECORD_BYTES_MAX", "Arrived", "copy_records"]

# No message is larger; a blank record is smaller than the message that did not fit there.
RECORD_BYTES_MAX: Final = 64 << 20
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 8


def copy_records(
    store: MessageStore, offset: int, data: memoryview, arrived: Arrived | None = None, confirmed: int = 0
) -> int:
    """Append the whole records at the front of `data`, which begins at `offset` of the other broker's log.

    That is the end of the store's log; a log without files may begin with any of them. Up to `confirmed` the other
    broker's log is confirmed. Returns the number of bytes taken; the rest is the front of a record. Raises
    `FormatError` for an invalid record, and `DiskFull`; the records before it are taken then.
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
        # An invalid record is refused before the rest of it has come.
        _check_size(size, at, offset + at)
        _check_place(read_head(data, at, at + size), at, offset + at, log.files.file_size)
        if size > end - at:
            break
        _copy(store, offset + at, _decode(data, at, size, offset + at), data[at : at + size], arrived)
        at += size
    return at


def _copy_run(store: MessageStore, run: Run, arrived: Arrived | None, confirmed: int) -> bool:
    """Take plain records together; return False if the first has to be taken by itself."""
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
