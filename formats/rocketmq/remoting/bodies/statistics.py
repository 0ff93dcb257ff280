"""Bodies with the offsets of topics, the progress of groups, and counters.

Source: TopicStatsTable, ConsumeStats, ConsumeStatsList, BrokerStatsData. `read_...` functions raise `FormatError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import MessageQueue
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.schema import Buffer

__all__ = [
    "GroupProgress",
    "QueueOffsets",
    "Span",
    "progress_items",
    "read_consume_stats",
    "read_topic_stats",
    "write_all_consume_stats",
    "write_broker_stats",
    "write_consume_stats",
    "write_topic_stats",
]


class QueueOffsets(NamedTuple):
    """The offsets of a queue, and the storing time of its last message."""

    min_offset: int
    max_offset: int
    last_update_ms: Annotated[int, "lastUpdateTimestamp"]


class GroupProgress(NamedTuple):
    """The end of a queue, and a group's offset; `last_ms` is the storing time of the last message consumed."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_ms: Annotated[int, "lastTimestamp"]


_QUEUE: Final = BodyCodec(MessageQueue)
_OFFSETS: Final = BodyCodec(QueueOffsets)
_PROGRESS: Final = BodyCodec(GroupProgress)


def _key(queue: MessageQueue) -> fastjson.ObjectKey:
    return fastjson.ObjectKey(_QUEUE.write_value(queue).items())


def _dump(value: dict[str, Any]) -> bytes:
    return fastjson.dumps(value).encode()


class Span(NamedTuple):
    """A counter over a period: the total, the rate per second, and the mean of an addition."""

    total: int
    per_second: float
    mean: float


def write_topic_stats(queues: dict[MessageQueue, QueueOffsets], per_second: float) -> bytes:
    """Encode the topic's queues; `per_second` counts messages sent to it."""
    table = {_key(queue): _OFFSETS.write_value(each) for queue, each in queues.items()}
    return _dump({"offsetTable": table, "topicPutTps": per_second})


def progress_items(queues: Mapping[MessageQueue, GroupProgress]) -> list[str]:
    return [fastjson.dumps_item(_key(queue), _PROGRESS.write_value(each)) for queue, each in queues.items()]


def write_consume_stats(items: Iterable[str], per_second: float) -> str:
    """Encode a group's progress; `per_second` counts messages delivered to it."""
    return fastjson.dumps({"consumeTps": per_second, "offsetTable": fastjson.Items(items)})


def read_topic_stats(body: Buffer) -> dict[MessageQueue, QueueOffsets]:
    return {queue: _OFFSETS.read_value(each) for queue, each in _offset_table("TopicStatsTable", body)}


def read_consume_stats(body: Buffer) -> dict[MessageQueue, GroupProgress]:
    return {queue: _PROGRESS.read_value(each) for queue, each in _offset_table("ConsumeStats", body)}


def _offset_table(name: str, body: Buffer) -> Iterator[tuple[MessageQueue, Any]]:
    try:
        value = fastjson.loads(str(body, "utf-8"), fastjson.ANSWER)
    except UnicodeDecodeError as error:
        raise FormatError(name, error.start, "is not UTF-8") from None
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise FormatError(f"{name}.offsetTable", 0, "is missing, or no object")
    for key, each in table.items():
        if not isinstance(key, fastjson.ObjectKey):
            raise FormatError(f"{name}.offsetTable", 0, f"{str(key)[:40]!r} is no queue")
        yield _QUEUE.read_value(dict(key)), each


def write_all_consume_stats(address: str, groups: Mapping[str, list[str]], left: int, in_flight: int) -> bytes:
    """Encode the answer to GET_BROKER_CONSUME_STATS from the `progress_items` of each group, by topic.

    `left` messages have not been consumed by all groups; `in_flight` of these were delivered.
    """
    texts = [f"{{{fastjson.dumps(group)}:[{','.join(found)}]}}" for group, found in groups.items()]
    front = f'{{"brokerAddr":{fastjson.dumps(address)},"consumeStatsList":[{",".join(texts)}]'
    return f'{front},"totalDiff":{left},"totalInflightDiff":{in_flight}}}'.encode()


def write_broker_stats(minute: Span, hour: Span, day: Span) -> bytes:
    spans = {"statsDay": day, "statsHour": hour, "statsMinute": minute}
    return _dump(
        {name: {"avgpt": each.mean, "sum": each.total, "tps": each.per_second} for name, each in spans.items()}
    )
