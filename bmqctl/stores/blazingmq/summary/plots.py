"""Arrivals and backlog over time, in the terminal (plotext) or in a file (matplotlib), both of the extra `plots`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.summary.series import Series

__all__ = ["PICTURE_SUFFIXES", "draw_plot", "save_plot"]

PICTURE_SUFFIXES = (".png", ".svg")

TERMINAL_ROWS = 12
TICKS_MAX = 5
_DAY_S = 86_400


def draw_plot(series: Series, width: int, *, colours: bool) -> str:
    """Two plots, one above the other, as text of at most `width` columns. Raises ImportError without plotext."""
    import plotext

    plots = (("arrivals per second", series.arrivals / series.step_s), ("backlog, messages", series.backlog))
    figure = plotext.figure
    figure.clear()
    figure.subplots(len(plots), 1)
    times = series.times_s
    ticks = times[np.unique(np.linspace(0, len(times) - 1, min(TICKS_MAX, max(2, width // 24))).astype(int))].tolist()
    for row, (title, values) in enumerate(plots, 1):
        plot = figure.subplot(row, 1)
        plot.plot_size(width, TERMINAL_ROWS)
        plot.theme("simple")  # the terminal's own background
        plot.title(title)
        signal = plot.signal(times.tolist(), values.tolist())
        signal.lines()
        plot.draw(signal)
        plot.ruler("x").ticks(ticks, [_short_time(tick, times) for tick in ticks])
        heights = _heights(float(values.max()))
        plot.ruler("y").ticks(heights, [f"{height:,g}" for height in heights])
    text: str = figure.build().string(colorless=not colours)
    figure.clear()
    return text


def _heights(highest: float) -> list[float]:
    if highest <= 0:
        return [0.0]
    step = 10.0 ** np.floor(np.log10(max(highest, 1)))
    while highest / step < 2:
        step /= 2
    while highest / step > 4:
        step *= 2
    return [float(step * n) for n in range(int(highest // step) + 1)]


def _short_time(seconds: int, times: NDArray[np.int64]) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    span = int(times[-1] - times[0])
    return (
        f"{moment:%H:%M:%S}" if span < _DAY_S else f"{moment:%Y-%m-%d}" if span > 9 * _DAY_S else f"{moment:%d %H:%M}"
    )


def save_plot(series: Series, path: Path, title: str) -> None:
    """The plots as PNG or SVG, by the suffix of `path`. Raises ImportError without matplotlib, and OSError."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    times = [datetime.fromtimestamp(seconds, UTC) for seconds in series.times_s.tolist()]
    rates, backlog = figure.subplots(2, 1, sharex=True)
    rates.plot(times, series.arrivals / series.step_s, label="arrivals", drawstyle="steps-post")
    rates.plot(times, series.removals / series.step_s, label="removals", drawstyle="steps-post")
    rates.set_ylabel("messages/s")
    rates.legend(frameon=False, loc="upper right")
    backlog.plot(times, series.backlog, label="backlog", color="tab:red", drawstyle="steps-post")
    backlog.set_ylabel("backlog, messages")
    for axes in (rates, backlog):
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    backlog.xaxis.set_major_locator(locator)
    backlog.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    figure.suptitle(title)
    # The same drawing gives the same bytes.
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
