# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The state machine of a partition at one node: changes of the primary, and healing of nodes to the same records.

Source: mqbc::PartitionStateTable, without the parts about the reference's files. Departures are marked: a primary that
is replaced becomes a replica, whereas the reference ends the process; a replica that missed a rollover during its
healing is healed again; and a replica with damaged files is healed as if it had no records, and reports its position
only then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.bmq.replication.partition_facts import Fact
from broker.bmq.replication.partition_states import Event, State
from broker.bmq.replication.primary_actions import PrimaryActions

__all__ = ["TABLE", "Event", "Row", "State"]


Action = Callable[[PrimaryActions, Event, Fact], None]


class Row(NamedTuple):
    """The actions in their order, and the next state."""

    actions: tuple[Action, ...]
    state: State


_S, _E, _do = State, Event, PrimaryActions
_LET_GO: Final = (_do.clean_up, _do.clear_primary, _do.stop_watchdog, _do.cancel_requests)
_AGAIN: Final = (_do.clean_up, _do.cancel_requests, _do.reapply_event)
_ANEW: Final = (*_LET_GO, _do.reapply_event)

_HEALED_AS_PRIMARY: Final = (
    _do.begin_lease,
    _do.open,
    _do.store_own,
    _do.send_to_replicas,
    _do.ask_damaged,
    _do.count_own,
    _do.check_healed,
)

