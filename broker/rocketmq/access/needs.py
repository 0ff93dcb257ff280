"""The resources that a request concerns, and the actions on them of which one must be allowed.

Source: DefaultAuthorizationContextBuilder and the annotations of request headers. Requests without a header name no
resource there, so that every user may send them; here the ones that change or show the cluster concern the cluster, and
those about groups or topics in the body concern these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.access.model import Resource
from formats.rocketmq.client_bodies import (
    CHECK_CLIENT_REQUEST,
    GROUP_CONFIG,
    GROUP_CONFIG_LIST,
    LOCK_REQUEST,
    read_heartbeat,
)
from formats.rocketmq.codes import RequestCode
from formats.rocketmq.frame import Frame
from formats.rocketmq.lite_bodies import SUBSCRIPTIONS
from formats.rocketmq.pop_bodies import ASSIGNMENT_REQUEST, BATCH_ACK_REQUEST, REQUEST_MODE
from formats.rocketmq.route_bodies import TOPIC_CONFIG_LIST

__all__ = ["Actions", "Need", "needs", "on_group", "on_topic", "reading"]

_RETRY: Final = "%RETRY%"
_DEAD_LETTER: Final = "%DLQ%"

Actions = frozenset[str]


class Need(NamedTuple):
    """A resource, and actions of which one must be allowed."""

    resource: Resource
    actions: Actions


def _actions(*names: str) -> Actions:
    return frozenset(names)


_PUB, _SUB, _GET, _UPDATE = _actions("Pub"), _actions("Sub"), _actions("Get"), _actions("Update")
_CREATE, _DELETE, _LIST = _actions("Create"), _actions("Delete"), _actions("List")
_SUB_GET, _SUB_UPDATE = _actions("Sub", "Get"), _actions("Sub", "Update")

Code = RequestCode

# By request: the actions, and the fields with a topic and with a group.
_BY_FIELDS: Final[dict[int, tuple[Actions, str, str]]] = {
    Code.PULL_MESSAGE: (_SUB, "topic", "consumerGroup"),
    Code.LITE_PULL_MESSAGE: (_SUB, "topic", "consumerGroup"),
    Code.POP_MESSAGE: (_SUB, "topic", "consumerGroup"),
    Code.POP_LITE_MESSAGE: (_SUB, "topic", "consumerGroup"),
    Code.GET_PARENT_TOPIC_INFO: (_GET, "topic", ""),
    Code.GET_LITE_TOPIC_INFO: (_GET, "parentTopic", ""),
    Code.GET_LITE_CLIENT_INFO: (_GET, "parentTopic", "group"),
    Code.GET_LITE_GROUP_INFO: (_GET, "", "group"),
    Code.TRIGGER_LITE_DISPATCH: (_UPDATE, "", "group"),
    Code.PEEK_MESSAGE: (_SUB, "topic", "consumerGroup"),
    Code.ACK_MESSAGE: (_SUB, "topic", "consumerGroup"),
    Code.CHANGE_MESSAGE_INVISIBLETIME: (_SUB, "topic", "consumerGroup"),
    Code.NOTIFICATION: (_SUB, "topic", "consumerGroup"),
    Code.POLLING_INFO: (_GET, "topic", "consumerGroup"),
    Code.CONSUMER_SEND_MSG_BACK: (_SUB, "", "group"),
    Code.RECALL_MESSAGE: (_PUB, "topic", ""),
    Code.END_TRANSACTION: (_PUB, "topic", ""),
    Code.QUERY_CONSUMER_OFFSET: (_SUB_GET, "topic", "consumerGroup"),
    Code.UPDATE_CONSUMER_OFFSET: (_SUB_UPDATE, "topic", "consumerGroup"),
    Code.GET_CONSUMER_LIST_BY_GROUP: (_SUB_GET, "", "consumerGroup"),
    Code.UNREGISTER_CLIENT: (_SUB, "", "consumerGroup"),
    Code.QUERY_MESSAGE: (_SUB_GET, "topic", ""),
    Code.VIEW_MESSAGE_BY_ID: (_GET, "topic", ""),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: (_GET, "topic", ""),
    Code.GET_MAX_OFFSET: (_GET, "topic", ""),
    Code.GET_MIN_OFFSET: (_GET, "topic", ""),
    Code.GET_EARLIEST_MSG_STORETIME: (_GET, "topic", ""),
    Code.GET_ROUTEINFO_BY_TOPIC: (_actions("Pub", "Sub", "Get"), "topic", ""),
    Code.UPDATE_AND_CREATE_TOPIC: (_CREATE, "topic", ""),
    Code.DELETE_TOPIC_IN_BROKER: (_DELETE, "topic", ""),
    Code.GET_TOPIC_CONFIG: (_GET, "topic", ""),
    Code.GET_TOPIC_STATS_INFO: (_GET, "topic", ""),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (_GET, "topic", ""),
    Code.RESUME_CHECK_HALF_MESSAGE: (_UPDATE, "topic", ""),
    Code.DELETE_SUBSCRIPTIONGROUP: (_DELETE, "", "groupName"),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (_GET, "", "group"),
    Code.GET_CONSUMER_CONNECTION_LIST: (_GET, "", "consumerGroup"),
    Code.GET_CONSUMER_RUNNING_INFO: (_GET, "", "consumerGroup"),
    Code.QUERY_TOPICS_BY_CONSUMER: (_GET, "", "group"),
    Code.GET_CONSUME_STATS: (_GET, "topic", "consumerGroup"),
    Code.CONSUME_MESSAGE_DIRECTLY: (_SUB, "topic", "consumerGroup"),
    Code.CLONE_GROUP_OFFSET: (_UPDATE, "topic", "destGroup"),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_UPDATE, "topic", "group"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_GET, "topic", "group"),
    Code.QUERY_CONSUME_QUEUE: (_GET, "topic", "consumerGroup"),
    Code.QUERY_CONSUME_TIME_SPAN: (_GET, "topic", "group"),
    Code.QUERY_CORRECTION_OFFSET: (_GET, "topic", "compareGroup"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (_GET, "topic", "group"),
}

# What shows the cluster; whatever is in no table changes it.
_SHOWN: Final = frozenset(
    {
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_BROKER_LITE_INFO,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_ALL_PRODUCER_INFO,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.VIEW_BROKER_STATS_DATA,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_BROKER_MEMBER_GROUP,
        Code.GET_KV_CONFIG,
        Code.GET_KVLIST_BY_NAMESPACE,
        Code.GET_NAMESRV_CONFIG,
        Code.QUERY_DATA_VERSION,
        Code.CONTROLLER_GET_REPLICA_INFO,
        Code.CONTROLLER_GET_METADATA_INFO,
        Code.CONTROLLER_GET_SYNC_STATE_DATA,
        Code.CONTROLLER_GET_NEXT_BROKER_ID,
        Code.GET_CONTROLLER_CONFIG,
    }
)
_LISTED: Final = frozenset(
    {
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    }
)


def on_group(name: str, actions: Actions) -> Need:
    """A group; its retry topic and its dead letters are the group's."""
    return Need(Resource("Group", name.removeprefix(_RETRY).removeprefix(_DEAD_LETTER)), actions)


