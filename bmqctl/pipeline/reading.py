"""Tables of stores, whosever they are: columns, tasks and rows, by a look at the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.pipeline.rocketmq.brokers import find_gone, is_rocketmq
from bmqctl.pipeline.rocketmq.plan import BrokerPart, LogPart, StorePart, plan_log
from bmqctl.pipeline.rocketmq.read import read_log_part
from bmqctl.pipeline.rocketmq.tables import log_table_schema
from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.partitions import find_lost_files
from bmqctl.pipeline.source.plan import plan
from bmqctl.pipeline.source.read import read_part
from bmqctl.pipeline.source.tables import chosen_columns, table_schema
from bmqctl.stores.blazingmq.read.account import Account

__all__ = ["is_rocketmq", "lost_files", "plan_tasks", "read_task", "schema_of"]


def schema_of(options: ReadOptions) -> pa.Schema:
    """The columns that are asked for. Raises BadOption for what the table does not have, and StoreError."""
    table = log_table_schema(options.table) if is_rocketmq(options.paths) else table_schema(options.table)
    return chosen_columns(options, table)


def plan_tasks(options: ReadOptions, filters: Sequence[Filter] = ()) -> list[InputPartition]:
    """Plan the tasks that read a table, which may leave out rows that `filters` drop. Raises StoreError."""
    return plan_log(options, filters) if is_rocketmq(options.paths) else plan(options, filters)


def lost_files(options: ReadOptions) -> Account:
    """Account for what is damaged or missing in files, or parts of them, that no task reads. Raises StoreError."""
    if is_rocketmq(options.paths):
        return find_gone(options.paths)
    return find_lost_files(options.paths, options.file_sets)


def read_task(
    part: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    filters: Sequence[Filter] = (),
    account: Account | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task that pass `filters`, with the columns of `schema`. StoreError (failfast) at damage.

    `account` gets what was read of the store, damaged and missing, when all rows are read.
    """
    read = read_log_part if isinstance(part, (LogPart, BrokerPart, StorePart)) else read_part
    yield from read(part, options, schema, filters, account)
