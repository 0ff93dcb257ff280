"""Headers of consumers' requests: pull and POP, acknowledgements, offsets, groups."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.rocketmq.remoting.headers.codec import Int, Long

__all__ = [
    "AckMessageRequest",
    "ChangeInvisibleTimeRequest",
    "ChangeInvisibleTimeResponse",
    "ConsumerSendMessageBackRequest",
    "GetConsumerListByGroupRequest",
    "GetEarliestStoreTimeRequest",
    "GetEarliestStoreTimeResponse",
    "GetMaxOffsetRequest",
    "GetMaxOffsetResponse",
    "GetMinOffsetRequest",
    "GetMinOffsetResponse",
    "NotificationRequest",
    "NotificationResponse",
    "NotifyConsumerIdsChangedRequest",
    "NotifyUnsubscribeLiteRequest",
    "PeekMessageRequest",
    "PollingInfoRequest",
    "PollingInfoResponse",
    "PopLiteMessageRequest",
    "PopLiteMessageResponse",
    "PopMessageRequest",
    "PopMessageResponse",
    "PullMessageRequest",
    "PullMessageResponse",
    "QueryConsumerOffsetRequest",
    "QueryConsumerOffsetResponse",
    "QueryMessageRequest",
    "QueryMessageResponse",
    "SearchOffsetRequest",
    "SearchOffsetResponse",
    "UnregisterClientRequest",
    "UpdateConsumerOffsetRequest",
    "ViewMessageRequest",
]


class PullMessageRequest(NamedTuple):
    """Messages of a queue from an offset on; see `PullFlag` for the system flags."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    messages_max: Annotated[Int, "maxMsgNums"]
    system_flags: Annotated[Int, "sysFlag"]
    commit_offset: Long
    suspend_timeout_ms: Annotated[Long, "suspendTimeoutMillis"]
    subscription_version: Annotated[Long, "subVersion"]
    subscription: str | None = None
    expression_type: str | None = None
    bytes_max: Annotated[Int | None, "maxMsgBytes"] = None
    request_source: Int | None = None
    proxy_forward_client_id: Annotated[str | None, "proxyFrowardClientId"] = None


class PullMessageResponse(NamedTuple):
    """The result of a pull: the offset to continue from, and the span of the queue."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_system_flags: Annotated[Int | None, "topicSysFlag"] = None
    group_system_flags: Annotated[Int | None, "groupSysFlag"] = None
    forbidden_type: Int | None = None


class PopMessageRequest(NamedTuple):
    """Messages of any queue of a topic (queue id -1), hidden from others for a time."""

    consumer_group: str
    topic: str
    queue_id: Int
    messages_max: Annotated[Int, "maxMsgNums"]
    invisible_ms: Annotated[Long, "invisibleTime"]
    poll_ms: Annotated[Long, "pollTime"]
    born_ms: Annotated[Long, "bornTime"]
    init_mode: Int
    expression_type: Annotated[str | None, "expType"] = None
    expression: Annotated[str | None, "exp"] = None
    is_ordered: Annotated[bool, "order"] = False
    attempt_id: str | None = None


class PopMessageResponse(NamedTuple):
    """The terms of a POP, of which receipt handles are made."""

    popped_ms: Annotated[Long, "popTime"]
    invisible_ms: Annotated[Long, "invisibleTime"]
    revive_queue_id: Annotated[Int, "reviveQid"]
    rest_count: Annotated[Long, "restNum"]
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PopLiteMessageRequest(NamedTuple):
    """Messages of the lite topics of a parent to which a client is subscribed, hidden from others for a time."""

    client_id: str
    consumer_group: str
    topic: str
    messages_max: Annotated[Int, "maxMsgNum"]
    invisible_ms: Annotated[Long, "invisibleTime"]
    poll_ms: Annotated[Long, "pollTime"]
    born_ms: Annotated[Long, "bornTime"]
    attempt_id: str | None = None


class PopLiteMessageResponse(NamedTuple):
    """The terms of a POP, and the number of earlier deliveries of each message."""

    popped_ms: Annotated[Long, "popTime"]
    invisible_ms: Annotated[Long, "invisibleTime"]
    revive_queue_id: Annotated[Int, "reviveQid"]
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class NotifyUnsubscribeLiteRequest(NamedTuple):
    """A broker's notice to a client that its subscription to a lite topic has ended."""

    lite_topic: str
    consumer_group: str
    client_id: str


