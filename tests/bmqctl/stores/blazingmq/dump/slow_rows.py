"""The rows of a journal, one record at a time through `decode_record`: the slow witness of `read.columns`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

from bmqctl.stores.blazingmq.dump.ledger import Ledger, LedgerFilters, row_of
from bmqctl.stores.blazingmq.read.files import read_blocks, read_written
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import (
    ConfirmReason,
    ConfirmRecord,
    DeletionRecord,
    DeletionRecordFlag,
    JournalOpRecord,
    JournalOpType,
    MessageRecord,
    QueueOpRecord,
    QueueOpType,
    Record,
    RecordType,
    SyncPointType,
    decode_record,
)
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import QueueRecord, parse_queue_record
from formats.bmq.stores.recover import iter_qlist
from formats.errors import FormatError

__all__ = ["JournalRows", "Row", "ledger_rows"]

Row = dict[str, Any]

BLOCK_RECORDS = 1 << 14
COMPRESSION = {0: "NONE", 1: "ZLIB"}
_ZEROS = bytes(JOURNAL_RECORD_SIZE)


def ledger_rows(path: Path) -> Iterator[Row]:
    """The rows of a whole ledger."""
    return map(row_of, Ledger(path, LedgerFilters(from_begin=True)).entries())


class JournalRows:
    """The records of a journal, read a block at a time: memory does not grow with the file.

    A slot with no record has a row with `fault`. `damaged` tells, after the walk, whether a record followed such
    a place; without one it was the unfinished last record of a live or killed broker.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._first = open_file(file.read(1 << 12), FileType.JOURNAL).first_record_offset
        self._path = path
        self._names = _QueueNames(path.with_name(path.name.replace(FileType.JOURNAL.extension, ".bmq_qlist")))
        self._unreadable = False
        self._index = 0
        self.damaged = False

    def rows(self) -> Iterator[Row]:
        """Rows of all records and faults."""
        for offset, block in read_blocks(self._path, self._first, BLOCK_RECORDS * JOURNAL_RECORD_SIZE):
            for at in range(0, len(block), JOURNAL_RECORD_SIZE):
                if block[at] == 0 and block[at : at + JOURNAL_RECORD_SIZE] == _ZEROS[: len(block) - at]:
                    continue
                yield from self._row(block, at, offset + at)

    def _row(self, block: bytes, at: int, offset: int) -> Iterator[Row]:
        index = (offset - self._first) // JOURNAL_RECORD_SIZE
        try:
            record = decode_record(block, at)
        except FormatError as error:
            self._unreadable = True
            yield {"index": index, "offset": offset, "fault": f"{error.path}: {error.reason}"}
            return
        missing = index - self._index
        if missing and not self._unreadable:
            start = self._first + self._index * JOURNAL_RECORD_SIZE
            yield {"index": self._index, "offset": start, "fault": f"zeros in place of {missing} records"}
        self.damaged |= bool(missing)
        self._index, self._unreadable = index + 1, False
        if isinstance(record, QueueOpRecord):
            self._names.learn(record)
        yield self._record_row(index, offset, record)

    def _record_row(self, index: int, offset: int, record: Record) -> Row:
        row: Row = {
            "index": index,
            "offset": offset,
            "type": _name(RecordType, record.type),
            "primary_lease_id": record.primary_lease_id,
            "sequence_number": record.sequence_number,
            "timestamp": record.timestamp,
        }
        if _time(record.timestamp) is not None:
            row["time"] = _time(record.timestamp)
        if not isinstance(record, JournalOpRecord):
            row["queue_key"] = _hex(record.queue_key)
            uri = self._names.uris.get(record.queue_key)
            if uri is not None:
                row["queue_uri"] = uri
        if isinstance(record, (ConfirmRecord, QueueOpRecord)) and record.app_key != NULL_KEY:
            row["app_key"] = _hex(record.app_key)
            app_id = self._names.app_ids.get((record.queue_key, record.app_key))
            if app_id is not None:
                row["app_id"] = app_id
        row.update(_DETAILS[type(record)](record))
        if isinstance(record, QueueOpRecord):
            row.update(self._names.apps(record))
        return row


