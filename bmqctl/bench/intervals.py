"""Durations by the second in which they ended, for logs and plots over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bmqctl.bench.histogram import Histogram, Occupied
from bmqctl.bench.schedule import SECOND_NS

__all__ = ["Intervals"]


class Intervals:
    """A histogram for each second of CLOCK_MONOTONIC; only occupied buckets take memory."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: dict[int, Occupied] = {}

    def record(self, second: int, durations_ns: Sequence[int]) -> None:
        """Count durations that ended in `second`."""
        histogram = Histogram()
        histogram.record(durations_ns)
        self._add(second, histogram)

    def merge(self, other: Intervals) -> None:
        """Count all that `other` counted."""
        for second, histogram in other:
            self._add(second, histogram)

    def _add(self, second: int, histogram: Histogram) -> None:
        if not len(histogram):
            return
        if (before := self._seconds.get(second)) is not None:
            histogram.merge(Histogram.of(before))
        self._seconds[second] = histogram.occupied()

    def __iter__(self) -> Iterator[tuple[int, Histogram]]:
        """Yield the seconds that have durations, in order, with their histograms."""
        for second in sorted(self._seconds):
            yield second, Histogram.of(self._seconds[second])

    def since(self, start_ns: int) -> list[tuple[float, Histogram]]:
        """Return the histograms with the start of each second, in seconds after `start_ns`."""
        return [((second * SECOND_NS - start_ns) / SECOND_NS, histogram) for second, histogram in self]
