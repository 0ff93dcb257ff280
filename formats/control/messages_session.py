"""Between a client and a broker: status, negotiation, authentication, queues and admin commands.

Source: the reference's schema `bmqp_ctrlmsg.xsd`. The schema's order is the wire's: fields must not be moved.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import Annotated

from formats.control.schema import Int, Long, UInt, ULong, alternatives, sequence

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

# The app id of a queue that has no fan-out, and the priority of a stream that consumes nothing.
DEFAULT_APP_ID = "__default"
CONSUMER_PRIORITY_INVALID = -(1 << 31)


class StatusCategory(IntEnum):
    """How a request ended; negative is failure, as in the reference's result codes."""

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
    """The outcome of a request: the answer to one that failed, a part of other answers."""

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
    """What a client's GUID generator was started with: 6 random bytes in hex, and nanoseconds since the epoch."""

    client_id: str = ""
    nano_seconds_from_epoch: Long = 0


@sequence
class ClientIdentity:
    """Who opens or accepts a connection.

    `features` is `NAME:VALUE,VALUE;NAME:...`. `cluster_name` and `cluster_node_id` are set by brokers only;
    a node id of -1 is a proxy's.
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
    """The broker's answer to a `ClientIdentity`, with its own."""

    result: Status
    protocol_version: Int
    broker_version: Int
    is_deprecated_sdk: bool = False
    broker_identity: ClientIdentity
    heartbeat_interval_ms: Int = 3000
    max_missed_heartbeats: Int = 10


@sequence
class PlaceHolder:
    """An alternative that was removed (a reversed connection) and keeps its tag."""


@sequence
class NegotiationMessage:
    choice: Annotated[ClientIdentity | BrokerResponse | PlaceHolder, alternatives()]


# Authentication


@sequence
class AuthenticationRequest:
    """`data` proves who the sender is, by whatever it has agreed on with the broker."""

    mechanism: str
    data: bytes | None = field(default=None, repr=False)


@sequence
class AuthenticationResponse:
    """`lifetime_ms` is None for a session that need not authenticate again."""

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
    """The client may close the connection now."""


@sequence
class AdminCommand:
    command: str


@sequence
class AdminCommandResponse:
    text: str


@sequence
class SubQueueIdInfo:
    """The consumer side of a fan-out queue: the app, and the number it goes by on this connection."""

    sub_id: UInt = 0
    app_id: str = DEFAULT_APP_ID


@sequence
class QueueHandleParameters:
    """What a downstream asks for; `flags` are the bits of `bmqt::QueueFlags`, the counts those of its clients."""

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
    """`is_final`: the downstream has no client of the queue left, its handle can go."""

    handle_parameters: QueueHandleParameters
    is_final: bool = False


@sequence
class CloseQueueResponse:
    """The queue is closed."""


@sequence
class QueueStreamParameters:
    """How much a consumer takes (the older of two forms, one stream to an app)."""

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
    """What messages a subscription selects; `UNDEFINED` and no text is all of them."""

    version: ExpressionVersion = ExpressionVersion.UNDEFINED
    text: str


@sequence
class ConsumerInfo:
    """How much the consumers of one priority take; `consumer_priority_count` says how many they are."""

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
    """The subscriptions of one app; none of them ends its consumption."""

    app_id: str = DEFAULT_APP_ID
    subscriptions: tuple[Subscription, ...] = ()


@sequence
class ConfigureStream:
    q_id: UInt
    stream_parameters: StreamParameters


@sequence
class ConfigureStreamResponse:
    request: ConfigureStream


# In the schema, but no message carries it: the argument of the reference's DUMP command.


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
