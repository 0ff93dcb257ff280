"""The pace of healing: fast when nobody waits, and at a bounded rate while there is traffic."""

from __future__ import annotations

import pytest

from broker.bmq.replication.healing_pace import ARREARS_MS, BYTES_PER_MS, PATIENCE_MS, QUIET_MS, HealingPace
from broker.common.clock import Now
from broker.common.timers import Timers

SLICE = 2 * BYTES_PER_MS


@pytest.fixture
def now() -> Now:
    return Now(1, 1_000_000)


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def pace(now: Now, timers: Timers) -> HealingPace:
    return HealingPace(now, timers)


def traffic(pace: HealingPace, now: Now, ms: int) -> int:
    """A message a millisecond, which is acknowledged in a step of its own; how much was sent between."""
    sent = 0
    for _ in range(ms):
        now.ms += 1
        pace.written()
        pace.end_step(awaited=True)
        sent += send(pace)
        pace.end_step(awaited=False)
        assert not pace.may_send or late(pace), "the acknowledgement first"
        for _ in range(50):
            pace.end_step(awaited=False)
            sent += send(pace)
    return sent


def late(pace: HealingPace) -> bool:
    """Return True if it would be sent even though other work waits."""
    pace.end_step(awaited=True)
    found = pace.may_send
    pace.end_step(awaited=False)
    return found


def send(pace: HealingPace) -> int:
    if not pace.may_send:
        return 0
    pace.sent(SLICE)
    return SLICE


def test_without_traffic_there_is_no_limit(pace: HealingPace, timers: Timers) -> None:
    for _ in range(1000):
        pace.end_step(awaited=False)
        assert pace.goes_on
        assert send(pace)
    assert len(timers) == 0


def test_with_traffic_it_is_so_much_and_no_more(pace: HealingPace, now: Now) -> None:
    traffic(pace, now, ARREARS_MS)
    sent = traffic(pace, now, 1000)
    assert sent == pytest.approx(1000 * BYTES_PER_MS, rel=0.01)


def test_nothing_is_sent_while_somebody_waits(pace: HealingPace, now: Now) -> None:
    traffic(pace, now, 100)
    now.ms += 3
    pace.end_step(awaited=True)
    assert not pace.may_send
    assert not pace.goes_on


def test_but_not_for_ever(pace: HealingPace, now: Now, timers: Timers) -> None:
    traffic(pace, now, 100)
    sent = 0
    for _ in range(1000):
        now.ms += 1
        timers.run(now.ms)
        pace.written()
        pace.end_step(awaited=True)
        sent += send(pace)
    assert sent == pytest.approx(1000 * BYTES_PER_MS, rel=0.01 + PATIENCE_MS / 1000)


def test_a_timer_is_set_for_what_is_due_later(pace: HealingPace, now: Now, timers: Timers) -> None:
    traffic(pace, now, 100)
    while timers.next_ms is not None and timers.next_ms <= now.ms:
        timers.run(now.ms)
    assert timers.next_ms is not None
    assert timers.next_ms <= now.ms + SLICE // BYTES_PER_MS
    now.ms = timers.next_ms
    pace.end_step(awaited=False)
    pace.end_step(awaited=False)
    assert pace.may_send


def test_when_it_has_been_quiet_for_a_while_the_limit_ends(pace: HealingPace, now: Now) -> None:
    traffic(pace, now, 100)
    now.ms += QUIET_MS
    for _ in range(1000):
        pace.end_step(awaited=False)
        pace.end_step(awaited=False)
        assert send(pace)


def test_healing_does_not_wait_for_traffic_that_waits_for_it(pace: HealingPace, now: Now) -> None:
    traffic(pace, now, 100)
    now.ms += QUIET_MS
    for _ in range(1000):
        pace.end_step(awaited=True)
        assert pace.goes_on
        assert send(pace)
