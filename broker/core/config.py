"""What the core needs to know of the configuration, free of files and schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["DEFAULT_APP_ID", "DomainConfig", "Mode", "NodeIdentity"]

# The app id of queues that have no app ids (source: bmqp::ProtocolUtil::k_DEFAULT_APP_ID).
DEFAULT_APP_ID = "__default"


class Mode(Enum):
    """How a domain's queues route (source: mqbconf::QueueMode)."""

    PRIORITY = "priority"
    FANOUT = "fanout"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class DomainConfig:
    """One domain. A limit of 0 means none.

    `deduplication_time_ms` is told to clients, who keep posting a message under one GUID for that long.
    """

    name: str
    mode: Mode
    app_ids: tuple[str, ...] = ()
    persistent: bool = True
    queue_messages_max: int = 0
    queue_bytes_max: int = 0
    domain_messages_max: int = 0
    domain_bytes_max: int = 0
    deduplication_time_ms: int = 300_000

    @property
    def queue_app_ids(self) -> tuple[str, ...]:
        """The apps of each of its queues: one, unnamed, unless the mode is fanout."""
        return self.app_ids if self.mode is Mode.FANOUT else (DEFAULT_APP_ID,)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who this node says it is, and how it watches its clients."""

    cluster_name: str
    node_id: int
    host: str
    process_name: str
    process_id: int
    version: int
    user_agent: str
    heartbeat_interval_ms: int = 3000
    heartbeats_missed_max: int = 10
