"""`df.write.format("bmq")` and `df.writeStream.format("bmq")` with a nameserver: rows as messages of a topic.

    df.select("payload", "keys").write.format("bmq").mode("append").options(nameserver="mq:9876", topic="orders").save()

Columns: `payload` (binary or string), optionally `properties` (a map or struct of texts, numbers and booleans), `keys`
(a string, or a list of them), `tags`, `queue_id`, and `topic` without the option `topic`. Others are ignored. Rows
without a queue go to all queues in turn, or by the property of the option `key`.

Delivery is at least once, in the order of a task's rows for each queue: a task ends when all are acknowledged. A
retried task sends its rows under the same unique ids, made from the batch, the task, and the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import trio
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bmqctl.carrying.bridge.blazingmq_ends import lane_of
from bmqctl.carrying.bridge.carrying import Bridge, CannotBegin, TryAgain, run_to_end
from bmqctl.carrying.bridge.flow import CarriedMessage, FlowOptions
from bmqctl.carrying.bridge.mapping import Unfit, message_for_topic
from bmqctl.carrying.bridge.names import UNIQUE_KEY, is_plain_for_rocketmq, is_system_name
from bmqctl.carrying.bridge.patience import Patience
from bmqctl.carrying.bridge.rocketmq_destination import RocketDestination, find_topics
from bmqctl.client.remoting.routes import Place
from bmqctl.common.nurseries import open_nursery
from bmqctl.pipeline.live.topic_options import SendOptions, check_topic
from bmqctl.pipeline.live.writing import Post, Posted, PostFailed, row_digest
from bmqctl.pipeline.source.options import BadOption
from bmqctl.pipeline.spark.run_tasks import freeze_modules
from formats.bmq.wire.properties import Property, PropertyType
from formats.rocketmq.properties import encode_properties

__all__ = ["Rows", "send_rows", "topic_post"]

_USED: Final = ("topic", "payload", "properties", "keys", "tags", "queue_id")
_WINDOW_BYTES: Final = 32 << 20
_PAUSE_S: Final = 0.5


class Row(NamedTuple):
    """A message to send; `number` counts the task's rows."""

    number: int
    topic: str
    payload: bytes
    properties: dict[str, str]
    queue_id: int | None


class Rows:
    """Converter of rows to messages, which inspects the columns once."""

    def __init__(self, schema: StructType, options: SendOptions) -> None:
        used = StructType([each for each in schema if each.name in _USED])
        kinds = {each.name: each.type for each in to_arrow_schema(used, timezone="UTC")}
        if "payload" not in kinds:
            raise BadOption(f"payload: the rows have no such column; their columns are {', '.join(schema.names)}")
        if not options.end.topic and "topic" not in kinds:
            raise BadOption("topic: name the topic to send to, by this option or a column topic")
        is_text = pa.types.is_string
        expected = {
            "payload": lambda kind: pa.types.is_binary(kind) or is_text(kind),
            "topic": is_text,
            "tags": is_text,
            "keys": lambda kind: is_text(kind) or (pa.types.is_list(kind) and is_text(kind.value_type)),
            "queue_id": pa.types.is_integer,
            "properties": lambda kind: (
                pa.types.is_struct(kind)
                or (pa.types.is_map(kind) and is_text(kind.key_type) and not pa.types.is_nested(kind.item_type))
            ),
        }
        for name, kind in kinds.items():
            if not expected[name](kind):
                raise BadOption(f"{name}: a column of {kind} holds no {name} of messages")
        self.options = options
        self.names = list(kinds)

    def of(self, batch: pa.RecordBatch, first: int) -> Iterator[Row]:
        """Yield the rows of a batch. Raises ValueError for a row that does not make a message."""
        columns = {name: batch.column(name).to_pylist() for name in self.names}
        for at in range(batch.num_rows):
            values = {name: column[at] for name, column in columns.items()}
            try:
                yield self._row(first + at, values)
            except ValueError as fault:
                raise ValueError(f"row {first + at} of the task: {fault}") from None

    def _row(self, number: int, values: Mapping[str, Any]) -> Row:
        topic, payload = self.options.end.topic or values.get("topic"), values["payload"]
        if payload is None or topic is None:
            raise ValueError(f"it has no {'payload' if payload is None else 'topic'}")
        given = values.get("properties") or {}
        items = given.items() if isinstance(given, Mapping) else given
        properties = {name: _text(value) for name, value in items if value is not None}
        for name in properties:
            if is_system_name(name) or not is_plain_for_rocketmq(name):
                raise ValueError(f"property {name!r}: a name that messages cannot have")
        keys = values.get("keys")
        own = {"TAGS": values.get("tags"), "KEYS": " ".join(keys) if isinstance(keys, list) else keys}
        properties |= {name: text for name, text in own.items() if text}
        for name, text in properties.items():
            if text and not is_plain_for_rocketmq(text):
                raise ValueError(f"property {name!r}: a value that messages cannot have")
        data = payload.encode() if isinstance(payload, str) else bytes(payload)
        return Row(number, check_topic(topic), data, properties, values.get("queue_id"))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(f"{value!r}: a property is a text, a number or a boolean")


def topic_post(schema: StructType, options: Mapping[str, str]) -> Post:
    """The sending of a query's rows to topics. Raises `BadOption`."""
    return partial(send_rows, Rows(schema, SendOptions.parse(options)))


