"""The PySpark data source `bmq`: stores as tables, read in parallel.

    bmqctl.pipeline.register(spark)
    messages = spark.read.format("bmq").option("table", "messages").load("/var/bmq/*/storage")

Options: `bmqctl.pipeline.source.options`. Columns: `bmqctl.pipeline.source.tables` and, for RocketMQ's stores,
`bmqctl.pipeline.rocketmq.tables`; a schema, like the option `columns`, selects some of them. With the option
`pushdown`, tasks apply filters of any column with simple values.

With the option `queue` it is a live queue, see `stream_source` and `stream_sink`; with `nameserver` a topic of
RocketMQ, see `topic_source` and `topic_sink`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from bmqctl.pipeline.live.topic_options import is_topic
from bmqctl.pipeline.reading import read_task, tables_of
from bmqctl.pipeline.source.options import BadOption, ReadOptions, is_live
from bmqctl.pipeline.source.pushdown import can_push
from bmqctl.pipeline.spark.run_tasks import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from bmqctl.pipeline.live.writing import Post

__all__ = ["FORMAT", "BmqDataSource"]

FORMAT = "bmq"


class BmqReader(DataSourceReader):
    """Plans the tasks, and reads one of them in an executor."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raise BadOption if the table lacks columns of `schema`, or they have another type."""
        self.options = options
        self.schema = _chosen(options, schema)
        self.returned = to_arrow_schema(schema, timezone="UTC")
        self.filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        return tables_of(self.options.paths).plan(self.options, self.filters)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_modules()
        for batch in read_task(partition, self.options, self.schema, self.filters):
            # Spark also compares the names of items of lists and maps.
            yield batch if batch.schema.equals(self.returned) else batch.cast(self.returned)


class FilteringReader(BmqReader):
    """A reader that applies filters in the tasks, so that less is read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.filters = [one for one in filters if can_push(self.schema, one)]
        return [one for one in filters if not can_push(self.schema, one)]


class BmqDataSource(DataSource):
    """Registered by `bmqctl.pipeline.register`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if is_topic(self.options):
            from bmqctl.pipeline.live.topic_source import topic_stream_schema

            return topic_stream_schema(self.options)
        if is_live(self.options):
            from bmqctl.pipeline.live.stream_source import stream_schema

            return stream_schema(self.options)
        options = ReadOptions.parse(self.options)
        return from_arrow_schema(tables_of(options.paths).columns(options))

    def reader(self, schema: StructType) -> BmqReader:
        if is_topic(self.options):
            raise BadOption("nameserver: a topic is read as a stream, with readStream; read takes the path of a store")
        if is_live(self.options):
            raise BadOption("queue: a live queue is read as a stream, with readStream; read takes the path of a store")
        # Spark (PythonDataSourceV2, 4.0 to 4.3) reuses a reader with the filters of one query for later queries of the
        # same DataFrame, and for its other place in a join. So filters must be requested.
        options = ReadOptions.parse(self.options)
        return (FilteringReader if options.pushdown else BmqReader)(options, schema)

    # -- live queues and topics: imported on use, as they need the client and a newer PySpark

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if is_topic(self.options):
            from bmqctl.pipeline.live.topic_source import TopicStreamReader

            return TopicStreamReader(schema, self.options)
        from bmqctl.pipeline.live.stream_source import QueueStreamReader

        return QueueStreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadOption("mode overwrite: messages cannot be withdrawn, use mode append")
        from bmqctl.pipeline.live.writing import BatchWriter

        return BatchWriter(self._post(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from bmqctl.pipeline.live.writing import StreamWriter

        return StreamWriter(self._post(schema))

    def _post(self, schema: StructType) -> Post:
        if is_topic(self.options):
            from bmqctl.pipeline.live.topic_sink import topic_post

            return topic_post(schema, self.options)
        from bmqctl.pipeline.live.stream_sink import queue_post

        return queue_post(schema, self.options)


def _chosen(options: ReadOptions, schema: StructType) -> pa.Schema:
    import pyarrow as pa

    table = tables_of(options.paths).columns(options)
    known = {field.name: field.dataType for field in from_arrow_schema(table)}
    for field in schema:
        if field.name not in known:
            raise BadOption(f"schema: {options.table} has no {field.name}: it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            wanted, given = known[field.name].simpleString(), field.dataType.simpleString()
            raise BadOption(f"schema: {field.name} is {wanted}, not {given}")
    return pa.schema([table.field(name) for name in schema.names])
