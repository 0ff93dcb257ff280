"""The resources that a request concerns, and the actions on them of which one must be allowed.

Source: DefaultAuthorizationContextBuilder and the annotations of request headers. There, requests without a header name
no resource, so that every user may send them. Here, requests that change or show the cluster concern the cluster, and
requests with groups or topics in the body concern these. Where a field is absent, the original checks nothing; here the
request is refused, unless `OPTIONAL` says why its absence opens nothing.

Messages named by their log offset are checked by their record; see `needs_of_record`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.access.model import Acl, Resource, decide
from formats.errors import FormatError
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import (
    CHECK_CLIENT_REQUEST,
    GROUP_CONFIG,
    GROUP_CONFIG_LIST,
    LOCK_REQUEST,
    read_heartbeat,
)
from formats.rocketmq.remoting.bodies.lite import SUBSCRIPTIONS
from formats.rocketmq.remoting.bodies.popping import ASSIGNMENT_REQUEST, BATCH_ACK_REQUEST, REQUEST_MODE
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIG_LIST
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.raft import CODE as RAFT_CODE
from formats.rocketmq.remoting.receipts import real_topic
from formats.rocketmq.topic_names import (
    CHECKED_TOO_OFTEN,
    DEAD_LETTER_PREFIX,
    DELAY_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    TIMER_TOPIC,
)

__all__ = [
    "ANSWERED",
    "OPTIONAL",
    "PLACES",
    "Actions",
    "IsGroup",
    "Need",
    "denial",
    "needs",
    "needs_of_record",
    "on_group",
    "on_topic",
]

# The broker's own topics in which messages await their commit or their time, or have waited too long.
_WAITING: Final = frozenset((HALF_TOPIC, DELAY_TOPIC, TIMER_TOPIC, CHECKED_TOO_OFTEN))

Actions = frozenset[str]
IsGroup = Callable[[str], bool]


class Need(NamedTuple):
    """A resource, and actions of which one must be allowed, on the resource or on the one that `instead` names."""

    resource: Resource
    actions: Actions
    instead: Resource | None = None


def denial(acl: Acl | None, need: Need, source: str) -> str | None:
    """Return why policies do not meet a need, for a request from address `source`; None if they do."""
    reason = decide(acl, need.resource, need.actions, source)
    if reason is not None and need.instead is not None and decide(acl, need.instead, need.actions, source) is None:
        return None
    return reason


def _actions(*names: str) -> Actions:
    return frozenset(names)


_PUB, _SUB, _GET, _UPDATE = _actions("Pub"), _actions("Sub"), _actions("Get"), _actions("Update")
_CREATE, _DELETE, _LIST = _actions("Create"), _actions("Delete"), _actions("List")
_SUB_GET, _SUB_UPDATE = _actions("Sub", "Get"), _actions("Sub", "Update")
_SUB_GET_UPDATE = _actions("Sub", "Get", "Update")

Code = RequestCode

# By request: the actions, and the fields with a topic and with a group, which must be present if not `OPTIONAL`.
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
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_UPDATE, "topic", "group"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_GET, "topic", "group"),
    Code.QUERY_CONSUME_QUEUE: (_GET, "topic", "consumerGroup"),
    Code.QUERY_CONSUME_TIME_SPAN: (_GET, "topic", "group"),
    Code.QUERY_CORRECTION_OFFSET: (_GET, "topic", "compareGroup"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (_GET, "topic", "group"),
}

# Fields that may be absent, and why their absence opens nothing.
OPTIONAL: Final[dict[tuple[int, str], str]] = {
    (Code.GET_CONSUME_STATS, "topic"): "the answer has the offsets of the group, which is named",
    (Code.QUERY_CONSUME_QUEUE, "consumerGroup"): "the answer has nothing of a group then",
    (Code.CLONE_GROUP_OFFSET, "topic"): "the offsets are those of two groups, which are both named",
    (Code.END_TRANSACTION, "topic"): "clients before 5.0 do not send it; the prepared message's own topic is checked",
    (Code.UNREGISTER_CLIENT, "consumerGroup"): "producers leave, and nobody leaves for another connection",
    (Code.HEART_BEAT, "consumerDataSet"): "producers report no topics; what they send is checked when it is sent",
}
# Fields with lists of further resources: the kind, the field and the separator.
_LISTS: Final[dict[int, tuple[str, str, str]]] = {
    Code.GET_CONSUME_STATS: ("Topic", "topicList", ";"),
    Code.QUERY_CORRECTION_OFFSET: ("Group", "filterGroups", ","),
}
# Requests of clients that name a record by its log offset, and the field with the offset.
PLACES: Final[dict[int, str]] = {Code.CONSUMER_SEND_MSG_BACK: "offset", Code.END_TRANSACTION: "commitLogOffset"}
# Requests with the handle of a popped message, which may be in a retry topic of POP.
_WITH_HANDLES: Final = frozenset({Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME})
# Requests that read the retry topic of POP for a topic and a group, or cause messages to be stored there.
_POPPING: Final = frozenset({Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.NOTIFICATION, Code.CHANGE_MESSAGE_INVISIBLETIME})

# Requests that show the cluster.
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


# Requests that change the cluster, as do requests in no table.
_CHANGED: Final = frozenset(
    {
        Code.UPDATE_BROKER_CONFIG,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.RESET_MASTER_FLUSH_OFFSET,
        Code.AUTH_CREATE_USER,
        Code.AUTH_UPDATE_USER,
        Code.AUTH_DELETE_USER,
        Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.BROKER_HEARTBEAT,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.EXCHANGE_BROKER_HA_INFO,
        Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        Code.CONTROLLER_ELECT_MASTER,
        Code.CONTROLLER_REGISTER_BROKER,
        Code.CONTROLLER_APPLY_BROKER_ID,
        Code.CLEAN_BROKER_DATA,
        Code.UPDATE_CONTROLLER_CONFIG,
        RAFT_CODE,
    }
)


def _named(name: str | None) -> str:
    """Return the name of a resource. Raises `FormatError` if it is absent or blank."""
    if name is None or not name.strip():
        raise FormatError("authorization context", 0, "a resource is not named")
    return name


def on_group(name: str, actions: Actions) -> Need:
    """Return the need for a group, to which its retry topic and its dead letters belong."""
    return Need(Resource("Group", name.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)), actions)


def on_topic(name: str, actions: Actions) -> Need:
    """Return the need for a topic. The retry topic of a group belongs to the group, as do its dead letters.

    A right on the topic of dead letters serves as well.
    """
    if name.startswith(RETRY_PREFIX):
        return on_group(_owner(name), actions)
    if name.startswith(DEAD_LETTER_PREFIX):
        return on_group(name, actions)._replace(instead=Resource("Topic", name))
    return Need(Resource("Topic", name), actions)


def _owner(topic: str) -> str:
    """Return the group of a retry topic. A `+`, which no group's name has, separates group and topic."""
    return topic.removeprefix(RETRY_PREFIX).partition("+")[0]


