"""Checks common to all POP requests (source: PopMessageProcessor, NotificationProcessor)."""

from __future__ import annotations

from typing import Final

from broker.rocketmq.consuming.commits import check_room
from broker.rocketmq.consuming.consumers import starts_in_memory
from broker.rocketmq.remoting.requests import Peer, Refused
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.receipts import RETRY_PREFIX, retry_topic, retry_topics

__all__ = [
    "HIDDEN_MS_MAX",
    "NO_CODE_SET",
    "check_queue",
    "check_topic",
    "find_retries",
    "first_offset",
    "peek_offset",
    "with_born_time",
]

# The maximum for which a popped message is hidden from others.
HIDDEN_MS_MAX: Final = 3 * 24 * 3_600_000

# The remark of the original's answers without a code.
NO_CODE_SET: Final = "not set any response code"

_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# The ConsumeInitMode of a group that starts at the first message.
_FROM_FIRST: Final = 0


def with_born_time(fields: dict[str, str], now_ms: int) -> dict[str, str]:
    return fields if fields.get("bornTime", "0") != "0" else {**fields, "bornTime": str(now_ms)}


def check_topic(
    services: Services, topic: str, group: str, queue_id: int, peer: Peer, now_ms: int, doing: str
) -> TopicConfig:
    """Return the topic from which a group requests messages, of one queue or of all. Raises `Refused`."""
    options = services.options
    if not options.permission & Permission.READ:
        raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{options.address.address}] {doing} message is forbidden")
    config = find_topic(services, topic)
    if not config.perm & Permission.READ:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
    if queue_id >= config.read_queue_nums:
        raise Refused(ResponseCode.INVALID_PARAMETER, _illegal_queue(config, queue_id, peer))
    known = services.groups.find(group, now_ms)
    if known is None:
        text = f"{services.groups.missing(group)}, {_FAQ}"
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
    if not known.consume_enable:
        raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
    if not services.offsets.has_any(topic, group):
        # Unacknowledged messages return in a retry topic of the topic and the group.
        services.topics.check_room_for_group(retry_topic(topic, group, is_v2=options.retry_v2), now_ms)
        check_room(services, topic, group)
    return config


def find_retries(services: Services, topic: str, group: str) -> list[TopicConfig]:
    found = (services.topics.get(name) for name in retry_topics(topic, group))
    return [each for each in found if each is not None]


def find_topic(services: Services, topic: str) -> TopicConfig:
    """Return the topic of a name. Raises `Refused`."""
    config = services.topics.get(topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {_FAQ}")
    return config


def check_queue(services: Services, topic: str, queue_id: int, peer: Peer) -> None:
    """Raise `Refused` unless a topic has the queue of a delivered message."""
    config = find_topic(services, topic)
    if not 0 <= queue_id < config.read_queue_nums:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, _illegal_queue(config, queue_id, peer))


def _illegal_queue(config: TopicConfig, queue_id: int, peer: Peer) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[/{peer.host}]"
    )


def first_offset(services: Services, topic: str, group: str, queue_id: int, init_mode: int) -> int:
    """Return the offset from which a group pops a queue; set one if it has none.

    A group that begins at the end gets the last existing message.
    """
    offset = services.offsets.get(topic, group, queue_id)
    if offset is None:
        begin, end = services.store.span(topic, queue_id)
        if init_mode == _FROM_FIRST or topic.startswith(RETRY_PREFIX):
            offset = begin
        else:
            offset = 0 if starts_in_memory(services.store, topic, queue_id) else max(0, end - 1)
        services.offsets.commit(topic, group, queue_id, offset)
    return offset


def peek_offset(services: Services, topic: str, group: str, queue_id: int) -> int:
    """Return the offset of a group in a queue, or the one where it would begin."""
    offset = services.offsets.get(topic, group, queue_id)
    return services.store.span(topic, queue_id)[0] if offset is None else offset
