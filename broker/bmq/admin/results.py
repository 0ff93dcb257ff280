"""Results of commands: one class for each kind (source: mqbcmd.xsd, type `Result`, and its parts).

Fields are the schema's, in its order; `json_form` writes them with camelCase names, and omits those that
are None or empty arrays. Sizes are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from broker.bmq.admin.commands import Value
from broker.bmq.admin.results_queue import CapacityMeter, QueueInternalsResult
from broker.bmq.core.cluster_view import ClusterView

__all__ = [
    "BrokerConfig",
    "ClusterDomain",
    "ClusterHealthResult",
    "ClusterInfo",
    "ClusterList",
    "ClusterNode",
    "ClusterNodeInfo",
    "ClusterProxyStatusResult",
    "ClusterQueue",
    "ClusterStatusResult",
    "ClusterStorageSummary",
    "CommandSpec",
    "DomainInfo",
    "ElectorInfo",
    "FileInfo",
    "FileStore",
    "HelpResult",
    "ListedMessage",
    "MessageContents",
    "PartitionInfo",
    "Problem",
    "PurgedQueue",
    "PurgedQueues",
    "QueueContents",
    "QueueHelperResult",
    "Result",
    "Stats",
    "StorageContent",
    "StorageQueueInfo",
    "SubId",
    "Success",
    "Tunable",
    "TunableConfirmation",
    "Tunables",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Failure of a command."""

    message: str


@dataclass(frozen=True, slots=True)
class Success:
    pass


@dataclass(frozen=True, slots=True)
class CommandSpec:
    command: str
    description: str


@dataclass(frozen=True, slots=True)
class HelpResult:
    commands: tuple[CommandSpec, ...]
    is_plumbing: bool


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configuration, as a text in JSON."""

    as_json: str


@dataclass(frozen=True, slots=True)
class Stats:
    """A table, or a text in JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Tunable:
    name: str
    value: Value
    description: str = ""


@dataclass(frozen=True, slots=True)
class Tunables:
    tunables: tuple[Tunable, ...]


@dataclass(frozen=True, slots=True)
class TunableConfirmation:
    name: str
    old_value: Value
    new_value: Value


# Purges and lists


@dataclass(frozen=True, slots=True)
class PurgedQueue:
    """A purged queue. `app_id` is empty and `app_key` all zeros if the whole queue was purged."""

    queue_uri: str
    app_id: str
    app_key: str
    num_messages_purged: int
    num_bytes_purged: int


@dataclass(frozen=True, slots=True)
class PurgedQueues:
    queues: tuple[PurgedQueue | Problem, ...]


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """A listed message; `arrival_timestamp` is in UTC."""

    guid: str
    size_bytes: int
    arrival_timestamp: datetime


@dataclass(frozen=True, slots=True)
class QueueContents:
    """Listed messages of a queue; `offset` is the first one's index among `total_queue_messages`."""

    messages: tuple[ListedMessage, ...]
    offset: int
    total_queue_messages: int


@dataclass(frozen=True, slots=True)
class MessageContents:
    """A stored message. `apps` have yet to confirm it; `data` is properties and payload as posted, in base64.

    `compression` is the number and `schema_id` the form of the wire. Both say, with `has_properties`, how to read it.
    """

    guid: str
    size_bytes: int
    arrival_timestamp: datetime
    compression: int
    has_properties: bool
    schema_id: int
    apps: tuple[str, ...]
    data: str


# Storage


@dataclass(frozen=True, slots=True)
class StorageQueueInfo:
    queue_uri: str
    queue_key: str
    partition_id: int
    num_messages: int
    num_bytes: int
    is_persistent: bool
    internal_queue_id: int = 0


