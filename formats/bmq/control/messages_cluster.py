"""Messages between the nodes of a cluster: cluster state, partitions and their synchronisation.

Source: the reference's schema `bmqp_ctrlmsg.xsd`. Fields are encoded in the schema's order: do not reorder them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from formats.bmq.control.messages_session import Status
from formats.bmq.control.schema import Int, UInt, ULong, alternatives, sequence

__all__ = [
    "AppIdInfo",
    "ClusterMessage",
    "ClusterStateFSMMessage",
    "ClusterSyncRequest",
    "ClusterSyncResponse",
    "FollowerClusterStateRequest",
    "FollowerClusterStateResponse",
    "FollowerLSNRequest",
    "FollowerLSNResponse",
    "LeaderAdvisory",
    "LeaderAdvisoryAck",
    "LeaderAdvisoryCommit",
    "LeaderMessageSequence",
    "LeaderPassive",
    "LeaderSyncDataQuery",
    "LeaderSyncDataQueryResponse",
    "LeaderSyncStateQuery",
    "LeaderSyncStateQueryResponse",
    "NodeStatus",
    "NodeStatusAdvisory",
    "PartitionMessage",
    "PartitionPrimaryAdvisory",
    "PartitionPrimaryInfo",
    "PartitionSequenceNumber",
    "PartitionSyncDataQuery",
    "PartitionSyncDataQueryResponse",
    "PartitionSyncDataQueryStatus",
    "PartitionSyncStateQuery",
    "PartitionSyncStateQueryResponse",
    "PrimaryStateRequest",
    "PrimaryStateResponse",
    "PrimaryStatus",
    "PrimaryStatusAdvisory",
    "QueueAssignmentAdvisory",
    "QueueAssignmentRequest",
    "QueueInfo",
    "QueueInfoUpdate",
    "QueueUnAssignmentAdvisory",
    "QueueUnassignedAdvisory",
    "QueueUnassignmentRequest",
    "QueueUpdateAdvisory",
    "RegistrationRequest",
    "RegistrationResponse",
    "ReplicaDataRequest",
    "ReplicaDataResponse",
    "ReplicaDataType",
    "ReplicaStateRequest",
    "ReplicaStateResponse",
    "StateNotification",
    "StopRequest",
    "StopResponse",
    "StorageSyncRequest",
    "StorageSyncResponse",
    "StorageSyncResponseType",
    "SyncPoint",
    "SyncPointOffsetPair",
]


@sequence
class LeaderMessageSequence:
    """The number of a leader's message, unique and increasing: the elector's term, then a sequence number."""

    elector_term: ULong
    sequence_number: ULong


@sequence
class PartitionSequenceNumber:
    """The number of a record in a partition, unique and increasing: the primary's lease, then a sequence number."""

    primary_lease_id: UInt
    sequence_number: ULong


# Cluster state, as published by the leader


@sequence
class PartitionPrimaryInfo:
    partition_id: Int
    primary_node_id: Int
    primary_lease_id: UInt


@sequence
class AppIdInfo:
    """`app_key` is 5 bytes."""

    app_id: str
    app_key: bytes


@sequence
class QueueInfo:
    """A queue's partition, and the 5-byte key of its records there."""

    uri: str
    key: bytes
    partition_id: Int
    app_ids: tuple[AppIdInfo, ...] = ()


@sequence
class QueueInfoUpdate:
    """Apps added to and removed from one queue or, if `uri` is empty, a domain that has no queue yet."""

    uri: str
    key: bytes
    partition_id: Int
    added_app_ids: tuple[AppIdInfo, ...] = ()
    removed_app_ids: tuple[AppIdInfo, ...] = ()
    domain: str


@sequence
class PartitionPrimaryAdvisory:
    sequence_number: LeaderMessageSequence
    partitions: tuple[PartitionPrimaryInfo, ...] = ()


@sequence
class QueueAssignmentAdvisory:
    sequence_number: LeaderMessageSequence
    queues: tuple[QueueInfo, ...] = ()


@sequence
class QueueUpdateAdvisory:
    sequence_number: LeaderMessageSequence
    queue_updates: tuple[QueueInfoUpdate, ...] = ()


@sequence
class QueueUnAssignmentAdvisory:
    sequence_number: LeaderMessageSequence
    partition_id: Int
    primary_lease_id: UInt
    primary_node_id: Int
    queues: tuple[QueueInfo, ...] = ()


