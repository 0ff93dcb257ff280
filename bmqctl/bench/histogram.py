"""A latency histogram of fixed size.

Values are nanoseconds. Up to `SUB` they are counted one by one; above, each power of two is cut into `SUB` buckets, so
that a reported value is at most 1/`SUB` (0.8 %) above the true one:

    bucket   0 .. 127    128 .. 255    256 .. 383    384 .. 511   ...
    width    1           1             2             4            ...
    values   0 .. 127    128 .. 255    256 .. 511    512 .. 1023  ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BUCKETS", "SUB", "VALUE_BITS_MAX", "Histogram", "Occupied", "highest_in", "middle_of"]

SUB_BITS = 7
SUB = 1 << SUB_BITS
# 2**43 ns is two hours and 26 minutes; slower values count in the last bucket, and `max_ns` has the maximum.
VALUE_BITS_MAX = 43
BUCKETS = (VALUE_BITS_MAX - SUB_BITS + 1) * SUB


def _bucket_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    # frexp is exact here: every value below 2**53 is a float64.
    _, bits = np.frexp(values.astype(np.float64))
    shift = np.maximum(bits.astype(np.int64) - (SUB_BITS + 1), 0)
    # An octave's values keep their leading one after the shift, so they count from SUB on.
    bucket: NDArray[np.int64] = np.minimum(shift * SUB + (values >> shift), BUCKETS - 1)
    return bucket


def highest_in(bucket: int) -> int:
    if bucket < 2 * SUB:
        return bucket
    shift = bucket // SUB - 1
    return ((bucket - shift * SUB + 1) << shift) - 1


def middle_of(buckets: NDArray[np.int64]) -> NDArray[np.float64]:
    shift = np.maximum(buckets // SUB - 1, 0)
    lowest = (buckets - shift * SUB) << shift
    middle: NDArray[np.float64] = lowest + ((1 << shift) - 1) / 2
    return middle


class Occupied(NamedTuple):
    """A histogram's non-empty buckets, with their counts and the other totals."""

    buckets: NDArray[np.int64]
    counts: NDArray[np.int64]
    min_ns: int
    max_ns: int
    total_ns: int


class Histogram:
    """Counts of durations in nanoseconds; `counts` has shape (BUCKETS,) and type int64."""

    __slots__ = ("counts", "max_ns", "min_ns", "total_ns")

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)
        self.max_ns = 0
        self.min_ns = 0
        self.total_ns = 0

    @classmethod
    def of(cls, occupied: Occupied) -> Histogram:
        histogram = cls()
        histogram.counts[occupied.buckets] = occupied.counts
        histogram.min_ns, histogram.max_ns, histogram.total_ns = occupied[2:]
        return histogram

    def occupied(self) -> Occupied:
        buckets = np.flatnonzero(self.counts)
        return Occupied(buckets, self.counts[buckets], self.min_ns, self.max_ns, self.total_ns)

    def __len__(self) -> int:
        return int(self.counts.sum())

    def record(self, durations_ns: Sequence[int] | Iterable[int] | NDArray[Any]) -> None:
        """Count each of `durations_ns`; a negative one counts as 0."""
        values = np.asarray(durations_ns, np.int64)
        if not values.size:
            return
        values = np.maximum(values, 0)
        lowest = int(values.min())
        self.min_ns = min(self.min_ns, lowest) if len(self) else lowest
        self.max_ns = max(self.max_ns, int(values.max()))
        self.total_ns += int(values.sum())
        self.counts += np.bincount(_bucket_of(values), minlength=BUCKETS)

    def merge(self, other: Histogram) -> None:
        if not len(other):
            return
        self.min_ns = min(self.min_ns, other.min_ns) if len(self) else other.min_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self.total_ns += other.total_ns
        self.counts += other.counts

    def percentile(self, percent: float) -> int:
        """The nanoseconds that `percent` (0 to 100) of the durations do not exceed; 0 without durations."""
        cumulated = np.cumsum(self.counts)
        total = int(cumulated[-1])
        if not total:
            return 0
        rank = min(max(int(np.ceil(total * percent / 100)), 1), total)
        bucket = int(np.searchsorted(cumulated, rank))
        return min(highest_in(bucket), self.max_ns)

    @property
    def mean_ns(self) -> float:
        count = len(self)
        return self.total_ns / count if count else 0.0

    @property
    def deviation_ns(self) -> float:
        """The standard deviation, each duration taken as the middle of its bucket."""
        buckets, counts = self.occupied()[:2]
        if not len(buckets):
            return 0.0
        return float(np.sqrt(np.average((middle_of(buckets) - self.mean_ns) ** 2, weights=counts)))

    def summary_us(self) -> dict[str, float | int]:
        """The count and the usual percentiles in microseconds, as `bmqctl bench --json` prints them."""
        return {
            "count": len(self),
            "min": self.min_ns / 1e3,
            "mean": round(self.mean_ns / 1e3, 3),
            "p50": self.percentile(50) / 1e3,
            "p90": self.percentile(90) / 1e3,
            "p99": self.percentile(99) / 1e3,
            "p99_9": self.percentile(99.9) / 1e3,
            "max": self.max_ns / 1e3,
        }
