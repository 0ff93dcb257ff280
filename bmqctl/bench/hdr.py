"""Histograms in the formats of HdrHistogram's tools: the compressed encoding V2, interval logs and percentile tables.

The buckets are those of an HdrHistogram of two significant digits whose values begin at 1, so that counts are written
unchanged. Values are nanoseconds. Tests read the files with the library `hdrhistogram`. It does not write them: it
takes counts one value at a time, and needs a C extension, pbr and setuptools. See
https://github.com/HdrHistogram/HdrHistogram.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from bmqctl.bench.histogram import SUB, VALUE_BITS_MAX, Histogram, highest_in

__all__ = ["Interval", "encoded", "log_lines", "percentile_lines"]

# The low byte is for a word size that V2 no longer has; all writers set it so.
_COOKIE = 0x1C849303 | 0x10
_COMPRESSED_COOKIE = 0x1C849304 | 0x10
_SIGNIFICANT_DIGITS = 2
_LOWEST = 1
_HIGHEST = (1 << VALUE_BITS_MAX) - 1
# Cookie, length of the counts, offset of a normalized index, significant digits, lowest and highest value, and the
# ratio of values to integers.
_HEADER = struct.Struct(">iiiiqqd")
_COMPRESSED_HEADER = struct.Struct(">ii")
_MS = 1e6
_TICKS_PER_HALF = 5
_BUCKETS = VALUE_BITS_MAX - SUB.bit_length() + 1


def _zigzag(value: int) -> bytes:
    """Encode a signed number in groups of seven bits, the lowest first; a ninth byte has eight."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F and len(encoded) < 8:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encoded(histogram: Histogram) -> str:
    """Encode counts for a line of a log: V2, compressed, in base 64."""
    counts = bytearray()
    end = 0
    for bucket in np.flatnonzero(histogram.counts).tolist():
        if empty := bucket - end:
            counts += _zigzag(-empty)
        counts += _zigzag(int(histogram.counts[bucket]))
        end = bucket + 1
    header = _HEADER.pack(_COOKIE, len(counts), 0, _SIGNIFICANT_DIGITS, _LOWEST, _HIGHEST, 1.0)
    compressed = zlib.compress(header + counts)
    return base64.b64encode(_COMPRESSED_HEADER.pack(_COMPRESSED_COOKIE, len(compressed)) + compressed).decode()


class Interval(NamedTuple):
    """A line of a log: the interval's start, in seconds after the log's, its length, a tag and the histogram."""

    start_s: float
    length_s: float
    tag: str
    histogram: Histogram


def log_lines(intervals: Iterable[Interval], start_s: float, comment: str) -> Iterator[str]:
    """Yield the lines of an interval log that begins at `start_s`, in seconds since 1970."""
    yield f"#[{comment}]"
    yield "#[Histogram log format version 1.3]"
    moment = datetime.fromtimestamp(start_s, UTC)
    yield f"#[StartTime: {start_s:.3f} (seconds since epoch), {moment:%Y-%m-%dT%H:%M:%SZ}]"
    yield f"#[BaseTime: {start_s:.3f} (seconds since epoch)]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    for start, length, tag, histogram in intervals:
        yield f"Tag={tag},{start:.3f},{length:.3f},{histogram.max_ns / _MS:.3f},{encoded(histogram)}"


def percentile_lines(histogram: Histogram) -> Iterator[str]:
    yield f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}"
    yield ""
    total = len(histogram)
    cumulated = np.cumsum(histogram.counts)
    for level in _levels() if total else ():
        rank = max(math.ceil(total * level / 100), 1)
        bucket = int(np.searchsorted(cumulated, rank))
        value, count = highest_in(bucket) / _MS, int(cumulated[bucket])
        yield f"{value:12.6f} {level / 100:2.12f} {count:10d} {1 / (1 - level / 100):14.2f}"
        if count == total:
            yield f"{value:12.6f} {1:2.12f} {total:10d}"
            break
    deviation = histogram.deviation_ns / _MS
    yield f"#[Mean    = {histogram.mean_ns / _MS:12.3f}, StdDeviation   = {deviation:12.3f}]"
    yield f"#[Max     = {histogram.max_ns / _MS:12.3f}, Total count    = {total:12d}]"
    yield f"#[Buckets = {_BUCKETS:12d}, SubBuckets     = {2 * SUB:12d}]"


def _levels() -> Iterator[float]:
    """Yield percentages that approach 100, five in each half of the remainder."""
    level = 0.0
    while True:
        yield level
        halves = math.floor(math.log2(100 / (100 - level))) + 1
        level += 100 / (_TICKS_PER_HALF * 2**halves)
