"""The type of a message, which its properties decide (source: TopicMessageType)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from formats.rocketmq.grpc.codes import MessageType
from formats.rocketmq.lite import LITE_TOPIC
from formats.rocketmq.numbers import read_int

__all__ = ["PRIORITY", "TOPIC_TYPES", "message_type", "priority_of", "topic_type"]

PRIORITY: Final = "_SYS_MSG_PRIORITY_"
# The types of messages that a topic can be for, besides MIXED and UNSPECIFIED.
TOPIC_TYPES: Final = tuple(each.name for each in MessageType if each is not MessageType.MESSAGE_TYPE_UNSPECIFIED)
_TOPIC_TYPE: Final = "message.type"
_DELAYING: Final = frozenset(("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"))


def message_type(properties: Mapping[str, str]) -> MessageType:
    """Return the type of a message. The first that applies counts: a delayed message has no priority."""
    if properties.get("TRAN_MSG", "").lower() == "true":
        return MessageType.TRANSACTION
    if not _DELAYING.isdisjoint(properties):
        return MessageType.DELAY
    if "__SHARDINGKEY" in properties:
        return MessageType.FIFO
    if LITE_TOPIC in properties:
        return MessageType.LITE
    return MessageType.PRIORITY if PRIORITY in properties else MessageType.NORMAL


def priority_of(properties: Mapping[str, str]) -> int | None:
    """Return the priority in a message's properties; None outside 0 to 2^31 - 1, or without one."""
    priority = read_int(properties.get(PRIORITY))
    return None if priority is None or priority < 0 else priority


def topic_type(attributes: Mapping[str, str]) -> str:
    return attributes.get(_TOPIC_TYPE, MessageType.NORMAL.name).upper()
