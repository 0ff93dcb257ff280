"""The cluster state machine: agreement of the nodes on the cluster's state after an election.

The leader collects each follower's latest number. Once a quorum has answered, it takes the state from the most advanced
ledger, assigns primaries, and has a quorum record that as its first advisory. Then it heals all nodes.

Source: mqbc::ClusterStateTable. Pairs that are not in `TRANSITIONS` change nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["FOLLOWING", "HEALED", "LEADING", "TRANSITIONS", "Action", "Event", "State", "Transition"]


class State(Enum):
    """mqbc::ClusterStateTableState."""

    UNKNOWN = "no leader is known"
    FOL_WAITING = "registering with the leader"
    FOL_HEALING = "waiting for the leader's state"
    FOL_HEALED = "following"
    LDR_HEALING_STG1 = "asking how far the followers' ledgers go"
    LDR_HEALING_STG2 = "asking the most advanced follower for its state"
    LDR_HEALING_STG3 = "waiting for a quorum to record the state"
    LDR_HEALED = "leading"
    STOPPED = "stopped"


LEADING: Final = frozenset({State.LDR_HEALING_STG1, State.LDR_HEALING_STG2, State.LDR_HEALING_STG3, State.LDR_HEALED})
FOLLOWING: Final = frozenset({State.FOL_WAITING, State.FOL_HEALING, State.FOL_HEALED})
HEALED: Final = frozenset({State.FOL_HEALED, State.LDR_HEALED})


class Event(Enum):
    """mqbc::ClusterStateTableEvent."""

    SLCT_LDR = "elected"
    SLCT_FOL = "another was elected"
    REAPPLY_LDR = "lead again"
    REAPPLY_FOL = "follow again"
    FOL_LSN_RQST = "asked how far this ledger goes"
    FOL_LSN_RSPN = "a follower reported its number"
    FAIL_FOL_LSN_RSPN = "a follower did not report its number"
    FOL_DAMAGED = "a follower's ledger is damaged"  # not in the reference
    QUORUM_LSN = "a quorum's numbers are known"
    LOST_QUORUM_LSN = "fewer than a quorum's numbers are known"
    SELF_HIGHEST_LSN = "no ledger goes further than this one"
    FOL_HIGHEST_LSN = "a follower's ledger goes further"
    FOL_CSL_RQST = "asked for the state"
    FOL_CSL_RSPN = "a follower sent its state"
    FAIL_FOL_CSL_RSPN = "a follower did not send its state"
    DISCONNECT_FOL_LSN = "a follower whose number is known has disconnected"
    STOP_NODE = "this node stops"
    REGISTRATION_RQST = "a follower registers"
    REGISTRATION_RSPN = "the leader has registered this node"
    FAIL_REGISTRATION_RSPN = "the leader has not registered this node"
    RST_UNKNOWN = "the leader is lost"
    RST_PRIMARY = "primaries are lost"
    CSL_CMT_SUCCESS = "an advisory is committed"
    CSL_CMT_FAIL = "an advisory could not be recorded"
    WATCHDOG = "healing takes too long"


class Action(Enum):
    """An action before the next state, in the order of the transition's list."""

    START_WATCHDOG = "start the watchdog"
    STOP_WATCHDOG = "stop the watchdog"
    TRIGGER_WATCHDOG = "let the watchdog run out"
    STORE_SELF_LSN = "note this ledger's number"
    STORE_FOLLOWER_LSN = "note the follower's number"
    REMOVE_FOLLOWER_LSN = "forget the follower's number"
    NOTE_DAMAGED = "expect no number of the follower"
    CHECK_LSN_QUORUM = "count the numbers"
    CLEANUP_LSNS = "forget all numbers"
    FIND_HIGHEST_LSN = "compare the numbers"
    SEND_FOLLOWER_LSN_REQUESTS = "ask all followers for their numbers"
    SEND_FOLLOWER_LSN_RESPONSE = "report this ledger's number"
    REFUSE_FOLLOWER_LSN = "refuse to report the number"
    SEND_FOLLOWER_CLUSTER_STATE_REQUEST = "ask the most advanced follower for its state"
    SEND_FOLLOWER_CLUSTER_STATE_RESPONSE = "send the state"
    REFUSE_FOLLOWER_CLUSTER_STATE = "refuse to send the state"
    SEND_REGISTRATION_REQUEST = "register with the leader"
    SEND_REGISTRATION_RESPONSE = "confirm the registration"
    REFUSE_REGISTRATION = "refuse the registration"
    APPLY_STATE = "advise the whole state"
    UPDATE_PRIMARIES = "tell the partitions their primaries"
    STOP_PARTITIONS = "stop the partitions"
    CANCEL_REQUESTS = "cancel all requests"
    REAPPLY = "apply the same event again"
    REAPPLY_SELECT_LEADER = "lead again"
    REAPPLY_SELECT_FOLLOWER = "follow again"
    ABORT = "this cannot be"


