"""Names that topics and groups can have (source: TopicValidator)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["AUTO_CREATE_TOPIC", "DEAD_LETTER_PREFIX", "RETRY_PREFIX", "fault_of_group", "fault_of_topic"]

# The topic whose settings a topic gets that a send creates.
AUTO_CREATE_TOPIC: Final = "TBW102"

# Prefixes of a group's topics: messages to be delivered again, and dead letters.
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

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
