"""A broker's identity and configuration; names and defaults are the original's (source: BrokerConfig)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from formats.rocketmq.hosts import Host
from formats.rocketmq.numbers import INT_MAX, read_digits

__all__ = ["BOUNDS", "DELAY_LEVELS", "BrokerOptions", "parse_delay_levels"]

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

# The options set by properties that the original does not have: bounds.
BOUNDS: Final = {
    "autoCreateTopicMaxNum": "auto_topics_max",
    "autoCreateRetryTopicMaxNum": "auto_retry_topics_max",
    "topicMaxNum": "topics_max",
    "topicQueueMaxNum": "topic_queues_max",
    "autoCreateSubscriptionGroupMaxNum": "auto_groups_max",
    "subscriptionGroupMaxNum": "groups_max",
    "heartbeatGroupMaxNum": "heartbeat_groups_max",
    "clientMembershipMaxNum": "memberships_max",
    "clientSubscriptionMaxBytes": "subscription_bytes_max",
    "consumerOffsetMaxNum": "offsets_max",
}

_ADDRESS: Final = Host("127.0.0.1", 10911)
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# A queue's entry has 64 bits for a message's due time.
_DELAY_S_MAX: Final = INT_MAX


@dataclass(slots=True)
class BrokerOptions:
    """The options of a broker. `address` is sent to others and written into stored messages.

    Administrators change some at run time (`configuration`): holders of this object see that.
    """

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    broker_id: int = 0
    address: Host = _ADDRESS
    region: str = "DefaultRegion"
    trace_on: bool = True
    permission: int = 6
    auto_create_topic: bool = True
    default_topic_queues: int = 8
    message_bytes_max: int = 4 << 20
    delay_levels_ms: tuple[int, ...] = ()
    trace_topic: str | None = None
    revive_queues: int = 8
    # The percentages of POP requests that look into the retry topic first, for ordinary topics and for those with
    # priorities. The order of queues in a POP: the highest has the highest priority, or the lowest.
    retry_percent: int = 20
    priority_retry_percent: int = 0
    highest_first: bool = True
    # Unacknowledged popped messages go to retry topics with names of version 2, or of version 1.
    retry_v2: bool = False
    # The maximum delay of a message with a due time.
    timer_delay_max_s: int = 3 * 24 * 3_600
    property_filter: bool = True
    # The address that slaves connect to, if any.
    ha_address: str = ""
    # Consumers that lag by more bytes than this may read from a slave.
    slave_read: bool = False
    read_behind_bytes: int = 1 << 62
    # After this much silence nameservers drop this broker, and present the slave with the least id as master. None:
    # they use their own time, and no slave acts as master.
    silent_ms: int | None = None
    # Requests that would create a topic or group for a client above `auto_*`, or any above the others, are refused.
    # Retry and dead letter topics have an `auto_*` bound of their own.
    auto_topics_max: int = 5_000
    auto_retry_topics_max: int = 20_000
    topics_max: int = 50_000
    auto_groups_max: int = 5_000
    groups_max: int = 50_000
    # Existing topics with more queues keep them.
    topic_queues_max: int = 1_024
    # Bounds of the groups of one heartbeat, the memberships of all clients in groups, the bytes of all subscriptions,
    # and the offsets of all groups in queues.
    heartbeat_groups_max: int = 256
    memberships_max: int = 200_000
    subscription_bytes_max: int = 64 << 20
    offsets_max: int = 1_000_000


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays of all levels in ms, level 1 first, of a text like `1s 5s 1m`.

    Raises `ValueError` for an item that is no number with a unit of s, m, h or d, or that is too long.
    """
    delays = []
    for word in text.split():
        unit = _UNITS_MS.get(word[-1:])
        number = read_digits(word[:-1])
        if unit is None or number is None:
            raise ValueError(f"{word!r} is no delay; write a number and s, m, h or d, as in {DELAY_LEVELS!r}")
        if number * unit > _DELAY_S_MAX * 1000:
            raise ValueError(f"has the delay {word!r}; the longest is {_DELAY_S_MAX}s")
        delays.append(number * unit)
    if not delays:
        raise ValueError(f"has no delay; write them as in {DELAY_LEVELS!r}")
    return tuple(delays)
