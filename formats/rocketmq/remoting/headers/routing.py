"""Headers of requests to a nameserver by brokers, clients and administrators."""

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
    """Register a broker with its address; the body has its topics."""

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
    """Remove a broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class BrokerHeartbeatRequest(NamedTuple):
    """A broker's sign of life; with a controller, also the end of its log."""

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
    """Compare the nameserver's copy of a broker's topics with the broker's version."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponse(NamedTuple):
    """The answer: whether the broker has changed since."""

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
    """Add a topic; the body has its queues."""

    topic: str


class WipeWritePermissionRequest(NamedTuple):
    """Stop all writes to a broker."""

    broker_name: str


class WipeWritePermissionResponse(NamedTuple):
    """The number of affected topics."""

    wipe_topic_count: Int


class AddWritePermissionRequest(NamedTuple):
    """Allow writes to a broker again."""

    broker_name: str


class AddWritePermissionResponse(NamedTuple):
    """The number of affected topics."""

    add_topic_count: Int


class PutKeyValueRequest(NamedTuple):
    """Set a value of the nameserver's own table."""

    namespace: str
    key: str
    value: str


class GetKeyValueRequest(NamedTuple):
    """A value of the nameserver's own table."""

    namespace: str
    key: str


class GetKeyValueResponse(NamedTuple):
    """The value."""

    value: str | None = None


class DeleteKeyValueRequest(NamedTuple):
    """Delete a value of the nameserver's own table."""

    namespace: str
    key: str


class GetKeyValueListRequest(NamedTuple):
    """All values of a namespace of the nameserver's own table."""

    namespace: str


class NotifyMinBrokerIdChangeRequest(NamedTuple):
    """A nameserver's notice to the brokers of one name that another broker has the least id."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
