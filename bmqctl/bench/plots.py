"""Latency by percentile and over time, in the terminal (plotext) or in a file (matplotlib), of the extra `plots`."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bmqctl.bench.histogram import Histogram

__all__ = ["PICTURE_SUFFIXES", "Curve", "draw_plot", "save_plot"]

PICTURE_SUFFIXES = (".png", ".svg")

TERMINAL_ROWS = 15
MARKERS = string.ascii_lowercase + string.ascii_uppercase + string.digits
# Each percentage is 1/10**0.1 times as far from 100 as the previous one.
_NINES_MAX = 5
_MARKS = ((50.0, "50"), (90.0, "90"), (99.0, "99"), (99.9, "99.9"), (99.99, "99.99"), (99.999, "99.999"))


class Curve(NamedTuple):
    """One kind of latency of a run: in total, and by second after the run's start."""

    name: str
    latency: Histogram
    seconds: Sequence[tuple[float, Histogram]]


def _by_percentile(histogram: Histogram) -> tuple[list[float], list[float]]:
    """Abscissas, the number of nines of each percentile, and latencies in ms; there must be messages."""
    nines_max = min(_NINES_MAX, float(np.log10(len(histogram))))
    nines = np.arange(0, max(nines_max, 0.31), 0.05)
    return nines.tolist(), [histogram.percentile(100 - 100 / 10**each) / 1e6 for each in nines.tolist()]


def _ticks(highest: float) -> list[tuple[float, str]]:
    marks = [(float(-np.log10(1 - percent / 100)), label) for percent, label in _MARKS]
    return [mark for mark in marks if mark[0] <= highest + 0.01]


def _over_time(curve: Curve) -> tuple[list[float], list[float]]:
    """Return the middle of each second and the 99th percentile of its latencies, in ms."""
    times = [start + 0.5 for start, _ in curve.seconds]
    return times, [histogram.percentile(99) / 1e6 for _, histogram in curve.seconds]


def draw_plot(curves: Sequence[Curve], width: int, *, colours: bool) -> str:
    """Draw the plot by percentile as text of at most `width` columns. Raises ImportError without plotext.

    There must be at least one curve, and each must have messages.
    """
    import plotext

    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, TERMINAL_ROWS)
    figure.theme("simple")  # the terminal's own background
    figure.title("latency, ms, by percentile")
    highest = 0.0
    drawn = list(zip(MARKERS, curves, strict=False))
    for marker, curve in drawn:
        nines, latencies = _by_percentile(curve.latency)
        signal = figure.signal(nines, latencies, marker=marker)
        signal.lines()
        figure.draw(signal)
        highest = max(highest, nines[-1])
    marks = _ticks(highest)
    figure.ruler("x").ticks([place for place, _ in marks], [label for _, label in marks])
    text: str = figure.build().string(colorless=not colours)
    figure.clear()
    return "\n".join([text.rstrip("\n"), *(f"  {marker}  {curve.name}" for marker, curve in drawn)])


def save_plot(curves: Sequence[Curve], path: Path, title: str) -> None:
    """Save both plots as PNG or SVG, by the suffix of `path`. Raises ImportError without matplotlib, and OSError."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    by_percentile, over_time = figure.subplots(2, 1)
    highest = 0.0
    for curve in curves:
        nines, latencies = _by_percentile(curve.latency)
        by_percentile.plot(nines, latencies, label=curve.name)
        highest = max(highest, nines[-1])
        times, worst = _over_time(curve)
        over_time.plot(times, worst, label=curve.name, marker=".")
    marks = _ticks(highest)
    by_percentile.set_xticks([place for place, _ in marks], [label for _, label in marks])
    by_percentile.set_xlabel("percentile")
    by_percentile.set_ylabel("latency, ms")
    over_time.set_xlabel("seconds after the start")
    over_time.set_ylabel("p99 of each second, ms")
    for axes in (by_percentile, over_time):
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
    handles, names = by_percentile.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    # No date or version: equal figures make equal files.
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
