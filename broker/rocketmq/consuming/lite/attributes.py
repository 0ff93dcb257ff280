"""Attributes of topics and groups that concern lite topics (source: TopicAttributes, SubscriptionGroupAttributes)."""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import TopicConfig

__all__ = ["CLIENT_QUOTA", "QUOTA_SLACK", "LiteGroup", "expiration_ms", "is_lite_topic", "lite_group"]

# Of lite topics per client, unless its group sets another.
CLIENT_QUOTA: Final = 2_000
# Clients count their own lite topics, and may report slightly more than the broker counts.
QUOTA_SLACK: Final = 300

_TYPE: Final = "message.type"
_LITE: Final = "LITE"
_EXPIRATION: Final = "lite.topic.expiration"
_MINUTE_MS: Final = 60_000
_QUOTA_MAX: Final = (1 << 31) - 1


class LiteGroup(NamedTuple):
    """The part of a group's configuration about lite topics; a group without a bound topic consumes none."""

    bound_topic: str | None = None
    client_quota: int = CLIENT_QUOTA
    # Only the last client of the group that requested a lite topic is subscribed to it.
    is_exclusive: bool = False
    restarts_for_successor: bool = False
    restarts_after_leaving: bool = False
    # Each client of the group is subscribed to all lite topics of the parent.
    takes_all: bool = False


def lite_group(config: GroupConfig | None) -> LiteGroup:
    if config is None or not config.attributes:
        return LiteGroup()
    attributes = config.attributes
    quota = read_digits(attributes.get("lite.sub.client.quota"))
    return LiteGroup(
        attributes.get("lite.bind.topic") or None,
        CLIENT_QUOTA if quota is None else min(quota, _QUOTA_MAX),
        attributes.get("lite.sub.model") == "Exclusive",
        attributes.get("lite.sub.reset.offset.exclusive", "").lower() == "true",
        attributes.get("lite.sub.reset.offset.unsubscribe", "").lower() == "true",
        "lite.sub.wildcard" in attributes,
    )


def is_lite_topic(config: TopicConfig | None) -> bool:
    return config is not None and config.attributes.get(_TYPE, "").upper() == _LITE


def expiration_ms(config: TopicConfig) -> int | None:
    """Return how long lite topics of a parent are kept after their last message; None for ever."""
    minutes = read_digits(config.attributes.get(_EXPIRATION))
    return minutes * _MINUTE_MS if minutes else None