@sequence
class LeaderAdvisory:
    """The whole cluster state: the leader's snapshot."""

    sequence_number: LeaderMessageSequence
    partitions: tuple[PartitionPrimaryInfo, ...] = ()
    queues: tuple[QueueInfo, ...] = ()


@sequence
class LeaderAdvisoryAck:
    sequence_number_acked: LeaderMessageSequence


@sequence
class LeaderAdvisoryCommit:
    """Commit of the advisory `sequence_number_committed`, which a majority has; the commit has its own number."""

    sequence_number: LeaderMessageSequence
    sequence_number_committed: LeaderMessageSequence


@sequence
class LeaderPassive:
    """Notice from a follower that its leader is passive."""


@sequence
class StateNotification:
    choice: Annotated[LeaderPassive, alternatives()]


class NodeStatus(IntEnum):
    UNKNOWN = 0
    STARTING = 10
    AVAILABLE = 20
    STOPPING = 30
    UNAVAILABLE = 40


@sequence
class NodeStatusAdvisory:
    status: NodeStatus


@sequence
class LeaderSyncStateQuery:
    """Request from a new leader for the number of a follower's latest cluster state."""


@sequence
class LeaderSyncStateQueryResponse:
    leader_message_sequence: LeaderMessageSequence


@sequence
class LeaderSyncDataQuery:
    """Request from a new leader for the cluster state of the follower that is ahead."""


@sequence
class LeaderSyncDataQueryResponse:
    leader_sync_data: LeaderAdvisory


@sequence
class QueueAssignmentRequest:
    queue_uri: str


@sequence
class QueueUnassignmentRequest:
    queue_uri: str
    partition_id: Int
    queue_key: bytes


# Cluster state machine


@sequence
class FollowerLSNRequest:
    """Request from the leader for a follower's leader sequence number."""


@sequence
class FollowerLSNResponse:
    sequence_number: LeaderMessageSequence


@sequence
class RegistrationRequest:
    """Unsolicited report of a follower's leader sequence number."""

    sequence_number: LeaderMessageSequence


@sequence
class RegistrationResponse:
    """Confirmation that the leader has registered the follower."""


@sequence
class FollowerClusterStateRequest:
    """Request from the leader for the snapshot of the follower that is ahead."""


@sequence
class FollowerClusterStateResponse:
    cluster_state_snapshot: LeaderAdvisory


@sequence
class ClusterStateFSMMessage:
    choice: Annotated[
        FollowerLSNRequest
        | FollowerLSNResponse
        | RegistrationRequest
        | RegistrationResponse
        | FollowerClusterStateRequest
        | FollowerClusterStateResponse,
        alternatives(),
    ]


# Partition state machine: requests and responses carry the sender's own numbers


@sequence
class ReplicaStateRequest:
    """Request from the primary for a replica's sequence number."""

    partition_id: Int
    primary_lease_id: UInt
    latest_sequence_number: PartitionSequenceNumber
    first_sync_point_after_rollover_sequence_number: PartitionSequenceNumber


@sequence
class ReplicaStateResponse:
    partition_id: Int
    primary_lease_id: UInt
    latest_sequence_number: PartitionSequenceNumber
    first_sync_point_after_rollover_sequence_number: PartitionSequenceNumber


@sequence
class PrimaryStateRequest:
    """Request from a replica for the primary's sequence number."""

    partition_id: Int
    primary_lease_id: UInt
    latest_sequence_number: PartitionSequenceNumber
    first_sync_point_after_rollover_sequence_number: PartitionSequenceNumber


@sequence
class PrimaryStateResponse:
    partition_id: Int
    primary_lease_id: UInt
    latest_sequence_number: PartitionSequenceNumber
    first_sync_point_after_rollover_sequence_number: PartitionSequenceNumber


class ReplicaDataType(IntEnum):
    """The replica's part: to send (PULL), to receive (PUSH), or to discard its records and receive (DROP)."""

    UNKNOWN = 0
    PULL = 10
    PUSH = 20
    DROP = 30


@sequence
class ReplicaDataRequest:
    """Request to a replica to synchronise records `begin_sequence_number` to `end_sequence_number`."""

    partition_id: Int
    primary_lease_id: UInt
    replica_data_type: ReplicaDataType
    begin_sequence_number: PartitionSequenceNumber
    end_sequence_number: PartitionSequenceNumber


