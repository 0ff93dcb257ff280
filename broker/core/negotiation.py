"""What a node answers to a peer that says who it is (source: mqba::SessionNegotiator)."""

from __future__ import annotations

from broker.core.config import NodeIdentity
from formats.control.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientType,
    GuidInfo,
    NegotiationMessage,
    Status,
    StatusCategory,
)
from formats.wire.event import PROTOCOL_VERSION

__all__ = ["SCHEMA_FEATURE", "answer_identity", "own_identity"]

FEATURES = (
    "PROTOCOL_ENCODING:BER,JSON;HA:GRACEFUL_SHUTDOWN,GRACEFUL_SHUTDOWN_V2,BROADCAST_TO_PROXIES;"
    "MPS:MESSAGE_PROPERTIES_EX;SUBSCRIPTIONS:CONFIGURE_STREAM"
)

# Without it, a client reads only the older encoding of message properties (bmqp::MessagePropertiesFeatures).
SCHEMA_FEATURE = "MPS:MESSAGE_PROPERTIES_EX"


def own_identity(me: NodeIdentity, session_id: int, *, to_broker: bool) -> ClientIdentity:
    """Who this node is. To a broker: which node of which cluster, too."""
    return ClientIdentity(
        protocol_version=PROTOCOL_VERSION,
        sdk_version=me.version,
        client_type=ClientType.TCPBROKER,
        process_name=me.process_name,
        pid=me.process_id,
        session_id=session_id,
        host_name=me.host,
        features=f"{FEATURES};{me.cluster_features}" if to_broker and me.cluster_features else FEATURES,
        cluster_name=me.cluster_name if to_broker else "",
        cluster_node_id=me.node_id if to_broker else -1,
        guid_info=GuidInfo(),
        user_agent=me.user_agent,
    )


def answer_identity(
    me: NodeIdentity, session_id: int, refusal: str | None, *, to_broker: bool = False
) -> NegotiationMessage:
    """The node's own identity, with success, or with `refusal` as the reason of a failure."""
    status = (
        Status(category=StatusCategory.SUCCESS, code=0)
        if refusal is None
        else Status(category=StatusCategory.NOT_SUPPORTED, code=-1, message=refusal)
    )
    response = BrokerResponse(
        result=status,
        protocol_version=PROTOCOL_VERSION,
        broker_version=me.version,
        broker_identity=own_identity(me, session_id, to_broker=to_broker),
        heartbeat_interval_ms=me.heartbeat_interval_ms,
        max_missed_heartbeats=me.peer_heartbeats_missed_max if to_broker else me.heartbeats_missed_max,
    )
    return NegotiationMessage(choice=response)
