"""Files of histograms, as the library `hdrhistogram` reads them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.bench.hdr import Interval, encoded, log_lines, percentile_lines
from bmqctl.bench.histogram import Histogram, highest_in

HIGHEST = 2**43 - 1


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record(values)
    return histogram


def theirs(values: list[int]) -> HdrHistogram:
    histogram = HdrHistogram(1, HIGHEST, 2)
    for value in values:
        histogram.record_value(value)
    return histogram


@given(st.lists(st.one_of(st.integers(0, 1000), st.integers(0, HIGHEST)), min_size=1, max_size=200))
def test_the_library_reads_the_same_counts(values: list[int]) -> None:
    read = HdrHistogram.decode(encoded(filled(values)))
    assert read.equals(theirs(values))
    assert [read.get_count_at_index(i) for i in range(read.counts_len)] == filled(values).counts.tolist()


def test_the_encoding_is_that_of_the_library() -> None:
    rng = random.Random(3)
    values = [int(rng.lognormvariate(13, 1)) for _ in range(5000)]
    ours, reference = encoded(filled(values)), theirs(values).encode().decode()
    assert HdrHistogram.decode(ours).equals(HdrHistogram.decode(reference))
    # The header and the counts, which the two compress at different levels.
    assert ours[:5] == reference[:5]


def test_large_counts_and_an_empty_histogram() -> None:
    histogram = filled([5, 70_000])
    histogram.counts *= np.int64(2**40)
    read = HdrHistogram.decode(encoded(histogram))
    assert read.get_total_count() == 2**41
    assert read.get_count_at_value(70_000) == 2**40
    assert HdrHistogram.decode(encoded(Histogram())).get_total_count() == 0


def test_an_interval_log_is_read_with_its_times_and_tags(tmp_path: Path) -> None:
    ack, delivered = filled([1_000_000, 2_500_000]), filled([3_000_000])
    intervals = [Interval(0.25, 1.0, "ack", ack), Interval(1.25, 1.0, "end-to-end", delivered)]
    path = tmp_path / "run.hlog"
    path.write_text("\n".join(log_lines(intervals, 1_700_000_000.5, "by a test")) + "\n")
    assert "Tag=ack,0.250,1.000,2.500,HISTF" in path.read_text()
    reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST, 2))
    first, second = reader.get_next_interval_histogram(), reader.get_next_interval_histogram()
    assert reader.get_next_interval_histogram() is None
    reader.close()
    assert reader.get_start_time_sec() == 1_700_000_000.5
    assert (first.get_tag(), first.get_total_count(), first.get_start_time_stamp()) == ("ack", 2, 1_700_000_000_750.0)
    assert (second.get_tag(), second.get_end_time_stamp()) == ("end-to-end", 1_700_000_002_750.0)
    assert second.get_max_value() == highest_in(int(np.flatnonzero(delivered.counts)[0]))


@pytest.mark.parametrize("count", [1, 2, 7, 20_000])
def test_percentiles_are_those_of_the_library(count: int) -> None:
    rng = random.Random(count)
    values = [int(rng.lognormvariate(14, 1.5)) for _ in range(count)]
    reference = theirs(values)
    head, blank, *rows, mean, largest, buckets = percentile_lines(filled(values))
    assert head.split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    assert blank == ""
    levels = []
    for row in rows:
        value, level, seen, *rest = row.split()
        # The value is the highest of a bucket of the library's, and the first one below which there is enough.
        lowest = reference.get_lowest_equivalent_value(round(float(value) * 1e6))
        highest = reference.get_highest_equivalent_value(lowest)
        assert float(value) == pytest.approx(highest / 1e6, abs=1e-7)
        assert int(seen) == sum(each <= highest for each in values) >= float(level) * count - 1e-6
        assert sum(each < lowest for each in values) < float(level) * count or float(level) == 0
        assert [float(each) for each in rest] == pytest.approx(
            [1 / (1 - float(level))] if float(level) < 1 else [], 0.01
        )
        levels.append(float(level))
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (0, 1)
    assert int(rows[-1].split()[2]) == count
    assert float(mean.split("=")[1].split(",")[0]) == pytest.approx(sum(values) / count / 1e6, abs=0.001)
    assert float(mean.rpartition("=")[2].rstrip("]")) == pytest.approx(
        reference.get_stddev() / 1e6, rel=0.01, abs=0.001
    )
    assert float(largest.split("=")[1].split(",")[0]) == pytest.approx(max(values) / 1e6, abs=0.001)
    assert buckets.split() == ["#[Buckets", "=", f"{reference.bucket_count},", "SubBuckets", "=", "256]"]


def test_the_table_of_nothing_has_no_rows() -> None:
    assert [line[:2] for line in percentile_lines(Histogram())] == ["  ", "", "#[", "#[", "#["]
