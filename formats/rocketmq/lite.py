"""Lite topics: the names of their queues, and the message properties that refer to them.

Source: LiteUtil, LmqDispatch.

A lite topic belongs to a parent topic. Its messages are stored in the parent, and entered into a second queue, the lite
topic's: properties of the message give its name and the message's offset in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from formats.rocketmq.numbers import read_digits

__all__ = [
    "DISPATCH",
    "DISPATCH_OFFSET",
    "LITE_TOPIC",
    "NAME_BYTES_MAX",
    "QUEUE_ID",
    "SECOND_PREFIX",
    "Branch",
    "branch_of",
    "fault_of_lite_topic",
    "is_lite_queue",
    "queue_name",
    "split_queue_name",
]

# The sender names the lite topic in this property; the broker adds the others.
LITE_TOPIC: Final = "__LITE_TOPIC"
DISPATCH: Final = "INNER_MULTI_DISPATCH"
DISPATCH_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
NAME_BYTES_MAX: Final = 64
QUEUE_ID: Final = 0

# The prefix of the names of second queues, of which the original has other kinds, too.
SECOND_PREFIX: Final = "%LMQ%"

_SEPARATOR: Final = "$"
_PREFIX: Final = SECOND_PREFIX + _SEPARATOR
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_OFFSET_MAX: Final = 10**16 - 1


class Branch(NamedTuple):
    """The name of a message's second queue, and its offset there."""

    queue: str
    offset: int


def queue_name(parent: str, lite_topic: str) -> str:
    """The name of a lite topic's queue, which is used like a topic's."""
    return f"{_PREFIX}{parent}{_SEPARATOR}{lite_topic}"


def is_lite_queue(name: str) -> bool:
    return name.startswith(_PREFIX)


def split_queue_name(name: str) -> tuple[str, str] | None:
    """The parent and the lite topic in a queue's name; None for other names."""
    if not is_lite_queue(name):
        return None
    parent, _, lite_topic = name[len(_PREFIX) :].partition(_SEPARATOR)
    if not parent or fault_of_lite_topic(lite_topic) is not None:
        return None
    return parent, lite_topic


def fault_of_lite_topic(name: str) -> str | None:
    """The reason why a lite topic cannot have this name, or None."""
    if not name.strip():
        return "lite topic cannot be the char sequence of whitespace"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"lite topic exceed the max size {NAME_BYTES_MAX}"
    if not _LETTERS.issuperset(name):
        return "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
    return None


def branch_of(topic: str, properties: Mapping[str, str]) -> Branch | None:
    """The lite topic's queue that a record's properties name; None for most.

    Copies of a message in other topics keep its properties, but are in no such queue.
    """
    lite_topic = properties.get(LITE_TOPIC)
    if lite_topic is None or fault_of_lite_topic(lite_topic) is not None:
        return None
    name, offset = queue_name(topic, lite_topic), read_digits(properties.get(DISPATCH_OFFSET), _OFFSET_MAX)
    return Branch(name, offset) if properties.get(DISPATCH) == name and offset is not None else None
