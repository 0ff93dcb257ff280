"""Names of topics and groups, those with a meaning and those that are refused (source: TopicValidator, MixAll)."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "AUTO_CREATE_TOPIC",
    "CHECKED_TOO_OFTEN",
    "DEAD_LETTER_PREFIX",
    "DELAY_TOPIC",
    "HALF_TOPIC",
    "NOT_FOR_CLIENTS",
    "OP_TOPIC",
    "RETRY_PREFIX",
    "SYSTEM_PREFIX",
    "SYSTEM_TOPICS",
    "TIMER_TOPIC",
    "fault_of_group",
    "fault_of_topic",
]

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"

AUTO_CREATE_TOPIC: Final = "TBW102"
DELAY_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECKED_TOO_OFTEN: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
_SELF_TEST: Final = "SELF_TEST_TOPIC"
_OFFSET_MOVED: Final = "OFFSET_MOVED_EVENT"

# Only the broker itself sends to these.
NOT_FOR_CLIENTS: Final = frozenset({DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, CHECKED_TOO_OFTEN, _SELF_TEST, _OFFSET_MOVED})
SYSTEM_TOPICS: Final = NOT_FOR_CLIENTS | {AUTO_CREATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"}

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]*")
_TOPIC_MAX: Final = 127
_RETRY_TOPIC_MAX: Final = 255
_GROUP_MAX: Final = 120


def fault_of_topic(topic: str) -> str | None:
    """The reason why a topic cannot have that name, in the original's words; None if it can."""
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
    """The reason why a group cannot have that name, in the original's words; None if it can."""
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
