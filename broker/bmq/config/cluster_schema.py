"""The models of `clusters.json`: a node's clusters. Source: `mqbcfg.xsd`, type `ClustersDefinition`."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from broker.bmq.config.bounds import (
    Bool,
    Count,
    DataFileBytes,
    Int,
    JournalFileBytes,
    LedgerFileBytes,
    NodeId,
    PartitionCount,
    Positive,
    QlistFileBytes,
    UInt,
)
from broker.bmq.config.errors import shown
from broker.bmq.config.model import Choice, Model, NoEffect, fault

__all__ = [
    "ClusterDefinition",
    "ClusterNode",
    "ClusterProxyDefinition",
    "ClustersDefinition",
    "ElectorConfig",
    "MasterAssignmentAlgorithm",
    "PartitionConfig",
]

_ENDPOINT = re.compile(r"tcp://(?P<host>[^/:\[\]]+|\[[0-9a-fA-F:.]+(?:%[^/\[\]]+)?\]):(?P<port>[0-9]{1,5})/?")


def _endpoint(text: str) -> str:
    found = _ENDPOINT.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= 65535:
        raise fault(f"is {shown(text)}", "write tcp://HOST:PORT")
    return text


class TcpClusterNodeConnection(Model):
    """The TCP address of a node. The reference's schema does not have `tls`."""

    endpoint: Annotated[str, AfterValidator(_endpoint)]
    """The node's host and port, as `tcp://HOST:PORT`."""
    tls: Bool = False
    """Restriction of the node to TLS connections; others connect to it with TLS."""


class ClusterNodeConnection(Choice):
    tcp: TcpClusterNodeConnection | None = None


class ClusterNode(Model):
    """A node of a cluster. The reference's schema does not have `principal`."""

    id: NodeId
    """The node's number in the cluster, equal in the files of all nodes."""
    name: str = ""
    """The node's name, equal in the files of all nodes."""
    data_center: str = ""
    """The node's data center. A proxy prefers nodes in its own data center."""
    transport: ClusterNodeConnection
    """The node's address."""
    principal: str = ""
    """The principal that the node authenticates as; if empty, the node's name."""

    @property
    def tls(self) -> bool:
        return self.transport.tcp is not None and self.transport.tcp.tls

    @property
    def host(self) -> str:
        return self._address()["host"].strip("[]")

    @property
    def port(self) -> int:
        return int(self._address()["port"])

    def _address(self) -> re.Match[str]:
        assert self.transport.tcp is not None
        found = _ENDPOINT.fullmatch(self.transport.tcp.endpoint)
        assert found is not None
        return found


class StorageSyncConfig(Model):
    startup_recovery_max_duration_ms: Count = 1_200_000
    max_attempts_storage_sync: Count = 3
    storage_sync_req_timeout_ms: Count = 300_000
    master_sync_max_duration_ms: Count = 600_000
    partition_sync_state_req_timeout_ms: Count = 120_000
    partition_sync_data_req_timeout_ms: Count = 120_000
    startup_wait_duration_ms: Count = 60_000
    file_chunk_size: Positive = 4_194_304
    partition_sync_event_size: Positive = 4_194_304


class PartitionConfig(Model):
    """Location and size limits of a partition's files, in bytes. Paths are relative to the working directory."""

    num_partitions: PartitionCount
    """Number of partitions of the cluster; at least as many as the store has."""
    location: Annotated[str, Field(min_length=1)]
    """Directory of the partitions' files and of the cluster-state ledger."""
    archive_location: Annotated[str, Field(min_length=1)]
    """Directory that file sets are moved to after a rollover."""
    max_data_file_size: DataFileBytes
    """Size limit of a DATA file, in bytes."""
    max_journal_file_size: JournalFileBytes
    """Size limit of a JOURNAL file, in bytes."""
    max_qlist_file_size: QlistFileBytes
    """Size limit of a QLIST file, in bytes."""
    max_csl_file_size: LedgerFileBytes = Field(default=67_108_864, alias="maxCSLFileSize")
    """Size limit of a file of the cluster-state ledger, in bytes."""
    preallocate: Annotated[Bool, NoEffect("files are allocated piece by piece, each before it is written")] = False
    max_archived_file_sets: Count = 0
    """Maximum number of archived file sets per partition; the oldest are deleted."""
    prefault_pages: Annotated[
        Bool, NoEffect("pages are mapped in advance of writes, whatever the size of the file")
    ] = False
    flush_at_shutdown: Bool = True
    """Flush of the files to the disk at a clean stop."""
    sync_config: Annotated[
        StorageSyncConfig, NoEffect("nodes heal as the state machines' workflow does, at a pace of their own")
    ] = StorageSyncConfig()


