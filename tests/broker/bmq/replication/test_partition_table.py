"""The partition's table: whole, and with nothing in it that nobody can reach or carry out."""

from __future__ import annotations

import pytest

from broker.bmq.replication.partition import ReplicatedPartition
from broker.bmq.replication.partition_table import TABLE, Event, State

DAMAGED = (Event.DAMAGED_STATE_RQST, Event.DAMAGED_REPLICA_STATE_RSPN)

# Rows that the reference does not have: what they are for stands beside them in the table.
OWN = {
    (State.PRIMARY_HEALING_STG1, Event.DETECT_SELF_PRIMARY),
    (State.PRIMARY_HEALING_STG2, Event.DETECT_SELF_PRIMARY),
    (State.PRIMARY_HEALED, Event.DETECT_SELF_PRIMARY),
    (State.PRIMARY_HEALED, Event.REAPPLY_SELF_PRIMARY),
    (State.PRIMARY_HEALING_STG2, Event.FAIL_REPLICA_DATA_RSPN_PUSH),
    (State.PRIMARY_HEALED, Event.FAIL_REPLICA_DATA_RSPN_PUSH),
    (State.PRIMARY_HEALED, Event.REPLICA_DATA_RSPN_PUSH),
    (State.REPLICA_HEALED, Event.REPLICA_DATA_RQST_DROP),
    *((state, event) for state, event in TABLE if event in DAMAGED),
    (State.PRIMARY_HEALED, Event.RECOVERY_DATA),
    (State.REPLICA_HEALED, Event.REPLICA_DATA_RQST_PULL),
    (State.REPLICA_HEALED, Event.PRIMARY_STATE_RQST),
}
REFERENCE_ROWS = 80


def test_every_row_of_the_reference_is_there() -> None:
    assert set(TABLE) >= OWN
    assert len(TABLE) - len(OWN) == REFERENCE_ROWS


@pytest.mark.parametrize(("state", "event"), TABLE)
def test_a_partition_carries_out_the_actions_of_the_table(state: State, event: Event) -> None:
    for action in TABLE[state, event].actions:
        assert getattr(ReplicatedPartition, action.__name__) is action


def test_every_state_is_reached_from_the_first() -> None:
    reached = {State.UNKNOWN}
    while True:
        more = {row.state for (state, _), row in TABLE.items() if state in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(State)


@pytest.mark.parametrize("state", [each for each in State if each not in (State.STOPPED, State.UNKNOWN)])
def test_a_lost_primary_and_a_stop_end_every_state(state: State) -> None:
    assert TABLE[state, Event.RST_UNKNOWN].state is State.UNKNOWN
    assert TABLE[state, Event.STOP_NODE].state is State.STOPPED


@pytest.mark.parametrize("state", [each for each in State if each is not State.STOPPED])
def test_every_state_has_a_row_for_a_new_primary(state: State) -> None:
    for event in (Event.DETECT_SELF_PRIMARY, Event.DETECT_SELF_REPLICA):
        assert (state, event) in TABLE


def test_nothing_leads_out_of_a_stop() -> None:
    assert not [key for key in TABLE if key[0] is State.STOPPED]


def test_every_event_means_something() -> None:
    assert {event for _, event in TABLE} == set(Event)


@pytest.mark.parametrize("state", [each for each in State if each is not State.STOPPED])
def test_a_question_for_the_primarys_state_is_answered_in_every_state(state: State) -> None:
    """The replica that asks refuses the primary's own questions until it has an answer."""
    actions = TABLE[state, Event.PRIMARY_STATE_RQST].actions
    assert {ReplicatedPartition.refuse_as_no_primary, ReplicatedPartition.answer_replica} & set(actions)
