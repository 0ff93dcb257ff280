"""Administration commands: one class for each command, with its fields (source: mqbcmd.xsd, type `Command`)."""

from __future__ import annotations

from enum import Enum

from formats.record import record

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


@record
class Help:
    """The command HELP; with `plumbing`, one line for each command."""

    plumbing: bool = False


@record
class BrokerConfigDump:
    pass


@record
class DomainPurge:
    domain: str


@record
class DomainInfos:
    domain: str


@record
class QueuePurge:
    """Purge of a queue; `app_id` is `*` for the whole queue."""

    domain: str
    queue: str
    app_id: str


@record
class QueueInternals:
    domain: str
    queue: str


@record
class QueueList:
    """List of messages. A negative `offset` counts from the end, a negative `count` lists those before it; 0 is all."""

    domain: str
    queue: str
    offset: int
    count: int
    app_id: str | None = None


@record
class QueueMessage:
    """One message with its contents, by its GUID in hex."""

    domain: str
    queue: str
    guid: str


@record
class DomainReconfigure:
    domain: str


@record
class DomainRemove:
    domain: str
    finalize: bool = False


@record
class ClearResolverCache:
    """Drop the cached resolution of one `domain`, or of all (None)."""

    domain: str | None = None


@record
class ClearConfigCache:
    """Drop the cached configuration of one `domain`, or of all (None)."""

    domain: str | None = None


@record
class StatShow:
    pass


@record
class StatSet:
    name: str
    value: Value


@record
class StatGet:
    name: str


@record
class StatList:
    pass


@record
class Clusters:
    pass


@record
class ClusterStatus:
    cluster: str


@record
class ClusterHealth:
    cluster: str


@record
class ClusterQueueHelper:
    cluster: str


@record
class ForceGcQueues:
    cluster: str


@record
class StorageSummary:
    cluster: str


@record
class PartitionAvailability:
    cluster: str
    partition_id: int
    available: bool


@record
class PartitionSummary:
    cluster: str
    partition_id: int


@record
class PartitionRollover:
    """Rollover of a partition; `partition_id` is -1 for all."""

    cluster: str
    partition_id: int


@record
class StorageQueueStatus:
    cluster: str
    domain: str


@record
class ReplicationSet:
    """Change of a replication setting; `everywhere` is for all nodes of the cluster."""

    cluster: str
    name: str
    value: Value
    everywhere: bool = False


@record
class ReplicationGet:
    cluster: str
    name: str
    everywhere: bool = False


@record
class ReplicationList:
    cluster: str


@record
class ElectorSet:
    cluster: str
    name: str
    value: Value
    everywhere: bool = False


@record
class ElectorGet:
    cluster: str
    name: str
    everywhere: bool = False


@record
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
