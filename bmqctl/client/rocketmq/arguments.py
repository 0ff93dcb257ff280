"""Checks of arguments that only RocketMQ's client has.

Each raises `ValueError` with the name of the argument and the allowed values.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from bmqctl.client.arguments import check_text
from formats.rocketmq.topic_names import fault_of_group, fault_of_topic

__all__ = ["HIDDEN_S_MAX", "check_filter", "check_group", "check_hidden_s", "check_topic", "unix_ms"]

HIDDEN_S_MAX: Final = 3 * 24 * 3600
# All groups of a session are in one heartbeat, which a broker refuses as a whole.
_EXPRESSION_CHARACTERS_MAX: Final = 8192


def check_topic(topic: object) -> None:
    """Check the name of a topic; brokers refuse others."""
    _check_name("topic", topic, fault_of_topic(topic) if isinstance(topic, str) else None)


def check_group(group: object) -> None:
    """Check the name of a group; brokers ignore others silently."""
    _check_name("group", group, fault_of_group(group) if isinstance(group, str) else None)


def _check_name(kind: str, name: object, fault: str | None) -> None:
    if not isinstance(name, str):
        raise ValueError(f"{kind} is {name!r:.80}: expected a text")
    if fault is not None:
        raise ValueError(f"{kind}: {fault}")


def check_filter(tags: object, sql: object) -> None:
    check_text("tags", tags, _EXPRESSION_CHARACTERS_MAX, is_empty_allowed=True)
    if sql is not None:
        check_text("sql", sql, _EXPRESSION_CHARACTERS_MAX)
        if tags != "*":
            raise ValueError("a consumer selects by tags or by an expression, not by both")


def check_hidden_s(name: str, seconds: object) -> None:
    """Check for how long a message is hidden, in seconds."""
    if not isinstance(seconds, int | float) or not 0 <= seconds <= HIDDEN_S_MAX:
        raise ValueError(f"{name} is {seconds!r:.80}: a message is hidden for 0 to {HIDDEN_S_MAX} seconds")


def unix_ms(name: str, moment: object) -> int:
    if isinstance(moment, datetime):
        try:
            milliseconds = int(moment.timestamp() * 1000)
        except (OverflowError, OSError, ValueError):
            milliseconds = -1
        if milliseconds >= 0:
            return milliseconds
    raise ValueError(f"{name} is {moment!r:.80}: expected a datetime from 1970 on")
