"""The models of `clusters.json`: a node's clusters. Source: `mqbcfg.xsd`, type `ClustersDefinition`."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from broker.bmq.config.errors import shown
from broker.bmq.config.model import Bool, Choice, Int, Model, UInt, ULong, fault

__all__ = [
    "ClusterDefinition",
    "ClusterNode",
    "ClusterProxyDefinition",
    "ClustersDefinition",
    "ElectorConfig",
    "MasterAssignmentAlgorithm",
    "PartitionConfig",
]

_ENDPOINT = re.compile(r"tcp://(?P<host>[^/:\[\]]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})/?")


def _endpoint(text: str) -> str:
    found = _ENDPOINT.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= 65535:
        raise fault(f"is {shown(text)}", "write tcp://HOST:PORT")
    return text


class TcpClusterNodeConnection(Model):
    """`endpoint` is `tcp://HOST:PORT`. With `tls`, which is not in the reference's schema, it listens for TLS."""

    endpoint: Annotated[str, AfterValidator(_endpoint)]
    """The node's address: `tcp://HOST:PORT`."""
    tls: Bool = False
    """Connect to it by TLS."""


class ClusterNodeConnection(Choice):
    tcp: TcpClusterNodeConnection | None = None


class ClusterNode(Model):
    """`principal`, not in the reference's schema either, is who the node authenticates as, if not under its name."""

    id: Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
    """Its number in the cluster, the same in the files of all nodes."""
    name: str = ""
    """Its name, the same in the files of all nodes."""
    data_center: str = ""
    """A proxy prefers nodes in its own."""
    transport: ClusterNodeConnection
    """The node's address."""
    principal: str = ""
    """The principal that the node authenticates as; its name if empty."""

    @property
    def tls(self) -> bool:
        """True if connections to the node use TLS."""
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
    startup_recovery_max_duration_ms: Int = 1_200_000
    max_attempts_storage_sync: Int = 3
    storage_sync_req_timeout_ms: Int = 300_000
    master_sync_max_duration_ms: Int = 600_000
    partition_sync_state_req_timeout_ms: Int = 120_000
    partition_sync_data_req_timeout_ms: Int = 120_000
    startup_wait_duration_ms: Int = 60_000
    file_chunk_size: Int = 4_194_304
    partition_sync_event_size: Int = 4_194_304


class PartitionConfig(Model):
    """Location and size limits of a partition's files, in bytes. Paths are relative to the working directory."""

    num_partitions: Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
    """Number of partitions."""
    location: Annotated[str, Field(min_length=1)]
    """Directory of the files."""
    archive_location: Annotated[str, Field(min_length=1)]
    """Directory that file sets are moved to after a rollover."""
    max_data_file_size: Annotated[ULong, Field(ge=1)]
    """Bytes at which a DATA file is full."""
    max_journal_file_size: Annotated[ULong, Field(ge=1)]
    """Bytes at which a JOURNAL is full."""
    max_qlist_file_size: Annotated[ULong, Field(ge=1)]
    """Bytes at which a QLIST file is full."""
    max_csl_file_size: ULong = Field(default=67_108_864, alias="maxCSLFileSize")
    """Bytes at which the ledger is full."""
    preallocate: Bool = False
    """Accepted; has no effect."""
    max_archived_file_sets: Int = 0
    """File sets of a partition that are kept in the archive."""
    prefault_pages: Bool = False
    """Accepted; has no effect."""
    flush_at_shutdown: Bool = True
    """Bring the files to the disk at a clean stop."""
    sync_config: StorageSyncConfig = StorageSyncConfig()
    """Accepted; has no effect."""


class MasterAssignmentAlgorithm(Enum):
    LEADER_IS_MASTER_ALL = "E_LEADER_IS_MASTER_ALL"
    LEAST_ASSIGNED = "E_LEAST_ASSIGNED"


class ElectorConfig(Model):
    """`quorum` 0 is a majority of the nodes; more than there are keeps every node from leading."""

    initial_wait_timeout_ms: Int = 8000
    """Time that a node waits for a leader before it scouts for the first time."""
    max_random_wait_timeout_ms: Int = 3000
    """Longest random wait before it scouts again."""
    scouting_result_timeout_ms: Int = 4000
    """Time to wait for answers to scouting."""
    election_result_timeout_ms: Int = 4000
    """Time to wait for votes."""
    heartbeat_broadcast_period_ms: Int = 2000
    """Time between a leader's heartbeats."""
    heartbeat_check_period_ms: Int = 1000
    """Interval at which a follower checks for heartbeats."""
    heartbeat_miss_count: Int = 10
    """Heartbeats in a row after which a leader is given up."""
    quorum: UInt = 0
    """Nodes that must agree."""
    leader_sync_delay_ms: Int = 80_000
    """Accepted; has no effect."""