class AckMessageRequest(NamedTuple):
    """Acknowledge a popped message; `extra_info` is its receipt handle."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    lite_topic: str | None = None


class ChangeInvisibleTimeRequest(NamedTuple):
    """Change how long a popped message stays hidden."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_ms: Annotated[Long, "invisibleTime"]
    lite_topic: str | None = None
    suspend: bool | None = None


class ChangeInvisibleTimeResponse(NamedTuple):
    """The parts of the new receipt handle."""

    popped_ms: Annotated[Long, "popTime"]
    invisible_ms: Annotated[Long, "invisibleTime"]
    revive_queue_id: Annotated[Int, "reviveQid"]


class NotificationRequest(NamedTuple):
    """Wait until a topic has messages for a group."""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_ms: Annotated[Long, "pollTime"]
    born_ms: Annotated[Long, "bornTime"]
    is_ordered: Annotated[bool, "order"] = False
    attempt_id: str | None = None


class NotificationResponse(NamedTuple):
    """The answer to a notification: there are messages, or the polling slots are full."""

    has_message: Annotated[bool, "hasMsg"]
    polling_full: bool = False


class PollingInfoRequest(NamedTuple):
    """The number of long polls that wait for a queue."""

    consumer_group: str
    topic: str
    queue_id: Int


class PollingInfoResponse(NamedTuple):
    """The number of waiting long polls."""

    polling_count: Annotated[Int, "pollingNum"]


class PeekMessageRequest(NamedTuple):
    """Messages that a POP would return, left in place."""

    topic: str
    queue_id: Int
    messages_max: Annotated[Int, "maxMsgNums"]
    consumer_group: str


class ConsumerSendMessageBackRequest(NamedTuple):
    """Return a message that could not be consumed: it is redelivered after the delay level."""

    offset: Long
    group: str
    delay_level: Int
    origin_message_id: Annotated[str | None, "originMsgId"] = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class QueryConsumerOffsetRequest(NamedTuple):
    """The offset that a group has committed for a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponse(NamedTuple):
    """A committed offset."""

    offset: Long


class UpdateConsumerOffsetRequest(NamedTuple):
    """Commit an offset of a group for a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class GetConsumerListByGroupRequest(NamedTuple):
    """The client ids of a group."""

    consumer_group: str


class NotifyConsumerIdsChangedRequest(NamedTuple):
    """A broker's notice to the members of a group that its membership changed."""

    consumer_group: str


class UnregisterClientRequest(NamedTuple):
    """A client leaves its groups."""

    client_id: Annotated[str, "clientID"]
    producer_group: str | None = None
    consumer_group: str | None = None


class GetMaxOffsetRequest(NamedTuple):
    """The end of a queue."""

    topic: str
    queue_id: Int
    committed: bool = True


class GetMaxOffsetResponse(NamedTuple):
    """The offset after the last message."""

    offset: Long


class GetMinOffsetRequest(NamedTuple):
    """The start of a queue."""

    topic: str
    queue_id: Int


class GetMinOffsetResponse(NamedTuple):
    """The offset of the first stored message."""

    offset: Long


class SearchOffsetRequest(NamedTuple):
    """The offset of the message stored at a time; `boundary_type` is LOWER or UPPER."""

    topic: str
    queue_id: Int
    time_ms: Annotated[Long, "timestamp"]
    boundary_type: str | None = None


class SearchOffsetResponse(NamedTuple):
    """An offset found by time."""

    offset: Long


class GetEarliestStoreTimeRequest(NamedTuple):
    """The storing time of a queue's first message."""

    topic: str
    queue_id: Int


class GetEarliestStoreTimeResponse(NamedTuple):
    """A storing time in milliseconds since the epoch."""

    time_ms: Annotated[Long, "timestamp"]


class QueryMessageRequest(NamedTuple):
    """Messages by key, through the index. The request may have the extra field `_UNIQUE_KEY_QUERY`."""

    topic: str
    key: str
    messages_max: Annotated[Int, "maxNum"]
    begin_ms: Annotated[Long, "beginTimestamp"]
    end_ms: Annotated[Long, "endTimestamp"]


class QueryMessageResponse(NamedTuple):
    """The last positions in the index."""

    index_last_ms: Annotated[Long, "indexLastUpdateTimestamp"]
    index_last_offset: Annotated[Long, "indexLastUpdatePhyoffset"]


class ViewMessageRequest(NamedTuple):
    """The message at an offset of the commit log."""

    offset: Long
    topic: str | None = None
