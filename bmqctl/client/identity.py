"""Who we say that we are, and what we understand of a broker's features."""

from __future__ import annotations

from formats.control.messages import ClientIdentity, ClientLanguage, ClientType, GuidInfo

__all__ = ["client_identity", "has_feature"]

PROTOCOL_VERSION = 1
# What the reference's own builds of its development line say; a release says its version.
SDK_VERSION = 999999
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
    """Whether `features`, `FIELD:VALUE,VALUE;FIELD:...`, holds `value` under `field`."""
    for part in features.split(";"):
        name, _, values = part.partition(":")
        if name == field:
            return value in values.split(",")
    return False
