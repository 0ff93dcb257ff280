"""Bodies that clients and brokers exchange about groups, and the files that keep groups and offsets.

Source: HeartbeatData, SubscriptionData, SubscriptionGroupConfig, ConsumerOffsetManager,
GetConsumerListByGroupResponseBody, LockBatchRequestBody, CheckClientRequestBody.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.java import string_hash
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import DataVersion
from formats.schema import Buffer

__all__ = [
    "ALL",
    "BROADCASTING",
    "CHECK_CLIENT_REQUEST",
    "CONSUMER_IDS",
    "CONSUMER_OFFSETS",
    "GROUPS",
    "GROUP_CONFIG",
    "GROUP_CONFIG_LIST",
    "HEARTBEAT",
    "HEARTBEAT_GROUPS_MAX",
    "LOCK_ANSWER",
    "LOCK_REQUEST",
    "OFFSET_FILES",
    "SQL92",
    "SUBSCRIPTION",
    "TAG",
    "CheckClientRequest",
    "ConsumerData",
    "ConsumerIds",
    "ConsumerOffsets",
    "CustomizedRetryPolicy",
    "ExponentialRetryPolicy",
    "GroupConfig",
    "GroupConfigList",
    "GroupRetryPolicy",
    "Groups",
    "Heartbeat",
    "LockAnswer",
    "LockRequest",
    "MessageQueue",
    "ProducerData",
    "SimpleSubscription",
    "Subscription",
    "make_subscription",
    "read_heartbeat",
]

# Maximum number of groups in a heartbeat, of its subscriptions, and of its tags.
HEARTBEAT_GROUPS_MAX: Final = 4_096
HEARTBEAT_ITEMS_MAX: Final = 8_000

# The expression that selects all messages, and the types of the others.
ALL: Final = "*"
TAG: Final = "TAG"
# The model in which each consumer gets all messages.
BROADCASTING: Final = "BROADCASTING"
SQL92: Final = "SQL92"


class Subscription(NamedTuple):
    """A group's selection of a topic's messages. `code_set` has the hashes of `tags_set`."""

    topic: str
    sub_string: str
    expression_type: str = "TAG"
    sub_version: int = 0
    tags_set: list[str] = []
    code_set: list[int] = []
    class_filter_mode: bool = False


def make_subscription(topic: str, text: str, version: int = 0) -> Subscription:
    """Parse an expression: `*`, or tags separated by `||`."""
    if text in ("", ALL):
        return Subscription(topic, ALL, sub_version=version)
    tags = [tag.strip() for tag in text.split("||") if tag.strip()]
    return Subscription(topic, text, TAG, version, tags, [string_hash(tag) for tag in tags])


class ConsumerData(NamedTuple):
    """A consumer's membership of a group, repeated in every heartbeat."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False


class ProducerData(NamedTuple):
    """A producer's membership of a group."""

    group_name: str


class Heartbeat(NamedTuple):
    """A client's heartbeat. It may omit its subscriptions if the broker knows its fingerprint."""

    client_id: Annotated[str, "clientID"]
    consumer_data_set: list[ConsumerData] = []
    producer_data_set: list[ProducerData] = []
    heartbeat_fingerprint: int = 0
    is_without_sub: bool = False


# The first retry has the third delay of a list: the first two delay levels are shorter than any retry.
_SKIPPED_DELAYS: Final = 2
_EXPONENT_MAX: Final = 32


class ExponentialRetryPolicy(NamedTuple):
    """Delays before redelivery, in milliseconds: each is `multiplier` times the previous one, up to `max`."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetryPolicy(NamedTuple):
    """Delays before redelivery, in milliseconds; the last one applies to all further attempts."""

    next: list[int] = [
        *(1_000, 5_000, 10_000, 30_000),
        *range(60_000, 660_000, 60_000),
        *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
    ]


class GroupRetryPolicy(NamedTuple):
    """Delays before redelivery: of the policy that `type` names (source: GroupRetryPolicy).

    Any other `type` counts as the default, CUSTOMIZED.
    """

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None

    def delay_ms(self, retries: int) -> int:
        """Return the delay before a message's next delivery, after `retries` redeliveries, in milliseconds.

        Unlike in the settings of clients, EXPONENTIAL without figures counts as the default.
        """
        retries = max(retries, 0)
        if self.type == "EXPONENTIAL" and self.exponential_retry_policy is not None:
            first, last, factor = self.exponential_retry_policy
            delay: int = first * factor ** min(retries, _EXPONENT_MAX)
            return min(last, delay)
        custom = self.customized_retry_policy if self.type == "CUSTOMIZED" else None
        delays = (custom or CustomizedRetryPolicy()).next or CustomizedRetryPolicy().next
        return delays[min(retries + _SKIPPED_DELAYS, len(delays) - 1)]


class SimpleSubscription(NamedTuple):
    """A selection of a topic's messages that an administrator notes with a group; brokers keep and show it."""

    topic: str = ""
    expression_type: str = "TAG"
    expression: str = "*"
    version: int = 0


