"""Messages between a client and a broker: status, negotiation, authentication, queues and admin commands.

Source: the reference's schema `bmqp_ctrlmsg.xsd`. Fields are encoded in the schema's order: do not reorder them.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import Annotated

from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control.schema import Int, Long, UInt, ULong, alternatives, sequence

__all__ = [
    "AdminCommand",
    "AdminCommandResponse",
    "AuthenticationMessage",
    "AuthenticationRequest",
    "AuthenticationResponse",
    "BrokerResponse",
    "ClientIdentity",
    "ClientLanguage",
    "ClientType",
    "CloseQueue",
    "CloseQueueResponse",
    "ConfigureQueueStream",
    "ConfigureQueueStreamResponse",
    "ConfigureStream",
    "ConfigureStreamResponse",
    "ConsumerInfo",
    "Disconnect",
    "DisconnectResponse",
    "DumpActionType",
    "DumpMessages",
    "DumpMsgType",
    "Expression",
    "ExpressionVersion",
    "GuidInfo",
    "NegotiationMessage",
    "OpenQueue",
    "OpenQueueResponse",
    "PlaceHolder",
    "QueueHandleParameters",
    "QueueStreamParameters",
    "RoutingConfiguration",
    "RoutingConfigurationFlags",
    "Status",
    "StatusCategory",
    "StreamParameters",
    "SubQueueIdInfo",
    "Subscription",
]

# The priority of a stream without consumers.
CONSUMER_PRIORITY_INVALID = -(1 << 31)


class StatusCategory(IntEnum):
    """The result of a request; failures are negative, as in the reference's result codes."""

    SUCCESS = 0
    UNKNOWN = -1
    TIMEOUT = -2
    NOT_CONNECTED = -3
    CANCELED = -4
    NOT_SUPPORTED = -5
    REFUSED = -6
    INVALID_ARGUMENT = -7
    NOT_READY = -8


@sequence
class Status:
    """The outcome of a request: the response to a failed one, and a part of others."""

    category: StatusCategory
    code: Int
    message: str = ""


# Negotiation


class ClientType(IntEnum):
    UNKNOWN = 0
    TCPCLIENT = 1
    TCPBROKER = 2
    TCPADMIN = 3


class ClientLanguage(IntEnum):
    UNKNOWN = 0
    CPP = 1
    JAVA = 2


@sequence
class GuidInfo:
    """The seed of a client's GUID generator: 6 random bytes in hex, and nanoseconds since the epoch."""

    client_id: str = ""
    nano_seconds_from_epoch: Long = 0


@sequence
class ClientIdentity:
    """The identity of either end of a connection.

    `features` is `NAME:VALUE,VALUE;NAME:...`. Only brokers set `cluster_name` and `cluster_node_id`; a proxy's node id
    is -1.
    """

    protocol_version: Int
    sdk_version: Int = 999999
    client_type: ClientType
    process_name: str = ""
    pid: Int = 0
    session_id: Int = 1
    host_name: str = ""
    features: str = ""
    cluster_name: str = ""
    cluster_node_id: Int = -1
    sdk_language: ClientLanguage = ClientLanguage.CPP
    guid_info: GuidInfo
    user_agent: str = ""


@sequence
class BrokerResponse:
    """The broker's answer to a `ClientIdentity`, with the broker's own identity."""

    result: Status
    protocol_version: Int
    broker_version: Int
    is_deprecated_sdk: bool = False
    broker_identity: ClientIdentity
    heartbeat_interval_ms: Int = 3000
    max_missed_heartbeats: Int = 10


@sequence
class PlaceHolder:
    """A removed alternative (reversed connection), which keeps its tag."""


@sequence
class NegotiationMessage:
    choice: Annotated[ClientIdentity | BrokerResponse | PlaceHolder, alternatives()]


# Authentication


@sequence
class AuthenticationRequest:
    """The sender's credentials; the chosen mechanism interprets `data`."""

    mechanism: str
    data: bytes | None = field(default=None, repr=False)


@sequence
class AuthenticationResponse:
    """Answer to an `AuthenticationRequest`; `lifetime_ms` is None if the session need not re-authenticate."""

    status: Status
    lifetime_ms: ULong | None = None


