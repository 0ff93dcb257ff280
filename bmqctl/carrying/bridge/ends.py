"""The ends of a bridge: queues of BlazingMQ, and topics of RocketMQ."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["DEFAULT_GROUP", "BadBridge", "BlazingEnd", "CannotBegin", "RocketEnd", "is_topic_name"]

DEFAULT_GROUP: Final = "bmqctl-bridge"
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


class CannotBegin(Exception):
    """The reason why a command or a bridge cannot begin; one line."""


class BadBridge(CannotBegin):
    """An invalid end or bridge; one line."""


class BlazingEnd(NamedTuple):
    """A queue of BlazingMQ, or one of its apps, and its broker."""

    host: str
    port: int
    uri: str

    def __str__(self) -> str:
        return self.uri


class RocketEnd(NamedTuple):
    """A topic of RocketMQ, and its nameserver.

    `group` consumes it. Messages go to the queue with number `queue`, 0 if None, or by the value of the property `key`
    to one of all queues.
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
    return _NAME.fullmatch(text) is not None
