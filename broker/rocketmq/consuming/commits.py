# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Checks of the offsets that clients and administrators set: in existing queues, among their messages, and bounded.

The original accepts any queue and any offset.
"""

from __future__ import annotations

from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["check_commit", "check_room", "commit_pulled", "is_commit"]


def is_commit(services: Services, topic: str, group: str, queue_id: int, offset: int) -> bool:
    try:
        check_commit(services, topic, group, queue_id, offset)
    except Refused:
        return False
    return True


def commit_pulled(services: Services, topic: str, group: str, queue_id: int, offset: int) -> None:
    """Set the offset of a group in a queue if `check_commit` accepts it.

    The group, the topic and the queue id were checked.
    """
    offsets = services.offsets
    if 0 <= offset <= services.store.span(topic, queue_id)[1] and (
        offsets.count < services.options.offsets_max or offsets.get(topic, group, queue_id) is not None
    ):
        offsets.commit(topic, group, queue_id, offset)


def check_commit(services: Services, topic: str, group: str, queue_id: int, offset: int) -> None:
    """Raise `Refused` unless a group may set its offset in a queue to `offset`."""
    if group not in services.groups.table:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
    config = services.topics.get(topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
    queues = max(config.read_queue_nums, config.write_queue_nums)
    # A topic that has lost queues keeps their messages.
    if not 0 <= queue_id < queues and (topic, queue_id) not in services.store.queues:
        text = f"queueId[{queue_id}] is illegal, topic:[{topic}] has {queues} queues"
        raise Refused(ResponseCode.INVALID_PARAMETER, text)
    _, end = services.store.span(topic, queue_id)
    if not 0 <= offset <= end:
        text = f"offset {offset} of queue {queue_id} of topic {topic} is not between 0 and its end, {end}"
        raise Refused(ResponseCode.INVALID_PARAMETER, text)
    if services.offsets.get(topic, group, queue_id) is None:
        check_room(services, topic, group)


def check_room(services: Services, topic: str, group: str) -> None:
    """Raise `Refused` if the broker has `consumerOffsetMaxNum` offsets."""
    most = services.options.offsets_max
    if services.offsets.count >= most:
        text = f"group {group} has no offset in topic {topic}: there are {services.offsets.count} offsets"
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{text}, consumerOffsetMaxNum allows {most}")
