"""The cluster state machine's table, walked: every state can be reached and left, nothing is left running."""

from __future__ import annotations

import pytest

from broker.bmq.consensus.cluster_table import FOLLOWING, HEALED, LEADING, TRANSITIONS, Action, Event, State
from tests.broker.bmq.consensus.metadata_bus import Bus

RUNNING = [state for state in State if state is not State.STOPPED]
WATCHED = (LEADING | FOLLOWING) - HEALED
REQUESTING = frozenset(
    {State.FOL_WAITING, State.FOL_HEALING, State.LDR_HEALING_STG1, State.LDR_HEALING_STG2, State.LDR_HEALING_STG3}
)


def test_every_state_is_reached_from_the_first() -> None:
    reached = {State.UNKNOWN}
    while more := {row.state for (state, _), row in TRANSITIONS.items() if state in reached} - reached:
        reached |= more
    assert reached == set(State)


@pytest.mark.parametrize("state", RUNNING)
def test_every_state_ends_with_the_leader_or_the_node(state: State) -> None:
    if state is not State.UNKNOWN:
        assert TRANSITIONS[state, Event.RST_UNKNOWN].state is State.UNKNOWN
    assert TRANSITIONS[state, Event.STOP_NODE].state is State.STOPPED
    assert Action.STOP_PARTITIONS in TRANSITIONS[state, Event.STOP_NODE].actions


@pytest.mark.parametrize("state", [state for state in State if state in WATCHED])
def test_healing_node_is_watched(state: State) -> None:
    """The watchdog runs from the moment healing begins to the moment it ends, one way or the other."""
    for (old, event), row in TRANSITIONS.items():
        if row.state is state and old not in WATCHED:
            assert Action.START_WATCHDOG in row.actions, (old, event)
        # A reapplied event begins to heal again, under the watchdog that runs.
        if old is state and row.state not in WATCHED and event not in (Event.REAPPLY_LDR, Event.REAPPLY_FOL):
            assert Action.STOP_WATCHDOG in row.actions, event
    assert (state, Event.WATCHDOG) in TRANSITIONS
    assert (state, Event.CSL_CMT_FAIL) in TRANSITIONS


def test_a_leader_stops_its_watchdog_when_its_office_ends() -> None:
    """A healed leader may have armed it: see `CSL_CMT_FAIL`."""
    for (old, event), row in TRANSITIONS.items():
        if old is State.LDR_HEALED and row.state is not old:
            assert Action.STOP_WATCHDOG in row.actions, event


def test_a_leader_that_is_none_any_more_forgets_what_it_knew() -> None:
    for (old, event), row in TRANSITIONS.items():
        if old in LEADING and row.state not in LEADING:
            assert Action.CLEANUP_LSNS in row.actions, (old, event)
        if old in REQUESTING and row.state not in LEADING | FOLLOWING:
            assert Action.CANCEL_REQUESTS in row.actions, (old, event)


@pytest.mark.parametrize("event", [Event.FOL_LSN_RQST, Event.FOL_CSL_RQST, Event.REGISTRATION_RQST])
def test_every_request_is_answered_once(event: Event) -> None:
    answers = {
        Action.SEND_FOLLOWER_LSN_RESPONSE,
        Action.REFUSE_FOLLOWER_LSN,
        Action.SEND_FOLLOWER_CLUSTER_STATE_RESPONSE,
        Action.REFUSE_FOLLOWER_CLUSTER_STATE,
        Action.SEND_REGISTRATION_RESPONSE,
        Action.REFUSE_REGISTRATION,
    }
    for state in RUNNING:
        assert len(answers & set(TRANSITIONS[state, event].actions)) == 1, state


def test_impossible_event_stops_the_node() -> None:
    """A commit where none is possible: the node is wrong about itself."""
    aborting = {key for key, row in TRANSITIONS.items() if Action.ABORT in row.actions}
    states = (State.UNKNOWN, State.LDR_HEALING_STG1, State.LDR_HEALING_STG2)
    assert aborting == {(state, event) for state in states for event in (Event.CSL_CMT_SUCCESS, Event.CSL_CMT_FAIL)}
    metadata = Bus().nodes[1].metadata
    with pytest.raises(AssertionError, match="CSL_CMT_FAIL in UNKNOWN"):
        metadata._apply(Event.CSL_CMT_FAIL)


def test_every_action_can_be_taken() -> None:
    metadata = Bus().nodes[1].metadata
    assert set(metadata._actions) == set(Action)
    assert {action for row in TRANSITIONS.values() for action in row.actions} == set(Action)
