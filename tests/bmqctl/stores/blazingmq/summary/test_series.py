"""`bmqctl.stores.blazingmq.summary.series`: no message lost, however long the time span, and steps that stay few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.stores.blazingmq.summary.series import STEPS_MAX, TIMES_MAX, TIMES_MIN, Series

times = st.lists(st.one_of(st.integers(1000, 1100), st.integers(0, 10**9), st.integers(-5, 1 << 62)), max_size=30)
batches = st.lists(st.tuples(times, times), max_size=5)


def filled(parts: list[tuple[list[int], list[int]]]) -> Series:
    series = Series()
    for arrived, left in parts:
        series.add(np.array(arrived, np.int64), np.array(left, np.int64))
    return series


def counted(series: Series, row: int) -> dict[int, int]:
    values = (series.arrivals, series.removals)[row]
    return {int(at): int(n) for at, n in zip(series.times_s, values, strict=True) if n}


def wanted(parts: list[tuple[list[int], list[int]]], row: int, step_s: int) -> dict[int, int]:
    out: dict[int, int] = {}
    for part in parts:
        for time in part[row]:
            at = min(max(time, TIMES_MIN), TIMES_MAX) // step_s * step_s
            out[at] = out.get(at, 0) + 1
    return out


@pytest.mark.slow
@given(batches)
def test_every_message_is_in_its_step(parts: list[tuple[list[int], list[int]]]) -> None:
    series = filled(parts)
    assert len(series.arrivals) <= STEPS_MAX
    for row in (0, 1):
        assert counted(series, row) == wanted(parts, row, series.step_s)


@pytest.mark.slow
@given(batches, batches)
def test_merging_is_adding(one: list[tuple[list[int], list[int]]], two: list[tuple[list[int], list[int]]]) -> None:
    merged = filled(one).merged(filled(two))
    assert len(merged.arrivals) <= STEPS_MAX
    for row in (0, 1):
        assert counted(merged, row) == wanted(one + two, row, merged.step_s)


def test_steps_are_as_short_as_they_can_be() -> None:
    assert filled([([100, 100 + STEPS_MAX - 1], [])]).step_s == 1
    assert filled([([100, 100 + STEPS_MAX], [])]).step_s == 2
    assert filled([([100], []), ([100 + 86_400], [])]).step_s == 128


def test_backlog() -> None:
    series = filled([([10, 10, 11, 13], [11, 13, 13])])
    assert (series.start_s, series.step_s) == (10, 1)
    assert series.backlog.tolist() == [2, 2, 2, 1]
