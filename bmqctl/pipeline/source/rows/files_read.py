"""The tables of files rather than of records: `ledger` and `faults`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from bmqctl.pipeline.source.arrays import TIMESTAMP_MAX_S
from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, companions, read_written
from bmqctl.stores.blazingmq.read.source import FileSource
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages_cluster import ClusterMessage
from formats.bmq.disk.files import FileSet, FileType, StoreFileName, parse_file_name
from formats.bmq.disk.ledger import LedgerRecord, LedgerRecordType
from formats.bmq.disk.padding import WORD
from formats.bmq.stores.check_ledger import check_ledger
from formats.bmq.stores.faults import Fault, fault
from formats.bmq.stores.recover import iter_ledger
from formats.bmq.stores.validate import check_file_set
from formats.errors import FormatError

__all__ = ["fault_batches", "ledger_batches"]

ROWS_PER_BATCH = 1 << 12


def ledger_batches(path: Path, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of a ledger up to the first damaged one, at which failfast mode raises StoreError."""
    yield from _batched(_ledger_rows(path, options), schema)


def _ledger_rows(path: Path, options: ReadOptions) -> Iterator[dict[str, Any]]:
    try:
        for record in iter_ledger(read_written(path)):
            header = record.header
            yield {
                "file": path.name,
                "offset": record.offset,
                "type": LedgerRecordType(header.record_type).name,
                "elector_term": _int64(header.elector_term),
                "sequence_number": _int64(header.sequence_number),
                "timestamp": header.timestamp * 1_000_000 if header.timestamp <= TIMESTAMP_MAX_S else None,
                "crc32c": record.crc32c,
                "message": json.dumps(jsonc.to_json(_message(record))),
            }
    except FormatError as error:
        if options.failfast:
            raise StoreError(f"{path}: {error}; `bmqctl journal validate` lists all faults") from None


def _message(record: LedgerRecord) -> ClusterMessage:
    try:
        return ber.decode(ClusterMessage, record.body)
    except FormatError as error:
        raise error.shifted(record.offset + record.header.header_words * WORD) from None


def fault_batches(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the faults of a ledger, or of a journal's file set, as reported by `bmqctl journal validate`."""
    yield from _batched(_fault_rows(path), schema)


def _fault_rows(path: Path) -> Iterator[dict[str, Any]]:
    for found in _faults(path):
        named = parse_file_name(found.file)
        yield {
            "store": str(path.parent),
            "file": found.file,
            "partition_id": None if named is None else named.partition_id,
            "offset": found.offset,
            "code": found.code,
            "severity": found.severity.value,
            "reason": found.reason,
            "advice": found.advice,
        }


def _faults(path: Path) -> Iterator[Fault]:
    files = companions(path)
    if files is None:
        with FileSource(path) as ledger:
            yield from check_ledger(ledger)
            yield from _unreadable(ledger)
        return
    opened: dict[FileType, FileSource] = {}
    try:
        for file_type, name in _files(files):
            if name is not None:
                try:
                    opened[file_type] = FileSource(path.with_name(name))
                except NotAStoreFile as error:
                    yield fault("unreadable", name, 0, str(error))
            elif file_type is not FileType.QLIST or any(path.parent.glob("*.bmq_qlist")):
                missing = StoreFileName(files.partition_id, files.timestamp, file_type)
                yield fault("set-incomplete", str(missing), 0, "is missing")
        if FileType.JOURNAL in opened:
            journal, data, qlist = (opened.get(each) for each in (FileType.JOURNAL, FileType.DATA, FileType.QLIST))
            assert journal is not None
            yield from check_file_set(journal, data, qlist)
        for file in opened.values():
            yield from _unreadable(file)
    finally:
        for file in opened.values():
            file.close()


def _files(files: FileSet) -> list[tuple[FileType, str | None]]:
    return [(FileType.JOURNAL, files.journal), (FileType.DATA, files.data), (FileType.QLIST, files.qlist)]


def _unreadable(file: FileSource) -> Iterator[Fault]:
    for offset, size in file.unreadable:
        yield fault("unreadable", file.name, offset, f"{size} bytes cannot be read from the disk: treated as zeros")


def _int64(number: int) -> int | None:
    """Return the number, or None if it is too large for Spark."""
    return number if number < 1 << 63 else None


def _batched(rows: Iterator[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names} for row in some], schema=schema)
