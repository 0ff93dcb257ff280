"""Bodies with which administrators inspect a broker: its clients, groups, queues and offsets.

Source: KVTable, GroupList, ConsumerConnection, ProducerConnection, ProducerTableInfo, ResetOffsetBody,
GetConsumerStatusBody, QueryConsumeTimeSpanBody, QueryCorrectionOffsetBody, QuerySubscriptionResponseBody,
QueryConsumeQueueResponseBody, HARuntimeInfo.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import MessageQueue, Subscription
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.schema import Buffer

__all__ = [
    "CONNECTION",
    "CONSUMER_CONNECTION",
    "CORRECTIONS",
    "GROUP_LIST",
    "GROUP_SUBSCRIPTION",
    "KEY_VALUE_TABLE",
    "PRODUCER",
    "PRODUCER_CONNECTION",
    "PRODUCER_TABLE",
    "QUEUE_ENTRIES",
    "TIME_SPANS",
    "Connection",
    "ConsumerConnection",
    "Corrections",
    "GroupList",
    "GroupSubscription",
    "KeyValueTable",
    "ProducerConnection",
    "ProducerInfo",
    "ProducerTable",
    "QueueEntries",
    "QueueEntry",
    "QueueTimes",
    "TimeSpans",
    "read_client_offsets",
    "write_client_offsets",
    "write_reset_offsets",
]


class KeyValueTable(NamedTuple):
    table: dict[str, str]


class GroupList(NamedTuple):
    group_list: list[str]


class Connection(NamedTuple):
    """A connected client. `version` is a number of MQVersion."""

    client_id: str
    client_address: Annotated[str, "clientAddr"]
    language: str
    version: int


class ConsumerConnection(NamedTuple):
    """The consumers of a group, and the settings on which they agree."""

    connection_set: list[Connection]
    subscription_table: dict[str, Subscription]
    consume_type: str
    message_model: str
    consume_from_where: str


class ProducerConnection(NamedTuple):
    """The producers of a group."""

    connection_set: list[Connection]


class ProducerInfo(NamedTuple):
    """A producer in the list of all producers."""

    client_id: str
    remote_ip: Annotated[str, "remoteIP"]
    language: str
    version: int
    last_update_ms: Annotated[int, "lastUpdateTimestamp"]


class ProducerTable(NamedTuple):
    """The producers, by group."""

    data: dict[str, list[ProducerInfo]]


class QueueTimes(NamedTuple):
    """The storing times of a queue's first message, its last, and the last one that a group consumed, and the group's
    delay.
    """

    message_queue: MessageQueue
    min_ms: Annotated[int, "minTimeStamp"]
    max_ms: Annotated[int, "maxTimeStamp"]
    consumed_ms: Annotated[int, "consumeTimeStamp"]
    delay_ms: Annotated[int, "delayTime"]


class TimeSpans(NamedTuple):
    consume_time_span_set: list[QueueTimes]


class Corrections(NamedTuple):
    """Offsets by queue."""

    correction_offsets: dict[int, int]


class GroupSubscription(NamedTuple):
    """The subscription of a group to a topic, if it has one."""

    group: str
    topic: str | None
    subscription_data: Subscription | None = None


class QueueEntry(NamedTuple):
    physical_offset: Annotated[int, "physicOffset"]
    physical_size: Annotated[int, "physicSize"]
    tags_code: int
    is_wanted: Annotated[bool, "eval"] = False


class QueueEntries(NamedTuple):
    """Entries of a consume queue, its span, and the subscription of the requested group."""

    max_queue_index: int
    min_queue_index: int
    queue_data: list[QueueEntry] | None = None
    subscription_data: Subscription | None = None
    filter_data: str | None = None


KEY_VALUE_TABLE = BodyCodec(KeyValueTable)
GROUP_LIST = BodyCodec(GroupList)
CONSUMER_CONNECTION = BodyCodec(ConsumerConnection)
PRODUCER_CONNECTION = BodyCodec(ProducerConnection)
CONNECTION = BodyCodec(Connection)
PRODUCER = BodyCodec(ProducerInfo)
PRODUCER_TABLE = BodyCodec(ProducerTable, fastjson.ANSWER)
TIME_SPANS = BodyCodec(TimeSpans)
CORRECTIONS = BodyCodec(Corrections)
GROUP_SUBSCRIPTION = BodyCodec(GroupSubscription)
QUEUE_ENTRIES = BodyCodec(QueueEntries)
_QUEUE = BodyCodec(MessageQueue)


def write_reset_offsets(offsets: dict[MessageQueue, int]) -> bytes:
    table = {fastjson.ObjectKey(_QUEUE.write_value(queue).items()): offset for queue, offset in offsets.items()}
    return fastjson.dumps({"offsetTable": table}).encode()


def read_client_offsets(body: Buffer) -> dict[MessageQueue, int]:
    """Decode the offsets that a client has in memory. Raises `FormatError`."""
    value = fastjson.loads(str(body, "utf-8", "replace"))
    table = value.get("messageQueueTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise FormatError("GetConsumerStatusBody.messageQueueTable", 0, "is not an object")
    found = {}
    for key, offset in table.items():
        if not isinstance(key, fastjson.ObjectKey) or type(offset) is not int:
            raise FormatError("GetConsumerStatusBody.messageQueueTable", 0, "has no queues with offsets")
        found[_QUEUE.read_value(dict(key))] = offset
    return found


def write_client_offsets(clients: dict[str, dict[MessageQueue, int]]) -> bytes:
    """Encode clients' offsets in memory, by client id."""
    tables = {
        client: {fastjson.ObjectKey(_QUEUE.write_value(queue).items()): offset for queue, offset in offsets.items()}
        for client, offsets in clients.items()
    }
    return fastjson.dumps({"consumerTable": tables, "messageQueueTable": {}}).encode()
