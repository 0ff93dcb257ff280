"""Changes of the attributes of topics and groups.

Source: AttributeUtil, TopicAttributes, SubscriptionGroupAttributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.rocketmq.remoting.requests import Refused
from formats.rocketmq.numbers import read_long
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["GROUP_ATTRIBUTES", "TOPIC_ATTRIBUTES", "altered", "listed_changes"]

# Returns the reason why a value is invalid; None if it is valid.
Check = Callable[[str], str | None]

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


TOPIC_ATTRIBUTES: Final[Mapping[str, Check]] = {
    "queue.type": _any,
    "cleanup.policy": _any,
    "message.type": _any,
    "reserve.time": _any,
    "lite.topic.expiration": _number(-1, _MONTH_MINUTES),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Check]] = {
    "priority.factor": _number(0, 100),
    "lite.bind.topic": _any,
    "lite.sub.client.quota": _number(-1, _LONG_MAX),
    "lite.sub.model": _word("Shared", "Exclusive"),
    "lite.sub.reset.offset.exclusive": _truth,
    "lite.sub.reset.offset.unsubscribe": _truth,
    "lite.sub.client.max.event.cnt": _number(10, _LONG_MAX),
    "lite.sub.wildcard": _any,
}


def listed_changes(changes: Mapping[str, str]) -> str:
    """Return the text of changes given as values by name, each name after its sign."""
    return ",".join(f"{name}={value}" if name[:1] == "+" else name for name, value in changes.items())


def altered(known: Mapping[str, Check], current: Mapping[str, str], changes: str, *, is_new: bool) -> dict[str, str]:
    """Return attributes after changes, a list of `+name=value` and `-name` with commas.

    Raises `Refused` for an unknown attribute, and for an invalid value.
    """
    result = dict(current)
    for change in filter(None, (each.strip() for each in changes.split(","))):
        sign, (name, separator, value) = change[0], change[1:].partition("=")
        if sign not in "+-" or not name or (sign == "+" and not separator):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"add attribute or alter attribute format error: {change}")
        if name not in known:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"unsupported key: {name}")
        if sign == "+":
            fault = known[name](value)
            if fault is not None:
                raise Refused(ResponseCode.SYSTEM_ERROR, fault)
            result[name] = value
        elif is_new:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"only add attribute is supported while creating topic. key: {name}"
            )
        else:
            result.pop(name, None)
    return result
