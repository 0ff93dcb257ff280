"""Valid names of topics and groups, and the names of the system's own (source: TopicValidator, MixAll)."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "AUTO_CREATE_TOPIC",
    "CHECKED_TOO_OFTEN",
    "DEAD_LETTER_PREFIX",
    "DELAY_TOPIC",
    "HALF_TOPIC",
    "OP_TOPIC",
    "OWN_GROUP_PREFIX",
    "OWN_TOPICS",
    "RETRY_PREFIX",
    "SYSTEM_PREFIX",
    "SYSTEM_TOPICS",
    "TIMER_TOPIC",
    "TRACE_TOPIC",
    "TRANSACTION_GROUP",
    "fault_of_group",
    "fault_of_topic",
]

# A topic that a send creates takes its settings from this one.
AUTO_CREATE_TOPIC: Final = "TBW102"

# Prefixes of a group's topics: messages to be redelivered, and dead letters.
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

SYSTEM_PREFIX: Final = "rmq_sys_"
DELAY_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECKED_TOO_OFTEN: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
# Topics of the system, and topics in which only the broker itself stores messages.
OWN_TOPICS: Final = frozenset(
    {DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, CHECKED_TOO_OFTEN, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
)
SYSTEM_TOPICS: Final = OWN_TOPICS | {AUTO_CREATE_TOPIC, "BenchmarkTest", TRACE_TOPIC, "CHECKPOINT_TOPIC"}

# Prefix of the broker's own groups, whose offsets are its positions in its own topics.
OWN_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]*")
_TOPIC_MAX: Final = 127
_RETRY_TOPIC_MAX: Final = 255
_GROUP_MAX: Final = 120


def fault_of_topic(topic: str) -> str | None:
    """The reason why a topic cannot have this name, in the original's words; None if it can."""
    if fault := _fault("topic", topic):
        return fault
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if len(topic) > _RETRY_TOPIC_MAX:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {_RETRY_TOPIC_MAX}"
            )
    elif len(topic) > _TOPIC_MAX:
        return f"The specified topic: {topic}, is longer than topic max length: {_TOPIC_MAX}"
    return None


def fault_of_group(group: str) -> str | None:
    """The reason why a group cannot have this name, like `fault_of_topic`."""
    if fault := _fault("group", group):
        return fault
    if len(group) > _GROUP_MAX:
        return f"The specified group: {group}, is longer than group max length: {_GROUP_MAX}"
    return None


def _fault(kind: str, name: str) -> str | None:
    if not name.strip():
        return f"The specified {kind} is blank."
    if not _ALLOWED.fullmatch(name):
        return f"The specified {kind}: {name}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None
