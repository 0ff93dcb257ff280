from __future__ import annotations

import pytest

from bmqctl.client.protocol.lifecycle import (
    QUEUE_TABLE,
    SESSION_TABLE,
    Impossible,
    Queue,
    QueueInput,
    Session,
    SessionInput,
    step,
)


@pytest.mark.parametrize(
    ("table", "states", "first"), [(SESSION_TABLE, Session, Session.NEW), (QUEUE_TABLE, Queue, Queue.CLOSED)]
)
def test_every_state_can_be_reached(table: dict[tuple[object, object], object], states: type, first: object) -> None:
    reached = {first}
    while new := {after for (before, _), after in table.items() if before in reached} - reached:
        reached |= new
    assert reached == set(states)  # type: ignore[call-overload]


def test_a_session_may_be_lost_in_every_state() -> None:
    assert all(SESSION_TABLE[state, SessionInput.LOST] is Session.STOPPED for state in Session)


def test_a_queue_does_not_outlive_its_session() -> None:
    assert all(QUEUE_TABLE[state, QueueInput.SESSION_ENDED] is Queue.CLOSED for state in Queue)


def test_transition_missing_from_the_table_is_impossible() -> None:
    with pytest.raises(Impossible, match="Queue OPENED on OPEN"):
        step(QUEUE_TABLE, Queue.OPENED, QueueInput.OPEN)
