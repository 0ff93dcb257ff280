"""Bodies that brokers, nameservers and clients exchange about topics and routes.

Source: RegisterBrokerBody, TopicConfig, DataVersion, TopicRouteData, ClusterInfo, BrokerMemberGroup, TopicList.
"""

from __future__ import annotations

import zlib
from enum import IntFlag
from typing import Annotated, Final, NamedTuple

from formats.errors import FormatError, check_memory
from formats.rocketmq.numbers import read_int
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.schema import Buffer

__all__ = [
    "BROKER_MEMBER_GROUP_BODY",
    "CLUSTER_INFO",
    "DATA_VERSION",
    "MASTER_ID",
    "REGISTER_BROKER_BODY",
    "TOPIC_CONFIG",
    "TOPIC_CONFIGS",
    "TOPIC_CONFIG_LIST",
    "TOPIC_LIST",
    "TOPIC_ROUTE",
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerMemberGroupBody",
    "ClusterInfo",
    "DataVersion",
    "Permission",
    "QueueData",
    "RegisterBrokerBody",
    "TopicConfig",
    "TopicConfigList",
    "TopicConfigs",
    "TopicList",
    "TopicRoute",
    "read_compressed_registration",
    "read_registration",
    "standard_route",
]

MASTER_ID: Final = 0
# Maximum inflated size of a registration, and maximum number of its topics.
REGISTRATION_BYTES_MAX: Final = 2 << 20
REGISTRATION_TOPICS_MAX: Final = 16_000
# A topic has two objects, and none with keys that are not strings.
_REGISTRATION: Final = fastjson.REQUEST._replace(opened=3 * REGISTRATION_TOPICS_MAX)
# Maximum size, in a compressed registration, of the topics' version and of the filter servers.
_PIECE_BYTES_MAX: Final = 64 << 10


class Permission(IntFlag):
    """Permissions of a topic on a broker (source: PermName)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class DataVersion(NamedTuple):
    """The version of a configuration: equal versions mean that it did not change."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfig(NamedTuple):
    """A topic of a broker. `perm` is a `Permission`."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicConfigList(NamedTuple):
    """Several topics; an attribute named `+name` is a change."""

    topic_config_list: list[TopicConfig] = []


class TopicConfigs(NamedTuple):
    """All topics of a broker, or the changed ones; `topic_queue_mapping_info_map` is of static topics."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion | None = None


class RegisterBrokerBody(NamedTuple):
    """The body of a broker's registration."""

    topic_config_serialize_wrapper: TopicConfigs = TopicConfigs()
    filter_server_list: list[str] = []


class BrokerData(NamedTuple):
    """The brokers of one name, by id; `MASTER_ID` is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None


class QueueData(NamedTuple):
    """The queues of a topic on the brokers of one name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: Annotated[int, "topicSysFlag"] = 0


class TopicRoute(NamedTuple):
    broker_datas: list[BrokerData]
    queue_datas: list[QueueData]
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None


class ClusterInfo(NamedTuple):
    """All brokers by name, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class BrokerMemberGroup(NamedTuple):
    """The brokers of one name."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class BrokerMemberGroupBody(NamedTuple):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup


class TopicList(NamedTuple):
    """Names of topics; for system topics also the address of any broker."""

    topic_list: list[str]
    broker_addr: str | None = None


DATA_VERSION = BodyCodec(DataVersion)
REGISTER_BROKER_BODY = BodyCodec(RegisterBrokerBody)
TOPIC_ROUTE = BodyCodec(TopicRoute)
CLUSTER_INFO = BodyCodec(ClusterInfo, fastjson.ANSWER)
BROKER_MEMBER_GROUP_BODY = BodyCodec(BrokerMemberGroupBody)
TOPIC_LIST = BodyCodec(TopicList)
TOPIC_CONFIG = BodyCodec(TopicConfig)
TOPIC_CONFIG_LIST = BodyCodec(TopicConfigList)
TOPIC_CONFIGS = BodyCodec(TopicConfigs, fastjson.ANSWER)

# Older brokers send no attributes.
_TOPIC_WORDS_MIN: Final = 5
# The words after the name.
_NUMBERS: Final = ("readQueueNums", "writeQueueNums", "perm")


