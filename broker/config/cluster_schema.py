"""`clusters.json`: the clusters this node is in or speaks to. Source: `mqbcfg.xsd`, type `ClustersDefinition`."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from broker.config.errors import shown
from broker.config.model import Bool, Choice, Int, Model, UInt, ULong, fault

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
    tls: Bool = False


class ClusterNodeConnection(Choice):
    tcp: TcpClusterNodeConnection | None = None


class ClusterNode(Model):
    """`principal`, not in the reference's schema either, is who the node authenticates as, if not under its name."""

    id: Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
    name: str = ""
    data_center: str = ""
    transport: ClusterNodeConnection
    principal: str = ""

    @property
    def tls(self) -> bool:
        """Whether it is to be dialed over TLS."""
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
    """Where a partition's files are and how large one may get, in bytes. Relative to the working directory."""

    num_partitions: Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
    location: Annotated[str, Field(min_length=1)]
    archive_location: Annotated[str, Field(min_length=1)]
    max_data_file_size: Annotated[ULong, Field(ge=1)]
    max_journal_file_size: Annotated[ULong, Field(ge=1)]
    max_qlist_file_size: Annotated[ULong, Field(ge=1)]
    max_csl_file_size: ULong = Field(default=67_108_864, alias="maxCSLFileSize")
    preallocate: Bool = False
    max_archived_file_sets: Int = 0
    prefault_pages: Bool = False
    flush_at_shutdown: Bool = True
    sync_config: StorageSyncConfig = StorageSyncConfig()


class MasterAssignmentAlgorithm(Enum):
    LEADER_IS_MASTER_ALL = "E_LEADER_IS_MASTER_ALL"
    LEAST_ASSIGNED = "E_LEAST_ASSIGNED"


class ElectorConfig(Model):
    """`quorum` 0 is a majority of the nodes; more than there are keeps every node from leading."""

    initial_wait_timeout_ms: Int = 8000
    max_random_wait_timeout_ms: Int = 3000
    scouting_result_timeout_ms: Int = 4000
    election_result_timeout_ms: Int = 4000
    heartbeat_broadcast_period_ms: Int = 2000
    heartbeat_check_period_ms: Int = 1000
    heartbeat_miss_count: Int = 10
    quorum: UInt = 0
    leader_sync_delay_ms: Int = 80_000


class QueueOperationsConfig(Model):
    open_timeout_ms: Int = 300_000
    configure_timeout_ms: Int = 300_000
    close_timeout_ms: Int = 300_000
    reopen_timeout_ms: Int = 43_200_000
    reopen_retry_interval_ms: Int = 5000
    reopen_max_attempts: Int = 10
    assignment_timeout_ms: Int = 15_000
    keepalive_duration_ms: Int = 1_800_000
    consumption_monitor_period_ms: Int = 30_000
    stop_timeout_ms: Int = 10_000
    shutdown_timeout_ms: Int = 20_000
    ack_window_size: Int = 500


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
    is_fsm_workflow: Bool = Field(default=False, alias="isFSMWorkflow")
    does_fsm_write_qlist: Bool = Field(default=True, alias="doesFSMwriteQLIST")
    cluster_fsm_watchdog_timeout_sec: Int = 300
    cluster_fsm_watchdog_num_retries: Int = 1
    partition_fsm_watchdog_timeout_sec: Int = 300
    partition_fsm_watchdog_num_retries: Int = 1

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
    high_threshold: UInt = 4
    low_interval: UInt = 1000
    high_interval: UInt = 3000


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
    nodes: Annotated[tuple[ClusterNode, ...], Field(min_length=1), AfterValidator(_unique_ids)]
    queue_operations: QueueOperationsConfig = QueueOperationsConfig()
    cluster_monitor_config: ClusterMonitorConfig = ClusterMonitorConfig()
    message_throttle_config: MessageThrottleConfig = MessageThrottleConfig()


class ClusterDefinition(_NamedCluster):
    partition_config: PartitionConfig
    master_assignment: MasterAssignmentAlgorithm = MasterAssignmentAlgorithm.LEADER_IS_MASTER_ALL
    elector: ElectorConfig = ElectorConfig()
    cluster_attributes: ClusterAttributes = ClusterAttributes()


class ClusterProxyDefinition(_NamedCluster):
    """A cluster that this node is not in; also the whole of a file `proxyclusters/<name>.json`."""


class VirtualClusterInformation(Model):
    name: str
    self_node_id: Int


class ClustersDefinition(Model):
    my_clusters: tuple[ClusterDefinition, ...] = ()
    my_virtual_clusters: tuple[VirtualClusterInformation, ...] = ()
    proxy_clusters: tuple[ClusterProxyDefinition, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        seen: set[str] = set()
        for cluster in (*self.my_clusters, *self.proxy_clusters):
            if cluster.name in seen:
                raise fault(f"there are two clusters {shown(cluster.name)}", "rename or remove one of them")
            seen.add(cluster.name)
        return self
