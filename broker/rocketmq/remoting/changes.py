"""Changes of the attributes of topics and groups.

Source: AttributeUtil, TopicAttributes, SubscriptionGroupAttributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.rocketmq.remoting.requests import Refused
from formats.rocketmq.message_types import TOPIC_TYPES
from formats.rocketmq.numbers import read_long
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["GROUP_ATTRIBUTES", "TOPIC_ATTRIBUTES", "altered", "listed_changes"]

# Returns why a value is invalid; None if it is valid.
Check = Callable[[str], str | None]


class Attribute(NamedTuple):
    """The check of an attribute's values, and whether it may change once the topic or group exists."""

    check: Check
    is_changeable: bool = True


_LONG_MAX: Final = (1 << 63) - 1
_MONTH_MINUTES: Final = 30 * 24 * 60


def _any(value: str) -> str | None:
    return None


def _number(least: int, most: int) -> Check:
    def check(value: str) -> str | None:
        number = read_long(value)
        if number is None:
            return f'For input string: "{value[:40]}"'
        return None if least <= number <= most else f"value is not in range({least}, {most})"

    return check


def _word(*words: str) -> Check:
    return lambda value: None if value in words else f"value is not in set: [{', '.join(words)}]"


def _truth(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "boolean attribute format is wrong."


def _only(carried_out: str, check: Check, reason: str) -> Check:
    """Refuse the other values, valid for the original, which this broker does not carry out."""
    return lambda value: check(value) or (None if value == carried_out else f"{value} is not supported: {reason}")


TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "queue.type": Attribute(
        _only("SimpleCQ", _word("BatchCQ", "SimpleCQ"), "this broker has no batch consume queues"), False
    ),
    "cleanup.policy": Attribute(
        _only("DELETE", _word("DELETE", "COMPACTION"), "this broker removes messages by age, and does not compact"),
        False,
    ),
    "message.type": Attribute(_word("UNSPECIFIED", "MIXED", *TOPIC_TYPES)),
    "reserve.time": Attribute(
        _only("-1", _number(-1, _LONG_MAX), "fileReservedTime is that of all topics of this broker")
    ),
    "lite.topic.expiration": Attribute(_number(-1, _MONTH_MINUTES)),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "priority.factor": Attribute(_number(0, 100)),
    "lite.bind.topic": Attribute(_any),
    "lite.sub.client.quota": Attribute(_number(-1, _LONG_MAX)),
    "lite.sub.model": Attribute(_word("Shared", "Exclusive")),
    "lite.sub.reset.offset.exclusive": Attribute(_truth),
    "lite.sub.reset.offset.unsubscribe": Attribute(_truth),
    "lite.sub.client.max.event.cnt": Attribute(_number(10, _LONG_MAX)),
    "lite.sub.wildcard": Attribute(_any),
}


def listed_changes(changes: Mapping[str, str]) -> str:
    """Return the text of changes given as values by name, each name after its sign."""
    return ",".join(f"{name}={value}" if name[:1] == "+" else name for name, value in changes.items())


def altered(
    known: Mapping[str, Attribute], current: Mapping[str, str], changes: str, *, is_new: bool
) -> dict[str, str]:
    """Return attributes after changes, a list of `+name=value` and `-name` with commas.

    Raises `Refused` for an attribute that is unknown, named twice, or missing where it is to be removed; for an invalid
    value; and for a change of one that may not change, except to its present value.
    """
    result, named = dict(current), set[str]()
    for change in filter(None, (each.strip() for each in changes.split(","))):
        sign, (name, separator, value) = change[0], change[1:].partition("=")
        if sign not in "+-" or not name or (sign == "+" and not separator):
            raise _refusal(f"add attribute or alter attribute format error: {change}")
        attribute = known.get(name)
        if attribute is None:
            raise _refusal(f"unsupported key: {name}")
        if name in named:
            raise _refusal(f"alter duplication key. key: {name}")
        named.add(name)
        fault = _fault(attribute, sign, name, value, current, is_new)
        if fault is not None:
            raise _refusal(fault)
        if sign == "+":
            result[name] = value
        else:
            del result[name]
    return result


def _fault(
    attribute: Attribute, sign: str, name: str, value: str, current: Mapping[str, str], is_new: bool
) -> str | None:
    """Return the reason why a known attribute cannot be changed so; None if it can."""
    if sign == "-":
        if is_new:
            return f"only add attribute is supported while creating topic. key: {name}"
        if name not in current:
            return f"attempt to delete a nonexistent key: {name}"
    elif current.get(name) == value:
        return None
    if not is_new and not attribute.is_changeable:
        return f"attempt to update an unchangeable attribute. key: {name}"
    return attribute.check(value) if sign == "+" else None


def _refusal(text: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, text)
