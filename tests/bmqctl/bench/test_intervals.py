from __future__ import annotations

import pickle

from bmqctl.bench.tally import Intervals


def test_durations_are_kept_by_second() -> None:
    intervals = Intervals()
    intervals.record(7, [1000, 2000])
    intervals.record(5, [3000])
    intervals.record(7, [9_000_000])
    intervals.record(6, [])
    read = [(second, len(histogram), histogram.max_ns, histogram.min_ns) for second, histogram in intervals]
    assert read == [(5, 1, 3000, 3000), (7, 3, 9_000_000, 1000)]
    assert [(start, len(histogram)) for start, histogram in intervals.since(4_500_000_000)] == [(0.5, 1), (2.5, 3)]


def test_they_are_added_up_after_a_pipe() -> None:
    one, other = Intervals(), Intervals()
    one.record(1, [100, 200])
    other.record(1, [300])
    other.record(2, [5, 5])
    one.merge(pickle.loads(pickle.dumps(other)))
    assert [(second, len(histogram), histogram.total_ns) for second, histogram in one] == [(1, 3, 600), (2, 2, 10)]