def on_topic(name: str, actions: Actions) -> Need:
    """A topic; the retry topic of a group is the group's."""
    return on_group(name, actions) if name.startswith(_RETRY) else Need(Resource("Topic", name), actions)


def reading(topic: str) -> Need:
    """Return what is needed to consume a topic."""
    return on_topic(topic, _SUB)


def _of_fields(fields: dict[str, str], actions: Actions, topic_field: str, group_field: str) -> list[Need]:
    topic, group = fields.get(topic_field, ""), fields.get(group_field, "")
    found = []
    if topic and not (group and topic.startswith(_RETRY)):
        found.append(on_topic(topic, actions))
    if group:
        found.append(on_group(group, actions))
    return found


def _of_send(topic_field: str, group_field: str) -> Callable[[Frame], list[Need]]:
    def find(frame: Frame) -> list[Need]:
        fields = frame.ext_fields or {}
        topic = fields.get(topic_field, "")
        if topic.startswith(_RETRY):
            # A consumer hands a message back to its group.
            return [on_group(fields.get(group_field) or topic, _SUB)]
        return [on_topic(topic, _PUB)]

    return find


def _of_heartbeat(frame: Frame) -> list[Need]:
    found = []
    for consumer in read_heartbeat(frame.body).consumer_data_set:
        found.append(on_group(consumer.group_name, _SUB))
        topics = [each.topic for each in consumer.subscription_data_set]
        found += [on_topic(topic, _SUB) for topic in topics if not topic.startswith(_RETRY)]
    return found


