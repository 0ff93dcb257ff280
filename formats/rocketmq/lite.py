"""Lite topics: their queues, and how a message in the commit log says that it is in one.

Source: LiteUtil, LmqDispatch.

A lite topic belongs to a parent topic. A message of it is stored as one of the parent, and entered into a second queue,
that of the lite topic: its name and the message's offset in it are properties of the message.
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
    "Branch",
    "branch_of",
    "fault_of_lite_topic",
    "is_lite_queue",
    "queue_name",
    "split_queue_name",
]

# The property in which a sender names the lite topic, and those that the broker adds.
LITE_TOPIC: Final = "__LITE_TOPIC"
DISPATCH: Final = "INNER_MULTI_DISPATCH"
DISPATCH_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
NAME_BYTES_MAX: Final = 64
QUEUE_ID: Final = 0

_SEPARATOR: Final = "$"
_PREFIX: Final = "%LMQ%" + _SEPARATOR
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_OFFSET_MAX: Final = 10**16 - 1


class Branch(NamedTuple):
    """The second queue that a message is in, by name, and its offset there."""

    queue: str
    offset: int


def queue_name(parent: str, lite_topic: str) -> str:
    """The name of a lite topic's queue, which stands where topics have theirs."""
    return f"{_PREFIX}{parent}{_SEPARATOR}{lite_topic}"


def is_lite_queue(name: str) -> bool:
    """Return whether a name is that of a lite topic's queue."""
    return name.startswith(_PREFIX)


def split_queue_name(name: str) -> tuple[str, str] | None:
    """The parent and the lite topic of a queue's name; None if it is no such name."""
    if not is_lite_queue(name):
        return None
    parent, _, lite_topic = name[len(_PREFIX) :].partition(_SEPARATOR)
    if not parent or fault_of_lite_topic(lite_topic) is not None:
        return None
    return parent, lite_topic


def fault_of_lite_topic(name: str) -> str | None:
    """The reason why a name cannot be that of a lite topic; None if it can."""
    if not name.strip():
        return "lite topic cannot be the char sequence of whitespace"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"lite topic exceed the max size {NAME_BYTES_MAX}"
    if not _LETTERS.issuperset(name):
        return "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
    return None


def branch_of(topic: str, properties: Mapping[str, str]) -> Branch | None:
    """The queue of a lite topic that a record is in by its properties; None for most.

    Copies of a message, with its properties, in other topics are in none.
    """
    lite_topic = properties.get(LITE_TOPIC)
    if lite_topic is None or fault_of_lite_topic(lite_topic) is not None:
        return None
    name, offset = queue_name(topic, lite_topic), read_digits(properties.get(DISPATCH_OFFSET), _OFFSET_MAX)
    return Branch(name, offset) if properties.get(DISPATCH) == name and offset is not None else None
