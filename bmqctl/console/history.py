"""The past of counters, for charts: rates and backlogs of each row, bounded in number and in length. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Final

from bmqctl.systems.watching.model import Row

__all__ = ["POINTS_MAX", "SampleHistory"]

POINTS_MAX: Final = 180
# Time without samples after which a chart's line is broken.
GAP_S: Final = 60.0
# Rows with a past; the first ones are kept.
ROWS_MAX: Final = 20_000

Points = dict[str, list[float | None]]

_COLUMNS: Final = ("rate_in", "rate_out", "backlog")


class _Series:
    """The values of a row, oldest first; values from before the row's first sample are missing."""

    def __init__(self) -> None:
        self.values = {name: array("d") for name in _COLUMNS}

    def add(self, row: Row | None) -> None:
        for name, values in self.values.items():
            value = None if row is None else getattr(row, name)
            values.append(math.nan if value is None else value)
            if len(values) > POINTS_MAX:
                del values[0]


class SampleHistory:
    """The last `POINTS_MAX` samples: their times in seconds since 1970, and the values of each row."""

    def __init__(self) -> None:
        self._times = array("d")
        self._series: dict[tuple[str, str], _Series] = {}

    def add(self, at_s: float, rows: Iterable[Row]) -> None:
        """Add a sample. A row that it lacks is dropped once all its values have aged out."""
        if self._times and at_s - self._times[-1] > GAP_S:
            self._add(self._times[-1] + GAP_S / 2, ())
        self._add(at_s, rows)

    def _add(self, at_s: float, rows: Iterable[Row]) -> None:
        self._times.append(at_s)
        if len(self._times) > POINTS_MAX:
            del self._times[0]
        found = {(row.name, row.part): row for row in rows}
        for key in found.keys() - self._series.keys():
            if len(self._series) >= ROWS_MAX:
                break
            self._series[key] = _Series()
        for key, series in list(self._series.items()):
            series.add(found.get(key))
            if key not in found and all(math.isnan(value) for value in series.values["backlog"]):
                del self._series[key]

    def points(self, name: str, part: str = "") -> Points:
        """Return the columns of a row and their times; None for unknown values."""
        series = self._series.get((name, part))
        if series is None:
            return {"at": [], **{column: [] for column in _COLUMNS}}
        count = len(series.values["backlog"])
        return {
            "at": list(self._times[len(self._times) - count :]),
            **{column: [_known(value) for value in values] for column, values in series.values.items()},
        }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 2)
