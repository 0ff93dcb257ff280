"""Headers of administrators' requests to a broker."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.rocketmq.remoting.headers.codec import Int, Long

__all__ = [
    "CloneGroupOffsetRequest",
    "ConsumeMessageDirectlyRequest",
    "CreateAclRequest",
    "CreateTopicRequest",
    "CreateUserRequest",
    "DeleteAclRequest",
    "DeleteSubscriptionGroupRequest",
    "DeleteTopicRequest",
    "DeleteUserRequest",
    "GetAclRequest",
    "GetAllSubscriptionGroupRequest",
    "GetAllSubscriptionGroupResponse",
    "GetAllTopicConfigRequest",
    "GetAllTopicConfigResponse",
    "GetBrokerConfigResponse",
    "GetBrokerConsumeStatsRequest",
    "GetConsumeStatsRequest",
    "GetConsumerConnectionListRequest",
    "GetConsumerRunningInfoRequest",
    "GetConsumerStatusRequest",
    "GetProducerConnectionListRequest",
    "GetSubscriptionGroupConfigRequest",
    "GetTopicConfigRequest",
    "GetTopicStatsInfoRequest",
    "GetUserRequest",
    "ListAclsRequest",
    "ListUsersRequest",
    "QueryConsumeQueueRequest",
    "QueryConsumeTimeSpanRequest",
    "QueryCorrectionOffsetRequest",
    "QuerySubscriptionByConsumerRequest",
    "QueryTopicConsumeByWhoRequest",
    "QueryTopicsByConsumerRequest",
    "ResetOffsetRequest",
    "ResumeCheckHalfMessageRequest",
    "UpdateAclRequest",
    "UpdateGroupForbiddenRequest",
    "UpdateUserRequest",
    "ViewBrokerStatsDataRequest",
]


class CreateTopicRequest(NamedTuple):
    """Create or change a topic; `attributes` are `+name=value` and `-name`, separated by commas."""

    topic: str
    default_topic: str
    read_queues: Annotated[Int, "readQueueNums"]
    write_queues: Annotated[Int, "writeQueueNums"]
    permissions: Annotated[Int, "perm"]
    topic_filter_type: str
    is_ordered: Annotated[bool, "order"]
    topic_system_flags: Annotated[Int | None, "topicSysFlag"] = None
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequest(NamedTuple):
    """Delete a topic from a broker."""

    topic: str


class DeleteSubscriptionGroupRequest(NamedTuple):
    """Delete a consumer group from a broker."""

    group_name: str
    clean_offset: bool = False


class GetTopicConfigRequest(NamedTuple):
    """The configuration of a topic."""

    topic: str


class GetSubscriptionGroupConfigRequest(NamedTuple):
    """The configuration of a consumer group."""

    group: str


class GetAllTopicConfigRequest(NamedTuple):
    """The configurations of topics, page by page."""

    first_topic: Annotated[Int, "topicSeq"]
    data_version: str | None = None
    topics_max: Annotated[Int | None, "maxTopicNum"] = None


class GetAllTopicConfigResponse(NamedTuple):
    """The number of all topics."""

    topics: Annotated[Int, "totalTopicNum"]


class GetAllSubscriptionGroupRequest(NamedTuple):
    """The configurations of consumer groups, page by page."""

    first_group: Annotated[Int, "groupSeq"]
    data_version: str | None = None
    groups_max: Annotated[Int | None, "maxGroupNum"] = None


class GetAllSubscriptionGroupResponse(NamedTuple):
    """The number of all consumer groups."""

    groups: Annotated[Int, "totalGroupNum"]


class GetBrokerConfigResponse(NamedTuple):
    """The version of the configuration in the body."""

    version: str


class GetTopicStatsInfoRequest(NamedTuple):
    """The offsets of a topic's queues."""

    topic: str