def send_rows(rows: Rows, scope: str, batches: Iterator[pa.RecordBatch]) -> Posted:
    """Send all rows and wait for their acknowledgments. Raises PostFailed if one is refused, or there is no broker."""
    freeze_modules()
    task = _Task(rows, scope)
    try:
        trio.run(task.run, batches)
    except (CannotBegin, ValueError) as error:
        raise PostFailed(str(error)) from None
    if task.fault:
        raise PostFailed(task.fault)
    return task.posted


class _Topic(NamedTuple):
    """The number of a topic's queues, and the lane of the first."""

    begin: int
    size: int


class _Task:
    """The rows of a task, as the source of a bridge to topics."""

    def __init__(self, rows: Rows, scope: str) -> None:
        self.posted = Posted()
        self.fault = ""
        self.lanes = 0
        self._rows = rows
        self._scope = scope
        self._topics: dict[str, _Topic] = {}
        self._patience = Patience(rows.options.patience_s)

    @property
    def window(self) -> int:
        return self._rows.options.window

    async def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        first = 0
        while not self.fault and (batch := await trio.to_thread.run_sync(next, batches, None)) is not None:
            rows = list(self._rows.of(batch, first))
            first += batch.num_rows
            if rows:
                await self._carry(rows)

    async def _carry(self, rows: list[Row]) -> None:
        options = self._rows.options
        wanted = dict.fromkeys(dict.fromkeys(row.topic for row in rows), 0)
        found = await self._find(wanted)
        places = [place for each in found.values() for place in each]
        self.lanes = len(places)
        begin = 0
        for topic, each in found.items():
            self._topics[topic] = _Topic(begin, len(each))
            begin += len(each)
        tell = self._patience.tell
        trying = TryAgain(str(options.end), tell, options.patience_s)
        destination = RocketDestination(options.end, places, options.timeout_s, trying, tell)
        source = _BatchSource(self, rows)
        flow = FlowOptions(window=options.window, window_bytes=_WINDOW_BYTES)
        bridge = Bridge(source, destination, flow, tell)
        async with open_nursery() as nursery:
            nursery.start_soon(self._patience.watch, bridge, lambda: self.posted.messages)
            await bridge.run(None, options.patience_s)
        self.fault = self._patience.ended_by or bridge.flow.ended_by or source.fault

    async def _find(self, topics: Mapping[str, int]) -> dict[str, list[Place]]:
        """Find the queues; retry until patience ends, since a topic is also unknown while all its brokers are away."""
        options = self._rows.options
        deadline_s = trio.current_time() + options.patience_s
        while True:
            try:
                trying = TryAgain(str(options.end), self._patience.tell, 0.0)
                return await find_topics(options.end, topics, options.timeout_s, trying)
            except CannotBegin:
                if trio.current_time() >= deadline_s:
                    raise
            await trio.sleep(min(_PAUSE_S, options.patience_s))

    def item(self, row: Row) -> tuple[int, CarriedMessage]:
        """The lane and the message of a row. Raises ValueError if it cannot be sent."""
        topic = self._topics[row.topic]
        if row.queue_id is not None:
            if not 0 <= row.queue_id < topic.size:
                raise ValueError(f"row {row.number} of the task: topic {row.topic} has no queue {row.queue_id}")
            chosen = row.queue_id
        elif key := self._rows.options.end.key:
            properties = [Property(name, PropertyType.STRING, text) for name, text in row.properties.items()]
            chosen = lane_of(properties, key, topic.size)
        else:
            chosen = row.number % topic.size
        encoded = encode_properties({UNIQUE_KEY: row_id(self._scope, row), **row.properties})
        try:
            message = message_for_topic(0, row.payload, encoded)
        except Unfit as fault:
            raise ValueError(f"row {row.number} of the task: {fault}") from None
        return topic.begin + chosen, CarriedMessage(row.number, message, len(row.payload) + len(encoded))


class _BatchSource:
    """The rows of one batch; the bridge is stopped when all are answered."""

    def __init__(self, task: _Task, rows: list[Row]) -> None:
        self.lanes = task.lanes
        self.fault = ""
        self._task = task
        self._rows = rows
        self._bytes = 0

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        await run_to_end(bridge, task_status, self._hand_out)

    def settle(self, lane: int, items: list[CarriedMessage]) -> None:
        posted = self._task.posted
        posted.messages += len(items)
        for item in items:
            self._bytes -= item.size
            posted.payload_bytes += len(item.message.body)

    async def _hand_out(self, bridge: Bridge) -> None:
        window = self._task.window
        for begin in range(0, len(self._rows), window):
            lanes: dict[int, list[CarriedMessage]] = {}
            for row in self._rows[begin : begin + window]:
                try:
                    lane, item = self._task.item(row)
                except ValueError as fault:
                    self.fault = str(fault)
                    return
                lanes.setdefault(lane, []).append(item)
                self._bytes += item.size
            for lane, items in lanes.items():
                bridge.take(lane, items)
            while bridge.flow.held >= window or self._bytes >= _WINDOW_BYTES:
                await bridge.await_change()


def row_id(scope: str, row: Row) -> str:
    """Derive a unique id from a row's identity: equal when sent again, and different from all others.

    Its time is the start of a month, never later than the message's storing time.
    """
    made = bytearray(row_digest(scope, row.number, row.topic, row.payload, row.properties))
    made[10:14] = bytes(4)
    return made.hex().upper()
