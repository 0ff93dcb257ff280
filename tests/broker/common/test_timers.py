from __future__ import annotations

from functools import partial

from broker.common.timers import Timers


def test_actions_are_taken_in_the_order_of_their_times() -> None:
    timers = Timers()
    taken: list[str] = []
    assert Timers().next_ms is None
    for ms, name in ((30, "a"), (10, "b"), (20, "c"), (10, "d")):
        timers.at(ms, partial(taken.append, name))
    assert timers.next_ms == 10
    timers.run(20)
    assert taken == ["b", "d", "c"]
    assert timers.next_ms == 30


def test_timer_set_by_an_action_waits() -> None:
    timers = Timers()
    taken: list[str] = []
    timers.at(1, lambda: timers.at(1, lambda: taken.append("later")))
    timers.run(1)
    assert (taken, timers.next_ms) == ([], 1)
    timers.run(1)
    assert taken == ["later"]