class GetConsumeStatsRequest(NamedTuple):
    """The progress of a group."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetBrokerConsumeStatsRequest(NamedTuple):
    """The progress of all groups."""

    is_order: bool


class GetConsumerConnectionListRequest(NamedTuple):
    """The consumers of a group that are connected."""

    consumer_group: str


class GetProducerConnectionListRequest(NamedTuple):
    """The producers of a group that are connected."""

    producer_group: str


class GetConsumerRunningInfoRequest(NamedTuple):
    """A consumer's report on itself; the broker forwards the request."""

    consumer_group: str
    client_id: str
    with_stack: Annotated[bool, "jstackEnable"] = False


class GetConsumerStatusRequest(NamedTuple):
    """The offsets that consumers hold in memory."""

    topic: str
    group: str
    client_addr: str | None = None


class ConsumeMessageDirectlyRequest(NamedTuple):
    """Have a consumer consume one message, whatever its offsets."""

    consumer_group: str
    client_id: str | None = None
    message_id: Annotated[str | None, "msgId"] = None
    broker_name: str | None = None
    topic: str | None = None
    topic_system_flags: Annotated[Int | None, "topicSysFlag"] = None
    group_system_flags: Annotated[Int | None, "groupSysFlag"] = None


class ResetOffsetRequest(NamedTuple):
    """Set a group's offsets to a time, or one queue's to an offset."""

    group: str
    topic: str
    time_ms: Annotated[Long, "timestamp"]
    is_force: bool
    queue_id: Int = -1
    offset: Long | None = None


class QueryConsumeTimeSpanRequest(NamedTuple):
    """The times that a group's queues span."""

    topic: str
    group: str


class QueryTopicConsumeByWhoRequest(NamedTuple):
    """The groups that consume a topic."""

    topic: str


class QueryTopicsByConsumerRequest(NamedTuple):
    """The topics that a group consumes."""

    group: str


class QuerySubscriptionByConsumerRequest(NamedTuple):
    """The subscription of a group to a topic."""

    group: str
    topic: str | None = None


class QueryConsumeQueueRequest(NamedTuple):
    """Entries of a consume queue, with what a group's filter makes of them."""

    topic: str | None = None
    queue_id: Int = 0
    first: Annotated[Long, "index"] = 0
    entries: Annotated[Int, "count"] = 0
    consumer_group: str | None = None


class QueryCorrectionOffsetRequest(NamedTuple):
    """The least offsets among groups."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffsetRequest(NamedTuple):
    """Give one group the offsets of another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequest(NamedTuple):
    """A counter of the broker, for the last minute, hour and day."""

    stats_name: str
    stats_key: str


class UpdateGroupForbiddenRequest(NamedTuple):
    """Let a group read a topic, or forbid it."""

    readable: bool


class ResumeCheckHalfMessageRequest(NamedTuple):
    """Check a transaction's outcome once more."""

    topic: str | None = None
    message_id: Annotated[str | None, "msgId"] = None


class CreateUserRequest(NamedTuple):
    """Create a user; the body describes it."""

    username: str | None = None


class UpdateUserRequest(NamedTuple):
    """Change a user."""

    username: str | None = None


class DeleteUserRequest(NamedTuple):
    """Delete a user."""

    username: str | None = None


class GetUserRequest(NamedTuple):
    """One user."""

    username: str | None = None


class ListUsersRequest(NamedTuple):
    """Users by a part of their name."""

    filter: str | None = None


class CreateAclRequest(NamedTuple):
    """Give a subject policies; the body has them."""

    subject: str | None = None


class UpdateAclRequest(NamedTuple):
    """Change a subject's policies."""

    subject: str | None = None


class DeleteAclRequest(NamedTuple):
    """Delete policies of a subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequest(NamedTuple):
    """The policies of a subject."""

    subject: str | None = None


class ListAclsRequest(NamedTuple):
    """Policies by subject and resource."""

    subject_filter: str | None = None
    resource_filter: str | None = None
