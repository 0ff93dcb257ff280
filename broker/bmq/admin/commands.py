"""Administration commands: one class for each command, with its fields (source: mqbcmd.xsd, type `Command`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = [
    "BrokerConfigDump",
    "ClearConfigCache",
    "ClearResolverCache",
    "ClusterHealth",
    "ClusterQueueHelper",
    "ClusterStatus",
    "Clusters",
    "Command",
    "DomainInfos",
    "DomainPurge",
    "DomainReconfigure",
    "DomainRemove",
    "ElectorGet",
    "ElectorList",
    "ElectorSet",
    "Encoding",
    "ForceGcQueues",
    "Help",
    "PartitionAvailability",
    "PartitionRollover",
    "PartitionSummary",
    "QueueInternals",
    "QueueList",
    "QueueMessage",
    "QueuePurge",
    "ReplicationGet",
    "ReplicationList",
    "ReplicationSet",
    "StatGet",
    "StatList",
    "StatSet",
    "StatShow",
    "StorageQueueStatus",
    "StorageSummary",
    "Value",
]

# A tunable's value: null, boolean, number or text.
Value = None | bool | int | float | str


class Encoding(Enum):
    """The format of the answer."""

    TEXT = "TEXT"
    JSON_COMPACT = "JSON_COMPACT"
    JSON_PRETTY = "JSON_PRETTY"


@dataclass(frozen=True, slots=True)
class Help:
    """The command HELP; with `plumbing`, one line for each command."""

    plumbing: bool = False


@dataclass(frozen=True, slots=True)
class BrokerConfigDump:
    pass


@dataclass(frozen=True, slots=True)
class DomainPurge:
    domain: str


@dataclass(frozen=True, slots=True)
class DomainInfos:
    domain: str


@dataclass(frozen=True, slots=True)
class QueuePurge:
    """Purge of a queue; `app_id` is `*` for the whole queue."""

    domain: str
    queue: str
    app_id: str


@dataclass(frozen=True, slots=True)
class QueueInternals:
    domain: str
    queue: str


@dataclass(frozen=True, slots=True)
class QueueList:
    """List of messages. A negative `offset` counts from the end, a negative `count` lists those before it; 0 is all."""

    domain: str
    queue: str
    offset: int
    count: int
    app_id: str | None = None


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message with its contents, by its GUID in hex."""

    domain: str
    queue: str
    guid: str


@dataclass(frozen=True, slots=True)
class DomainReconfigure:
    domain: str


@dataclass(frozen=True, slots=True)
class DomainRemove:
    domain: str
    finalize: bool = False


@dataclass(frozen=True, slots=True)
class ClearResolverCache:
    """`domain` is None for all of them."""

    domain: str | None = None


@dataclass(frozen=True, slots=True)
class ClearConfigCache:
    """`domain` is None for all of them."""

    domain: str | None = None


@dataclass(frozen=True, slots=True)
class StatShow:
    pass


@dataclass(frozen=True, slots=True)
class StatSet:
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class StatGet:
    name: str


@dataclass(frozen=True, slots=True)
class StatList:
    pass


@dataclass(frozen=True, slots=True)
class Clusters:
    pass


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    cluster: str


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    cluster: str


@dataclass(frozen=True, slots=True)
class ClusterQueueHelper:
    cluster: str


@dataclass(frozen=True, slots=True)
class ForceGcQueues:
    cluster: str


@dataclass(frozen=True, slots=True)
class StorageSummary:
    cluster: str


@dataclass(frozen=True, slots=True)
class PartitionAvailability:
    cluster: str
    partition_id: int
    available: bool


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    cluster: str
    partition_id: int


@dataclass(frozen=True, slots=True)
class PartitionRollover:
    """Rollover of a partition; `partition_id` is -1 for all."""

    cluster: str
    partition_id: int


@dataclass(frozen=True, slots=True)
class StorageQueueStatus:
    cluster: str
    domain: str


@dataclass(frozen=True, slots=True)
class ReplicationSet:
    """Change of a replication setting; `everywhere` is for all nodes of the cluster."""

    cluster: str
    name: str
    value: Value
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class ReplicationGet:
    cluster: str
    name: str
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class ReplicationList:
    cluster: str


@dataclass(frozen=True, slots=True)
class ElectorSet:
    cluster: str
    name: str
    value: Value
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class ElectorGet:
    cluster: str
    name: str
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class ElectorList:
    cluster: str


Command = (
    Help
    | BrokerConfigDump
    | DomainPurge
    | DomainInfos
    | QueuePurge
    | QueueInternals
    | QueueList
    | QueueMessage
    | DomainReconfigure
    | DomainRemove
    | ClearResolverCache
    | ClearConfigCache
    | StatShow
    | StatSet
    | StatGet
    | StatList
    | Clusters
    | ClusterStatus
    | ClusterHealth
    | ClusterQueueHelper
    | ForceGcQueues
    | StorageSummary
    | PartitionAvailability
    | PartitionSummary
    | PartitionRollover
    | StorageQueueStatus
    | ReplicationSet
    | ReplicationGet
    | ReplicationList
    | ElectorSet
    | ElectorGet
    | ElectorList
)