@dataclass(frozen=True, slots=True)
class StorageContent:
    storages: tuple[StorageQueueInfo, ...]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The usage of a file. Of `position_bytes`, `outstanding_bytes` are still needed; `size_bytes` is the limit."""

    position_bytes: int
    size_bytes: int
    outstanding_bytes: int


@dataclass(frozen=True, slots=True)
class FileSetInfo:
    data_file_name: str
    aliased_blob_buffer_count: int


@dataclass(frozen=True, slots=True)
class ActiveFileSet:
    data_file: FileInfo
    journal_file: FileInfo
    qlist_file: FileInfo


@dataclass(frozen=True, slots=True)
class FileStoreSummary:
    primary_node_description: str
    primary_lease_id: int
    sequence_num: int
    is_available: bool
    file_sets: tuple[FileSetInfo, ...]
    active_file_set: ActiveFileSet
    total_mapped_bytes: int
    num_outstanding_records: int
    num_unreceipted_messages: int
    nagle_packet_count: int
    storage_content: StorageContent


@dataclass(frozen=True, slots=True)
class FileStore:
    """The files of a partition; `state` is open, closed or stopping."""

    partition_id: int
    state: str
    summary: FileStoreSummary


@dataclass(frozen=True, slots=True)
class ClusterStorageSummary:
    cluster_file_store_location: str
    file_stores: tuple[FileStore, ...]


# Domains


@dataclass(frozen=True, slots=True)
class DomainInfo:
    """A domain. `config_json` is a JSON text; `queue_uris` are the queues in use."""

    name: str
    config_json: str
    cluster_name: str
    capacity_meter: CapacityMeter
    queue_uris: tuple[str, ...]
    storage_content: StorageContent


# Clusters


@dataclass(frozen=True, slots=True)
class ClusterNode:
    host_name: str
    node_id: int
    data_center: str


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A cluster; `locality` is remote, local (one node) or member."""

    locality: str
    name: str
    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class ClusterList:
    clusters: tuple[ClusterInfo, ...]


@dataclass(frozen=True, slots=True)
class ClusterNodeInfo:
    """A node of a cluster; `is_available` is None for the node that answers."""

    description: str
    is_available: bool | None
    status: str
    primary_for_partition_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeStatuses:
    nodes: tuple[ClusterNodeInfo, ...]


@dataclass(frozen=True, slots=True)
class LeaderMessageSequence:
    elector_term: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class ElectorInfo:
    elector_state: str
    leader_node: str
    leader_message_sequence: LeaderMessageSequence
    leader_status: str


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    num_queues_mapped: int
    num_active_queues: int
    primary_node: str | None
    primary_lease_id: int
    primary_status: str


@dataclass(frozen=True, slots=True)
class PartitionsInfo:
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class ClusterStatusResult:
    name: str
    description: str
    self_node_description: str
    is_healthy: bool
    node_statuses: NodeStatuses
    elector_info: ElectorInfo
    partitions_info: PartitionsInfo
    queues_info: StorageContent
    cluster_storage_summary: ClusterStorageSummary


@dataclass(frozen=True, slots=True)
class ClusterProxyStatusResult:
    """A cluster as a proxy to it sees it (mqbcmd::ClusterProxyStatus)."""

    description: str
    active_node_description: str | None
    is_healthy: bool
    node_statuses: NodeStatuses
    queues_info: StorageContent


@dataclass(frozen=True, slots=True)
class ClusterHealthResult:
    """A node's view of its cluster, with its problems; not in the reference."""

    is_healthy: bool
    problems: tuple[str, ...]
    view: ClusterView


@dataclass(frozen=True, slots=True)
class ClusterDomain:
    name: str
    num_assigned_queues: int
    loaded: bool


@dataclass(frozen=True, slots=True)
class SubId:
    sub_id: int
    app_id: str


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    uri: str
    num_in_flight_contexts: int
    is_assigned: bool
    is_primary_available: bool
    id: int
    sub_ids: tuple[SubId, ...]
    partition_id: int
    primary_node_description: str | None
    key: str
    is_created: bool


@dataclass(frozen=True, slots=True)
class QueueHelperResult:
    cluster_name: str
    locality: str
    num_queues: int
    num_queue_keys: int
    num_pending_reopen_queue_requests: int
    domains: tuple[ClusterDomain, ...]
    queues: tuple[ClusterQueue, ...]


Result = (
    Problem
    | Success
    | HelpResult
    | BrokerConfig
    | Stats
    | Tunable
    | Tunables
    | TunableConfirmation
    | PurgedQueues
    | QueueContents
    | MessageContents
    | StorageContent
    | ClusterStorageSummary
    | DomainInfo
    | ClusterList
    | ClusterStatusResult
    | ClusterProxyStatusResult
    | ClusterHealthResult
    | QueueHelperResult
    | QueueInternalsResult
)
