"""The tables of stores, for each system: columns, tasks, rows and their positions, and the extents of stores.

A position identifies a row: for BlazingMQ the partition and number of a record; for RocketMQ the broker, by its place
among those read, and the record's offset in its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.pipeline.rocketmq.brokers import find_gone, is_rocketmq
from bmqctl.pipeline.rocketmq.plan import BrokerPart, LogPart, StorePart, log_extents, plan_log
from bmqctl.pipeline.rocketmq.read import read_log_part
from bmqctl.pipeline.rocketmq.tables import log_table_schema
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.partitions import find_lost_files
from bmqctl.pipeline.source.plan import PartitionExtent, plan, plan_partitions
from bmqctl.pipeline.source.read import read_part
from bmqctl.pipeline.source.tables import chosen_columns, table_schema
from bmqctl.stores.blazingmq.read.account import Account
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["POSITION", "BlazingMQTables", "RocketMQTables", "Subject", "read_task", "tables_of"]

POSITION = np.dtype([("partition_id", "<i4"), ("primary_lease_id", "<i8"), ("sequence_number", "<i8")])
"""A row's identity: its record's position in the history of its partition or log."""

_RECORD_BYTES: Final = 300


class Subject(Protocol):
    """The tables of a system's stores, for reading and export.

    `order` has those with long tasks first; `partitions` are the columns of directories with their types, and `changes`
    is True if rows may change later.
    """

    @property
    def order(self) -> tuple[str, ...]: ...

    @property
    def usual(self) -> tuple[str, ...]: ...

    @property
    def partitions(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def changes(self) -> bool: ...

    @property
    def brokers(self) -> tuple[str, ...]: ...

    def schema(self, table: str) -> pa.Schema:
        """Return all columns of a table."""

    def time_column(self, table: str) -> str:
        """The column whose date names the directory."""

    def positions(self, rows: pa.RecordBatch | pa.Table) -> NDArray[Any]:
        """The `POSITION` of each row."""

    def place(self, position: tuple[int, int, int]) -> str:
        """A position in words."""

    def with_brokers(self, paths: Iterable[str]) -> Subject:
        """The tables with the names of the brokers whose stores are read. Raises StoreError."""

    def columns(self, options: ReadOptions) -> pa.Schema:
        """The requested columns. Raises BadOption for one that the table lacks, and StoreError."""

    def plan(self, options: ReadOptions, filters: Sequence[Filter] = ()) -> list[InputPartition]:
        """Plan the tasks that read a table, which may leave out rows that `filters` drop. Raises StoreError."""

    def lost_files(self, options: ReadOptions) -> Account:
        """Account for damaged or missing files, and parts of files, that no task reads. Raises StoreError."""

    def extents(self, options: ReadOptions) -> list[PartitionExtent]:
        """The extents of the partitions, or of the brokers' logs, that are read. Raises StoreError."""


@dataclass(frozen=True)
class BlazingMQTables:
    order: tuple[str, ...] = ("messages", "confirms", "records")
    usual: tuple[str, ...] = ("records", "messages")
    partitions: tuple[tuple[str, str], ...] = (("date", "date"), ("domain", "string"))
    changes: bool = True
    brokers: tuple[str, ...] = ()

    def schema(self, table: str) -> pa.Schema:
        return table_schema(Table(table))

    def time_column(self, table: str) -> str:
        return {"records": "timestamp", "messages": "arrival_time", "confirms": "confirm_time"}[table]

    def positions(self, rows: pa.RecordBatch | pa.Table) -> NDArray[Any]:
        positions = np.zeros(rows.num_rows, POSITION)
        for name in POSITION.names or ():
            positions[name] = rows.column(name).to_numpy()
        return positions

    def place(self, position: tuple[int, int, int]) -> str:
        partition, lease, number = position
        return f"partition {partition}, lease {lease}, record {number}"

    def with_brokers(self, paths: Iterable[str]) -> BlazingMQTables:
        return self

    def columns(self, options: ReadOptions) -> pa.Schema:
        return chosen_columns(options, table_schema(options.table))

    def plan(self, options: ReadOptions, filters: Sequence[Filter] = ()) -> list[InputPartition]:
        return plan(options, filters)

    def lost_files(self, options: ReadOptions) -> Account:
        return find_lost_files(options.paths, options.file_sets)

    def extents(self, options: ReadOptions) -> list[PartitionExtent]:
        return plan_partitions(options)


@dataclass(frozen=True)
class RocketMQTables:
    """The tables of RocketMQ's stores of these brokers."""

    brokers: tuple[str, ...] = ()
    order: tuple[str, ...] = ("payloads", "messages")
    usual: tuple[str, ...] = ("messages",)
    partitions: tuple[tuple[str, str], ...] = (("date", "date"),)
    changes: bool = False

    def schema(self, table: str) -> pa.Schema:
        return log_table_schema(Table(table))

    def time_column(self, table: str) -> str:
        return "store_time"

    def positions(self, rows: pa.RecordBatch | pa.Table) -> NDArray[Any]:
        positions = np.zeros(rows.num_rows, POSITION)
        names = rows.column("broker")
        names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
        encoded = names.dictionary_encode()
        numbers = [self.brokers.index(name) if name in self.brokers else -1 for name in encoded.dictionary.to_pylist()]
        positions["partition_id"] = np.array(numbers, np.int32)[encoded.indices.to_numpy()] if numbers else 0
        positions["sequence_number"] = rows.column("offset").to_numpy()
        return positions

    def place(self, position: tuple[int, int, int]) -> str:
        broker, _, offset = position
        name = self.brokers[broker] if 0 <= broker < len(self.brokers) else "unknown"
        return f"broker {name}, offset {offset}"

    def with_brokers(self, paths: Iterable[str]) -> RocketMQTables:
        extents = log_extents(ReadOptions(tuple(paths), Table.MESSAGES))
        return replace(self, brokers=tuple(extent.broker for extent in extents))

    def columns(self, options: ReadOptions) -> pa.Schema:
        return chosen_columns(options, log_table_schema(options.table))

    def plan(self, options: ReadOptions, filters: Sequence[Filter] = ()) -> list[InputPartition]:
        return plan_log(options, filters)

    def lost_files(self, options: ReadOptions) -> Account:
        # The tasks that read queues account for all messages that these name.
        return Account() if options.table in (Table.GROUPS, Table.TOPICS, Table.QUEUES) else find_gone(options.paths)

    def extents(self, options: ReadOptions) -> list[PartitionExtent]:
        """The logs' extents from the start of the files; the number of records is an estimate by size."""
        return [
            PartitionExtent(
                number,
                RecordNumber(0, extent.begin),
                None if extent.last is None else RecordNumber(0, extent.last),
                extent.file,
                0 if extent.last is None else 1 + (extent.last - extent.begin) // _RECORD_BYTES,
            )
            for number, extent in enumerate(log_extents(options))
        ]


def tables_of(paths: Iterable[str]) -> Subject:
    """The tables of the stores in `paths`, by inspecting the files. Raises StoreError."""
    return RocketMQTables() if is_rocketmq(paths) else BlazingMQTables()


def read_task(
    part: InputPartition,
    options: ReadOptions,
    schema: pa.Schema,
    filters: Sequence[Filter] = (),
    account: Account | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a task's rows that pass `filters`, with the columns of `schema`. Raises StoreError (failfast) at damage.

    `account` is complete when all rows are read.
    """
    read = read_log_part if isinstance(part, (LogPart, BrokerPart, StorePart)) else read_part
    yield from read(part, options, schema, filters, account)