def needs_of_record(code: int, record: Record) -> list[Need]:
    """Return the needs of a request that names a record by its log offset.

    Raises `FormatError` if its properties are unreadable.
    """
    properties = decode_properties(record.properties)
    # A waiting message belongs to its destination.
    topic = properties.get("REAL_TOPIC", record.topic) if record.topic in _WAITING else record.topic
    actions = _BY_FIELDS[code][0] if code in _BY_FIELDS else _PUB
    need = on_topic(topic, actions)
    _, is_v2, source = topic.partition("+")
    if is_v2 and topic.startswith(RETRY_PREFIX):
        return [need, Need(Resource("Topic", source), actions)]
    group = properties.get("ORIGIN_GROUP", "") if topic.startswith(RETRY_PREFIX) else ""
    prefix = f"{RETRY_PREFIX}{group}_"
    if not group or not topic.startswith(prefix):
        return [need]
    # The group has popped it from a topic. A group with the longer name has the same retry topic.
    first = need._replace(instead=on_group(group, actions).resource)
    return [first, Need(Resource("Topic", topic.removeprefix(prefix)), actions, need.resource)]


def _for_group(topic: str, group: str, actions: Actions, code: int, is_group: IsGroup) -> list[Need]:
    """Return the needs of a request about a topic for a group.

    The retry topic of POP, `%RETRY%GROUP_TOPIC`, may be another group's.
    """
    found = [on_group(group, actions)]
    if not topic.startswith(RETRY_PREFIX):
        longer = f"{group}_{topic}"
        if code in _POPPING and is_group(longer):
            found.append(on_group(longer, actions))
        return [on_topic(topic, actions), *found]
    owner = _owner(topic)
    is_popped = code in _WITH_HANDLES and topic.startswith(f"{RETRY_PREFIX}{group}_") and not is_group(owner)
    if owner != group and not is_popped:
        found.append(on_group(owner, actions))
    return found