@sequence
class ReplicaDataResponse:
    partition_id: Int
    primary_lease_id: UInt
    replica_data_type: ReplicaDataType
    begin_sequence_number: PartitionSequenceNumber
    end_sequence_number: PartitionSequenceNumber


@sequence
class PartitionMessage:
    choice: Annotated[
        ReplicaStateRequest
        | ReplicaStateResponse
        | PrimaryStateRequest
        | PrimaryStateResponse
        | ReplicaDataRequest
        | ReplicaDataResponse,
        alternatives(),
    ]


# Partition synchronisation without the state machine


@sequence
class SyncPoint:
    """A sync point's numbers, and its offsets into DATA (in 8-byte words) and QLIST (in 4-byte words)."""

    primary_lease_id: UInt
    sequence_num: ULong
    data_file_offset_dwords: UInt
    qlist_file_offset_words: UInt


@sequence
class SyncPointOffsetPair:
    """A sync point and its own offset in the journal."""

    sync_point: SyncPoint
    offset: ULong


@sequence
class StorageSyncRequest:
    partition_id: Int
    begin_sync_point_offset_pair: SyncPointOffsetPair | None = None
    end_sync_point_offset_pair: SyncPointOffsetPair | None = None


class StorageSyncResponseType(IntEnum):
    UNDEFINED = 0
    PATCH = 1
    FILE = 2
    IN_SYNC = 3
    EMPTY = 4


@sequence
class StorageSyncResponse:
    partition_id: Int
    storage_sync_response_type: StorageSyncResponseType
    begin_sync_point: SyncPoint
    end_sync_point: SyncPoint


@sequence
class PartitionSyncStateQuery:
    partition_id: Int = -1


@sequence
class PartitionSyncStateQueryResponse:
    partition_id: Int
    primary_lease_id: UInt
    sequence_num: ULong
    last_sync_point_offset_pair: SyncPointOffsetPair


@sequence
class PartitionSyncDataQuery:
    partition_id: Int
    last_primary_lease_id: UInt
    last_sequence_num: ULong
    upto_primary_lease_id: UInt
    upto_sequence_num: ULong
    last_sync_point_offset_pair: SyncPointOffsetPair


@sequence
class PartitionSyncDataQueryResponse:
    partition_id: Int
    end_primary_lease_id: UInt
    end_sequence_num: ULong


@sequence
class PartitionSyncDataQueryStatus:
    """Notice that the peer has sent all of its records, or failed to."""

    partition_id: Int
    status: Status


class PrimaryStatus(IntEnum):
    UNDEFINED = 0
    PASSIVE = 1
    ACTIVE = 5


@sequence
class PrimaryStatusAdvisory:
    partition_id: Int
    primary_lease_id: UInt
    status: PrimaryStatus = PrimaryStatus.UNDEFINED


@sequence
class StopRequest:
    """Request of a node that is about to stop; peers stop sending to it and then answer."""

    cluster_name: str
    version: Int = 1


@sequence
class StopResponse:
    cluster_name: str


# Removed alternatives, which keep their tags


@sequence
class ClusterSyncRequest:
    pass


@sequence
class ClusterSyncResponse:
    pass


@sequence
class QueueUnassignedAdvisory:
    pass


@sequence
class ClusterMessage:
    choice: Annotated[
        PartitionPrimaryAdvisory
        | LeaderAdvisory
        | QueueAssignmentAdvisory
        | NodeStatusAdvisory
        | LeaderSyncStateQuery
        | LeaderSyncStateQueryResponse
        | LeaderSyncDataQuery
        | LeaderSyncDataQueryResponse
        | QueueAssignmentRequest
        | StorageSyncRequest
        | StorageSyncResponse
        | PartitionSyncStateQuery
        | PartitionSyncStateQueryResponse
        | PartitionSyncDataQuery
        | PartitionSyncDataQueryResponse
        | PartitionSyncDataQueryStatus
        | PrimaryStatusAdvisory
        | ClusterSyncRequest
        | ClusterSyncResponse
        | QueueUnassignedAdvisory
        | QueueUnAssignmentAdvisory
        | LeaderAdvisoryAck
        | LeaderAdvisoryCommit
        | StateNotification
        | StopRequest
        | StopResponse
        | QueueUnassignmentRequest
        | QueueUpdateAdvisory
        | ClusterStateFSMMessage
        | PartitionMessage,
        alternatives(),
    ]