class Transition(NamedTuple):
    state: State
    actions: tuple[Action, ...]


_A, _E, _S = Action, Event, State

_QUIT_FOLLOWING: Final = (_A.STOP_WATCHDOG, _A.CANCEL_REQUESTS)
_QUIT_LEADING: Final = (_A.STOP_WATCHDOG, _A.CLEANUP_LSNS, _A.CANCEL_REQUESTS)
_SEND_LSN_REQUESTS: Final = (
    _A.START_WATCHDOG,
    _A.STORE_SELF_LSN,
    _A.SEND_FOLLOWER_LSN_REQUESTS,
    _A.CHECK_LSN_QUORUM,
)
_REGISTER: Final = (_A.START_WATCHDOG, _A.SEND_REGISTRATION_REQUEST)


def _rows() -> dict[tuple[State, Event], Transition]:
    rows: dict[tuple[State, Event], Transition] = {}

    def row(state: State, event: Event, following: State, *actions: Action) -> None:
        assert (state, event) not in rows
        rows[state, event] = Transition(following, actions)

    unknown = _S.UNKNOWN
    row(unknown, _E.SLCT_LDR, _S.LDR_HEALING_STG1, *_SEND_LSN_REQUESTS)
    row(unknown, _E.REAPPLY_LDR, _S.LDR_HEALING_STG1, *_SEND_LSN_REQUESTS)
    row(unknown, _E.SLCT_FOL, _S.FOL_WAITING, *_REGISTER)
    row(unknown, _E.REAPPLY_FOL, _S.FOL_WAITING, *_REGISTER)
    row(unknown, _E.FOL_LSN_RQST, unknown, _A.REFUSE_FOLLOWER_LSN)
    row(unknown, _E.FOL_CSL_RQST, unknown, _A.REFUSE_FOLLOWER_CLUSTER_STATE)
    row(unknown, _E.REGISTRATION_RQST, unknown, _A.REFUSE_REGISTRATION)
    row(unknown, _E.CSL_CMT_SUCCESS, unknown, _A.ABORT)
    row(unknown, _E.CSL_CMT_FAIL, unknown, _A.ABORT)
    row(unknown, _E.RST_PRIMARY, unknown, _A.UPDATE_PRIMARIES)
    row(unknown, _E.STOP_NODE, _S.STOPPED, _A.STOP_PARTITIONS)

    for state in (_S.FOL_WAITING, _S.FOL_HEALING):
        row(state, _E.SLCT_LDR, unknown, *_QUIT_FOLLOWING, _A.REAPPLY)
        row(state, _E.SLCT_FOL, unknown, *_QUIT_FOLLOWING, _A.REAPPLY)
        row(state, _E.REAPPLY_FOL, unknown, _A.CANCEL_REQUESTS, _A.REAPPLY)
        row(state, _E.REGISTRATION_RQST, state, _A.REFUSE_REGISTRATION)
        row(state, _E.CSL_CMT_SUCCESS, _S.FOL_HEALED, _A.STOP_WATCHDOG, _A.UPDATE_PRIMARIES)
        row(state, _E.CSL_CMT_FAIL, state, _A.TRIGGER_WATCHDOG)
        row(state, _E.RST_UNKNOWN, unknown, *_QUIT_FOLLOWING)
        row(state, _E.RST_PRIMARY, state, _A.UPDATE_PRIMARIES)
        row(state, _E.WATCHDOG, state, _A.REAPPLY_SELECT_FOLLOWER)
        row(state, _E.STOP_NODE, _S.STOPPED, _A.STOP_PARTITIONS, *_QUIT_FOLLOWING)
    # One that waits for its registration must not send its number too: the leader would heal it twice.
    row(_S.FOL_WAITING, _E.FOL_LSN_RQST, _S.FOL_WAITING, _A.REFUSE_FOLLOWER_LSN)
    row(_S.FOL_WAITING, _E.FOL_CSL_RQST, _S.FOL_WAITING, _A.REFUSE_FOLLOWER_CLUSTER_STATE)
    row(_S.FOL_WAITING, _E.REGISTRATION_RSPN, _S.FOL_HEALING)
    row(_S.FOL_WAITING, _E.FAIL_REGISTRATION_RSPN, _S.FOL_HEALING)

    for state in (_S.FOL_HEALING, _S.FOL_HEALED):
        row(state, _E.FOL_LSN_RQST, state, _A.SEND_FOLLOWER_LSN_RESPONSE)
        row(state, _E.FOL_CSL_RQST, state, _A.SEND_FOLLOWER_CLUSTER_STATE_RESPONSE)

    state = _S.FOL_HEALED
    row(state, _E.SLCT_LDR, unknown, _A.REAPPLY)
    row(state, _E.SLCT_FOL, unknown, _A.REAPPLY)
    # Not in the reference: a follower that could not record an advisory starts over.
    row(state, _E.REAPPLY_FOL, unknown, _A.REAPPLY)
    row(state, _E.REGISTRATION_RQST, state, _A.REFUSE_REGISTRATION)
    row(state, _E.CSL_CMT_SUCCESS, state, _A.UPDATE_PRIMARIES)
    row(state, _E.RST_UNKNOWN, unknown)
    row(state, _E.RST_PRIMARY, state, _A.UPDATE_PRIMARIES)
    row(state, _E.STOP_NODE, _S.STOPPED, _A.STOP_PARTITIONS)

    for state in (_S.LDR_HEALING_STG1, _S.LDR_HEALING_STG2, _S.LDR_HEALING_STG3):
        row(state, _E.SLCT_FOL, unknown, *_QUIT_LEADING, _A.REAPPLY)
        row(state, _E.REAPPLY_LDR, unknown, _A.CLEANUP_LSNS, _A.CANCEL_REQUESTS, _A.REAPPLY)
        row(state, _E.FOL_LSN_RQST, state, _A.REFUSE_FOLLOWER_LSN)
        row(state, _E.RST_UNKNOWN, unknown, *_QUIT_LEADING)
        row(state, _E.RST_PRIMARY, state, _A.UPDATE_PRIMARIES)
        row(state, _E.WATCHDOG, state, _A.REAPPLY_SELECT_LEADER)
        row(state, _E.STOP_NODE, _S.STOPPED, _A.STOP_PARTITIONS, *_QUIT_LEADING)
    for state in (_S.LDR_HEALING_STG1, _S.LDR_HEALING_STG2):
        row(state, _E.QUORUM_LSN, state, _A.FIND_HIGHEST_LSN)
        row(state, _E.SELF_HIGHEST_LSN, _S.LDR_HEALING_STG3, _A.APPLY_STATE)
        row(state, _E.FOL_HIGHEST_LSN, _S.LDR_HEALING_STG2, _A.SEND_FOLLOWER_CLUSTER_STATE_REQUEST)
        row(state, _E.CSL_CMT_SUCCESS, state, _A.ABORT)
        row(state, _E.CSL_CMT_FAIL, state, _A.ABORT)

    # Not in the reference: a follower with a damaged ledger must not send a number, nor register, before the leader has
    # the state. It asks the leader for that instead.
    noted = (_A.REFUSE_FOLLOWER_CLUSTER_STATE, _A.NOTE_DAMAGED, _A.CHECK_LSN_QUORUM)
    row(_S.LDR_HEALING_STG1, _E.FOL_CSL_RQST, _S.LDR_HEALING_STG1, *noted)
    row(_S.LDR_HEALING_STG1, _E.FOL_DAMAGED, _S.LDR_HEALING_STG1, *noted[1:])
    row(_S.LDR_HEALING_STG2, _E.FOL_CSL_RQST, _S.LDR_HEALING_STG2, *noted[:2])
    row(_S.LDR_HEALING_STG2, _E.FOL_DAMAGED, _S.LDR_HEALING_STG2, _A.NOTE_DAMAGED)
    for state in (_S.LDR_HEALING_STG3, _S.LDR_HEALED):
        row(state, _E.FOL_CSL_RQST, state, _A.REFUSE_FOLLOWER_CLUSTER_STATE, _A.APPLY_STATE)

    state = _S.LDR_HEALING_STG1
    row(state, _E.FOL_LSN_RSPN, state, _A.STORE_FOLLOWER_LSN, _A.CHECK_LSN_QUORUM)
    row(
        state,
        _E.REGISTRATION_RQST,
        state,
        _A.STORE_FOLLOWER_LSN,
        _A.CHECK_LSN_QUORUM,
        _A.SEND_REGISTRATION_RESPONSE,
    )
    # Not in the reference: the number of a disconnected follower must not count.
    row(state, _E.DISCONNECT_FOL_LSN, state, _A.REMOVE_FOLLOWER_LSN)

    state = _S.LDR_HEALING_STG2
    row(state, _E.FOL_LSN_RSPN, state, _A.STORE_FOLLOWER_LSN)
    row(state, _E.REGISTRATION_RQST, state, _A.STORE_FOLLOWER_LSN, _A.SEND_REGISTRATION_RESPONSE)
    row(state, _E.FOL_CSL_RSPN, _S.LDR_HEALING_STG3, _A.APPLY_STATE)
    row(state, _E.FAIL_FOL_CSL_RSPN, state, _A.REMOVE_FOLLOWER_LSN, _A.CHECK_LSN_QUORUM)
    row(state, _E.DISCONNECT_FOL_LSN, state, _A.REMOVE_FOLLOWER_LSN, _A.CHECK_LSN_QUORUM)
    row(state, _E.LOST_QUORUM_LSN, _S.LDR_HEALING_STG1, _A.SEND_FOLLOWER_LSN_REQUESTS)

    # A later node is healed by the whole state again.
    state = _S.LDR_HEALING_STG3
    row(state, _E.FOL_LSN_RSPN, state, _A.APPLY_STATE)
    row(state, _E.REGISTRATION_RQST, state, _A.SEND_REGISTRATION_RESPONSE, _A.APPLY_STATE)
    row(state, _E.CSL_CMT_SUCCESS, _S.LDR_HEALED, _A.STOP_WATCHDOG, _A.UPDATE_PRIMARIES)
    row(state, _E.CSL_CMT_FAIL, state, _A.TRIGGER_WATCHDOG)

    state = _S.LDR_HEALED
    row(state, _E.SLCT_FOL, unknown, _A.STOP_WATCHDOG, _A.CLEANUP_LSNS, _A.REAPPLY)
    row(state, _E.FOL_LSN_RQST, state, _A.REFUSE_FOLLOWER_LSN)
    row(state, _E.FOL_LSN_RSPN, state, _A.APPLY_STATE)
    row(state, _E.REGISTRATION_RQST, state, _A.SEND_REGISTRATION_RESPONSE, _A.APPLY_STATE)
    row(state, _E.CSL_CMT_SUCCESS, state, _A.UPDATE_PRIMARIES)
    # Not in the reference: a follower is waiting for the state that could not be recorded.
    row(state, _E.CSL_CMT_FAIL, state, _A.TRIGGER_WATCHDOG)
    row(state, _E.WATCHDOG, state, _A.APPLY_STATE)
    row(state, _E.RST_UNKNOWN, unknown, _A.STOP_WATCHDOG, _A.CLEANUP_LSNS)
    row(state, _E.RST_PRIMARY, state, _A.UPDATE_PRIMARIES)
    row(state, _E.STOP_NODE, _S.STOPPED, _A.STOP_PARTITIONS, _A.STOP_WATCHDOG, _A.CLEANUP_LSNS)

    row(_S.STOPPED, _E.RST_PRIMARY, _S.STOPPED, _A.UPDATE_PRIMARIES)
    return rows


TRANSITIONS: Final = _rows()
