"""Topics by their names: those of applications, and those in which brokers keep messages of their own."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC, DEAD_LETTER_PREFIX, RETRY_PREFIX

__all__ = [
    "DEAD_LETTER_PREFIX",
    "DELAY_TOPIC",
    "HALF_TOPIC",
    "RETRY_PREFIX",
    "TIMER_TOPIC",
    "TRANSACTION_GROUP",
    "TopicKind",
    "kind_of",
]

DELAY_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_")
_SYSTEM: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
    }
)


class TopicKind(StrEnum):
    """The use that is made of a topic."""

    ORDINARY = "ordinary"
    RETRY = "retry"
    DEAD_LETTERS = "dead letters"
    DELAYED = "delayed"
    HALF = "half"
    SYSTEM = "system"


def kind_of(topic: str) -> TopicKind:
    """The kind of a topic, by its name."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return TopicKind.DEAD_LETTERS
    if topic in (DELAY_TOPIC, TIMER_TOPIC):
        return TopicKind.DELAYED
    if topic == HALF_TOPIC:
        return TopicKind.HALF
    is_system = topic in _SYSTEM or topic.startswith(_SYSTEM_PREFIXES) or topic.endswith("_REPLY_TOPIC")
    return TopicKind.SYSTEM if is_system else TopicKind.ORDINARY