class QueueOperationsConfig(Model):
    open_timeout_ms: Int = 300_000
    """Time limit for opening a queue."""
    configure_timeout_ms: Int = 300_000
    """Accepted; has no effect."""
    close_timeout_ms: Int = 300_000
    """Accepted; has no effect."""
    reopen_timeout_ms: Int = 43_200_000
    """Accepted; has no effect."""
    reopen_retry_interval_ms: Int = 5000
    """Time after which a queue is opened again at a new upstream that refused it, at a proxy or a replica."""
    reopen_max_attempts: Int = 10
    """Number of such attempts, the first included; an alarm is raised then."""
    assignment_timeout_ms: Int = 15_000
    """Accepted; has no effect."""
    keepalive_duration_ms: Int = 1_800_000
    """Time after which a queue that nobody has open is removed."""
    consumption_monitor_period_ms: Int = 30_000
    """Accepted; has no effect."""
    stop_timeout_ms: Int = 10_000
    """Accepted; has no effect."""
    shutdown_timeout_ms: Int = 20_000
    """Time that a stopping broker of a cluster of several, or a proxy, waits for confirms of delivered messages."""
    ack_window_size: Int = 500
    """Accepted; has no effect."""


class ClusterMonitorConfig(Model):
    """Seconds after which observers are told, and an alarm is raised, that a part of the cluster is not active."""

    max_time_leader: Int = 60
    max_time_master: Int = 120
    max_time_node: Int = 120
    max_time_failover: Int = 600
    threshold_leader: Int = 30
    threshold_master: Int = 60
    threshold_node: Int = 60
    threshold_failover: Int = 300


class ClusterAttributes(Model):
    is_csl_mode_enabled: Bool = Field(default=False, alias="isCSLModeEnabled")
    """Must be true where `isFSMWorkflow` is."""
    is_fsm_workflow: Bool = Field(default=False, alias="isFSMWorkflow")
    """The broker speaks the newer workflow with other nodes, whatever this says."""
    does_fsm_write_qlist: Bool = Field(default=True, alias="doesFSMwriteQLIST")
    """Accepted; has no effect."""
    cluster_fsm_watchdog_timeout_sec: Int = 300
    """Accepted; has no effect."""
    cluster_fsm_watchdog_num_retries: Int = 1
    """Accepted; has no effect."""
    partition_fsm_watchdog_timeout_sec: Int = 300
    """Accepted; has no effect."""
    partition_fsm_watchdog_num_retries: Int = 1
    """Accepted; has no effect."""

    @model_validator(mode="after")
    def _the_state_machines_need_the_ledger(self) -> Self:
        if self.is_fsm_workflow and not self.is_csl_mode_enabled:
            raise fault(
                '"isFSMWorkflow" is true but "isCSLModeEnabled" is not', 'set "isCSLModeEnabled" to true as well'
            )
        return self


class MessageThrottleConfig(Model):
    """Intervals in milliseconds; thresholds are remaining delivery attempts of a message."""

    low_threshold: UInt = 2
    """A message with at most so many attempts left waits for `highInterval`."""
    high_threshold: UInt = 4
    """A message with at most so many attempts left waits for `lowInterval`."""
    low_interval: UInt = 1000
    """The shorter wait before it is delivered."""
    high_interval: UInt = 3000
    """The longer wait."""


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
    """Its nodes."""
    queue_operations: QueueOperationsConfig = QueueOperationsConfig()
    """Times of queues."""
    cluster_monitor_config: ClusterMonitorConfig = ClusterMonitorConfig()
    """Accepted; has no effect."""
    message_throttle_config: MessageThrottleConfig = MessageThrottleConfig()
    """Delays between deliveries of messages that consumers did not survive."""


class ClusterDefinition(_NamedCluster):
    partition_config: PartitionConfig
    """Its files."""
    master_assignment: MasterAssignmentAlgorithm = MasterAssignmentAlgorithm.LEADER_IS_MASTER_ALL
    """The node that becomes primary of a partition: the leader, or the one with the fewest."""
    elector: ElectorConfig = ElectorConfig()
    """Times and quorum of elections."""
    cluster_attributes: ClusterAttributes = ClusterAttributes()
    """The configured workflow."""


class ClusterProxyDefinition(_NamedCluster):
    """A cluster that this node is not in; also the whole of a file `proxyclusters/<name>.json`."""


class VirtualClusterInformation(Model):
    name: str
    """The cluster's name."""
    self_node_id: Int
    """The id of the node that it is there."""


class ClustersDefinition(Model):
    my_clusters: tuple[ClusterDefinition, ...] = ()
    """Clusters that this node is a member of."""
    my_virtual_clusters: tuple[VirtualClusterInformation, ...] = ()
    """Clusters that this proxy stands for."""
    proxy_clusters: tuple[ClusterProxyDefinition, ...] = ()
    """Clusters that this node is a proxy to."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        seen: set[str] = set()
        for cluster in (*self.my_clusters, *self.proxy_clusters):
            if cluster.name in seen:
                raise fault(f"there are two clusters {shown(cluster.name)}", "rename or remove one of them")
            seen.add(cluster.name)
        return self
