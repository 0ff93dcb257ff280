# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Negotiation: a node's answer to a peer's identity (source: mqba::SessionNegotiator)."""

from __future__ import annotations

from typing import Final

from broker.bmq.core.config import NodeIdentity
from formats.bmq.control.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientLanguage,
    ClientType,
    GuidInfo,
    NegotiationMessage,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import PROTOCOL_VERSION

__all__ = [
    "EARLY_FEATURE",
    "NO_NODE_ID",
    "REMOVALS_FEATURE",
    "SCHEMA_FEATURE",
    "answer_identity",
    "knows_heartbeats",
    "own_identity",
    "refuse_connection",
    "tells_status",
]

# A broker's features. One that is in a cluster in name only does not report its status to proxies.
FEATURES: Final = (
    "PROTOCOL_ENCODING:BER,JSON;HA:GRACEFUL_SHUTDOWN,GRACEFUL_SHUTDOWN_V2{status};"
    "MPS:MESSAGE_PROPERTIES_EX;SUBSCRIPTIONS:CONFIGURE_STREAM"
)
STATUS_FEATURE: Final = "BROADCAST_TO_PROXIES"

# Our nodes accept another's removals when they receive a partition from scratch. A field of its own: the reference
# skips unknown fields.
REMOVALS_FEATURE: Final = "BMQCTL:REMOVALS"

# Our brokers, once they have answered the opens of a queue, take its posts and confirms before its subscriptions. Those
# of the reference discard them (mqbblp::RemoteQueue::postMessage, confirmMessage).
EARLY_FEATURE: Final = "BMQCTL_QUEUES:EARLY_POSTS"

# Without it, a client reads only the older encoding of message properties (bmqp::MessagePropertiesFeatures).
SCHEMA_FEATURE: Final = "MPS:MESSAGE_PROPERTIES_EX"

# Limit of `ClientIdentity.session_id`: after very many sessions numbers are reused.
SESSION_ID_MAX: Final = (1 << 31) - 1

# mqbnet::Cluster::k_INVALID_NODE_ID
NO_NODE_ID: Final = -1


def own_identity(me: NodeIdentity, session_id: int, cluster_name: str = "") -> ClientIdentity:
    """Make this broker's identity, in cluster `cluster_name` if given.

    It has its node id in its own cluster, its number in a virtual cluster, and none in others, like a proxy.
    """
    features, node_id = FEATURES.format(status=f",{STATUS_FEATURE}"), NO_NODE_ID
    if cluster_name in me.virtual_clusters:
        features, node_id = FEATURES.format(status=""), me.virtual_clusters[cluster_name]
    elif cluster_name and cluster_name == me.cluster_name:
        node_id = me.node_id
        features = f"{features};{REMOVALS_FEATURE}"
        if me.cluster_features:
            features = f"{features};{me.cluster_features}"
    return ClientIdentity(
        protocol_version=PROTOCOL_VERSION,
        sdk_version=me.version,
        client_type=ClientType.TCPBROKER,
        process_name=me.process_name,
        pid=me.process_id,
        session_id=session_id & SESSION_ID_MAX,
        host_name=me.host,
        features=f"{features};{EARLY_FEATURE}" if cluster_name else features,
        cluster_name=cluster_name,
        cluster_node_id=node_id,
        guid_info=GuidInfo(),
        user_agent=me.user_agent,
    )


def tells_status(identity: ClientIdentity) -> bool:
    """Return True if a broker that this one is a proxy to reports its status; otherwise it counts as available.

    A broker that is not in the cluster itself has none to report.
    """
    return identity.cluster_node_id != NO_NODE_ID and STATUS_FEATURE in identity.features


def answer_identity(
    me: NodeIdentity, session_id: int, refusal: str | None, asking: ClientIdentity
) -> NegotiationMessage:
    """Make the answer: the broker's own identity with success, or with `refusal` as the reason of a failure.

    Another broker receives this one's identity in the cluster that it asks for, else in this one's own.
    """
    status = (
        Status(category=StatusCategory.SUCCESS, code=0)
        if refusal is None
        else Status(category=StatusCategory.NOT_SUPPORTED, code=-1, message=refusal)
    )
    is_broker = asking.client_type is ClientType.TCPBROKER
    cluster_name = asking.cluster_name or (me.cluster_name if is_broker else "")
    response = BrokerResponse(
        result=status,
        protocol_version=PROTOCOL_VERSION,
        broker_version=me.version,
        broker_identity=own_identity(me, session_id, cluster_name),
        heartbeat_interval_ms=me.heartbeat_interval_ms,
        max_missed_heartbeats=_missed_max(me, asking),
    )
    return NegotiationMessage(choice=response)


def refuse_connection(me: NodeIdentity) -> NegotiationMessage:
    """Make the answer to a peer that is not authorized to connect, without this broker's identity."""
    response = BrokerResponse(
        result=Status(category=StatusCategory.REFUSED, code=-1, message="Connection not authorized"),
        protocol_version=PROTOCOL_VERSION,
        broker_version=me.version,
        broker_identity=ClientIdentity(
            protocol_version=PROTOCOL_VERSION, client_type=ClientType.TCPBROKER, guid_info=GuidInfo()
        ),
    )
    return NegotiationMessage(choice=response)


def _missed_max(me: NodeIdentity, asking: ClientIdentity) -> int:
    if asking.client_type is ClientType.TCPADMIN:
        return 0
    if asking.client_type is not ClientType.TCPBROKER:
        return me.heartbeats_missed_max
    is_proxy = asking.cluster_node_id == NO_NODE_ID
    return me.downstream_heartbeats_missed_max if is_proxy else me.peer_heartbeats_missed_max


def knows_heartbeats(client: ClientIdentity) -> bool:
    """Return True if a client answers heartbeats, by its identity; one that sends a heartbeat does so, too.

    No feature shows it. The C++ SDK, and the official Python client on top of it, have always had them; the Java SDK
    (0.0.16) ends its connection at an event of a type that it does not know. The reference sends heartbeats to clients
    of either kind, but never to administrators.
    """
    return client.client_type is ClientType.TCPCLIENT and client.sdk_language is ClientLanguage.CPP
