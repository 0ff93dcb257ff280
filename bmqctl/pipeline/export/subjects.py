"""Differences between exports of the two systems: tables, times, positions of rows, and how far a store is.

A row's identity is a position: the partition and number of a record of BlazingMQ; the broker, by its place among those
read, and the offset in its log of a record of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bmqctl.pipeline.rocketmq.brokers import is_rocketmq
from bmqctl.pipeline.rocketmq.plan import log_extents
from bmqctl.pipeline.rocketmq.tables import log_table_schema
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.plan import PartitionExtent, plan_partitions
from bmqctl.pipeline.source.tables import table_schema
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["POSITION", "BlazingMQTables", "RocketMQTables", "Subject", "extents_of", "subject_of"]

POSITION = np.dtype([("partition_id", "<i4"), ("primary_lease_id", "<i8"), ("sequence_number", "<i8")])
"""The identity of a table's row: its record's position in the history of its partition or log."""

_RECORD_BYTES: Final = 300


class Subject(Protocol):
    """The tables of a system, as they are exported.

    `order` has them with those of long tasks first; `partitions` are the columns of directories with their types, and
    `changes` says that rows may change later.
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
        """All columns of a table."""

    def time_column(self, table: str) -> str:
        """The column whose date names the directory."""

    def positions(self, rows: pa.RecordBatch | pa.Table) -> NDArray[Any]:
        """The `POSITION` of each row."""

    def place(self, position: tuple[int, int, int]) -> str:
        """A position in words."""


@dataclass(frozen=True)
class BlazingMQTables:
    """The tables of BlazingMQ's stores."""

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


@dataclass(frozen=True)
class RocketMQTables:
    """The tables of RocketMQ's stores of these brokers."""

    brokers: tuple[str, ...]
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


def subject_of(paths: Iterable[str]) -> Subject:
    """The tables of the stores in `paths`. Raises StoreError."""
    if not is_rocketmq(paths):
        return BlazingMQTables()
    extents = log_extents(ReadOptions(tuple(paths), Table.MESSAGES))
    return RocketMQTables(tuple(extent.broker for extent in extents))


def extents_of(options: ReadOptions) -> list[PartitionExtent]:
    """The extents of the partitions, or of the brokers' logs, that are read. Raises StoreError.

    The first position of a log is the begin of its files. How many records a log has is estimated from its size.
    """
    if not is_rocketmq(options.paths):
        return plan_partitions(options)
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
