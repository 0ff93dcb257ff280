"""Time series of arrived and removed messages, in a bounded number of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Series"]

STEPS_MAX = 1024
TIMES_MIN, TIMES_MAX = 0, 4_102_444_800  # 1970 to 2100: other times count at the bound


class Series:
    """Counts in steps of equal length, which doubles when the time span outgrows them.

    `start_s` is the time of the first step, in seconds since the epoch, `step_s` the length of one.
    """

    def __init__(self) -> None:
        self.start_s = 0
        self.step_s = 1
        self._counts: NDArray[np.int64] = np.zeros((2, 0), np.int64)

    def add(self, arrived_s: NDArray[Any], left_s: NDArray[Any]) -> None:
        both = [np.clip(times, TIMES_MIN, TIMES_MAX) for times in (arrived_s, left_s)]
        times = np.concatenate(both)
        if len(times):
            self._reach(int(times.min()), int(times.max()))
            for row, column in enumerate(both):
                found = np.bincount((column - self.start_s) // self.step_s, minlength=self._counts.shape[1])
                self._counts[row] += found

    @property
    def arrivals(self) -> NDArray[np.int64]:
        row: NDArray[np.int64] = self._counts[0]
        return row

    @property
    def removals(self) -> NDArray[np.int64]:
        row: NDArray[np.int64] = self._counts[1]
        return row

    @property
    def backlog(self) -> NDArray[np.int64]:
        return np.cumsum(self.arrivals - self.removals)

    @property
    def times_s(self) -> NDArray[np.int64]:
        """The start of each step, in seconds since the epoch."""
        return self.start_s + self.step_s * np.arange(self._counts.shape[1])

    def merged(self, other: Series) -> Series:
        out = Series()
        for part in (self, other):
            out.step_s = max(out.step_s, part.step_s)
        for part in (self, other):
            if not part._counts.shape[1]:
                continue
            out._reach(int(part.times_s[0]), int(part.times_s[-1]))
            _add(out._counts, (part.times_s - out.start_s) // out.step_s, part._counts)
        return out

    def _reach(self, first_s: int, last_s: int) -> None:
        size = self._counts.shape[1]
        if size:
            first_s, last_s = min(first_s, self.start_s), max(last_s, self.start_s + size * self.step_s - 1)
        step = self.step_s
        while last_s // step - first_s // step >= STEPS_MAX:
            step *= 2
        start = first_s // step * step
        counts = np.zeros((2, last_s // step - start // step + 1), np.int64)
        if size:
            _add(counts, (self.times_s - start) // step, self._counts)
        self.start_s, self.step_s, self._counts = start, step, counts


def _add(counts: NDArray[np.int64], steps: NDArray[np.int64], more: NDArray[np.int64]) -> None:
    for row, column in zip(counts, more, strict=True):
        np.add.at(row, steps, column)
