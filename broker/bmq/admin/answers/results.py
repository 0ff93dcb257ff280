"""Results of commands: one class for each kind (source: mqbcmd.xsd, type `Result`, and its parts).

Fields are the schema's, in its order; `json_form` writes them with camelCase names, without None and empty arrays.
Sizes are in bytes.
"""

from __future__ import annotations

from datetime import datetime

from broker.bmq.admin.answers.results_queue import CapacityMeter, QueueInternalsResult
from broker.bmq.admin.commands import Value
from broker.bmq.core.cluster_view import ClusterView
from formats.record import record

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


@record
class Problem:
    """Failure of a command."""

    message: str


@record
class Success:
    pass


@record
class CommandSpec:
    command: str
    description: str


@record
class HelpResult:
    commands: tuple[CommandSpec, ...]
    is_plumbing: bool


@record
class BrokerConfig:
    """The configuration, as a text in JSON."""

    as_json: str


@record
class Stats:
    """A table, or a text in JSON."""

    text: str


@record
class Tunable:
    name: str
    value: Value
    description: str = ""


@record
class Tunables:
    tunables: tuple[Tunable, ...]


@record
class TunableConfirmation:
    name: str
    old_value: Value
    new_value: Value


# Purges and lists


@record
class PurgedQueue:
    """A purged queue. `app_id` is empty and `app_key` all zeros if the whole queue was purged."""

    queue_uri: str
    app_id: str
    app_key: str
    num_messages_purged: int
    num_bytes_purged: int


@record
class PurgedQueues:
    queues: tuple[PurgedQueue | Problem, ...]


@record
class ListedMessage:
    """A listed message; `arrival_timestamp` is in UTC."""

    guid: str
    size_bytes: int
    arrival_timestamp: datetime


@record
class QueueContents:
    """Listed messages of a queue; `offset` is the first one's index among `total_queue_messages`."""

    messages: tuple[ListedMessage, ...]
    offset: int
    total_queue_messages: int


@record
class MessageContents:
    """A stored message. `apps` have yet to confirm it; `data` is properties and payload as posted, in base64.

    `compression` is the number and `schema_id` the form of the wire; with `has_properties` they determine how to read
    it.
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


@record
class StorageQueueInfo:
    queue_uri: str
    queue_key: str
    partition_id: int
    num_messages: int
    num_bytes: int
    is_persistent: bool
    internal_queue_id: int = 0


@record
class StorageContent:
    storages: tuple[StorageQueueInfo, ...]


@record
class FileInfo:
    """The usage of a file. Of `position_bytes`, `outstanding_bytes` are still needed; `size_bytes` is the limit."""

    position_bytes: int
    size_bytes: int
    outstanding_bytes: int


@record
class FileSetInfo:
    data_file_name: str
    aliased_blob_buffer_count: int


@record
class ActiveFileSet:
    data_file: FileInfo
    journal_file: FileInfo
    qlist_file: FileInfo


@record
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


@record
class FileStore:
    """The files of a partition; `state` is open, closed or stopping."""

    partition_id: int
    state: str
    summary: FileStoreSummary


@record
class ClusterStorageSummary:
    cluster_file_store_location: str
    file_stores: tuple[FileStore, ...]


# Domains


@record
class DomainInfo:
    """A domain. `config_json` is a JSON text; `queue_uris` are the queues in use."""

    name: str
    config_json: str
    cluster_name: str
    capacity_meter: CapacityMeter
    queue_uris: tuple[str, ...]
    storage_content: StorageContent


# Clusters


@record
class ClusterNode:
    host_name: str
    node_id: int
    data_center: str


@record
class ClusterInfo:
    """A cluster; `locality` is remote, local (one node) or member."""

    locality: str
    name: str
    nodes: tuple[ClusterNode, ...]


@record
class ClusterList:
    clusters: tuple[ClusterInfo, ...]


@record
class ClusterNodeInfo:
    """A node of a cluster; `is_available` is None for the node that answers."""

    description: str
    is_available: bool | None
    status: str
    primary_for_partition_ids: tuple[int, ...]


@record
class NodeStatuses:
    nodes: tuple[ClusterNodeInfo, ...]


@record
class LeaderMessageSequence:
    elector_term: int
    sequence_number: int


@record
class ElectorInfo:
    elector_state: str
    leader_node: str
    leader_message_sequence: LeaderMessageSequence
    leader_status: str


@record
class PartitionInfo:
    num_queues_mapped: int
    num_active_queues: int
    primary_node: str | None
    primary_lease_id: int
    primary_status: str


@record
class PartitionsInfo:
    partitions: tuple[PartitionInfo, ...]


@record
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


@record
class ClusterProxyStatusResult:
    """A cluster as a proxy to it sees it (mqbcmd::ClusterProxyStatus)."""

    description: str
    active_node_description: str | None
    is_healthy: bool
    node_statuses: NodeStatuses
    queues_info: StorageContent


@record
class ClusterHealthResult:
    """A node's view of its cluster, with its problems; not in the reference."""

    is_healthy: bool
    problems: tuple[str, ...]
    view: ClusterView


@record
class ClusterDomain:
    name: str
    num_assigned_queues: int
    loaded: bool


@record
class SubId:
    sub_id: int
    app_id: str


@record
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


@record
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
