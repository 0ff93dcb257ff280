"""`df.write.format("bmq")` and `df.writeStream.format("bmq")`: rows as messages of a queue, each acked by the broker.

    df.select("payload", "properties").write.format("bmq").mode("append").option("queue", "bmq://my.domain/q").save()

Columns: `payload` (binary or string), optionally `properties` (see `property_reader`), and `queue_uri` without the
option `queue`. Other columns are ignored.

Delivery is at least once: a task ends when all its rows are acked, and fails if one is refused. A retried task, or a
killed driver's unfinished batch, posts its rows under the same GUIDs, made from the batch, the task, the row's index
and its content. The broker recognises them within its domain's deduplicationTimeMs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import trio
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bmqctl.client.posting import NO_ROOM, Posting
from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import Ack
from bmqctl.client.session import Queue, RequestFailed, Session, SessionLost
from bmqctl.pipeline.live.queue_options import PostOptions, check_uri
from bmqctl.pipeline.live.writing import Post, Posted, PostFailed, row_digest
from bmqctl.pipeline.source.options import BadOption
from bmqctl.pipeline.spark.run_tasks import freeze_modules
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.properties import Property, PropertyType

__all__ = ["queue_post", "row_guid"]

ReadProperties = Callable[[Any], list[Property]]


def property_reader(kind: pa.DataType) -> ReadProperties:
    """Return a converter of a column's values, as given by `to_pylist`, to properties. Raises BadOption.

    Accepts maps from strings to structs of `type` and `value`, as in tables that are read, or to text, numbers,
    booleans or bytes; and structs of these. Nulls in them are absent properties.
    """
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        if pa.types.is_struct(kind.item_type):
            if {"type", "value"} <= {field.name for field in kind.item_type}:
                return lambda value: [_typed(name, each) for name, each in _items(value) if each is not None]
        else:
            of_type = _plain_type(kind.item_type)
            return lambda value: [Property(name, of_type, each) for name, each in _items(value) if each is not None]
    elif pa.types.is_struct(kind):
        types = {field.name: _plain_type(field.type) for field in kind}
        return lambda value: [Property(name, types[name], each) for name, each in _items(value) if each is not None]
    raise BadOption(f"properties: a {kind} holds none: expected a map from strings, or a struct")


def _items(value: Mapping[str, Any] | list[tuple[str, Any]] | None) -> Iterable[tuple[str, Any]]:
    if value is None:
        return ()
    return value.items() if isinstance(value, Mapping) else value


def _plain_type(kind: pa.DataType) -> PropertyType:
    for is_kind, found in (
        (pa.types.is_boolean, PropertyType.BOOL),
        (pa.types.is_int8, PropertyType.SHORT),
        (pa.types.is_int16, PropertyType.SHORT),
        (pa.types.is_int32, PropertyType.INT32),
        (pa.types.is_int64, PropertyType.INT64),
        (pa.types.is_string, PropertyType.STRING),
        (pa.types.is_large_string, PropertyType.STRING),
        (pa.types.is_binary, PropertyType.BINARY),
        (pa.types.is_large_binary, PropertyType.BINARY),
    ):
        if is_kind(kind):
            return found
    raise BadOption(f"properties: no property holds a {kind}")


def _typed(name: str, value: Mapping[str, Any]) -> Property:
    """Convert a property. Raises ValueError if the value does not fit its type."""
    text = value["value"]
    try:
        kind = PropertyType[value["type"]]
        if kind in (PropertyType.CHAR, PropertyType.BINARY):
            return Property(name, kind, bytes.fromhex(text))
        if kind is PropertyType.BOOL:
            return Property(name, kind, {"true": True, "false": False}[text])
        return Property(name, kind, text if kind is PropertyType.STRING else int(text))
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"property {name!r}: {text!r} is no {value['type']}") from None


class Row(NamedTuple):
    """A message to post; `number` counts the task's rows."""

    number: int
    queue: str
    payload: bytes
    properties: list[Property]


def row_guid(scope: str, row: Row) -> bytes:
    """Derive a GUID from a row's identity: equal when posted again, and different from all others."""
    made = row_digest(scope, row.number, row.queue, row.payload, row.properties)
    # Two bits hold the version of GUIDs, 1.
    return bytes([0x40 | made[0] & 0x3F]) + made[1:]


