"""Names of topics and groups that have a meaning for a broker (source: TopicValidator)."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.topic_names import (
    AUTO_CREATE_TOPIC,
    CHECKED_TOO_OFTEN,
    DEAD_LETTER_PREFIX,
    DELAY_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    OWN_GROUP_PREFIX,
    OWN_TOPICS,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    fault_of_group,
    fault_of_topic,
)

__all__ = [
    "AUTO_CREATE_TOPIC",
    "CHECKED_TOO_OFTEN",
    "DEAD_LETTER_PREFIX",
    "DELAY_TOPIC",
    "HALF_TOPIC",
    "OP_TOPIC",
    "OWN_GROUP_PREFIX",
    "RETRY_PREFIX",
    "SYSTEM_PREFIX",
    "TIMER_TOPIC",
    "fault_of_group",
    "fault_of_topic",
    "is_own",
    "is_system",
    "is_system_group",
    "revive_topic",
]

# Clients of a cloud send their traces to topics with this prefix (TRACE_TOPIC_PREFIX).
_TRACE_PREFIX: Final = "rmq_sys_TRACE_DATA_"


def revive_topic(cluster: str) -> str:
    """Return the topic in which a broker records popped and acknowledged messages."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


def is_own(topic: str) -> bool:
    """Return whether only the broker itself stores messages in a topic.

    The original also accepts clients' messages for the topics with `SYSTEM_PREFIX`, and trusts them as its own.
    """
    return topic in OWN_TOPICS or (topic.startswith(SYSTEM_PREFIX) and not topic.startswith(_TRACE_PREFIX))


def is_system(topic: str) -> bool:
    """Return whether a topic belongs to the system on every broker: no request creates, changes or deletes it.

    `Topics.is_system` includes the topics named after the broker and its cluster.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Return whether a group is one of the broker's own, in any letter case, as in the original's metrics."""
    return group.upper().startswith(OWN_GROUP_PREFIX)
