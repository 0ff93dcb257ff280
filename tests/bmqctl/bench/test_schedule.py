from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.bench.schedule import SECOND_NS, Schedule

START = 5_000_000_000


def schedule(rate: float = 1000, batch: int = 1, count: int | None = None, duration_ns: int | None = None) -> Schedule:
    return Schedule(START, rate, batch, count, duration_ns)


def test_messages_are_spread_evenly() -> None:
    plan = schedule(rate=1000)
    assert [plan.due_ns(i) - START for i in range(4)] == [0, 1_000_000, 2_000_000, 3_000_000]


def test_the_messages_of_a_batch_are_due_together() -> None:
    plan = schedule(rate=1000, batch=3)
    assert [plan.due_ns(i) - START for i in range(7)] == [0, 0, 0, 3_000_000, 3_000_000, 3_000_000, 6_000_000]


def test_nothing_is_due_before_the_start() -> None:
    assert schedule().due(START - 1) == 0
    assert schedule().due(START) == 1


def test_number_due_does_not_depend_on_the_number_sent() -> None:
    # One call after a stall of a second asks for all that the stall held back.
    assert schedule(rate=1000).due(START + SECOND_NS) == 1001


@given(
    rate=st.floats(0.5, 3e6, allow_nan=False),
    batch=st.integers(1, 64),
    index=st.integers(0, 10**7),
)
def test_a_message_is_due_exactly_from_its_time_on(rate: float, batch: int, index: int) -> None:
    plan = schedule(rate=rate, batch=batch)
    due_ns = plan.due_ns(index)
    assert plan.due(due_ns) > index
    if due_ns > START and plan.due_ns(index - batch) < due_ns:
        assert plan.due(due_ns - 1) <= index


def test_a_count_ends_the_run() -> None:
    plan = schedule(count=5)
    assert plan.due(START + SECOND_NS) == 5
    assert not plan.over(4, START + SECOND_NS)
    assert plan.over(5, START)


def test_a_duration_ends_an_open_loop_by_what_was_due_not_by_the_clock() -> None:
    plan = schedule(rate=1000, duration_ns=SECOND_NS)
    assert plan.total == 1000
    # The sender is late: the clock is past the end, and 400 messages are still owed.
    assert not plan.over(600, START + 2 * SECOND_NS)
    assert plan.over(1000, START + 2 * SECOND_NS)


def test_a_duration_ends_a_run_without_a_rate_by_the_clock() -> None:
    plan = schedule(rate=0, duration_ns=SECOND_NS)
    assert plan.total is None
    assert not plan.over(10**9, START + SECOND_NS - 1)
    assert plan.over(0, START + SECOND_NS)


@pytest.mark.parametrize(("count", "duration_ns", "total"), [(10, SECOND_NS, 10), (5000, SECOND_NS, 1000)])
def test_the_nearer_limit_holds(count: int, duration_ns: int, total: int) -> None:
    assert schedule(rate=1000, count=count, duration_ns=duration_ns).total == total
