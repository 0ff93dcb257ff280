"""The topics and queues that a store can have: those whose folders it can open again."""

from __future__ import annotations

from typing import Final

from broker.rocketmq.store.errors import NoPlace
from formats.rocketmq.numbers import INT_MAX

__all__ = ["QUEUE_OFFSET_MAX", "check_place", "is_place", "is_topic"]

QUEUE_OFFSET_MAX: Final = 1 << 58

# The maximum for a name of a folder.
_NAME_BYTES_MAX: Final = 255


def is_topic(topic: str) -> bool:
    """Return whether a folder can have the topic's name."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    try:
        return len(topic.encode()) <= _NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def is_place(topic: str, queue_id: int) -> bool:
    return 0 <= queue_id <= INT_MAX and is_topic(topic)


def check_place(topic: str, queue_id: int) -> None:
    """Raise `NoPlace` unless a topic can have a queue with this id."""
    if not is_place(topic, queue_id):
        raise NoPlace(f"there can be no queue {queue_id} of a topic {topic[:80]!r}")
