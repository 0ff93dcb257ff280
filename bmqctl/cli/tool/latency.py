"""Latencies as few distinct values: three significant digits, so that any number of them takes little room.

Source of the report's keys and of the rounding: `m_bmqtool::LatencyStorage`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from bmqctl.cli.tool.printing import pretty_interval

__all__ = ["Latencies"]

_LIMIT: Final = 1000
_PERCENTILES: Final = (95, 96, 97, 98, 99)


class Latencies:
    """Nanoseconds, of `origin` (end2end or ack)."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, latency_ns: int) -> None:
        """Add a latency, not negative."""
        divisor = 1
        while divisor * _LIMIT < latency_ns:
            divisor *= 10
        self._counts[latency_ns // divisor * divisor] += 1

    def percentile(self, percent: int) -> int:
        """The least latency that `percent` of all do not exceed."""
        wanted = -(-percent * len(self) // 100)
        reached = 0
        for value in sorted(self._counts):
            reached += self._counts[value]
            if reached >= wanted:
                return value
        return 0

    def _figures(self) -> dict[str, int]:
        values = self._counts
        total = len(self)
        average = sum(value * count for value, count in values.items()) // total if total else 0
        return {
            "min": min(values, default=0),
            "max": max(values, default=0),
            "avg": average,
            "median": self.percentile(50),
            **{f"{percent}percentile": self.percentile(percent) for percent in _PERCENTILES},
        }

    def report(self) -> str:
        points = {str(value): self._counts[value] for value in sorted(self._counts)}
        return json.dumps({"origin": self._origin, **self._figures(), "dataPoints": points}, indent=2) + "\n"

    def summary(self) -> str:
        figures = self._figures()
        names = ["min", "avg", "max", "median", *(f"{percent}percentile" for percent in _PERCENTILES)]
        lines = [f"    totalCount......: {len(self)}"]
        lines += [f"    {_title(name):.<16}: {pretty_interval(figures[name])}" for name in names]
        return "\n".join(lines) + "\n"


def _title(name: str) -> str:
    return name.replace("percentile", "Percentile")
