"""Counters over a window: against a plain record of all that happened."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.bmq.core.statistics import SNAPSHOTS_KEPT, QueueStatistics


def test_before_the_first_snapshot_all_is_recent() -> None:
    statistics = QueueStatistics()
    statistics.puts += 3
    statistics.waited(10)
    statistics.waited(20)
    recently = statistics.recently(3, 30)
    assert (recently.counters.puts, recently.wait_ms, recently.answer_ms) == (3, 15, 0)
    assert (recently.counters.messages_max, recently.counters.wait_ms_max) == (3, 20)


def test_the_highest_level_is_seen_before_it_falls() -> None:
    statistics = QueueStatistics()
    statistics.observe(32, 96)
    assert statistics.recently(0, 0).counters.messages_max == 32
    for _ in range(SNAPSHOTS_KEPT - 1):
        statistics.snapshot(0, 0)
        # The window is a minute long, or since the beginning.
        assert statistics.recently(0, 0).counters.messages_max == 32
    statistics.snapshot(0, 0)
    assert statistics.recently(0, 0).counters.messages_max == 0


EVENTS: dict[str, Callable[[QueueStatistics, int], None]] = {
    "put": lambda statistics, n: setattr(statistics, "puts", statistics.puts + 1),
    "wait": lambda statistics, n: statistics.waited(n),
    "answer": lambda statistics, n: statistics.answered(n),
    "observe": lambda statistics, n: statistics.observe(n, n * 10),
    "snapshot": lambda statistics, n: statistics.snapshot(0, 0),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.integers(0, 100)), max_size=200))
def test_the_window_is_what_happened_since_its_oldest_snapshot(events: list[tuple[str, int]]) -> None:
    statistics = QueueStatistics()
    for name, amount in events:
        EVENTS[name](statistics, amount)
    snapshots = [at for at, (name, _) in enumerate(events) if name == "snapshot"]
    lately = events[snapshots[-SNAPSHOTS_KEPT] + 1 :] if len(snapshots) >= SNAPSHOTS_KEPT else events
    recently = statistics.recently(0, 0)

    def of(kind: str) -> list[int]:
        return [amount for name, amount in lately if name == kind]

    assert recently.counters.puts == len(of("put"))
    assert recently.counters.messages_max == max(of("observe"), default=0)
    assert recently.counters.bytes_max == max(of("observe"), default=0) * 10
    assert recently.counters.wait_ms_max == max(of("wait"), default=0)
    waits, answers = of("wait"), of("answer")
    assert recently.wait_ms == (sum(waits) // len(waits) if waits else 0)
    assert recently.answer_ms == (sum(answers) // len(answers) if answers else 0)


def test_queues_at_rest_share_their_snapshots() -> None:
    statistics = QueueStatistics()
    for _ in range(SNAPSHOTS_KEPT):
        statistics.snapshot(0, 0)
    assert len({id(kept) for kept in statistics._kept}) == 1


@pytest.mark.parametrize("field", ["puts", "expired", "answer_ms_max"])
def test_all_begin_with_nothing(field: str) -> None:
    assert getattr(QueueStatistics(), field) == 0
