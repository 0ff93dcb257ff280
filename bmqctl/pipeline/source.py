"""The PySpark data source `blazingmq`: a store's journal records, read in parallel by record ranges.

    spark.dataSource.register(StoreDataSource)
    records = spark.read.format("blazingmq").load("/var/bmq/storage")

Columns: `bmqctl.pipeline.columns.RECORD_SCHEMA`. Option `recordsPerPartition`: how many records a task reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bmqctl.pipeline.columns import RECORD_SCHEMA, record_batch
from bmqctl.pipeline.stores import Partition, find_partitions, map_file
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import scan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMAT", "RECORDS_PER_PARTITION", "RecordRange", "StoreDataSource", "split"]

FORMAT = "blazingmq"
RECORDS_PER_PARTITION = 250_000
RECORDS_PER_BATCH = 1 << 15


@dataclass(frozen=True)
class RecordRange(InputPartition):
    """`count` records of one journal from byte `offset`: what one task reads."""

    partition_id: int
    journal: str
    data: str
    offset: int
    count: int

    def batches(self) -> Iterator[tuple[int, int]]:
        """(offset, count) of each Arrow batch."""
        for index in range(0, self.count, RECORDS_PER_BATCH):
            yield self.offset + index * JOURNAL_RECORD_SIZE, min(RECORDS_PER_BATCH, self.count - index)


def split(partitions: list[Partition], records_per_range: int) -> list[RecordRange]:
    """All written records of `partitions`, in ranges of at most `records_per_range`."""
    return [
        RecordRange(
            partition.partition_id,
            str(partition.journal),
            str(partition.data),
            partition.extent.first_record_offset + index * JOURNAL_RECORD_SIZE,
            min(records_per_range, partition.extent.record_count - index),
        )
        for partition in partitions
        for index in range(0, partition.extent.record_count, records_per_range)
    ]


class StoreReader(DataSourceReader):
    """Plans the ranges, and reads one of them in an executor."""

    def __init__(self, store: Path, records_per_range: int) -> None:
        self.store = store
        self.records_per_range = records_per_range

    def partitions(self) -> list[InputPartition]:
        return [*split(find_partitions(self.store), self.records_per_range)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RecordRange):
            return  # what Spark makes up for a plan without partitions
        journal, data = map_file(Path(partition.journal)), map_file(Path(partition.data))
        for offset, count in partition.batches():
            yield record_batch(scan(journal, offset, count), offset, partition.partition_id, data)


class StoreDataSource(DataSource):
    """Registered by its class: `spark.dataSource.register(StoreDataSource)`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(RECORD_SCHEMA)

    def reader(self, schema: StructType) -> StoreReader:
        records = int(self.options.get("recordsPerPartition", RECORDS_PER_PARTITION))
        if records < 1:
            raise ValueError(f"recordsPerPartition: {records} is below 1")
        return StoreReader(Path(self.options["path"]), records)
