"""The state machine of a partition at one node: changes of the primary, and healing of nodes to the same records.

Source: mqbc::PartitionStateTable, without what only concerns the reference's files. Departures are marked in their
rows: a primary that is replaced becomes a replica, whereas the reference ends the process; and a replica that was left
behind while it was healed is healed again. A replica with damaged files reports its position only once it is healed;
its primary heals it as if it had no records.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["TABLE", "Event", "Row", "State"]


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

    # That of an enumeration is computed in Python, and the table is looked at for each event of a replica.
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


class Row(NamedTuple):
    """Names of `ReplicatedPartition`'s actions, in their order, and the state from then on."""

    actions: tuple[str, ...]
    state: State


_S, _E = State, Event
_LET_GO: Final = ("clean_up", "clear_primary", "stop_watchdog", "cancel_requests")
_AGAIN: Final = ("clean_up", "cancel_requests", "reapply_event")
_ANEW: Final = (*_LET_GO, "reapply_event")

_HEALED_AS_PRIMARY: Final = (
    "begin_lease",
    "open",
    "store_own",
    "send_to_replicas",
    "ask_damaged",
    "count_own",
    "check_healed",
)

TABLE: dict[tuple[State, Event], Row] = {
    (_S.UNKNOWN, _E.DETECT_SELF_PRIMARY): Row(
        ("set_primary", "start_watchdog", "store_own", "ask_replicas", "check_positions"), _S.PRIMARY_HEALING_STG1
    ),
    (_S.UNKNOWN, _E.REAPPLY_SELF_PRIMARY): Row(
        ("start_watchdog", "store_own", "ask_replicas", "check_positions"), _S.PRIMARY_HEALING_STG1
    ),
    (_S.UNKNOWN, _E.DETECT_SELF_REPLICA): Row(
        ("set_primary", "start_watchdog", "store_own", "ask_primary"), _S.REPLICA_WAITING
    ),
    (_S.UNKNOWN, _E.REAPPLY_SELF_REPLICA): Row(("start_watchdog", "store_own", "ask_primary"), _S.REPLICA_WAITING),
    (_S.UNKNOWN, _E.PRIMARY_STATE_RQST): Row(("refuse_as_no_primary",), _S.UNKNOWN),
    (_S.UNKNOWN, _E.STOP_NODE): Row((), _S.STOPPED),
    # Primary, stage 1
    (_S.PRIMARY_HEALING_STG1, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),  # the reference's process ends
    (_S.PRIMARY_HEALING_STG1, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),  # under a newer lease; not in theirs
    (_S.PRIMARY_HEALING_STG1, _E.REPLICA_STATE_RQST): Row(("refuse_as_primary",), _S.PRIMARY_HEALING_STG1),
    (_S.PRIMARY_HEALING_STG1, _E.REPLICA_STATE_RSPN): Row(
        ("store_replica", "check_positions"), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG1, _E.FAIL_REPLICA_STATE_RSPN): Row(("ask_replica_later",), _S.PRIMARY_HEALING_STG1),
    (_S.PRIMARY_HEALING_STG1, _E.DAMAGED_REPLICA_STATE_RSPN): Row(  # not in theirs, as all rows for damaged files
        ("note_damaged", "check_positions", "ask_replica_later"), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG1, _E.PRIMARY_STATE_RQST): Row(
        ("store_replica", "answer_replica", "check_positions"), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG1, _E.QUORUM_REPLICA_SEQ): Row(("find_highest",), _S.PRIMARY_HEALING_STG1),
    (_S.PRIMARY_HEALING_STG1, _E.SELF_HIGHEST_SEQ): Row(_HEALED_AS_PRIMARY, _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG1, _E.REPLICA_HIGHEST_SEQ): Row(
        ("begin_anew_if_rolled_over", "pull"), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG1, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG1, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    (_S.PRIMARY_HEALING_STG1, _E.REAPPLY_SELF_PRIMARY): Row(_AGAIN, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG1, _E.WATCHDOG): Row(("reapply_as_primary",), _S.PRIMARY_HEALING_STG1),
    # Primary, stage 2
    (_S.PRIMARY_HEALING_STG2, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),  # the reference's process ends
    (_S.PRIMARY_HEALING_STG2, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),  # under a newer lease; not in theirs
    (_S.PRIMARY_HEALING_STG2, _E.FAIL_REPLICA_DATA_RSPN_PULL): Row(
        ("stop_receiving", "go_back", "forget_replica", "check_positions"), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG2, _E.CRASH_REPLICA_DATA_RSPN_PULL): Row(
        ("stop_receiving", "go_back", "forget_replica", "check_positions"), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG2, _E.IRRECONCILABLE_REPLICA_DATA_RSPN_PULL): Row(
        ("stop_receiving", "begin_anew", "pull"), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.REPLICA_STATE_RSPN): Row(
        ("store_replica", "send_to_replica"), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.FAIL_REPLICA_STATE_RSPN): Row(("ask_replica_later",), _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG2, _E.DAMAGED_REPLICA_STATE_RSPN): Row(
        ("note_damaged", "send_to_damaged"), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.PRIMARY_STATE_RQST): Row(
        ("store_replica", "answer_replica", "send_to_replica"), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.RECOVERY_DATA): Row(("write_recovered",), _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG2, _E.REAPPLY_SELF_PRIMARY): Row(_AGAIN, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG2, _E.ERROR_RECEIVING_DATA_CHUNKS): Row(  # the reference retries at once, and forever
        ("stop_receiving", "reapply_primary_later"), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.REPLICA_DATA_RSPN_PULL): Row(
        ("stop_receiving", *_HEALED_AS_PRIMARY), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.REPLICA_DATA_RSPN_PUSH): Row(
        ("count_replica", "check_healed"), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.FAIL_REPLICA_DATA_RSPN_PUSH): Row(  # the reference waits for its watchdog
        ("forget_replica",), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.QUORUM_REPLICA_DATA_RSPN): Row(("stop_watchdog", "activate"), _S.PRIMARY_HEALED),
    (_S.PRIMARY_HEALING_STG2, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG2, _E.WATCHDOG): Row(("reapply_as_primary",), _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG2, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Primary, healed
    (_S.PRIMARY_HEALED, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),  # the reference's process ends
    (_S.PRIMARY_HEALED, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),  # under a newer lease; not in theirs
    (_S.PRIMARY_HEALED, _E.REPLICA_STATE_RSPN): Row(
        ("store_own", "store_replica", "send_to_replica", "say_active"), _S.PRIMARY_HEALED
    ),
    (_S.PRIMARY_HEALED, _E.FAIL_REPLICA_STATE_RSPN): Row(("ask_replica_later",), _S.PRIMARY_HEALED),
    (_S.PRIMARY_HEALED, _E.DAMAGED_REPLICA_STATE_RSPN): Row(
        ("store_own", "send_to_damaged", "say_active"), _S.PRIMARY_HEALED
    ),
    (_S.PRIMARY_HEALED, _E.RECOVERY_DATA): Row(("mend",), _S.PRIMARY_HEALED),  # not in theirs, nor what it asks for
    (_S.PRIMARY_HEALED, _E.PRIMARY_STATE_RQST): Row(
        ("store_own", "store_replica", "answer_replica", "send_to_replica", "say_active"), _S.PRIMARY_HEALED
    ),
    (_S.PRIMARY_HEALED, _E.REPLICA_DATA_RSPN_PUSH): Row(("count_replica",), _S.PRIMARY_HEALED),  # for its messages
    (_S.PRIMARY_HEALED, _E.FAIL_REPLICA_DATA_RSPN_PUSH): Row(("forget_replica",), _S.PRIMARY_HEALED),
    (_S.PRIMARY_HEALED, _E.REAPPLY_SELF_PRIMARY): Row(_AGAIN, _S.UNKNOWN),  # its disk was too full to begin
    (_S.PRIMARY_HEALED, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.PRIMARY_HEALED, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Replica, waiting
    (_S.REPLICA_WAITING, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.REAPPLY_SELF_REPLICA): Row(_AGAIN, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.REPLICA_STATE_RQST): Row(("refuse_while_waiting",), _S.REPLICA_WAITING),
    (_S.REPLICA_WAITING, _E.DAMAGED_STATE_RQST): Row(("store_primary", "refuse_as_damaged"), _S.REPLICA_HEALING),
    (_S.REPLICA_WAITING, _E.PRIMARY_STATE_RQST): Row(("refuse_as_no_primary",), _S.REPLICA_WAITING),
    (_S.REPLICA_WAITING, _E.PRIMARY_STATE_RSPN): Row(("store_primary",), _S.REPLICA_HEALING),
    (_S.REPLICA_WAITING, _E.FAIL_PRIMARY_STATE_RSPN): Row(("ask_primary_later",), _S.REPLICA_HEALING),
    (_S.REPLICA_WAITING, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.WATCHDOG): Row(("reapply_as_replica",), _S.REPLICA_WAITING),
    (_S.REPLICA_WAITING, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Replica, healing
    (_S.REPLICA_HEALING, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.REAPPLY_SELF_REPLICA): Row(_AGAIN, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.REPLICA_STATE_RQST): Row(
        ("stop_receiving", "store_own", "store_primary", "answer_primary"), _S.REPLICA_HEALING
    ),
    (_S.REPLICA_HEALING, _E.DAMAGED_STATE_RQST): Row(
        ("stop_receiving", "store_primary", "refuse_as_damaged"), _S.REPLICA_HEALING
    ),
    (_S.REPLICA_HEALING, _E.PRIMARY_STATE_RQST): Row(("refuse_as_no_primary",), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.PRIMARY_STATE_RSPN): Row((), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.FAIL_PRIMARY_STATE_RSPN): Row((), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.REPLICA_DATA_RQST_PULL): Row(("send_to_primary",), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.DONE_SENDING_DATA_CHUNKS): Row(("answer_pull",), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.ERROR_SENDING_DATA_CHUNKS): Row(("refuse_pull", "reapply_as_replica"), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.IRRECONCILABLE_DATA): Row(("refuse_pull",), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.REPLICA_DATA_RQST_PUSH): Row(("clear_buffered", "receive"), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.REPLICA_DATA_RQST_DROP): Row(
        ("drop", "answer_drop", "reapply_as_replica"), _S.REPLICA_HEALING
    ),
    (_S.REPLICA_HEALING, _E.RECOVERY_DATA): Row(("write_recovered",), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.DONE_RECEIVING_DATA_CHUNKS): Row(
        ("answer_push", "stop_receiving", "write_buffered", "stop_watchdog"), _S.REPLICA_HEALED
    ),
    (_S.REPLICA_HEALING, _E.ERROR_RECEIVING_DATA_CHUNKS): Row(("refuse_push", "reapply_later"), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.LIVE_DATA): Row(("buffer",), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.WATCHDOG): Row(("reapply_as_replica",), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Replica, healed
    (_S.REPLICA_HEALED, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.REAPPLY_SELF_REPLICA): Row(_AGAIN, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.REPLICA_STATE_RQST): Row(
        ("store_own", "store_primary", "answer_primary"), _S.REPLICA_HEALED
    ),
    (_S.REPLICA_HEALED, _E.FAIL_PRIMARY_STATE_RSPN): Row((), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.REPLICA_DATA_RQST_PULL): Row(("send_record",), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.REPLICA_DATA_RQST_PUSH): Row(("answer_push_or_reapply",), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.REPLICA_DATA_RQST_DROP): Row(  # it was left behind in a rollover; not in theirs
        ("drop", "answer_drop", "reapply_as_replica"), _S.REPLICA_HEALED
    ),
    (_S.REPLICA_HEALED, _E.LIVE_DATA): Row(("write_live",), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.ISSUE_LIVESTREAM): Row(("reapply_as_replica",), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
}
