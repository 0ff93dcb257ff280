"""The rows of a task over RocketMQ stores, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.pipeline.rocketmq.bounds import log_bounds_of
from bmqctl.pipeline.rocketmq.columns import RecordColumns
from bmqctl.pipeline.rocketmq.figures import figure_batches
from bmqctl.pipeline.rocketmq.payloads import PayloadRows
from bmqctl.pipeline.rocketmq.plan import BrokerPart, LogPart, StorePart
from bmqctl.pipeline.rocketmq.store_faults import store_fault_batches
from bmqctl.pipeline.rocketmq.walk import read_range
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.pushdown import kept
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account

__all__ = ["read_log_part"]

_ROWS_PER_BATCH: Final = 1 << 14
_BYTES_PER_BATCH: Final = 16 << 20


def read_log_part(
    part: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    filters: Sequence[Filter] = (),
    account: Account | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `part` that pass `filters`, with the columns of `schema`. Raises StoreError (failfast) at
    damage.

    `account` gets what was read of the log, damaged and missing, once all rows are read.
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