class _Rows:
    """Converter of rows to messages, which inspects the columns once."""

    def __init__(self, schema: StructType, options: PostOptions) -> None:
        used = StructType([each for each in schema if each.name in ("queue_uri", "payload", "properties")])
        kinds = {each.name: each.type for each in to_arrow_schema(used, timezone="UTC")}
        if "payload" not in kinds:
            raise BadOption(f"payload: the rows have no such column; their columns are {', '.join(schema.names)}")
        if not (pa.types.is_binary(kinds["payload"]) or pa.types.is_string(kinds["payload"])):
            raise BadOption(f"payload: {kinds['payload']} is neither binary nor string")
        if options.queue is None and "queue_uri" not in kinds:
            raise BadOption("queue: name the queue to post to, by this option or a column queue_uri")
        self.options = options
        self.kind = kinds.get("properties")
        if self.kind is not None:
            property_reader(self.kind)

    def of(self, batch: pa.RecordBatch, first: int) -> Iterator[Row]:
        """Yield the rows of a batch. Raises ValueError for a row that does not make a message."""
        count = batch.num_rows
        payloads = batch.column("payload").to_pylist()
        queues = [self.options.queue] * count if self.options.queue else batch.column("queue_uri").to_pylist()
        read: ReadProperties = property_reader(self.kind) if self.kind is not None else lambda value: []
        properties = batch.column("properties").to_pylist() if self.kind is not None else [None] * count
        for at, (payload, queue, value) in enumerate(zip(payloads, queues, properties, strict=True)):
            if payload is None or queue is None:
                raise ValueError(f"row {first + at} of the task has no {'payload' if payload is None else 'queue_uri'}")
            yield Row(first + at, queue, payload.encode() if isinstance(payload, str) else bytes(payload), read(value))


def queue_post(schema: StructType, options: Mapping[str, str]) -> Post:
    """The posting of a query's rows to queues. Raises `BadOption`."""
    return partial(_post, _Rows(schema, PostOptions.parse(options)))


def _post(rows: _Rows, scope: str, batches: Iterator[pa.RecordBatch]) -> Posted:
    """Post all rows and wait for their acks. Raises PostFailed if one is refused, or there is no broker."""
    freeze_modules()
    task = _Task(rows, scope)
    broker = rows.options.broker
    try:
        trio.run(task.run, batches)
    except OSError as error:
        raise PostFailed(f"no broker at {broker.host}:{broker.port}: {error.strerror or error}") from None
    except (SessionLost, RequestFailed, Unusable, ValueError) as error:
        raise PostFailed(str(error)) from None
    if task.fault is not None:
        raise PostFailed(task.fault)
    return task.posted


@dataclass
class _Task:
    rows: _Rows
    scope: str
    posted: Posted = field(default_factory=Posted)
    fault: str | None = None
    refused: Counter[str] = field(default_factory=Counter)

    async def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        options = self.rows.options
        fault: Exception | None = None
        async with Session.connect(
            options.broker.host, options.broker.port, options.broker.session, self._take_acks
        ) as session:
            self._queues: dict[str, Queue] = {}
            self._line: Posting[Row] = Posting(options.posting, self._send, self._take_answer, session.drain)
            async with trio.open_nursery() as nursery:
                self._posting = nursery.cancel_scope
                nursery.start_soon(self._watch)
                try:
                    await self._post_all(session, batches)
                except (SessionLost, RequestFailed, Unusable, ValueError) as error:
                    # An exception raised inside the nursery would be wrapped in a group.
                    fault = error
                nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault
        if self.refused:
            listed = ", ".join(f"{count} {status}" for status, count in self.refused.items())
            self.fault = f"the broker refused messages: {listed}"

    async def _post_all(self, session: Session, batches: Iterator[pa.RecordBatch]) -> None:
        first = 0
        # The next batch may take long: the session is kept alive meanwhile.
        while (batch := await trio.to_thread.run_sync(next, batches, None)) is not None and not self.refused:
            for row in self.rows.of(batch, first):
                if row.queue not in self._queues:
                    self._queues[row.queue] = await session.open_queue(check_uri(row.queue), write=True)
                await self._line.put(row)
            first += batch.num_rows
        await self._line.finish()

    def _send(self, row: Row, correlation: int) -> int:
        self._queues[row.queue].post_nowait(
            row.payload,
            row.properties,
            compress=self.rows.options.compress,
            correlation=correlation,
            guid=row_guid(self.scope, row),
        )
        return len(row.payload)

    def _take_acks(self, acks: list[Ack]) -> None:
        self._line.take_acks(acks)

    def _take_answer(self, row: Row, status: AckStatus) -> None:
        if status is AckStatus.SUCCESS:
            self.posted.messages += 1
            self.posted.payload_bytes += len(row.payload)
        elif status not in NO_ROOM:
            self.refused[status.name] += 1

    async def _watch(self) -> None:
        self.fault = await self._line.watch()
        self._posting.cancel()
