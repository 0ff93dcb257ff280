"""Topics by name: those of applications, and those in which brokers keep messages of their own."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from formats.rocketmq.topic_names import (
    DEAD_LETTER_PREFIX,
    DELAY_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
)

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

_SYSTEM_PREFIXES: Final = (SYSTEM_PREFIX, SYSTEM_PREFIX.upper())


class TopicKind(StrEnum):
    """The purpose of a topic."""

    ORDINARY = "ordinary"
    RETRY = "retry"
    DEAD_LETTERS = "dead letters"
    DELAYED = "delayed"
    HALF = "half"
    SYSTEM = "system"


def kind_of(topic: str) -> TopicKind:
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return TopicKind.DEAD_LETTERS
    if topic in (DELAY_TOPIC, TIMER_TOPIC):
        return TopicKind.DELAYED
    if topic == HALF_TOPIC:
        return TopicKind.HALF
    is_system = topic in SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIXES) or topic.endswith("_REPLY_TOPIC")
    return TopicKind.SYSTEM if is_system else TopicKind.ORDINARY
