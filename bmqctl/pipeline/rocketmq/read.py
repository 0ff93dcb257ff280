"""The rows of a task over RocketMQ stores, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.pipeline.rocketmq.bounds import log_bounds_of
from bmqctl.pipeline.rocketmq.brokers import Broker
from bmqctl.pipeline.rocketmq.columns import RecordColumns
from bmqctl.pipeline.rocketmq.figures import figure_batches
from bmqctl.pipeline.rocketmq.plan import BrokerPart, LogPart, StorePart
from bmqctl.pipeline.rocketmq.tables import batch_of_rows
from bmqctl.pipeline.rocketmq.walk import read_range
from bmqctl.pipeline.source.decoding.decode import Decoder, decoder_of
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.pushdown import kept
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.check.check import check_log_store
from bmqctl.stores.rocketmq.read.payload import decompressed
from bmqctl.stores.rocketmq.read.queues import record_of
from bmqctl.stores.rocketmq.read.records import LogRecords
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.bmq.stores.faults import Fault
from formats.errors import FormatError
from formats.rocketmq.files.record import body_crc
from formats.rocketmq.flags import SystemFlag

__all__ = ["read_log_part"]

_ROWS_PER_BATCH: Final = 1 << 14
_BYTES_PER_BATCH: Final = 16 << 20

# A plain integer: an operation with an enumeration's member makes another member.
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)

# Faults kept for a store, to bound memory.
_FAULTS_MAX: Final = 1 << 18
_FAULTS_PER_BATCH: Final = 1 << 12


def store_fault_batches(broker: str, root: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the faults of the store `root`, at most the first _FAULTS_MAX. Raises `OSError` and StoreError."""
    try:
        faults = iter(check_log_store(root, _FAULTS_MAX, lambda done, total: None).faults)
    except NotAStoreFile as error:
        raise StoreError(str(error)) from None
    while rows := [_row(broker, root, one) for one in islice(faults, _FAULTS_PER_BATCH)]:
        yield batch_of_rows(rows, schema)


def _row(broker: str, root: Path, one: Fault) -> dict[str, Any]:
    return {
        "broker": broker,
        "store": str(root),
        "file": one.file.removeprefix(f"{root}/"),
        "offset": one.offset,
        "code": one.code,
        "severity": one.severity.value,
        "reason": one.reason,
        "advice": one.advice,
    }


class PayloadRows:
    """Makes rows of `payloads`, of the columns in `schema`: bodies, decompressed, and decoded by a schema.

    A body that fails its checksum is taken from another replica, if one has it intact.
    """

    def __init__(self, broker: Broker, columns: RecordColumns, options: ReadOptions, schema: pa.Schema) -> None:
        self._broker = broker
        self._columns = columns
        self._failfast = options.failfast
        self._schema = schema
        self._decoder: Decoder | None = decoder_of(options)

    def batches(self, records: LogRecords) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records; a batch ends with the message that makes it large."""
        found: list[bytes | str] = []
        start = size = 0
        fronts = (records.body_at, records.body_sizes, records.flags, records.front("body_crc"))
        for number, (at, length, flags, crc) in enumerate(zip(*(each.tolist() for each in fronts), strict=True)):
            one = self._payload(records, number, records.data[at : at + length], flags, crc)
            found.append(one)
            size += len(one)
            if size >= _BYTES_PER_BATCH:
                yield self._batch(records.where(slice(start, start + len(found))), found)
                start, size, found = start + len(found), 0, []
        if found:
            yield self._batch(records.where(slice(start, None)), found)

    def _payload(self, records: LogRecords, number: int, body: memoryview, flags: int, crc: int) -> bytes | str:
        try:
            if body_crc(body) != crc:
                whole = self._elsewhere(int(records.offsets[number]), int(records.sizes[number]), crc)
                if whole is None:
                    raise FormatError("Record.body_crc", 0, f"{crc:#010x}, computed {body_crc(body):#010x}")
                body = whole
            return decompressed(body, flags, DECOMPRESSED_SIZE_MAX)[0] if flags & _COMPRESSED else bytes(body)
        except FormatError as error:
            if self._failfast:
                root, offset = self._broker.logs[0].root, int(records.offsets[number])
                raise StoreError(f"{root}: the message at offset {offset} of the commit log: {error}") from None
            return str(error)

    def _elsewhere(self, offset: int, size: int, crc: int) -> memoryview | None:
        for log in self._broker.logs:
            found = record_of(log.files, offset, size) if offset < log.limit else None
            if found is not None and int(found.front("body_crc")[0]) == crc:
                body = found.data[int(found.body_at[0]) :][: int(found.body_sizes[0])]
                if body_crc(body) == crc:
                    return body
        return None

    def _batch(self, records: LogRecords, found: Sequence[bytes | str]) -> pa.RecordBatch:
        payloads = [None if isinstance(one, str) else one for one in found]
        made = self._columns.arrays(records, self._schema)
        sizes = np.array([0 if one is None else len(one) for one in payloads], np.int64)
        lacking = np.array([one is None for one in payloads], np.bool_)
        made["payload_size"] = pa.array(sizes, mask=lacking)
        made["payload"] = pa.array(payloads, pa.binary())
        made["fault"] = pa.array([one if isinstance(one, str) else None for one in found], pa.string())
        if self._decoder is not None:
            made["value"], made["value_fault"] = self._decoder.columns(payloads)
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)


def read_log_part(
    part: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    filters: Sequence[Filter] = (),
    account: Account | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `part` that pass `filters`, with the columns of `schema`. Raises StoreError (failfast) at damage.

    `account` is complete when all rows are read.
    """
    account = Account() if account is None else account
    try:
        batches = _batches(part, options, schema, filters, account)
        yield from _joined((kept(batch, filters) for batch in batches), schema)
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}; was the store moved while it was read?") from None


def _batches(
    part: InputPartition, options: ReadOptions, schema: pa.Schema, filters: Sequence[Filter], account: Account
) -> Iterator[pa.RecordBatch]:
    if isinstance(part, StorePart):
        yield from store_fault_batches(part.broker, part.root, schema)
    elif isinstance(part, BrokerPart):
        yield from figure_batches(part.broker, options.table, schema, options.failfast, account)
    elif isinstance(part, LogPart):
        broker = part.broker
        columns = RecordColumns(broker.name, broker.epochs)
        payloads = PayloadRows(broker, columns, options, schema) if options.table is Table.PAYLOADS else None
        selector = log_bounds_of(filters).selector()
        for records in read_range(broker.logs, part.begin, part.end, part.written_to, options.failfast, account):
            wanted = selector.select(records)
            if not len(wanted):
                continue
            if payloads is not None:
                yield from payloads.batches(wanted)
            else:
                made = columns.arrays(wanted, schema)
                yield pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def _joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            some.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_PER_BATCH or size >= _BYTES_PER_BATCH:
            yield from _one(some, schema)
            some, rows, size = [], 0, 0
    yield from _one(some, schema)


def _one(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    return list(pa.Table.from_batches(batches, schema).combine_chunks().to_batches())