class _QueueNames:
    """URIs and app ids for keys, from all of QLIST, and then in the journal's order: a key may come back."""

    def __init__(self, path: Path) -> None:
        self.uris: dict[bytes, str] = {}
        self.app_ids: dict[tuple[bytes, bytes], str] = {}
        self._buffer = read_written(path) if path.is_file() else bytearray()
        for entry in iter_qlist(self._buffer) if self._buffer else ():
            self._take(entry)

    def learn(self, record: QueueOpRecord) -> None:
        if record.queue_op_type not in (QueueOpType.CREATION, QueueOpType.ADDITION):
            return
        try:
            entry = parse_queue_record(self._buffer, record.queue_uri_record_offset_words * WORD)
        except FormatError:
            return
        if entry.queue_key == record.queue_key:
            self._take(entry)

    def apps(self, record: QueueOpRecord) -> Row:
        if record.queue_op_type not in (QueueOpType.CREATION, QueueOpType.ADDITION):
            return {}
        try:
            entry = parse_queue_record(self._buffer, record.queue_uri_record_offset_words * WORD)
        except FormatError:
            return {}
        if entry.queue_key != record.queue_key:
            return {}
        return {"apps": [{"app_id": app.app_id, "app_key": _hex(app.app_key)} for app in entry.apps]}

    def _take(self, entry: QueueRecord) -> None:
        self.uris[entry.queue_key] = entry.uri
        self.app_ids.update({(entry.queue_key, app.app_key): app.app_id for app in entry.apps})
        self.app_ids.setdefault((entry.queue_key, DEFAULT_APP_KEY), DEFAULT_APP_ID)


def _message(record: MessageRecord) -> Row:
    return {
        "guid": _hex(record.guid),
        "ref_count": record.ref_count,
        "compression": COMPRESSION.get(record.compression, record.compression),
        "data_offset": record.message_offset_dwords * DWORD,
        "crc32c": record.crc32c,
    }


def _confirm(record: ConfirmRecord) -> Row:
    return {"guid": _hex(record.guid), "reason": _flags(ConfirmReason, record.reason)}


def _deletion(record: DeletionRecord) -> Row:
    return {"guid": _hex(record.guid), "deletion_flag": _flags(DeletionRecordFlag, record.deletion_flag)}


def _queue_op(record: QueueOpRecord) -> Row:
    row: Row = {"queue_op_type": _name(QueueOpType, record.queue_op_type)}
    if record.queue_op_type in (QueueOpType.CREATION, QueueOpType.ADDITION):
        row["qlist_offset"] = record.queue_uri_record_offset_words * WORD
    if record.start_primary_lease_id:
        row["start_primary_lease_id"] = record.start_primary_lease_id
        row["start_sequence_number"] = record.start_sequence_number
    return row


def _journal_op(record: JournalOpRecord) -> Row:
    return {
        "journal_op_type": _name(JournalOpType, record.journal_op_type),
        "sync_point_type": _name(SyncPointType, record.sync_point_type),
        "sync_point_primary_lease_id": record.sync_point_primary_lease_id,
        "sync_point_sequence_number": record.sync_point_sequence_number,
        "primary_node_id": record.primary_node_id,
        "data_file_offset": record.data_file_offset_dwords * DWORD,
        "qlist_file_offset": record.qlist_file_offset_words * WORD,
    }


_DETAILS: dict[type[Any], Callable[[Any], Row]] = {
    MessageRecord: _message,
    ConfirmRecord: _confirm,
    DeletionRecord: _deletion,
    QueueOpRecord: _queue_op,
    JournalOpRecord: _journal_op,
}


def _hex(key: bytes) -> str:
    return key.hex().upper()


def _name(kind: type[IntEnum], value: int) -> str | int:
    return kind(value).name if value in kind._value2member_map_ else value


def _flags(kind: type[IntFlag], value: int) -> str | int:
    known = 0
    for member in kind:
        known |= member
    return (kind(value).name or "NONE") if not value & ~known else value


def _time(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None
