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

# Values of an option of type POLICY; 0 continues at the group's offset.
FROM_FIRST: Final = 1
FROM_LAST: Final = 2


class OffsetOption(NamedTuple):
    """A group's starting place in a lite topic: POLICY, OFFSET, TAIL_N or TIMESTAMP, and its value."""

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
    """Several changes, applied in order."""

    subscription_set: list[LiteSubscription] = []


class BrokerLiteInfo(NamedTuple):
    """A broker's lite topics; `topic_meta` has the minutes to expiry, by parent."""

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
    """A parent topic: minutes to expiry, the groups bound to it, and the number of its lite topics."""

    topic: str
    ttl: int
    groups: list[str]
    lmq_num: int
    lite_topic_count: int


class ClientGroup(NamedTuple):
    client_id: str
    group: str


class TopicOffset(NamedTuple):
    """The span of a queue, and the time of its last message."""

    max_offset: int
    min_offset: int
    last_update_timestamp: int


class LiteTopicInfo(NamedTuple):
    """A lite topic: its subscribers and its span."""

    parent_topic: str
    lite_topic: str
    subscriber: list[ClientGroup]
    topic_offset: TopicOffset | None
    sharding_to_broker: bool


class LiteClientInfo(NamedTuple):
    """A client: the time of its last request for messages, and its lite topics."""

    parent_topic: str
    group: str
    client_id: str
    last_access_time: int
    last_consume_time: int
    lite_topic_count: int
    lite_topic_set: list[str] | None = None


class LiteLag(NamedTuple):
    """The number of messages of a lite topic that a group has not consumed, and the time of the first."""

    lite_topic: str
    lag_count: int
    earliest_unconsumed_timestamp: int = -1


class OffsetWrapper(NamedTuple):
    """The end of a queue, the offset of a group, and the time of the last message that the group consumed."""

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    pull_offset: int = 0


class LiteGroupInfo(NamedTuple):
    """The lag of a group, in all lite topics or in one."""

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