TABLE: dict[tuple[State, Event], Row] = {
    (_S.UNKNOWN, _E.DETECT_SELF_PRIMARY): Row(
        (_do.set_primary, _do.start_watchdog, _do.store_own, _do.ask_replicas, _do.check_positions),
        _S.PRIMARY_HEALING_STG1,
    ),
    (_S.UNKNOWN, _E.REAPPLY_SELF_PRIMARY): Row(
        (_do.start_watchdog, _do.store_own, _do.ask_replicas, _do.check_positions), _S.PRIMARY_HEALING_STG1
    ),
    (_S.UNKNOWN, _E.DETECT_SELF_REPLICA): Row(
        (_do.set_primary, _do.start_watchdog, _do.store_own, _do.ask_primary), _S.REPLICA_WAITING
    ),
    (_S.UNKNOWN, _E.REAPPLY_SELF_REPLICA): Row(
        (_do.start_watchdog, _do.store_own, _do.ask_primary), _S.REPLICA_WAITING
    ),
    (_S.UNKNOWN, _E.PRIMARY_STATE_RQST): Row((_do.refuse_as_no_primary,), _S.UNKNOWN),
    (_S.UNKNOWN, _E.STOP_NODE): Row((), _S.STOPPED),
    # Primary, stage 1
    (_S.PRIMARY_HEALING_STG1, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),  # the reference's process ends
    (_S.PRIMARY_HEALING_STG1, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),  # under a newer lease; not in theirs
    (_S.PRIMARY_HEALING_STG1, _E.REPLICA_STATE_RQST): Row((_do.refuse_as_primary,), _S.PRIMARY_HEALING_STG1),
    (_S.PRIMARY_HEALING_STG1, _E.REPLICA_STATE_RSPN): Row(
        (_do.store_replica, _do.check_positions), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG1, _E.FAIL_REPLICA_STATE_RSPN): Row((_do.ask_replica_later,), _S.PRIMARY_HEALING_STG1),
    (_S.PRIMARY_HEALING_STG1, _E.DAMAGED_REPLICA_STATE_RSPN): Row(  # not in theirs, as all rows for damaged files
        (_do.note_damaged, _do.check_positions, _do.ask_replica_later), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG1, _E.PRIMARY_STATE_RQST): Row(
        (_do.store_replica, _do.answer_replica, _do.check_positions), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG1, _E.QUORUM_REPLICA_SEQ): Row((_do.find_highest,), _S.PRIMARY_HEALING_STG1),
    (_S.PRIMARY_HEALING_STG1, _E.SELF_HIGHEST_SEQ): Row(_HEALED_AS_PRIMARY, _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG1, _E.REPLICA_HIGHEST_SEQ): Row(
        (_do.start_over_if_rolled_over, _do.pull), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG1, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG1, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    (_S.PRIMARY_HEALING_STG1, _E.REAPPLY_SELF_PRIMARY): Row(_AGAIN, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG1, _E.WATCHDOG): Row((_do.reapply_as_primary,), _S.PRIMARY_HEALING_STG1),
    # Primary, stage 2
    (_S.PRIMARY_HEALING_STG2, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),  # the reference's process ends
    (_S.PRIMARY_HEALING_STG2, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),  # under a newer lease; not in theirs
    (_S.PRIMARY_HEALING_STG2, _E.FAIL_REPLICA_DATA_RSPN_PULL): Row(
        (_do.stop_receiving, _do.go_back, _do.forget_replica, _do.check_positions), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG2, _E.CRASH_REPLICA_DATA_RSPN_PULL): Row(
        (_do.stop_receiving, _do.go_back, _do.forget_replica, _do.check_positions), _S.PRIMARY_HEALING_STG1
    ),
    (_S.PRIMARY_HEALING_STG2, _E.IRRECONCILABLE_REPLICA_DATA_RSPN_PULL): Row(
        (_do.stop_receiving, _do.start_over, _do.pull), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.REPLICA_STATE_RSPN): Row(
        (_do.store_replica, _do.send_to_replica), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.FAIL_REPLICA_STATE_RSPN): Row((_do.ask_replica_later,), _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG2, _E.DAMAGED_REPLICA_STATE_RSPN): Row(
        (_do.note_damaged, _do.send_to_damaged), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.PRIMARY_STATE_RQST): Row(
        (_do.store_replica, _do.answer_replica, _do.send_to_replica), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.RECOVERY_DATA): Row((_do.write_recovered,), _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG2, _E.REAPPLY_SELF_PRIMARY): Row(_AGAIN, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG2, _E.ERROR_RECEIVING_DATA_CHUNKS): Row(  # the reference retries at once, and forever
        (_do.stop_receiving, _do.reapply_primary_later), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.REPLICA_DATA_RSPN_PULL): Row(
        (_do.stop_receiving, *_HEALED_AS_PRIMARY), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.REPLICA_DATA_RSPN_PUSH): Row(
        (_do.count_replica, _do.check_healed), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.FAIL_REPLICA_DATA_RSPN_PUSH): Row(  # the reference waits for its watchdog
        (_do.forget_replica,), _S.PRIMARY_HEALING_STG2
    ),
    (_S.PRIMARY_HEALING_STG2, _E.QUORUM_REPLICA_DATA_RSPN): Row((_do.stop_watchdog, _do.activate), _S.PRIMARY_HEALED),
    (_S.PRIMARY_HEALING_STG2, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.PRIMARY_HEALING_STG2, _E.WATCHDOG): Row((_do.reapply_as_primary,), _S.PRIMARY_HEALING_STG2),
    (_S.PRIMARY_HEALING_STG2, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Primary, healed
    (_S.PRIMARY_HEALED, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),  # the reference's process ends
    (_S.PRIMARY_HEALED, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),  # under a newer lease; not in theirs
    (_S.PRIMARY_HEALED, _E.REPLICA_STATE_RSPN): Row(
        (_do.store_own, _do.store_replica, _do.send_to_replica, _do.say_active), _S.PRIMARY_HEALED
    ),
    (_S.PRIMARY_HEALED, _E.FAIL_REPLICA_STATE_RSPN): Row((_do.ask_replica_later,), _S.PRIMARY_HEALED),
    (_S.PRIMARY_HEALED, _E.DAMAGED_REPLICA_STATE_RSPN): Row(
        (_do.store_own, _do.send_to_damaged, _do.say_active), _S.PRIMARY_HEALED
    ),
    (_S.PRIMARY_HEALED, _E.RECOVERY_DATA): Row((_do.mend,), _S.PRIMARY_HEALED),  # not in theirs, nor what it asks for
    (_S.PRIMARY_HEALED, _E.PRIMARY_STATE_RQST): Row(
        (_do.store_own, _do.store_replica, _do.answer_replica, _do.send_to_replica, _do.say_active), _S.PRIMARY_HEALED
    ),
    (_S.PRIMARY_HEALED, _E.REPLICA_DATA_RSPN_PUSH): Row((_do.count_replica,), _S.PRIMARY_HEALED),  # for its messages
    (_S.PRIMARY_HEALED, _E.FAIL_REPLICA_DATA_RSPN_PUSH): Row((_do.forget_replica,), _S.PRIMARY_HEALED),
    (_S.PRIMARY_HEALED, _E.REAPPLY_SELF_PRIMARY): Row(_AGAIN, _S.UNKNOWN),  # its disk was too full to begin
    (_S.PRIMARY_HEALED, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.PRIMARY_HEALED, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Replica, waiting
    (_S.REPLICA_WAITING, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.REAPPLY_SELF_REPLICA): Row(_AGAIN, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.REPLICA_STATE_RQST): Row((_do.refuse_while_waiting,), _S.REPLICA_WAITING),
    (_S.REPLICA_WAITING, _E.DAMAGED_STATE_RQST): Row((_do.store_primary, _do.refuse_as_damaged), _S.REPLICA_HEALING),
    (_S.REPLICA_WAITING, _E.PRIMARY_STATE_RQST): Row((_do.refuse_as_no_primary,), _S.REPLICA_WAITING),
    (_S.REPLICA_WAITING, _E.PRIMARY_STATE_RSPN): Row((_do.store_primary,), _S.REPLICA_HEALING),
    (_S.REPLICA_WAITING, _E.FAIL_PRIMARY_STATE_RSPN): Row((_do.ask_primary_later,), _S.REPLICA_HEALING),
    (_S.REPLICA_WAITING, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.REPLICA_WAITING, _E.WATCHDOG): Row((_do.reapply_as_replica,), _S.REPLICA_WAITING),
    (_S.REPLICA_WAITING, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Replica, healing
    (_S.REPLICA_HEALING, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.REAPPLY_SELF_REPLICA): Row(_AGAIN, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.REPLICA_STATE_RQST): Row(
        (_do.stop_receiving, _do.store_own, _do.store_primary, _do.answer_primary), _S.REPLICA_HEALING
    ),
    (_S.REPLICA_HEALING, _E.DAMAGED_STATE_RQST): Row(
        (_do.stop_receiving, _do.store_primary, _do.refuse_as_damaged), _S.REPLICA_HEALING
    ),
    (_S.REPLICA_HEALING, _E.PRIMARY_STATE_RQST): Row((_do.refuse_as_no_primary,), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.PRIMARY_STATE_RSPN): Row((), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.FAIL_PRIMARY_STATE_RSPN): Row((), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.REPLICA_DATA_RQST_PULL): Row((_do.send_to_primary,), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.DONE_SENDING_DATA_CHUNKS): Row((_do.answer_pull,), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.ERROR_SENDING_DATA_CHUNKS): Row(
        (_do.refuse_pull, _do.reapply_as_replica), _S.REPLICA_HEALING
    ),
    (_S.REPLICA_HEALING, _E.IRRECONCILABLE_DATA): Row((_do.refuse_pull,), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.REPLICA_DATA_RQST_PUSH): Row((_do.clear_buffered, _do.receive), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.REPLICA_DATA_RQST_DROP): Row(
        (_do.drop, _do.answer_drop, _do.reapply_as_replica), _S.REPLICA_HEALING
    ),
    (_S.REPLICA_HEALING, _E.RECOVERY_DATA): Row((_do.write_recovered,), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.DONE_RECEIVING_DATA_CHUNKS): Row(
        (_do.answer_push, _do.stop_receiving, _do.write_buffered, _do.stop_watchdog), _S.REPLICA_HEALED
    ),
    (_S.REPLICA_HEALING, _E.ERROR_RECEIVING_DATA_CHUNKS): Row((_do.refuse_push, _do.reapply_later), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.LIVE_DATA): Row((_do.buffer,), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.REPLICA_HEALING, _E.WATCHDOG): Row((_do.reapply_as_replica,), _S.REPLICA_HEALING),
    (_S.REPLICA_HEALING, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
    # Replica, healed
    (_S.REPLICA_HEALED, _E.DETECT_SELF_PRIMARY): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.DETECT_SELF_REPLICA): Row(_ANEW, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.REAPPLY_SELF_REPLICA): Row(_AGAIN, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.REPLICA_STATE_RQST): Row(
        (_do.store_own, _do.store_primary, _do.answer_primary), _S.REPLICA_HEALED
    ),
    # Not in theirs: a replica that knows the next primary sooner would wait for the answer, and refuse it meanwhile.
    (_S.REPLICA_HEALED, _E.PRIMARY_STATE_RQST): Row((_do.refuse_as_no_primary,), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.FAIL_PRIMARY_STATE_RSPN): Row((), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.REPLICA_DATA_RQST_PULL): Row((_do.send_record,), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.REPLICA_DATA_RQST_PUSH): Row((_do.answer_push_or_reapply,), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.REPLICA_DATA_RQST_DROP): Row(  # it missed a rollover; not in the reference
        (_do.drop, _do.answer_drop, _do.reapply_as_replica), _S.REPLICA_HEALED
    ),
    (_S.REPLICA_HEALED, _E.LIVE_DATA): Row((_do.write_live,), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.ISSUE_LIVESTREAM): Row((_do.reapply_as_replica,), _S.REPLICA_HEALED),
    (_S.REPLICA_HEALED, _E.RST_UNKNOWN): Row(_LET_GO, _S.UNKNOWN),
    (_S.REPLICA_HEALED, _E.STOP_NODE): Row(_LET_GO, _S.STOPPED),
}
