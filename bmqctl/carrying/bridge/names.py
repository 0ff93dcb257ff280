"""Names of properties with a meaning for one system or the bridge.

RocketMQ keeps its own data about a message among the application's properties. BlazingMQ's clients write only names
that begin with an ASCII letter or digit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from formats.bmq.codes import PROPERTY_NAME_SIZE_MAX
from formats.rocketmq.reserved_names import RESERVED_NAMES

__all__ = [
    "CACHED_LENGTH_MAX",
    "FLAG",
    "GUID",
    "NAME",
    "RAW",
    "ROCKETMQ_ID",
    "ROCKETMQ_OFFSET",
    "ROCKETMQ_QUEUE",
    "TYPES",
    "UNIQUE_KEY",
    "is_plain_for_rocketmq",
    "is_system_name",
    "to_blazingmq_name",
    "to_rocketmq_name",
]

# On messages in RocketMQ.
GUID: Final = "bmq_guid"
TYPES: Final = "bmq_types"
RAW: Final = "bmq_raw"
# On messages in BlazingMQ.
ROCKETMQ_ID: Final = "rocketmq_id"
ROCKETMQ_QUEUE: Final = "rocketmq_queue"
ROCKETMQ_OFFSET: Final = "rocketmq_offset"
FLAG: Final = "rocketmq_flag"
NAME: Final = "rocketmq_name_"

UNIQUE_KEY: Final = "UNIQ_KEY"
_TRANSIENT: Final = "__RMQ.TRANSIENT."
# Tags and keys are the application's; brokers and clients use the others besides the reserved names.
_SYSTEM_NAMES: Final = (RESERVED_NAMES - {"TAGS", "KEYS"}) | {
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_NUM",
    "PROPERTY_FORWARD_QUEUE_ID",
    "REDIRECT",
    "TRACE_CONTEXT",
    "TRANSACTION_CHECK_TIMES",
    "__transactionId__",
}
_CACHED: Final = 4096
# Longer names are not cached: applications choose them, and memory is bounded.
CACHED_LENGTH_MAX: Final = 256


def is_system_name(name: str) -> bool:
    return name in _SYSTEM_NAMES or name.startswith(_TRANSIENT)


def is_plain_for_rocketmq(text: str) -> bool:
    """Return True for a name or value that RocketMQ accepts: UTF-8, not empty, without separators."""
    if not text or "\x01" in text or "\x02" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_rocketmq_name(name: str) -> str | None:
    """The name in RocketMQ of a BlazingMQ property; None if it has none."""
    return _to_rocketmq(name) if len(name) <= CACHED_LENGTH_MAX else _to_rocketmq.__wrapped__(name)


@lru_cache(_CACHED)
def _to_rocketmq(name: str) -> str | None:
    wanted = name.removeprefix(NAME)
    if wanted in (TYPES, RAW, FLAG) or is_system_name(wanted) or not is_plain_for_rocketmq(wanted):
        return None
    # A name that would return as another one goes into `bmq_raw`.
    return wanted if _prefixed(wanted) == name else None


def to_blazingmq_name(name: str) -> str:
    """The name in BlazingMQ of a RocketMQ property, prefixed if clients there cannot write it.

    Raises `ValueError` for a name that is too long.
    """
    return _to_blazingmq(name) if len(name) <= CACHED_LENGTH_MAX else _to_blazingmq.__wrapped__(name)


@lru_cache(_CACHED)
def _to_blazingmq(name: str) -> str:
    found = _prefixed(name)
    if len(found.encode()) > PROPERTY_NAME_SIZE_MAX:
        raise ValueError(f"property {name[:40]!r}: a name of {len(found.encode())} bytes is too long")
    return found


def _prefixed(name: str) -> str:
    is_fit = name[:1].isascii() and name[:1].isalnum() and not name.startswith(NAME)
    return name if is_fit else NAME + name
