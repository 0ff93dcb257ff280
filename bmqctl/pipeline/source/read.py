"""A task's rows, as Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from numpy.typing import NDArray
from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.pipeline.source.arrays import TIMESTAMP_MAX_S, Labels, code_labels, hex_array, integers, times
from bmqctl.pipeline.source.decoding.decode import Decoder, decoder_of
from bmqctl.pipeline.source.names import key_text
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.plan import FilesPart, Part, QueuesPart, time_column
from bmqctl.pipeline.source.pushdown import Bounds, bounds_of, kept
from bmqctl.pipeline.source.rows.confirms import confirm_batches
from bmqctl.pipeline.source.rows.messages import message_batches
from bmqctl.pipeline.source.rows.properties import PROPERTIES_TYPE, property_items
from bmqctl.pipeline.source.rows.records import RecordColumns
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.pipeline.source.walk import DataFiles, select, walk
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, companions, read_written
from bmqctl.stores.blazingmq.read.payload import Payload, parse_payload
from bmqctl.stores.blazingmq.read.source import FileSource
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX, CompressionAlgorithm
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages_cluster import ClusterMessage
from formats.bmq.disk.columns import key_numbers
from formats.bmq.disk.data import parse_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileSet, FileType, StoreFileName, parse_file_name
from formats.bmq.disk.journal import MESSAGE_RECORD, RecordType
from formats.bmq.disk.ledger import LedgerRecord, LedgerRecordType
from formats.bmq.disk.padding import WORD
from formats.bmq.padding import DWORD
from formats.bmq.stores.check_ledger import check_ledger
from formats.bmq.stores.faults import Fault, fault
from formats.bmq.stores.queues import Event, Queue
from formats.bmq.stores.recover import iter_ledger
from formats.bmq.stores.validate import check_file_set
from formats.bmq.uri import parse_uri
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["read_part"]

ROWS_PER_BATCH = 1 << 12
BYTES_PER_BATCH = 16 << 20
"""The size of inflated payloads that ends a batch, with the message that reaches it."""


def payload_batches(
    part: Part, options: ReadOptions, schema: pa.Schema, bounds: Bounds, account: Account
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each message; `fault` is the reason for a missing payload, or raises StoreError (failfast)."""
    rows = PayloadRows(part, options, schema, account)
    for chunk, sound in walk(part, options, account):
        kinds = select(chunk, sound, part.names, bounds)
        at = np.flatnonzero(kinds == RecordType.MESSAGE)
        if len(at):
            messages = chunk.records[at].view(MESSAGE_RECORD.dtype)
            offsets = part.journals[chunk.journal].first_record_offset + (chunk.place + at) * JOURNAL_RECORD_SIZE
            yield from rows.batches(messages, offsets, chunk.journal)


class PayloadRows:
    """Makes rows of `payloads`, with the columns in `schema`."""

    def __init__(self, part: Part, options: ReadOptions, schema: pa.Schema, account: Account) -> None:
        self._part = part
        self._failfast = options.failfast
        self._schema = schema
        self._files = DataFiles(part.journals, options, account)
        self._keys = Labels(key_text)
        self._uris = Labels(part.names.uris.get)
        self._compressions = code_labels(CompressionAlgorithm)
        self._decoder: Decoder | None = decoder_of(options)

    def batches(self, messages: NDArray[Any], offsets: NDArray[Any], journal: int) -> Iterator[pa.RecordBatch]:
        data = self._files.of(journal)
        found: list[Payload | str] = []
        start = size = 0
        where = (MESSAGE_RECORD.column(messages, name).tolist() for name in _WHERE)
        for at, compression, checksum in zip(*where, strict=True):
            one = self._read(data, at * DWORD, compression, checksum, journal)
            found.append(one)
            size += 0 if isinstance(one, str) else one.size
            if size >= BYTES_PER_BATCH:
                end = start + len(found)
                yield self._batch(messages[start:end], offsets[start:end], found)
                found, start, size = [], end, 0
        if found:
            yield self._batch(messages[start:], offsets[start:], found)

    def _read(self, data: Buffer, offset: int, compression: int, checksum: int, journal: int) -> Payload | str:
        try:
            if not len(data):
                raise FormatError("DATA", 0, "there is no file, or an empty one")
            record = parse_data_record(data, offset)
            stored = record.app_data(data)
            if crc32c(stored) != checksum:
                raise FormatError("MessageRecord.crc32c", offset, f"{checksum:#010x}, computed {crc32c(stored):#010x}")
            return parse_payload(stored, record.header, compression, DECOMPRESSED_SIZE_MAX)
        except FormatError as error:
            if self._failfast:
                raise StoreError(f"{self._files.path(journal)}: the message at offset {offset}: {error}") from None
            self._files.lose(journal, np.array([offset]), 0, f"the message at offset {offset}: {error}")
            return str(error)

    def _batch(self, messages: NDArray[Any], offsets: NDArray[Any], found: list[Payload | str]) -> pa.RecordBatch:
        count = len(found)
        queues = key_numbers(messages, MESSAGE_RECORD, "queue_key")
        read = [None if isinstance(one, str) else one for one in found]
        payloads = [one and one.head for one in read]
        made: dict[str, Any] = {
            "partition_id": pa.array(np.full(count, self._part.partition_id, np.int32)),
            "queue_uri": self._uris.take(queues),
            "queue_key": self._keys.take(queues),
            "guid": hex_array(messages["guid"]),
            "arrival_time": times(MESSAGE_RECORD.column(messages, "timestamp")),
            "compression": self._compressions.take(MESSAGE_RECORD.column(messages, "compression").astype(np.uint64)),
            "schema_id": pa.array([one and one.schema_id for one in read], pa.int32()),
            "properties": pa.array([one and property_items(one.properties) for one in read], PROPERTIES_TYPE),
            "payload_size": pa.array([one and one.size for one in read], pa.int64()),
            "payload": pa.array(payloads, pa.binary()),
            "fault": pa.array([one if isinstance(one, str) else None for one in found], pa.string()),
            "journal_offset": pa.array(offsets),
        }
        for name in ("primary_lease_id", "sequence_number"):
            made[name] = integers(MESSAGE_RECORD.column(messages, name), pa.int64())
        if self._decoder is not None:
            made["value"], made["value_fault"] = self._decoder.columns(payloads)
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)


