"""`spark.readStream.format("bmq")` with a nameserver: a topic of RocketMQ, in micro-batches.

    stream = spark.readStream.format("bmq").options(nameserver="10.0.0.5:9876", topic="orders", group="lake").load()
    stream.writeStream.option("checkpointLocation", "/data/checkpoint").start("/data/orders")

Delivery is exactly once, into a sink that takes a batch once: a stream's offset has the offset of each queue, so the
batch between two of them can be read again unchanged. Spark's checkpoint has the offsets. The group's committed offsets
show a query's progress, and where one without a checkpoint begins. Options: `TopicOptions`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bmqctl.pipeline.live.topic_options import TopicOptions
from bmqctl.pipeline.live.topic_reading import Bounds, Range, TopicFailed, bounds_of, commit_offsets, read_range
from bmqctl.pipeline.source.arrays import TIMESTAMP, micros_of_ms
from bmqctl.pipeline.source.options import BadOption
from bmqctl.pipeline.spark.run_tasks import freeze_modules
from bmqctl.stores.rocketmq.read.payload import decompressed
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.errors import FormatError
from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.properties import decode_properties

__all__ = ["TOPIC_SCHEMA", "Part", "TopicStreamReader", "share", "topic_stream_schema"]

TOPIC_SCHEMA = pa.schema(
    [
        pa.field("broker", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("queue_offset", pa.int64(), nullable=False),
        ("id", pa.string()),  # the producer's
        ("keys", pa.list_(pa.string())),
        ("tags", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("born_time", TIMESTAMP),
        ("store_time", TIMESTAMP),
        ("reconsume_times", pa.int32()),
        ("flag", pa.int32()),
        ("payload", pa.binary()),
        ("fault", pa.string()),  # reason for a missing payload
    ]
)
_INNER_BATCH: Final = int(SystemFlag.INNER_BATCH)
_WAIT_S: Final = 0.2
_BYTES_PER_BATCH: Final = 16 << 20

Offset = dict[str, int]
_Content = tuple[bytes | None, str | None]


def topic_stream_schema(options: Mapping[str, str]) -> StructType:
    """The columns of a stream. Raises BadOption for invalid options."""
    TopicOptions.parse(options)
    schema: StructType = from_arrow_schema(TOPIC_SCHEMA)
    return schema


def share(start: Offset, ends: Offset, most: int) -> Offset:
    """The end of a batch of at most `most` messages, divided in proportion to the queues' messages."""
    waiting = {queue: max(0, end - start.get(queue, 0)) for queue, end in ends.items()}
    total = sum(waiting.values())
    if total <= most:
        return {queue: start.get(queue, 0) + count for queue, count in waiting.items()}
    shares = {queue: count * most // total for queue, count in waiting.items()}
    left = most - sum(shares.values())
    for queue in sorted(waiting, key=lambda queue: shares[queue] - waiting[queue]):
        more = min(left, waiting[queue] - shares[queue], 1)
        shares[queue] += more
        left -= more
    return {queue: start.get(queue, 0) + count for queue, count in shares.items()}


class Part(InputPartition):
    """The messages of one task."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(None)
        self.wanted = wanted


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches by the queues' offsets; the tasks read them, and it keeps nothing of a batch."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.options = TopicOptions.parse(options)
        self.columns = _columns(schema)
        self.final: Offset | None = None

    def initialOffset(self) -> Offset:
        return {queue: each.start for queue, each in bounds_of(self.options, self.options.start).items()}

    def prepareForTriggerAvailableNow(self) -> None:
        self.final = {queue: each.end for queue, each in bounds_of(self.options, None).items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        bounds = bounds_of(self.options, None)
        ends = {}
        # A new queue is read from its first message on; one whose broker is away waits.
        begins = {queue: start.get(queue, each.first) for queue, each in bounds.items()}
        for queue, each in bounds.items():
            self._check(queue, begins[queue], each)
            last = each.end if self.final is None else self.final.get(queue, begins[queue])
            ends[queue] = max(begins[queue], last)
        end = {**start, **share(begins, ends, self.options.batch)}
        if end == start:
            # Otherwise Spark would ask again at once.
            time.sleep(_WAIT_S)
        return end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        new = end.keys() - start.keys()
        firsts = bounds_of(self.options, None) if new else {}
        parts: list[InputPartition] = []
        for queue, stop in sorted(end.items()):
            broker_name, _, number = queue.rpartition("/")
            begin = start[queue] if queue in start else min(stop, firsts[queue].first if queue in firsts else 0)
            step = -(-(stop - begin) // self.options.partitions) or 1
            parts += (
                Part(Range(broker_name, int(number), at, min(at + step, stop))) for at in range(begin, stop, step)
            )
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        freeze_modules()
        for records in read_range(self.options, partition.wanted):
            yield from self._batches(partition.wanted.broker_name, records)

    def commit(self, end: Offset) -> None:
        commit_offsets(self.options, end)

    def stop(self) -> None:
        """Do nothing: there is no connection between calls."""

    def _check(self, queue: str, begin: int, bounds: Bounds) -> None:
        """Raise `TopicFailed` if messages to be read were deleted or replaced."""
        if not self.options.fails_on_loss or bounds.first <= begin <= bounds.end:
            return
        has = f"begins with message {bounds.first}" if begin < bounds.first else f"ends with message {bounds.end}"
        raise TopicFailed(
            f"topic {self.options.topic}: queue {queue} {has}, and the query is at {begin}: messages are lost; "
            "with failOnDataLoss=false it goes on without them"
        )

    def _batches(self, broker_name: str, records: list[Record]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of messages; a batch ends with the message whose decompressed body makes it large."""
        contents: list[_Content] = []
        begin = size = 0
        for number, record in enumerate(records, 1):
            contents.append(_content(record))
            size += len(contents[-1][0] or b"")
            if size >= _BYTES_PER_BATCH or number == len(records):
                yield self._batch(broker_name, records[begin:number], contents)
                begin, size, contents = number, 0, []

    def _batch(self, broker_name: str, records: list[Record], contents: list[_Content]) -> pa.RecordBatch:
        properties = [decode_properties(record.properties) for record in records]
        count = len(records)
        columns: dict[str, Any] = {
            "broker": [broker_name] * count,
            "topic": [self.options.topic] * count,
            "queue_id": [record.queue_id for record in records],
            "queue_offset": [record.queue_offset for record in records],
            "id": [each.get("UNIQ_KEY") for each in properties],
            "keys": [each["KEYS"].split(" ") if "KEYS" in each else None for each in properties],
            "tags": [each.get("TAGS") for each in properties],
            "properties": [list(each.items()) for each in properties],
            "born_time": [micros_of_ms(record.born_ms) for record in records],
            "store_time": [micros_of_ms(record.stored_ms) for record in records],
            "reconsume_times": [record.reconsume_times for record in records],
            "flag": [record.flag for record in records],
            "payload": [payload for payload, _ in contents],
            "fault": [fault for _, fault in contents],
        }
        schema = pa.schema([TOPIC_SCHEMA.field(name) for name in self.columns])
        arrays = [pa.array(columns[name], TOPIC_SCHEMA.field(name).type) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _content(record: Record) -> _Content:
    if not record.is_body_sound:
        return None, "the body's checksum differs"
    if record.system_flags & _INNER_BATCH:
        return None, "a batch that is stored as one message"
    try:
        body, size = decompressed(memoryview(record.body), record.system_flags, DECOMPRESSED_SIZE_MAX)
    except FormatError as error:
        return None, str(error)
    return (body, None) if size == len(body) else (None, f"{size} bytes, more than {DECOMPRESSED_SIZE_MAX}")


def _columns(schema: StructType) -> list[str]:
    """Return the requested columns of a stream. Raises BadOption for an impossible one."""
    known = {field.name: field.dataType for field in from_arrow_schema(TOPIC_SCHEMA)}
    for field in schema:
        if field.name not in known:
            raise BadOption(f"schema: a stream of a topic has no {field.name}: it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            kinds = known[field.name].simpleString(), field.dataType.simpleString()
            raise BadOption(f"schema: {field.name} of a stream is {kinds[0]}, not {kinds[1]}")
    return schema.fieldNames()
