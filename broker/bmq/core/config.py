# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The parts of the configuration that the core uses, independent of files and schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from formats.bmq.codes import DEFAULT_APP_ID

__all__ = ["DomainConfig", "MessageThrottle", "Mode", "NodeIdentity", "ReopenPace"]


class Mode(Enum):
    """The routing of a domain's queues (source: mqbconf::QueueMode)."""

    PRIORITY = "priority"
    FANOUT = "fanout"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class DomainConfig:
    """One domain. A limit of 0 means none.

    `subscriptions` pair app ids with expressions that select their messages. A ratio is the part of a limit at which an
    alarm is raised. With `message_ttl_s` None, messages do not expire. `producers_max` is per queue, `consumers_max`
    per app of a queue. Clients keep posting a message under one GUID for `deduplication_time_ms`. `strong` messages are
    neither acknowledged nor delivered before a majority of the nodes has them. `cluster` has the domain's queues, for a
    proxy to several. `incompatible` is the reason why none of its queues can be opened here, or empty. `shown` is the
    definition in the reference's form.
    """

    name: str
    mode: Mode
    app_ids: tuple[str, ...] = ()
    persistent: bool = True
    queue_messages_max: int = 0
    queue_bytes_max: int = 0
    domain_messages_max: int = 0
    domain_bytes_max: int = 0
    queue_messages_ratio: float = 0.8
    queue_bytes_ratio: float = 0.8
    domain_messages_ratio: float = 0.8
    domain_bytes_ratio: float = 0.8
    deduplication_time_ms: int = 300_000
    subscriptions: tuple[tuple[str, str], ...] = ()
    message_ttl_s: int | None = None
    delivery_attempts_max: int = 0
    idle_time_max_ms: int = 0
    consumers_max: int = 0
    producers_max: int = 0
    queues_max: int = 0
    strong: bool = False
    cluster: str = ""
    incompatible: str = ""
    shown: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def queue_app_ids(self) -> tuple[str, ...]:
        """The apps of each of its queues: one default app, unless the mode is fanout."""
        return self.app_ids if self.mode is Mode.FANOUT else (DEFAULT_APP_ID,)

    @property
    def app_subscriptions(self) -> dict[str, str]:
        """The expression of each app that has one. A queue with one app takes the first, whatever app it names."""
        if self.mode is Mode.FANOUT:
            return dict(self.subscriptions)
        return {DEFAULT_APP_ID: self.subscriptions[0][1]} if self.subscriptions else {}


@dataclass(frozen=True, slots=True)
class ReopenPace:
    """The pace and number of requests to an upstream that refuses to reopen a queue.

    Source: mqbcfg::QueueOperationsConfig.
    """

    interval_ms: int = 5000
    attempts_max: int = 10


@dataclass(frozen=True, slots=True)
class MessageThrottle:
    """Delays before poisonous messages, which have few attempts left; longer before those with fewer.

    Source: mqbcfg::MessageThrottleConfig.
    """

    low_threshold: int = 2
    high_threshold: int = 4
    low_interval_ms: int = 1000
    high_interval_ms: int = 3000


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity of this node, and its parameters for watching peers.

    A proxy has `node_id` -1 and the `cluster_name` that it connects to. `virtual_clusters` are the clusters that it
    stands for, with its number in each. Other nodes of its cluster must share `cluster_features`
    (`broker.bmq.links.agreement`). Numbers of missed heartbeats are for clients, nodes of the cluster, proxies below,
    and brokers above; 0 sends none.
    """

    cluster_name: str
    node_id: int
    host: str
    process_name: str
    process_id: int
    version: int
    user_agent: str
    heartbeat_interval_ms: int = 3000
    heartbeats_missed_max: int = 10
    peer_heartbeats_missed_max: int = 0
    downstream_heartbeats_missed_max: int = 0
    upstream_heartbeats_missed_max: int = 0
    cluster_features: str = ""
    virtual_clusters: Mapping[str, int] = field(default_factory=dict)