_WHERE = ("message_offset_dwords", "compression", "crc32c")


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
    """Yield the faults of a ledger or a journal's file set, as `bmqctl journal validate` reports them."""
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
    """The number, or None if too large for Spark."""
    return number if number < 1 << 63 else None


def _batched(rows: Iterator[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names} for row in some], schema=schema)


def queue_batches(queues: Iterable[Queue], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all rows at once: queues are few."""
    rows = [_row(queue) for queue in queues]
    if rows:
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def _row(queue: Queue) -> dict[str, Any]:
    domain, name = _parts(queue.uri)
    return {
        "partition_id": queue.partition_id,
        "queue_uri": queue.uri,
        "queue_key": queue.queue_key,
        "domain": domain,
        "queue": name,
        "app_ids": sorted(app.app_id for app in queue.apps if app.until is None),
        "removed_app_ids": sorted(app.app_id for app in queue.apps if app.until is not None),
        "created_time": _time(queue.created),
        "deleted_time": _time(queue.deleted),
    }


def _parts(uri: str | None) -> tuple[str | None, str | None]:
    """Domain (with its tier) and queue; None for an unknown or invalid URI."""
    if uri is None:
        return None, None
    try:
        parsed = parse_uri(uri)
    except FormatError:
        return None, None
    return parsed.qualified_domain, parsed.queue


def _time(event: Event | None) -> int | None:
    """An event's time in microseconds; None if it has none or one out of range."""
    return None if event is None or event.timestamp > TIMESTAMP_MAX_S else event.timestamp * 1_000_000


def read_part(
    part: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    filters: Sequence[Filter] = (),
    account: Account | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `part` that pass `filters`, with the columns of `schema`, some ten thousand at a time.

    Raises StoreError (failfast) at damage. `account` is complete when all rows are read.
    """
    bounds = bounds_of(filters, time_column(options.table))
    for batch in _batches(part, options, schema, bounds, Account() if account is None else account):
        rows = kept(batch, filters)
        if rows.num_rows:
            yield rows


def _batches(
    part: InputPartition, options: ReadOptions, schema: pa.Schema, bounds: Bounds, account: Account
) -> Iterator[pa.RecordBatch]:
    if isinstance(part, FilesPart):
        path = Path(part.path)
        yield from (
            fault_batches(path, schema) if options.table is Table.FAULTS else ledger_batches(path, options, schema)
        )
    elif isinstance(part, QueuesPart):
        yield from queue_batches(part.queues, schema)
    elif not isinstance(part, Part):
        return  # Spark's own input for a plan without tasks
    elif options.table is Table.RECORDS:
        yield from _record_batches(part, options, schema, bounds, account)
    elif options.table is Table.MESSAGES:
        yield from message_batches(part, options, schema, bounds, account)
    elif options.table is Table.CONFIRMS:
        yield from confirm_batches(part, options, schema, bounds, account)
    else:
        yield from payload_batches(part, options, schema, bounds, account)


def _record_batches(
    part: Part, options: ReadOptions, schema: pa.Schema, bounds: Bounds, account: Account
) -> Iterator[pa.RecordBatch]:
    columns = RecordColumns(schema, part.partition_id, part.names)
    files = DataFiles(part.journals, options, account)
    for chunk, sound in walk(part, options, account):
        kinds = select(chunk, sound, part.names, bounds)
        rows = np.flatnonzero(kinds)
        if len(rows):
            records = chunk.records if len(rows) == len(kinds) else chunk.records[rows]
            journal = part.journals[chunk.journal]
            offsets = journal.first_record_offset + (chunk.place + rows) * JOURNAL_RECORD_SIZE
            yield columns.batch(offsets, records, kinds[rows], files, chunk.journal)
