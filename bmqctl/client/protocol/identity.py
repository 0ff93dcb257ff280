"""The client's identity, and the features in a broker's identity."""

from __future__ import annotations

from formats.bmq.control.messages import ClientIdentity, ClientLanguage, ClientType, GuidInfo

__all__ = ["HANDSHAKE_ADVICE", "client_identity", "has_feature"]

PROTOCOL_VERSION = 1
# The version in the reference's development builds.
SDK_VERSION = 999999
# A broker with TLS resets a plain connection, and one that wants credentials closes it: neither says why.
HANDSHAKE_ADVICE = "it may expect TLS, or credentials"
FEATURES = "PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX"


def client_identity(
    process_name: str, pid: int, session_id: int, guid_info: GuidInfo, user_agent: str
) -> ClientIdentity:
    """The identity of a client as the official SDK sends it (source: `bmqa::SessionUtil::createApplication`)."""
    return ClientIdentity(
        protocol_version=PROTOCOL_VERSION,
        sdk_version=SDK_VERSION,
        client_type=ClientType.TCPCLIENT,
        process_name=process_name,
        pid=pid,
        session_id=session_id,
        features=FEATURES,
        sdk_language=ClientLanguage.CPP,
        guid_info=guid_info,
        user_agent=user_agent,
    )


def has_feature(features: str, field: str, value: str) -> bool:
    """Return True if `features`, `FIELD:VALUE,VALUE;FIELD:...`, has `value` under `field`."""
    for part in features.split(";"):
        name, _, values = part.partition(":")
        if name == field:
            return value in values.split(",")
    return False