def _of_lock(frame: Frame) -> list[Need]:
    wanted = LOCK_REQUEST.read(frame.body)
    topics = {queue.topic for queue in wanted.mq_set if not queue.topic.startswith(_RETRY)}
    return [on_group(wanted.consumer_group, _SUB), *(on_topic(topic, _SUB) for topic in sorted(topics))]


def _of_acks(frame: Frame) -> list[Need]:
    return [
        need
        for ack in BATCH_ACK_REQUEST.read(frame.body).acks
        for need in _of_fields({"t": ack.topic, "g": ack.group}, _SUB, "t", "g")
    ]


def _of_lite(frame: Frame) -> list[Need]:
    changes = SUBSCRIPTIONS.read(frame.body).subscription_set
    return [need for each in changes for need in _of_fields({"t": each.topic, "g": each.group}, _SUB, "t", "g")]


def _of_assignment(frame: Frame) -> list[Need]:
    wanted = ASSIGNMENT_REQUEST.read(frame.body)
    return _of_fields({"t": wanted.topic, "g": wanted.consumer_group}, _SUB, "t", "g")


def _of_mode(frame: Frame) -> list[Need]:
    mode = REQUEST_MODE.read(frame.body)
    return _of_fields({"t": mode.topic, "g": mode.consumer_group}, _UPDATE, "t", "g")


def _of_client(frame: Frame) -> list[Need]:
    client = CHECK_CLIENT_REQUEST.read(frame.body)
    topic = "" if client.subscription_data is None else client.subscription_data.topic
    return _of_fields({"t": topic, "g": client.group}, _SUB, "t", "g")


def _of_topics(frame: Frame) -> list[Need]:
    return [on_topic(config.topic_name, _CREATE) for config in TOPIC_CONFIG_LIST.read(frame.body).topic_config_list]


def _of_groups(frame: Frame) -> list[Need]:
    return [on_group(config.group_name, _CREATE) for config in GROUP_CONFIG_LIST.read(frame.body).group_config_list]


def _of_group(frame: Frame) -> list[Need]:
    return [on_group(GROUP_CONFIG.read(frame.body).group_name, _CREATE)]


_BY_CONTENT: Final[dict[int, Callable[[Frame], list[Need]]]] = {
    Code.SEND_MESSAGE: _of_send("topic", "producerGroup"),
    Code.SEND_MESSAGE_V2: _of_send("b", "a"),
    Code.SEND_BATCH_MESSAGE: _of_send("b", "a"),
    Code.SEND_REPLY_MESSAGE: _of_send("topic", "producerGroup"),
    Code.SEND_REPLY_MESSAGE_V2: _of_send("b", "a"),
    Code.HEART_BEAT: _of_heartbeat,
    Code.LOCK_BATCH_MQ: _of_lock,
    Code.UNLOCK_BATCH_MQ: _of_lock,
    Code.BATCH_ACK_MESSAGE: _of_acks,
    Code.LITE_SUBSCRIPTION_CTL: _of_lite,
    Code.QUERY_ASSIGNMENT: _of_assignment,
    Code.SET_MESSAGE_REQUEST_MODE: _of_mode,
    Code.CHECK_CLIENT_CONFIG: _of_client,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _of_topics,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _of_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _of_groups,
}


def needs(frame: Frame, cluster: str) -> list[Need]:
    """Find the needs of a request, each of which must be met. Raises `FormatError` if its body cannot be read."""
    find = _BY_CONTENT.get(frame.code)
    if find is not None:
        return find(frame)
    by_fields = _BY_FIELDS.get(frame.code)
    fields = frame.ext_fields or {}
    if by_fields is not None:
        found = _of_fields(fields, *by_fields)
        topics = fields.get("topicList", "") if frame.code == Code.GET_CONSUME_STATS else ""
        return found + [on_topic(topic, _GET) for topic in topics.split(";") if topic]
    actions = _GET if frame.code in _SHOWN else _LIST if frame.code in _LISTED else _UPDATE
    return [Need(Resource("Cluster", cluster), actions)]