def _of_fields(frame: Frame, is_group: IsGroup) -> list[Need]:
    code, fields = frame.code, frame.ext_fields or {}
    actions, topic_field, group_field = _BY_FIELDS[code]
    topic, group = (
        fields.get(name, "") if not name or (code, name) in OPTIONAL else _named(fields.get(name))
        for name in (topic_field, group_field)
    )
    if topic and group:
        found = _for_group(topic, group, actions, code, is_group)
    else:
        found = [on_topic(topic, actions)] if topic else [on_group(group, actions)] if group else []
    kind, name, separator = _LISTS.get(code, ("", "", ","))
    more = [each for each in fields.get(name, "").split(separator) if each]
    return found + [on_topic(each, actions) if kind == "Topic" else on_group(each, actions) for each in more]


def _of_send(frame: Frame, is_group: IsGroup) -> list[Need]:
    fields, is_long = frame.ext_fields or {}, frame.code in (Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE)
    topic = _named(fields.get("topic" if is_long else "b"))
    # A consumer returns a message to its group.
    return [on_topic(topic, _SUB if topic.startswith(RETRY_PREFIX) else _PUB)]


def _of_end(frame: Frame, is_group: IsGroup) -> list[Need]:
    """Return the need for the topic that a producer names, the half topic if it answers the broker's check."""
    topic = (frame.ext_fields or {}).get("topic", "").strip()
    return [on_topic(topic, _PUB)] if topic and topic != HALF_TOPIC else []


def _of_clone(frame: Frame, is_group: IsGroup) -> list[Need]:
    fields = frame.ext_fields or {}
    topic = fields.get("topic", "")
    found = [on_group(_named(fields.get("srcGroup")), _SUB_GET_UPDATE)]
    found.append(on_group(_named(fields.get("destGroup")), _UPDATE))
    return [on_topic(topic, _UPDATE), *found] if topic else found


def _of_heartbeat(frame: Frame, is_group: IsGroup) -> list[Need]:
    found = []
    for consumer in read_heartbeat(frame.body).consumer_data_set:
        group = _named(consumer.group_name)
        found.append(on_group(group, _SUB))
        topics = [_named(each.topic) for each in consumer.subscription_data_set]
        found += [on_topic(topic, _SUB) for topic in topics if topic != RETRY_PREFIX + group]
    return found


def _of_lock(frame: Frame, is_group: IsGroup) -> list[Need]:
    wanted = LOCK_REQUEST.read(frame.body)
    group = _named(wanted.consumer_group)
    topics = {_named(queue.topic) for queue in wanted.mq_set} - {RETRY_PREFIX + group}
    return [on_group(group, _SUB), *(on_topic(topic, _SUB) for topic in sorted(topics))]


