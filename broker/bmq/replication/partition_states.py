# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""States and events of a partition at one node; `partition_table` says what an event does in a state."""

from __future__ import annotations

from enum import Enum

__all__ = ["Event", "State"]


class State(Enum):
    """mqbc::PartitionStateTableState."""

    UNKNOWN = "no primary is known"
    PRIMARY_HEALING_STG1 = "primary, asks for the replicas' positions"
    PRIMARY_HEALING_STG2 = "primary, heals itself and then the replicas"
    PRIMARY_HEALED = "primary, with a majority"
    REPLICA_WAITING = "replica, has asked for the primary's position"
    REPLICA_HEALING = "replica, is healed by the primary"
    REPLICA_HEALED = "replica, has all that the primary has sent"
    STOPPED = "the node stops"

    # That of an enumeration is computed in Python; each event of a replica looks at the table.
    __hash__ = object.__hash__


class Event(Enum):
    """mqbc::PartitionStateTableEvent."""

    RST_UNKNOWN = "the primary is lost"
    DETECT_SELF_PRIMARY = "this node is primary"
    DETECT_SELF_REPLICA = "another node is primary"
    REAPPLY_SELF_PRIMARY = "begin again as primary"
    REAPPLY_SELF_REPLICA = "begin again as replica"
    REPLICA_STATE_RQST = "the primary asks for this node's position"
    DAMAGED_STATE_RQST = "the primary asks for the position of this node, whose files are damaged"
    REPLICA_STATE_RSPN = "a replica reports its position"
    FAIL_REPLICA_STATE_RSPN = "a replica does not report its position"
    DAMAGED_REPLICA_STATE_RSPN = "a replica cannot report its position: its files are damaged"
    PRIMARY_STATE_RQST = "a replica reports its position, and asks for the primary's"
    PRIMARY_STATE_RSPN = "the primary reports its position"
    FAIL_PRIMARY_STATE_RSPN = "the primary does not report its position"
    REPLICA_DATA_RQST_PULL = "the primary asks for records"
    REPLICA_DATA_RQST_PUSH = "the primary will send records"
    REPLICA_DATA_RQST_DROP = "the primary wants records dropped"
    REPLICA_DATA_RSPN_PULL = "a replica has sent its records"
    REPLICA_DATA_RSPN_PUSH = "a replica has taken all records"
    FAIL_REPLICA_DATA_RSPN_PULL = "a replica did not send its records"
    CRASH_REPLICA_DATA_RSPN_PULL = "a replica disconnected while it sent its records"
    FAIL_REPLICA_DATA_RSPN_PUSH = "a replica did not take the records"
    DONE_SENDING_DATA_CHUNKS = "all records are on their way to the primary"
    ERROR_SENDING_DATA_CHUNKS = "some of the records for the primary are missing"
    DONE_RECEIVING_DATA_CHUNKS = "all records have come"
    ERROR_RECEIVING_DATA_CHUNKS = "a record does not fit"
    RECOVERY_DATA = "PARTITION_SYNC"
    LIVE_DATA = "STORAGE"
    QUORUM_REPLICA_DATA_RSPN = "a majority has all records"
    ISSUE_LIVESTREAM = "a STORAGE event does not fit"
    QUORUM_REPLICA_SEQ = "a majority has reported its position"
    SELF_HIGHEST_SEQ = "no replica is ahead of this node"
    REPLICA_HIGHEST_SEQ = "a replica is ahead of this node"
    WATCHDOG = "healing takes too long"
    STOP_NODE = "the node stops"
    IRRECONCILABLE_DATA = "the primary has records that this node does not have"
    IRRECONCILABLE_REPLICA_DATA_RSPN_PULL = "a replica does not have this node's last records"

    # See `State`.
    __hash__ = object.__hash__
