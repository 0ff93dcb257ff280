"""Headers of what brokers, clients and administrators ask of a nameserver."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.rocketmq.remoting.headers.codec import Int, Long

__all__ = [
    "AddWritePermissionRequest",
    "AddWritePermissionResponse",
    "BrokerHeartbeatRequest",
    "DeleteKeyValueRequest",
    "DeleteTopicFromNameserverRequest",
    "GetBrokerMemberGroupRequest",
    "GetKeyValueListRequest",
    "GetKeyValueRequest",
    "GetKeyValueResponse",
    "GetRouteInfoRequest",
    "GetTopicsByClusterRequest",
    "NotifyMinBrokerIdChangeRequest",
    "PutKeyValueRequest",
    "QueryDataVersionRequest",
    "QueryDataVersionResponse",
    "RegisterBrokerRequest",
    "RegisterBrokerResponse",
    "RegisterTopicRequest",
    "UnregisterBrokerRequest",
    "WipeWritePermissionRequest",
    "WipeWritePermissionResponse",
]


class RegisterBrokerRequest(NamedTuple):
    """A broker, its address and its topics, which are the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_ms: Annotated[Long | None, "heartbeatTimeoutMillis"] = None
    enable_acting_master: bool | None = None
    is_compressed: Annotated[bool, "compressed"] = False
    body_crc: Annotated[Int | None, "bodyCrc32"] = None


class RegisterBrokerResponse(NamedTuple):
    """The master of the broker's name, for slaves."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequest(NamedTuple):
    """A broker that goes."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class BrokerHeartbeatRequest(NamedTuple):
    """A broker that is still there; with a controller, how far its log is."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_ms: Annotated[Long | None, "heartbeatTimeoutMills"] = None
    election_priority: Int | None = None


class QueryDataVersionRequest(NamedTuple):
    """Ask if the nameserver's copy of a broker's topics is the newest."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponse(NamedTuple):
    """The answer: the broker has changed since, or has not."""

    changed: bool


class GetRouteInfoRequest(NamedTuple):
    """The brokers and queues of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


class GetBrokerMemberGroupRequest(NamedTuple):
    """The brokers of one name."""

    cluster_name: str
    broker_name: str


class GetTopicsByClusterRequest(NamedTuple):
    """The topics of a cluster."""

    cluster: str


class DeleteTopicFromNameserverRequest(NamedTuple):
    """Forget a topic."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequest(NamedTuple):
    """Enter a topic; the body has its queues."""

    topic: str


class WipeWritePermissionRequest(NamedTuple):
    """Let nobody write to a broker."""

    broker_name: str


class WipeWritePermissionResponse(NamedTuple):
    """The number of topics that it concerned."""

    wipe_topic_count: Int


class AddWritePermissionRequest(NamedTuple):
    """Let a broker be written to again."""

    broker_name: str


class AddWritePermissionResponse(NamedTuple):
    """The number of topics that it concerned."""

    add_topic_count: Int


class PutKeyValueRequest(NamedTuple):
    """Set a value of the nameserver's own table."""

    namespace: str
    key: str
    value: str


class GetKeyValueRequest(NamedTuple):
    """A value of that table."""

    namespace: str
    key: str


class GetKeyValueResponse(NamedTuple):
    """The value."""

    value: str | None = None


class DeleteKeyValueRequest(NamedTuple):
    """Delete a value of that table."""

    namespace: str
    key: str


class GetKeyValueListRequest(NamedTuple):
    """All values of a namespace of that table."""

    namespace: str


class NotifyMinBrokerIdChangeRequest(NamedTuple):
    """A nameserver's word to brokers of one name: another one has the least id now."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