def _of_pairs(pairs: list[tuple[str, str]], actions: Actions, code: int, is_group: IsGroup) -> list[Need]:
    """Return the needs of a request about pairs of topic and group, at least one."""
    if not pairs:
        raise FormatError("authorization context", 0, "no resource is named")
    found = (_for_group(_named(topic), _named(group), actions, code, is_group) for topic, group in pairs)
    return [need for each in found for need in each]


def _of_acks(frame: Frame, is_group: IsGroup) -> list[Need]:
    acks = BATCH_ACK_REQUEST.read(frame.body).acks
    pairs = [
        (topic, ack.group) for ack in acks for topic in {ack.topic, real_topic(_named(ack.topic), ack.group, ack.kind)}
    ]
    return _of_pairs(pairs, _SUB, frame.code, is_group)


def _of_lite(frame: Frame, is_group: IsGroup) -> list[Need]:
    changes = SUBSCRIPTIONS.read(frame.body).subscription_set
    return _of_pairs([(each.topic, each.group) for each in changes], _SUB, frame.code, is_group)


def _of_assignment(frame: Frame, is_group: IsGroup) -> list[Need]:
    wanted = ASSIGNMENT_REQUEST.read(frame.body)
    return _of_pairs([(wanted.topic, wanted.consumer_group)], _SUB, frame.code, is_group)


def _of_mode(frame: Frame, is_group: IsGroup) -> list[Need]:
    mode = REQUEST_MODE.read(frame.body)
    return _of_pairs([(mode.topic, mode.consumer_group)], _UPDATE, frame.code, is_group)


def _of_client(frame: Frame, is_group: IsGroup) -> list[Need]:
    client = CHECK_CLIENT_REQUEST.read(frame.body)
    topic = None if client.subscription_data is None else client.subscription_data.topic
    return _of_pairs([(_named(topic), client.group)], _SUB, frame.code, is_group)


def _of_topics(frame: Frame, is_group: IsGroup) -> list[Need]:
    configs = TOPIC_CONFIG_LIST.read(frame.body).topic_config_list
    return [on_topic(_named(name), _CREATE) for name in [each.topic_name for each in configs] or [""]]


def _of_groups(frame: Frame, is_group: IsGroup) -> list[Need]:
    configs = GROUP_CONFIG_LIST.read(frame.body).group_config_list
    return [on_group(_named(name), _CREATE) for name in [each.group_name for each in configs] or [""]]


def _of_group(frame: Frame, is_group: IsGroup) -> list[Need]:
    return [on_group(_named(GROUP_CONFIG.read(frame.body).group_name), _CREATE)]


_BY_CONTENT: Final[dict[int, Callable[[Frame, IsGroup], list[Need]]]] = {
    **dict.fromkeys(_BY_FIELDS, _of_fields),
    Code.SEND_MESSAGE: _of_send,
    Code.SEND_MESSAGE_V2: _of_send,
    Code.SEND_BATCH_MESSAGE: _of_send,
    Code.SEND_REPLY_MESSAGE: _of_send,
    Code.SEND_REPLY_MESSAGE_V2: _of_send,
    Code.END_TRANSACTION: _of_end,
    Code.CLONE_GROUP_OFFSET: _of_clone,
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
# All requests whose needs are declared.
ANSWERED: Final = frozenset(_BY_CONTENT) | _SHOWN | _LISTED | _CHANGED


def _no_group(name: str) -> bool:
    return False


def needs(frame: Frame, cluster: str, is_group: IsGroup = _no_group) -> list[Need]:
    """Return the needs of a request, all of which must be met.

    Raises `FormatError` if its body is unreadable, or the name of a resource is missing.
    """
    find = _BY_CONTENT.get(frame.code)
    if find is not None:
        return find(frame, is_group)
    actions = _GET if frame.code in _SHOWN else _LIST if frame.code in _LISTED else _UPDATE
    return [Need(Resource("Cluster", cluster), actions)]