class MasterAssignmentAlgorithm(Enum):
    LEADER_IS_MASTER_ALL = "E_LEADER_IS_MASTER_ALL"
    LEAST_ASSIGNED = "E_LEAST_ASSIGNED"


class ElectorConfig(Model):
    """Times and quorum of the election of the cluster's leader."""

    initial_wait_timeout_ms: Count = 8000
    """Time that a starting node waits for a leader before its first scouting, in milliseconds."""
    max_random_wait_timeout_ms: Count = 3000
    """Upper bound of the random wait before further scoutings, in milliseconds."""
    scouting_result_timeout_ms: Positive = 4000
    """Time to wait for responses to a scouting, in milliseconds."""
    election_result_timeout_ms: Positive = 4000
    """Time to wait for votes, in milliseconds."""
    heartbeat_broadcast_period_ms: Positive = 2000
    """Interval of the leader's heartbeats, in milliseconds."""
    heartbeat_check_period_ms: Positive = 1000
    """Interval at which a follower checks for missed heartbeats, in milliseconds."""
    heartbeat_miss_count: Positive = 10
    """Number of consecutive missed heartbeats after which a follower abandons its leader."""
    quorum: UInt = 0
    """Number of votes that elect a leader; 0: a majority. More than the number of nodes prevents any election."""
    leader_sync_delay_ms: Annotated[
        Count, NoEffect("it belongs to the older workflow, which this program does not speak")
    ] = 80_000


class QueueOperationsConfig(Model):
    open_timeout_ms: Positive = 300_000
    """Timeout of a request to open a queue, in milliseconds."""
    configure_timeout_ms: Annotated[Count, NoEffect("requests to configure a queue have one fixed timeout")] = 300_000
    close_timeout_ms: Annotated[Count, NoEffect("requests to close a queue have one fixed timeout")] = 300_000
    reopen_timeout_ms: Annotated[
        Count, NoEffect("a request to reopen a queue waits for its answer as long as the link is up")
    ] = 43_200_000
    reopen_retry_interval_ms: Positive = 5000
    """Interval at which a proxy or replica retries to reopen a queue at a new upstream broker, in milliseconds."""
    reopen_max_attempts: Int = 10
    """Maximum number of attempts to reopen a queue, the first included; 0 or less: no maximum. After the last an alarm
    is raised."""
    assignment_timeout_ms: Annotated[
        Count, NoEffect("a queue waits for its assignment as long as the open request does")
    ] = 15_000
    keepalive_duration_ms: Count = 1_800_000
    """Time after which an unused and empty queue is removed, in milliseconds."""
    consumption_monitor_period_ms: Annotated[
        Count, NoEffect("each queue is checked when its time is over, not periodically")
    ] = 30_000
    stop_timeout_ms: Annotated[Count, NoEffect("a stopping node waits for confirms for `shutdownTimeoutMs`")] = 10_000
    shutdown_timeout_ms: Count = 20_000
    """Time that a stopping node or proxy waits for confirms of delivered messages, in ms; not on a single node."""
    ack_window_size: Annotated[Count, NoEffect("acknowledgements are sent at the end of each step, in one event")] = 500


class ClusterMonitorConfig(Model):
    """Times and thresholds, in seconds, of alarms about inactive parts of the cluster."""

    max_time_leader: Count = 60
    """Time without a leader after which `PANIC [CLUSTER_STATE_MONITOR]` is raised, and its interval, in seconds."""
    max_time_master: Count = 120
    """The same for a partition without a primary that serves it."""
    max_time_node: Count = 120
    """The same for a node that is connected and not available; not at a proxy."""
    max_time_failover: Count = 600
    """The same for queues that are not open again after a fail-over."""
    threshold_leader: Count = 30
    """Time without a leader after which the log says so, in seconds."""
    threshold_master: Count = 60
    """The same for a partition without a primary that serves it."""
    threshold_node: Count = 60
    """The same for a node that is connected and not available."""
    threshold_failover: Count = 300
    """The same for queues that are not open again; also the interval of `PANIC [CLUSTER]` about them."""