@sequence
class AuthenticationMessage:
    choice: Annotated[AuthenticationRequest | AuthenticationResponse, alternatives()]


# Session and queues


@sequence
class Disconnect:
    """The last request of a session."""


@sequence
class DisconnectResponse:
    """Answer to `Disconnect`; the client may then close the connection."""


@sequence
class AdminCommand:
    command: str


@sequence
class AdminCommandResponse:
    text: str


@sequence
class SubQueueIdInfo:
    """An app of a fan-out queue, and its number on this connection."""

    sub_id: UInt = 0
    app_id: str = DEFAULT_APP_ID


@sequence
class QueueHandleParameters:
    """A downstream's use of a queue; `flags` are `bmqt::QueueFlags`, the counts are those of its clients."""

    uri: str
    q_id: UInt
    sub_id_info: SubQueueIdInfo | None = None
    flags: ULong
    read_count: Int = 0
    write_count: Int = 0
    admin_count: Int = 0


@sequence
class OpenQueue:
    handle_parameters: QueueHandleParameters


class RoutingConfigurationFlags(IntEnum):
    """Bit numbers of `RoutingConfiguration.flags`."""

    AT_MOST_ONCE = 0
    DELIVER_CONSUMER_PRIORITY = 1
    DELIVER_ALL = 2
    HAS_MULTIPLE_SUB_STREAMS = 3


@sequence
class RoutingConfiguration:
    flags: ULong


@sequence
class OpenQueueResponse:
    original_request: OpenQueue
    routing_configuration: RoutingConfiguration
    deduplication_time_ms: Int = 300000


@sequence
class CloseQueue:
    """Request to close a queue; with `is_final` the downstream has no client left and its handle can be dropped."""

    handle_parameters: QueueHandleParameters
    is_final: bool = False


@sequence
class CloseQueueResponse:
    """Answer to `CloseQueue`."""


@sequence
class QueueStreamParameters:
    """A consumer's limits and priority, in the older form: one stream for each app."""

    sub_id_info: SubQueueIdInfo | None = None
    max_unconfirmed_messages: Long = 0
    max_unconfirmed_bytes: Long = 0
    consumer_priority: Int = CONSUMER_PRIORITY_INVALID
    consumer_priority_count: Int = 0


@sequence
class ConfigureQueueStream:
    q_id: UInt
    stream_parameters: QueueStreamParameters


@sequence
class ConfigureQueueStreamResponse:
    request: ConfigureQueueStream


class ExpressionVersion(IntEnum):
    UNDEFINED = 0
    VERSION_1 = 1


@sequence
class Expression:
    """A subscription's message filter; `UNDEFINED` with empty text selects every message."""

    version: ExpressionVersion = ExpressionVersion.UNDEFINED
    text: str


@sequence
class ConsumerInfo:
    """Combined limits of the consumers of one priority; `consumer_priority_count` is their number."""

    max_unconfirmed_messages: Long = 0
    max_unconfirmed_bytes: Long = 0
    consumer_priority: Int = CONSUMER_PRIORITY_INVALID
    consumer_priority_count: Int = 0


@sequence
class Subscription:
    s_id: UInt
    expression: Expression
    consumers: tuple[ConsumerInfo, ...] = ()


@sequence
class StreamParameters:
    """The subscriptions of one app; an empty list ends its consumption."""

    app_id: str = DEFAULT_APP_ID
    subscriptions: tuple[Subscription, ...] = ()


@sequence
class ConfigureStream:
    q_id: UInt
    stream_parameters: StreamParameters


@sequence
class ConfigureStreamResponse:
    request: ConfigureStream


# The argument of the reference's DUMP command: in the schema, but in no message.


class DumpMsgType(IntEnum):
    INCOMING = 0
    OUTGOING = 1
    PUSH = 2
    ACK = 3
    PUT = 4
    CONFIRM = 5


class DumpActionType(IntEnum):
    ON = 0
    OFF = 1
    MESSAGE_COUNT = 2
    TIME_IN_SECONDS = 3


@sequence
class DumpMessages:
    msg_type_to_dump: DumpMsgType
    dump_action_type: DumpActionType
    dump_action_value: Int = 0
