from __future__ import annotations

from broker.core.timers import Timers


def test_actions_are_taken_in_the_order_of_their_times() -> None:
    timers, taken = Timers(), []
    assert timers.next_ms is None
    for ms in (30, 10, 20, 10):
        timers.at(ms, lambda ms=ms, number=len(timers): taken.append((ms, number)))  # type: ignore[misc]
    assert timers.next_ms == 10
    timers.run(20)
    assert taken == [(10, 1), (10, 3), (20, 2)]
    assert timers.next_ms == 30


def test_what_an_action_asks_for_waits() -> None:
    timers, taken = Timers(), []
    timers.at(1, lambda: timers.at(1, lambda: taken.append("later")))
    timers.run(1)
    assert (taken, timers.next_ms) == ([], 1)
    timers.run(1)
    assert taken == ["later"]