def standard_route(route: TopicRoute) -> bytes:
    """Encode a route in standard JSON, where ids of brokers are text, sorted as text."""
    value = TOPIC_ROUTE.write_value(route)
    for broker in value["brokerDatas"]:
        broker["brokerAddrs"] = dict(sorted((str(each), address) for each, address in broker["brokerAddrs"].items()))
    return fastjson.dumps(value).encode()


def read_registration(body: Buffer) -> RegisterBrokerBody:
    if len(body) > REGISTRATION_BYTES_MAX:
        raise FormatError("RegisterBrokerBody", 0, f"has {len(body)} bytes, more than {REGISTRATION_BYTES_MAX}")
    try:
        value = fastjson.loads(str(body, "utf-8"), _REGISTRATION)
    except UnicodeDecodeError as error:
        raise FormatError("RegisterBrokerBody", error.start, "is not UTF-8") from None
    topics = value
    for name in ("topicConfigSerializeWrapper", "topicConfigTable"):
        topics = topics.get(name) if isinstance(topics, dict) else None
    if isinstance(topics, dict):
        _check_count(len(topics))
    return REGISTER_BROKER_BODY.read_value(value)


def read_compressed_registration(body: Buffer) -> RegisterBrokerBody:
    """Parse a compressed registration. Raises `FormatError`.

    Inflated, it is a data version in JSON, each topic as words with spaces between them, and the filter servers, each
    after its length.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, REGISTRATION_BYTES_MAX)
    except zlib.error as error:
        check_memory(error)
        raise FormatError("RegisterBrokerBody", 0, f"cannot be inflated: {error}") from None
    if inflater.unconsumed_tail:
        raise FormatError("RegisterBrokerBody", 0, f"has more than {REGISTRATION_BYTES_MAX} bytes when inflated")
    reader = _Pieces(data)
    version = DATA_VERSION.read(reader.piece(_PIECE_BYTES_MAX))
    topics: dict[str, TopicConfig] = {}
    count = reader.number()
    _check_count(count)
    attributes = _Attributes()
    for _ in range(count):
        config = _topic_of_words(reader.piece().decode(errors="replace").split(" ", 5), attributes)
        topics[config.topic_name] = config
    servers = fastjson.loads(reader.piece(_PIECE_BYTES_MAX).decode(errors="replace"))
    return REGISTER_BROKER_BODY.read_value({"filterServerList": servers})._replace(
        topic_config_serialize_wrapper=TopicConfigs(topics, version)
    )


def _check_count(count: int) -> None:
    if count > REGISTRATION_TOPICS_MAX:
        raise FormatError("RegisterBrokerBody", 0, f"has {count} topics, more than {REGISTRATION_TOPICS_MAX}")


class _Attributes(dict[str, dict[str, str]]):
    """The attributes of topics by their JSON: most topics of a broker share them, and they are parsed once."""

    def __missing__(self, text: str) -> dict[str, str]:
        value = fastjson.loads(text) if text else {}
        found = self[text] = TOPIC_CONFIG.read_value({"topicName": "", "attributes": value}).attributes
        return found


def _topic_of_words(words: list[str], attributes: _Attributes) -> TopicConfig:
    """Parse name, read and write queues, permission, filter and attributes."""
    if len(words) < _TOPIC_WORDS_MIN:
        raise FormatError("TopicConfig", 0, f"has {len(words)} words, fewer than {_TOPIC_WORDS_MIN}")
    name, reads, writes, perm, filter_type, *rest = words
    read, write, permission = read_int(reads), read_int(writes), read_int(perm)
    if read is None or write is None or permission is None:
        at = next(at for at, word in enumerate(words[1:4]) if read_int(word) is None)
        raise FormatError(f"TopicConfig.{_NUMBERS[at]}", 0, f"{words[1 + at][:40]!r} is not an integer")
    return TopicConfig(name, read, write, permission, filter_type, 0, False, attributes[rest[0]] if rest else {})


class _Pieces:
    """Pieces, each after its length in 32 bits."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        end = self._at + 4
        if end > len(self._data):
            raise FormatError("RegisterBrokerBody", self._at, "is cut off")
        number = int.from_bytes(self._data[self._at : end], "big", signed=True)
        self._at = end
        return number

    def piece(self, most: int = REGISTRATION_BYTES_MAX) -> bytes:
        size = self.number()
        end = self._at + size
        if not 0 <= size <= most or end > len(self._data):
            raise FormatError("RegisterBrokerBody", self._at, f"{size} bytes are not there")
        found = self._data[self._at : end]
        self._at = end
        return found
