from __future__ import annotations

from dataclasses import replace

from tests.bmqctl.bench.plans import PLAN


def test_producers_share_the_count() -> None:
    plan = replace(PLAN, producers=3, count=11)
    assert [plan.share(i) for i in range(3)] == [4, 4, 3]
    assert replace(plan, count=None).share(0) is None


def test_producers_of_an_open_loop_take_turns() -> None:
    plan = replace(PLAN, producers=2, rate=1000.0, batch=1, count=None, duration_s=1.0)
    times = sorted(plan.schedule(p, 0).due_ns(i) for p in range(2) for i in range(500))
    assert times == [i * 1_000_000 for i in range(1000)]


def test_each_producer_has_room_for_a_message() -> None:
    assert replace(PLAN, producers=8, window=4).window_share() == 1
