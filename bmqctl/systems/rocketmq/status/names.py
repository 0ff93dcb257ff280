"""Topics and groups of the brokers' own, or derived from others (source: TopicValidator, MixAll)."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.topic_names import OWN_GROUP_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS

__all__ = ["is_own_group", "is_own_topic"]

_PREFIXES: Final = (SYSTEM_PREFIX, SYSTEM_PREFIX.upper(), RETRY_PREFIX)
_GROUPS: Final = frozenset(
    {
        *("DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER"),
        *("__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP"),
        *("CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL"),
    }
)


def is_own_topic(topic: str, brokers: frozenset[str]) -> bool:
    """Return whether a topic is a broker's own, or a group's retry topic.

    `brokers` are the names of brokers and of their cluster, each of which is also a topic.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(_PREFIXES) or topic in brokers or topic.endswith("_REPLY_TOPIC")


def is_own_group(group: str) -> bool:
    return group in _GROUPS or group.startswith(OWN_GROUP_PREFIX)
