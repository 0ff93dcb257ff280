"""Bodies of requests about lite topics, and of their answers.

Source: LiteSubscriptionCtlRequestBody, LiteSubscriptionDTO, OffsetOption, Get*Lite*ResponseBody,
GetParentTopicInfoResponseBody, LiteLagInfo.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.rocketmq.remoting.bodies.codec import BodyCodec

__all__ = [
    "BROKER_LITE_INFO",
    "COMPLETE_ADD",
    "COMPLETE_REMOVE",
    "FROM_FIRST",
    "FROM_LAST",
    "LITE_CLIENT_INFO",
    "LITE_GROUP_INFO",
    "LITE_TOPIC_INFO",
    "PARENT_TOPIC_INFO",
    "PARTIAL_ADD",
    "PARTIAL_REMOVE",
    "SUBSCRIPTIONS",
    "BrokerLiteInfo",
    "ClientGroup",
    "LiteClientInfo",
    "LiteGroupInfo",
    "LiteLag",
    "LiteSubscription",
    "LiteSubscriptions",
    "LiteTopicInfo",
    "OffsetOption",
    "OffsetWrapper",
    "ParentTopicInfo",
    "TopicOffset",
]

PARTIAL_ADD: Final = "PARTIAL_ADD"
PARTIAL_REMOVE: Final = "PARTIAL_REMOVE"
COMPLETE_ADD: Final = "COMPLETE_ADD"
COMPLETE_REMOVE: Final = "COMPLETE_REMOVE"

# Values of an option of the type POLICY; 0 is to go on where the group is.
FROM_FIRST: Final = 1
FROM_LAST: Final = 2


class OffsetOption(NamedTuple):
    """The place at which a group begins in a lite topic: POLICY, OFFSET, TAIL_N or TIMESTAMP, and its value."""

    type: str
    value: int = 0


class LiteSubscription(NamedTuple):
    """A change of a client's subscription to lite topics of a parent."""

    action: str
    client_id: str = ""
    group: str = ""
    topic: str = ""
    lite_topic_set: list[str] = []
    offset_option: OffsetOption | None = None
    version: int = 0


class LiteSubscriptions(NamedTuple):
    """Several changes, which are made in their order."""

    subscription_set: list[LiteSubscription] = []


class BrokerLiteInfo(NamedTuple):
    """All that a broker has of lite topics: `topic_meta` has the minutes to expiry, by parent."""

    store_type: str
    max_lmq_num: int
    current_lmq_num: int
    lite_subscription_count: int
    order_info_count: int
    cq_table_size: int
    offset_table_size: int
    event_map_size: int
    topic_meta: dict[str, int]
    group_meta: dict[str, list[str]]


class ParentTopicInfo(NamedTuple):
    """A parent topic: minutes to expiry, the groups that are bound to it, and the number of its lite topics."""

    topic: str
    ttl: int
    groups: list[str]
    lmq_num: int
    lite_topic_count: int


class ClientGroup(NamedTuple):
    """A client in a group."""

    client_id: str
    group: str


class TopicOffset(NamedTuple):
    """The span of a queue, and when its last message came."""

    max_offset: int
    min_offset: int
    last_update_timestamp: int


class LiteTopicInfo(NamedTuple):
    """A lite topic: who is subscribed to it, and its span."""

    parent_topic: str
    lite_topic: str
    subscriber: list[ClientGroup]
    topic_offset: TopicOffset | None
    sharding_to_broker: bool


class LiteClientInfo(NamedTuple):
    """A client: when it last asked for messages, and its lite topics."""

    parent_topic: str
    group: str
    client_id: str
    last_access_time: int
    last_consume_time: int
    lite_topic_count: int
    lite_topic_set: list[str] | None = None


class LiteLag(NamedTuple):
    """The number of messages of a lite topic that a group has not consumed, and when the first of them came."""

    lite_topic: str
    lag_count: int
    earliest_unconsumed_timestamp: int = -1


class OffsetWrapper(NamedTuple):
    """The end of a queue, the offset of a group, and when the last message came that the group has consumed."""

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    pull_offset: int = 0


class LiteGroupInfo(NamedTuple):
    """A group: how far it is behind, in all lite topics or in one."""

    group: str
    parent_topic: str
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: int = -1
    total_lag_count: int = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLag] | None = None
    lag_timestamp_top_k: list[LiteLag] | None = None


SUBSCRIPTIONS = BodyCodec(LiteSubscriptions)
BROKER_LITE_INFO = BodyCodec(BrokerLiteInfo)
PARENT_TOPIC_INFO = BodyCodec(ParentTopicInfo)
LITE_TOPIC_INFO = BodyCodec(LiteTopicInfo)
LITE_CLIENT_INFO = BodyCodec(LiteClientInfo)
LITE_GROUP_INFO = BodyCodec(LiteGroupInfo)
