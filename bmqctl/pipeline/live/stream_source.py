"""`spark.readStream.format("bmq")`: a live queue, or one app of a fan-out, in micro-batches.

    stream = spark.readStream.format("bmq").option("broker", "tcp://10.0.0.5:30114")
    stream = stream.option("queue", "bmq://my.domain/prices?id=billing").load()
    stream.writeStream.option("checkpointLocation", "/data/checkpoint").start("/data/prices")

Delivery is at least once: a message is confirmed after Spark has committed its batch. A killed driver leaves its
messages unconfirmed, and the broker gives them to the next one. Options: `ConsumeOptions`.

An offset has `run`, which names the session, `index`, the number of its messages so far, and `confirmed`, the number of
confirmed ones. `confirmed` changes after a batch is committed even if no other follows: Spark reports a commit only
when it plans the next batch, so the source asks for one without messages. Offsets of an earlier session do not apply to
this one's messages: its unfinished batch is empty, and the messages come again.

Spark gives the reading process a fixed 10 s to start. On a very busy machine a query may end with "Python worker failed
to connect back"; it loses nothing, and can be restarted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bmqctl.pipeline.live.consumer import Consumer, Received
from bmqctl.pipeline.live.queue_options import ConsumeOptions
from bmqctl.pipeline.source.options import BadOption
from bmqctl.pipeline.source.rows.properties import PROPERTIES_TYPE, property_items
from bmqctl.pipeline.spark.run_tasks import freeze_modules
from formats.bmq.guid import format_guid
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["MESSAGE_SCHEMA", "QueueStreamReader", "stream_schema"]

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("queue_uri", pa.string(), nullable=False),
        ("app_id", pa.string()),  # of a fan-out
        pa.field("guid", pa.string(), nullable=False),
        pa.field("received_time", pa.timestamp("us", tz="UTC"), nullable=False),
        ("properties", PROPERTIES_TYPE),
        ("payload", pa.binary()),
        ("fault", pa.string()),  # reason for a missing payload
    ]
)

_WAIT_S: Final = 0.1
_ROWS_PER_PARTITION: Final = 500

Offset = dict[str, Any]


def stream_schema(options: Mapping[str, str]) -> StructType:
    """The columns of a stream. Raises BadOption for invalid options."""
    ConsumeOptions.parse(options)
    schema: StructType = from_arrow_schema(MESSAGE_SCHEMA)
    return schema


class Batch(InputPartition):
    """The messages of one task, as an Arrow stream."""

    def __init__(self, rows: bytes) -> None:
        super().__init__(None)
        self.rows = rows


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Holds the session, in a process of the driver that lives as long as the query."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.options = ConsumeOptions.parse(options)
        self.columns = _columns(schema)
        self.run = ""
        self.wait_s = _WAIT_S
        self.consumer: Consumer | None = None

    def initialOffset(self) -> Offset:
        return {"run": "", "index": 0, "confirmed": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        # A queue does not report its length: all available messages have come when it is silent.
        self.wait_s = self.options.drain_s

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        consumer = self._started()
        is_ours = start["run"] == self.run
        begin = start["index"] if is_ours else 0
        is_committed = not is_ours or start["confirmed"] == begin
        if consumer.wait(begin, self.wait_s if is_committed else _WAIT_S) == begin:
            return start if is_committed else {**start, "confirmed": begin}
        end = consumer.end_of_batch(begin, self.options.batch, self.options.max_unconfirmed_bytes // 2)
        return {"run": self.run, "index": end, "confirmed": begin}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if self.consumer is None or end["run"] != self.run:
            return []
        begin = start["index"] if start["run"] == self.run else 0
        received = self.consumer.take(begin, end["index"])
        parts = max(1, min(self.options.partitions, len(received) // _ROWS_PER_PARTITION))
        size = -(-len(received) // parts)
        return [Batch(_encode(self._batch(received[at : at + size]))) for at in range(0, len(received), size or 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Batch)
        freeze_modules()
        with pa.ipc.open_stream(partition.rows) as stream:
            yield from stream

    def commit(self, end: Offset) -> None:
        if self.consumer is not None and end["run"] == self.run:
            self.consumer.confirm(end["index"])

    def stop(self) -> None:
        if self.consumer is not None:
            self.consumer.stop()

    def _started(self) -> Consumer:
        if self.consumer is None:
            consumer = Consumer(self.options)
            consumer.start()
            self.consumer, self.run = consumer, uuid.uuid4().hex
        return self.consumer

    def _batch(self, received: list[Received]) -> pa.RecordBatch:
        uri = parse_uri(self.options.queue)
        count = len(received)
        contents = [_content(each) for each in received]
        columns = {
            "queue_uri": pa.array([uri.canonical] * count, pa.string()),
            "app_id": pa.array([uri.app_id or None] * count, pa.string()),
            "guid": pa.array([format_guid(each.message.guid) for each in received], pa.string()),
            "received_time": pa.array([each.time_us for each in received], pa.int64()).cast(
                MESSAGE_SCHEMA.field("received_time").type
            ),
            "properties": pa.array([properties for properties, _, _ in contents], PROPERTIES_TYPE),
            "payload": pa.array([payload for _, payload, _ in contents], pa.binary()),
            "fault": pa.array([fault for _, _, fault in contents], pa.string()),
        }
        schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in self.columns])
        return pa.RecordBatch.from_arrays([columns[name] for name in self.columns], schema=schema)


def _content(received: Received) -> tuple[Any, bytes | None, str | None]:
    try:
        return property_items(received.message.typed_properties), received.message.payload, None
    except FormatError as error:
        return None, None, str(error)


def _columns(schema: StructType) -> list[str]:
    """Return the requested columns of a stream. Raises BadOption for an impossible one."""
    known = {field.name: field.dataType for field in from_arrow_schema(MESSAGE_SCHEMA)}
    for field in schema:
        if field.name not in known:
            raise BadOption(f"schema: a stream has no {field.name}: it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            kinds = known[field.name].simpleString(), field.dataType.simpleString()
            raise BadOption(f"schema: {field.name} of a stream is {kinds[0]}, not {kinds[1]}")
    return schema.fieldNames()


def _encode(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
