"""Times of records as text."""

from __future__ import annotations

import pytest

from bmqctl.stores.blazingmq.read.times import iso_time, shown_time


@pytest.mark.parametrize(
    ("seconds", "iso", "shown"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        (1793895601, "2026-11-05T16:20:01Z", "2026-11-05T16:20:01Z"),
        (253402300799, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        (253402300800, None, "253402300800 s"),
        ((1 << 64) - 1, None, "18446744073709551615 s"),
    ],
)
def test_times_beyond_the_year_9999_are_shown_in_seconds(seconds: int, iso: str | None, shown: str) -> None:
    assert (iso_time(seconds), shown_time(seconds)) == (iso, shown)
