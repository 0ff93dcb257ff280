# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The second queues of messages: those of lite topics (source: ConsumeQueue.multiDispatchLmqQueue)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.rocketmq.store.places import is_topic
from broker.rocketmq.store.runs import QueuePart, Queues
from formats.rocketmq.files.record import Record
from formats.rocketmq.java import tag_hash
from formats.rocketmq.lite import LITE_TOPIC, QUEUE_ID, Branch, branch_of
from formats.rocketmq.properties import decode_properties

__all__ = ["branch_of_record", "branch_part", "branch_tags"]

_LITE: Final = LITE_TOPIC.encode()


def branch_part(queues: Queues, topic: str, properties: Mapping[str, str]) -> QueuePart | None:
    """Make the part of a message in its second queue, without its entry; None for most messages. Raises `DiskFull`."""
    branch = _branch_of(topic, properties)
    if branch is None:
        return None
    return QueuePart(branch.queue, QUEUE_ID, queues.open_queue(branch.queue, QUEUE_ID), branch.offset)


def branch_tags(properties: Mapping[str, str]) -> int:
    tags = properties.get("TAGS")
    return tag_hash(tags) if tags else 0


def branch_of_record(record: Record) -> Branch | None:
    """Return the queue of a record's lite topic; None for most records."""
    return _branch_of(record.topic, decode_properties(record.properties)) if _LITE in record.properties else None


def _branch_of(topic: str, properties: Mapping[str, str]) -> Branch | None:
    branch = branch_of(topic, properties)
    return branch if branch is not None and is_topic(branch.queue) else None
