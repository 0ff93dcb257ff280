"""Bodies with the offsets of topics and the progress of groups (source: TopicStatsTable, ConsumeStats)."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from formats.rocketmq import fastjson
from formats.rocketmq.body_codec import BodyCodec
from formats.rocketmq.client_bodies import MessageQueue

__all__ = ["GroupProgress", "QueueOffsets", "write_consume_stats", "write_topic_stats"]


class QueueOffsets(NamedTuple):
    """The offsets of a queue, and the time at which its last message was stored."""

    min_offset: int
    max_offset: int
    last_update_ms: Annotated[int, "lastUpdateTimestamp"]


class GroupProgress(NamedTuple):
    """The end of a queue, and how far a group is: `last_ms` is the storing time of the last message consumed."""

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


def write_topic_stats(queues: dict[MessageQueue, QueueOffsets]) -> bytes:
    """The body that answers GET_TOPIC_STATS_INFO. Rates are not measured: they are 0."""
    table = {_key(queue): _OFFSETS.write_value(each) for queue, each in queues.items()}
    return _dump({"offsetTable": table, "topicPutTps": 0.0})


def write_consume_stats(queues: dict[MessageQueue, GroupProgress]) -> bytes:
    """The body that answers GET_CONSUME_STATS. Rates are not measured: they are 0."""
    table = {_key(queue): _PROGRESS.write_value(each) for queue, each in queues.items()}
    return _dump({"consumeTps": 0.0, "offsetTable": table})
