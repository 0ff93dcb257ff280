"""A task's rows, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.plan import FilesPart, Part, QueuesPart, time_column
from bmqctl.pipeline.source.pushdown import Bounds, bounds_of, kept
from bmqctl.pipeline.source.rows.confirms import confirm_batches
from bmqctl.pipeline.source.rows.files_read import fault_batches, ledger_batches
from bmqctl.pipeline.source.rows.messages import message_batches
from bmqctl.pipeline.source.rows.payloads import payload_batches
from bmqctl.pipeline.source.rows.queue_rows import queue_batches
from bmqctl.pipeline.source.rows.records import RecordColumns
from bmqctl.pipeline.source.walk import DataFiles, select, walk
from bmqctl.stores.blazingmq.read.account import Account
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE

__all__ = ["read_part"]


def read_part(
    part: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    filters: Sequence[Filter] = (),
    account: Account | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `part` that pass `filters`, with the columns of `schema`, some ten thousand at a time.

    Raises StoreError (failfast) at damage. `account` gets what was read, damaged and missing, once all rows are read.
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