class GroupConfig(NamedTuple):
    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[SimpleSubscription] | None = None
    attributes: dict[str, str] = {}


class GroupConfigList(NamedTuple):
    group_config_list: list[GroupConfig] = []


class Groups(NamedTuple):
    """`config/subscriptionGroup.json`. `forbidden_table` has bits for actions on a topic that a group may not take."""

    subscription_group_table: dict[str, GroupConfig] = {}
    forbidden_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = DataVersion()


class ConsumerOffsets(NamedTuple):
    """`config/consumerOffset.json`: the offset of the next message, by `topic@group` and queue id.

    `config/lmqConsumerOffset.json` has those of groups whose name begins with %LMQ% in a table without queues, as their
    topics have only one (source: LmqConsumerOffsetManager).
    """

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion = DataVersion()
    group_topic_map: dict[str, list[str]] | None = None
    lmq_offset_table: dict[str, int] | None = None

    @property
    def all_offsets(self) -> dict[str, dict[int, int]]:
        return self.offset_table | {key: {0: offset} for key, offset in (self.lmq_offset_table or {}).items()}

    @property
    def changed_ms(self) -> int:
        return self.data_version.timestamp


class ConsumerIds(NamedTuple):
    """The client ids of a group."""

    consumer_id_list: list[str]


class MessageQueue(NamedTuple):
    """A queue of a topic on a broker."""

    broker_name: str
    queue_id: int
    topic: str


class LockRequest(NamedTuple):
    """The queues that a client locks or unlocks."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockAnswer(NamedTuple):
    """The queues that a client has locked."""

    lock_ok_mq_set: Annotated[list[MessageQueue], "lockOKMQSet"]


class CheckClientRequest(NamedTuple):
    """A subscription for the broker to check."""

    client_id: str = ""
    group: str = ""
    subscription_data: Subscription | None = None


SUBSCRIPTION = BodyCodec(Subscription)
GROUP_CONFIG = BodyCodec(GroupConfig)
GROUP_CONFIG_LIST = BodyCodec(GroupConfigList)
LOCK_REQUEST = BodyCodec(LockRequest)
LOCK_ANSWER = BodyCodec(LockAnswer)
CHECK_CLIENT_REQUEST = BodyCodec(CheckClientRequest)
GROUPS = BodyCodec(Groups, fastjson.FILE)
CONSUMER_OFFSETS = BodyCodec(ConsumerOffsets, fastjson.FILE)
# The files of a store that may have it: the second is that of a broker with enableLmq=true.
OFFSET_FILES: Final = ("consumerOffset.json", "lmqConsumerOffset.json")
CONSUMER_IDS = BodyCodec(ConsumerIds)
HEARTBEAT = BodyCodec(Heartbeat)

# The C++ client writes enumerations as numbers.
_ENUMERATIONS: Final[dict[str, tuple[str, ...]]] = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}


def read_heartbeat(body: Buffer) -> Heartbeat:
    """Decode a heartbeat. Raises `FormatError`, also beyond the bounds on groups, subscriptions and tags."""
    value = fastjson.loads(str(body, "utf-8", "replace"))
    consumers, producers = _items(value, "consumerDataSet"), _items(value, "producerDataSet")
    if len(consumers) + len(producers) > HEARTBEAT_GROUPS_MAX:
        raise FormatError("Heartbeat", 0, f"names {len(consumers) + len(producers)} groups")
    named = 0
    for consumer in consumers:
        _name_enumerations(consumer)
        for subscription in _items(consumer, "subscriptionDataSet"):
            named += 1 + len(_items(subscription, "tagsSet")) + len(_items(subscription, "codeSet"))
    if named > HEARTBEAT_ITEMS_MAX:
        raise FormatError("Heartbeat", 0, f"has {named} subscriptions and tags")
    return HEARTBEAT.read_value(value)


def _items(value: Any, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return list(found) if isinstance(found, (list, tuple)) else []


def _name_enumerations(consumer: Any) -> None:
    if not isinstance(consumer, dict):
        return
    for field, names in _ENUMERATIONS.items():
        number = consumer.get(field)
        if type(number) is int and 0 <= number < len(names):
            consumer[field] = names[number]
