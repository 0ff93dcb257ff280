from __future__ import annotations

import random

import numpy as np
import pytest

from bmqctl.bench.histogram import BUCKETS, SUB, Histogram


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record(values)
    return histogram


def test_small_values_are_counted_one_by_one() -> None:
    histogram = filled(list(range(2 * SUB)))
    assert [histogram.percentile(100 * (i + 1) / (2 * SUB)) for i in range(2 * SUB)] == list(range(2 * SUB))


@pytest.mark.parametrize("value", [0, 1, 255, 256, 257, 511, 512, 1023, 1024, 10**6, 2**42 - 1, 2**42, 2**43 - 1])
def test_a_value_is_reported_at_most_one_bucket_too_high(value: int) -> None:
    histogram = filled([value, 2**43 - 1])
    assert value <= histogram.percentile(50) <= value * (1 + 1 / SUB)


def test_percentiles_agree_with_sorted_values() -> None:
    rng = random.Random(7)
    values = [int(rng.lognormvariate(12, 2)) for _ in range(20_000)]
    histogram = filled(values)
    ordered = sorted(values)
    for percent in (1, 50, 90, 99, 99.9, 100):
        exact = ordered[min(int(np.ceil(len(values) * percent / 100)), len(values)) - 1]
        assert exact <= histogram.percentile(percent) <= exact * (1 + 1 / SUB) + 1


def test_an_empty_histogram_says_zero() -> None:
    histogram = filled([])
    assert len(histogram) == 0
    assert histogram.percentile(99) == 0
    assert histogram.summary_us()["max"] == 0


def test_a_value_beyond_the_last_bucket_keeps_its_maximum_and_takes_no_memory() -> None:
    histogram = filled([2**50])
    assert histogram.counts.shape == (BUCKETS,)
    assert histogram.max_ns == 2**50
    assert histogram.percentile(100) == 2**43 - 1


def test_a_negative_duration_counts_as_zero() -> None:
    assert filled([-5]).summary_us() == filled([0]).summary_us()


def test_merging_is_recording_both() -> None:
    left, right = [5, 100, 70_000], [3, 9_000_000]
    merged = filled(left)
    merged.merge(filled(right))
    merged.merge(Histogram())
    assert merged.summary_us() == filled(left + right).summary_us()
    empty = Histogram()
    empty.merge(merged)
    assert empty.summary_us() == merged.summary_us()


def test_the_summary_is_in_microseconds() -> None:
    summary = filled([1_000, 3_000]).summary_us()
    assert summary["min"] == 1.0
    assert summary["mean"] == 2.0
    assert summary["max"] == 3.0
    assert summary["count"] == 2
