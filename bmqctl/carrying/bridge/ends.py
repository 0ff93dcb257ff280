"""The places that messages are carried from and to: queues of BlazingMQ, and topics of RocketMQ."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["DEFAULT_GROUP", "BadBridge", "BlazingEnd", "CannotBegin", "RocketEnd", "is_topic_name"]

DEFAULT_GROUP: Final = "bmqctl-bridge"
# The characters that Apache RocketMQ takes in a name.
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


class CannotBegin(Exception):
    """A reason for which a command or a bridge does not begin; one line."""


class BadBridge(CannotBegin):
    """An end or a bridge that is invalid; one line."""


class BlazingEnd(NamedTuple):
    """A queue of BlazingMQ, or an app of one, and its broker."""

    host: str
    port: int
    uri: str

    def __str__(self) -> str:
        return self.uri


class RocketEnd(NamedTuple):
    """A topic of RocketMQ, and its nameserver.

    `group` consumes it. Messages go to the queue with number `queue`, 0 if that is None, or by the value of the
    property `key` to one of all queues.
    """

    host: str
    port: int
    topic: str
    group: str = DEFAULT_GROUP
    queue: int | None = None
    key: str = ""

    def __str__(self) -> str:
        return f"rocketmq://{self.host}:{self.port}{f'/{self.topic}' if self.topic else ''}"


def is_topic_name(text: str) -> bool:
    """Return True for a name that RocketMQ accepts for topics and groups."""
    return _NAME.fullmatch(text) is not None
