"""Checks of clients' requests (source: GrpcValidator, Validators, ProxyConfig)."""

from __future__ import annotations

from typing import Final

from broker.rocketmq.grpc.statuses import CallRejected
from broker.rocketmq.tables import names
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message
from formats.rocketmq.lite import fault_of_lite_topic

__all__ = [
    "check_count",
    "check_group",
    "check_invisible_ms",
    "check_lite_topic",
    "check_size",
    "check_topic",
    "check_word",
    "has_control_character",
]

_INVISIBLE_MS_MAX: Final = 12 * 3_600_000
# Official clients name one message, one handle, or the topics of one client; the original has no limit.
_COUNT_MAX: Final = 1_024


def check_topic(topic: Message) -> str:
    """Return the name of a topic that clients may use. Raises `CallRejected`."""
    name: str = topic.name
    fault = names.fault_of_topic(name)
    if fault is not None:
        raise CallRejected(Code.ILLEGAL_TOPIC, fault)
    if names.is_system(name):
        raise CallRejected(Code.ILLEGAL_TOPIC, "cannot access system topic")
    return name


def check_group(group: Message) -> str:
    """Return the name of a group that clients may use. Raises `CallRejected`."""
    name: str = group.name
    fault = names.fault_of_group(name)
    if fault is not None:
        raise CallRejected(Code.ILLEGAL_CONSUMER_GROUP, fault)
    if name.startswith(names.OWN_GROUP_PREFIX):
        raise CallRejected(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return name


def check_lite_topic(name: str) -> str:
    """Return the name of a lite topic. Raises `CallRejected`."""
    fault = fault_of_lite_topic(name)
    if fault is not None:
        raise CallRejected(Code.ILLEGAL_LITE_TOPIC, fault)
    return name


def check_count(count: int, what: str) -> None:
    """Check the number of things in one request. Raises `CallRejected`."""
    if count > _COUNT_MAX:
        raise CallRejected(Code.BAD_REQUEST, f"too many {what}: {count}, max is {_COUNT_MAX}")


def check_size(part: Message, what: str, bytes_max: int) -> None:
    """Raise `CallRejected` for a part that is too large to be kept or repeated."""
    size = part.ByteSize()
    if size > bytes_max:
        raise CallRejected(Code.BAD_REQUEST, f"the {what} is too large: {size} bytes, max is {bytes_max}")


def check_invisible_ms(ms: int, least: int = 0) -> int:
    """Return the time for which a message is hidden. Raises `CallRejected`."""
    if ms < least:
        raise CallRejected(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least}")
    if ms > _INVISIBLE_MS_MAX:
        raise CallRejected(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {_INVISIBLE_MS_MAX}")
    return ms


def check_word(word: str, what: str, code: Code) -> None:
    """Check a tag, a key or a message group. Raises `CallRejected`."""
    if word and not word.strip():
        raise CallRejected(code, f"{what} cannot be the char sequence of whitespace")
    if has_control_character(word):
        raise CallRejected(code, f"{what} cannot contain control character")


def has_control_character(text: str) -> bool:
    """Return whether a text has a character of the ISO control ranges."""
    return not text.isprintable() and any(ord(each) < 0x20 or 0x7F <= ord(each) <= 0x9F for each in text)
