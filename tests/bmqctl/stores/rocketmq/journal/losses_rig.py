"""RocketMQ stores of which a file or a part is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, ConsumeQueueEntry
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record, encode_record
from formats.rocketmq.java import string_hash
from formats.rocketmq.properties import decode_properties
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, Written, message, write_log

COUNT = 600
_DAMAGED_BYTES = 2000
_ENTRY = CONSUME_QUEUE_ENTRY.size


class Damaged(NamedTuple):
    """A store with the records that are left, and how many of the others are damaged or missing."""

    written: Written
    left: list[Record]
    damaged: int = 0
    missing: int = 0

    @property
    def root(self) -> Path:
        return self.written.root


def entry_of(record: Record) -> ConsumeQueueEntry:
    """Return the entry of a record in its consume queue."""
    code = string_hash(decode_properties(record.properties).get("TAGS", ""))
    return ConsumeQueueEntry(record.physical_offset, len(encode_record(record)), code)


def whole_store(root: Path) -> Written:
    """Write a log of several files with its consume queues."""
    written = write_log(root, (message(number, body=b"." * 300) for number in range(COUNT)))
    for queue_id in range(4):
        folder = root / "consumequeue" / "orders" / str(queue_id)
        folder.mkdir(parents=True)
        some = [each for each in written.records if each.queue_id == queue_id]
        entries = [entry_of(each) for each in some]
        (folder / offset_name(0)).write_bytes(b"".join(map(CONSUME_QUEUE_ENTRY.pack, entries)) + bytes(10 * _ENTRY))
    return written


def _outside(records: Sequence[Record], begin: int, end: int) -> list[Record]:
    """The records that have no byte in a range."""
    return [
        each
        for each in records
        if each.physical_offset + len(encode_record(each)) <= begin or each.physical_offset >= end
    ]


def middle_file_missing(root: Path) -> Damaged:
    written = whole_store(root)
    written.path(FILE_BYTES).unlink()
    left = _outside(written.records, FILE_BYTES, 2 * FILE_BYTES)
    return Damaged(written, left, missing=COUNT - len(left))


def two_files_missing(root: Path) -> Damaged:
    written = whole_store(root)
    for number in (1, 2):
        written.path(number * FILE_BYTES).unlink()
    left = _outside(written.records, FILE_BYTES, 3 * FILE_BYTES)
    return Damaged(written, left, missing=COUNT - len(left))


def middle_file_cut(root: Path) -> Damaged:
    written = whole_store(root)
    path = written.path(FILE_BYTES)
    path.write_bytes(path.read_bytes()[: FILE_BYTES // 2])
    at = FILE_BYTES + FILE_BYTES // 2
    left = _outside(written.records, at, 2 * FILE_BYTES)
    cut = sum(each.physical_offset < at for each in written.records if each not in left)
    return Damaged(written, left, damaged=cut, missing=COUNT - len(left) - cut)


def bytes_overwritten(root: Path) -> Damaged:
    written = whole_store(root)
    at = written.offsets[100] + 10
    written.overwrite(at, b"\xff" * _DAMAGED_BYTES)
    left = _outside(written.records, at, at + _DAMAGED_BYTES)
    return Damaged(written, left, damaged=COUNT - len(left))


def zeros_in_the_middle(root: Path) -> Damaged:
    written = whole_store(root)
    at = written.offsets[200]
    written.overwrite(at, bytes(_DAMAGED_BYTES))
    left = _outside(written.records, at, at + _DAMAGED_BYTES)
    return Damaged(written, left, damaged=COUNT - len(left))


def last_records_overwritten(root: Path) -> Damaged:
    written = whole_store(root)
    last = written.records[-1]
    end = last.physical_offset + len(encode_record(last))
    written.overwrite(end - _DAMAGED_BYTES, b"\xff" * _DAMAGED_BYTES)
    left = _outside(written.records, end - _DAMAGED_BYTES, end)
    return Damaged(written, left, damaged=COUNT - len(left))


def body_overwritten(root: Path) -> Damaged:
    written = whole_store(root)
    written.overwrite(written.offsets[300] + 100, b"!!")
    return Damaged(written, [*written.records[:300], *written.records[301:]], damaged=1)


def last_files_missing(root: Path) -> Damaged:
    written = whole_store(root)
    last = written.offsets[-1] // FILE_BYTES * FILE_BYTES
    written.path(last).unlink()
    left = _outside(written.records, last, last + FILE_BYTES)
    return Damaged(written, left, missing=COUNT - len(left))


EVERY = [
    middle_file_missing,
    two_files_missing,
    middle_file_cut,
    bytes_overwritten,
    zeros_in_the_middle,
    last_records_overwritten,
    body_overwritten,
    last_files_missing,
]