class ClusterAttributes(Model):
    is_csl_mode_enabled: Bool = Field(default=False, alias="isCSLModeEnabled")
    """Storage of the cluster state in a ledger; must be true if `isFSMWorkflow` is."""
    is_fsm_workflow: Annotated[Bool, NoEffect("the state machines' workflow is always used between nodes")] = Field(
        default=False, alias="isFSMWorkflow"
    )
    does_fsm_write_qlist: Annotated[Bool, NoEffect("QLIST is always written")] = Field(
        default=True, alias="doesFSMwriteQLIST"
    )
    cluster_fsm_watchdog_timeout_sec: Annotated[Count, NoEffect("healing is retried without end")] = 300
    cluster_fsm_watchdog_num_retries: Annotated[Count, NoEffect("healing is retried without end")] = 1
    partition_fsm_watchdog_timeout_sec: Annotated[Count, NoEffect("healing is retried without end")] = 300
    partition_fsm_watchdog_num_retries: Annotated[Count, NoEffect("healing is retried without end")] = 1

    @model_validator(mode="after")
    def _the_state_machines_need_the_ledger(self) -> Self:
        if self.is_fsm_workflow and not self.is_csl_mode_enabled:
            raise fault(
                '"isFSMWorkflow" is true but "isCSLModeEnabled" is not', 'set "isCSLModeEnabled" to true as well'
            )
        return self


class MessageThrottleConfig(Model):
    """Delays before a message is delivered again, by its remaining delivery attempts."""

    low_threshold: UInt = 2
    """Remaining attempts at or below which a message waits for `highInterval`."""
    high_threshold: UInt = 4
    """Remaining attempts at or below which a message waits for `lowInterval`."""
    low_interval: UInt = 1000
    """The shorter delay, in milliseconds."""
    high_interval: UInt = 3000
    """The longer delay, in milliseconds."""


def _unique_ids(nodes: tuple[ClusterNode, ...]) -> tuple[ClusterNode, ...]:
    seen: dict[int, str] = {}
    for node in nodes:
        if node.id in seen:
            raise fault(
                f"nodes {shown(seen[node.id])} and {shown(node.name)} both have id {node.id}",
                "give each node an id of its own, the same in the files of all nodes",
            )
        seen[node.id] = node.name
    return nodes


class _NamedCluster(Model):
    name: Annotated[str, Field(min_length=1)]
    """The cluster's name."""
    nodes: Annotated[tuple[ClusterNode, ...], Field(min_length=1), AfterValidator(_unique_ids)]
    """The cluster's nodes."""
    queue_operations: QueueOperationsConfig = QueueOperationsConfig()
    """Timeouts and intervals of operations on queues."""
    cluster_monitor_config: ClusterMonitorConfig = ClusterMonitorConfig()
    """Times after which a cluster that is not well raises alarms; a cluster of one raises none."""
    message_throttle_config: MessageThrottleConfig = MessageThrottleConfig()
    """Delays before a message is delivered again after its consumer crashed."""


class ClusterDefinition(_NamedCluster):
    partition_config: PartitionConfig
    """Number, location and size limits of the partitions' files."""
    master_assignment: MasterAssignmentAlgorithm = MasterAssignmentAlgorithm.LEADER_IS_MASTER_ALL
    """Choice of a partition's primary: the leader, or the node that is primary of the fewest partitions."""
    elector: ElectorConfig = ElectorConfig()
    """Timeouts and quorum of elections."""
    cluster_attributes: ClusterAttributes = ClusterAttributes()
    """The workflow by which nodes agree on the cluster's state."""


class ClusterProxyDefinition(_NamedCluster):
    """A cluster that this broker is a proxy to; also the content of a file `proxyclusters/<name>.json`."""


class VirtualClusterInformation(Model):
    name: str
    """The cluster's name."""
    self_node_id: NodeId
    """The node id of this broker in that cluster."""


class ClustersDefinition(Model):
    my_clusters: tuple[ClusterDefinition, ...] = ()
    """The clusters that this node is a member of; a node uses at most one."""
    my_virtual_clusters: tuple[VirtualClusterInformation, ...] = ()
    """The clusters in which this proxy takes the place of a node."""
    proxy_clusters: tuple[ClusterProxyDefinition, ...] = ()
    """The clusters that this broker is a proxy to."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        seen: set[str] = set()
        for cluster in (*self.my_clusters, *self.proxy_clusters):
            if cluster.name in seen:
                raise fault(f"there are two clusters {shown(cluster.name)}", "rename or remove one of them")
            seen.add(cluster.name)
        return self
