"""The plots of a report as Plotly figures.

A figure may have choices: its traces have the index of their choice as `meta`, and `Plot.choices` names them. Traces
have no colours of their own but take them in order from the figure's colorway; `Plot.colors` names those of the theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go

from bmqctl.pipeline.report.report_model import Latency, Report, Series

__all__ = ["LINES", "ROWS", "THEMES", "Plot", "duration", "plots"]

LINES = 9
"""Queues in the backlog plot, besides their sum."""

ROWS = 10
"""Rows in plots with a row for each app or queue."""

_NAME_LENGTH = 48
_BARS_MIN = 8
_HEIGHT = 320
_ROW_HEIGHT = 42
_TICKS_MAX = 5
_TICK_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_UNITS_S = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_FAMILY = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_FILLED = {"fill": "tozeroy", "fillcolor": "rgba(84,134,246,0.13)"}  # the blue of both themes
_COUNT_MIN = 4  # an axis of counts reaches it, so that its ticks are whole

_OUTCOME_COLORS = {
    "confirmed": "green",
    "partially_confirmed": "blue",
    "outstanding": "cyan",
    "purged": "grey",
    "expired": "amber",
    "no_quorum": "red",
    "removed": "violet",
}
_LINE_COLORS = ("blue", "orange", "teal", "violet", "amber", "pink", "cyan", "grey", "green", "red")


@dataclass(frozen=True)
class Theme:
    """Colours by name, and the template of all figures."""

    ink: str
    soft: str
    grid: str
    card: str
    line: str
    palette: dict[str, str]

    def template(self) -> go.layout.Template:
        """Fonts, lines and labels; nothing opaque, so that the page shows through."""
        axis = {
            "ticklabelstandoff": 6,
            "gridcolor": self.grid,
            "zeroline": False,
            "linecolor": self.line,
            "title": None,
        }
        layout = go.Layout(
            font={"family": _FAMILY, "size": 12, "color": self.soft},
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            xaxis={**axis, "spikecolor": self.soft, "spikethickness": 1, "spikedash": "dot"},
            yaxis=axis,
            hoverlabel={"bgcolor": self.card, "bordercolor": self.line, "font": {"color": self.ink}, "align": "left"},
            annotationdefaults={"font": {"color": self.ink, "size": 12}},
            shapedefaults={"fillcolor": self.grid},
        )
        return go.layout.Template(layout=layout, data={"scatter": [{"marker": {"line": {"color": self.card}}}]})


THEMES = {
    "light": Theme(
        ink="#1b2330",
        soft="#667085",
        grid="#edf0f4",
        card="#ffffff",
        line="#e3e6eb",
        palette={
            "blue": "#2f6fed",
            "orange": "#e0692b",
            "teal": "#159a7b",
            "violet": "#a24bd1",
            "amber": "#c99a06",
            "pink": "#d43f6b",
            "cyan": "#0b93b8",
            "grey": "#6b7686",
            "green": "#1f9d68",
            "red": "#cf3c4f",
        },
    ),
    "dark": Theme(
        ink="#e8ecf2",
        soft="#94a1b5",
        grid="#2a3240",
        card="#181e28",
        line="#2a3240",
        palette={
            "blue": "#6aa0ff",
            "orange": "#ff9a5c",
            "teal": "#3fd0a9",
            "violet": "#cf8bf3",
            "amber": "#f0c645",
            "pink": "#ff7c9f",
            "cyan": "#4cc8e8",
            "grey": "#9aa7ba",
            "green": "#46cf94",
            "red": "#ff6f7f",
        },
    ),
}


@dataclass(frozen=True)
class Plot:
    """A figure, the names of its colours in the order of the traces shown, and the choices, if any."""

    figure: go.Figure
    colors: Sequence[str]
    choices: list[str] = field(default_factory=list)


def plots(report: Report) -> dict[str, Plot]:
    return {
        "throughput": _throughput(report),
        "backlog": _backlog(report),
        "latency": _latency(report),
        "spread": _spread(report),
        "outcomes": _outcomes(report),
    }


def duration(seconds: int) -> str:
    """Format a duration in its two largest units, such as "2 min 30 s": exact for round times."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    parts: list[str] = []
    for size, unit in _UNITS_S:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def _app_name(queue: str, app: str) -> str:
    return f"{app} on {_short(queue)}"


def _short(queue: str) -> str:
    return queue.removeprefix("bmq://")


def _label(name: str) -> str:
    """Omit the middle of a name to fit a phone, as text that Plotly does not interpret."""
    if len(name) > _NAME_LENGTH:
        half = _NAME_LENGTH // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    return escape(name, quote=False)


def _plot(
    data: Sequence[go.Bar | go.Scatter], colors: Sequence[str], choices: Sequence[str] = (), **layout: Any
) -> Plot:
    theme = THEMES["light"]
    figure = go.Figure(data, {"template": theme.template(), "margin": {"l": 8, "r": 8, "t": 8, "b": 8}, **layout})
    figure.update_layout(
        colorway=[theme.palette[color] for color in colors],
        uirevision="kept",  # keeps zoomed and hidden parts with another theme or choice
        dragmode=False,
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.03, "yanchor": "bottom", "traceorder": "normal"},
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True, fixedrange=True, rangemode="tozero", exponentformat="SI", nticks=6)
    return Plot(figure, colors, list(choices))


def _empty(text: str) -> Plot:
    annotation = {"text": text, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    plot = _plot([], ["blue"], height=120, annotations=[annotation])
    plot.figure.update_xaxes(visible=False, fixedrange=True)
    plot.figure.update_yaxes(visible=False)
    return plot


def _line(report: Report, values: Sequence[float], **settings: Any) -> go.Scatter:
    return go.Scatter(
        x0=report.from_s * 1000,
        dx=report.bucket_s * 1000,
        y=values,
        mode="lines" if len(values) > 1 else "markers",
        line={"width": 2},
        marker={"size": 8},
        cliponaxis=len(values) > 1,
        **settings,
    )


def _over_time(report: Report, data: Sequence[go.Scatter], colors: Sequence[str], choices: Sequence[str] = ()) -> Plot:
    count = len(report.series.arrivals)
    start_ms = report.from_s * 1000
    end_ms = start_ms + (count - 1) * report.bucket_s * 1000
    plot = _plot(data, colors, choices, height=300, hovermode="x unified", showlegend=True)
    plot.figure.update_xaxes(
        type="date",
        range=[start_ms, end_ms] if count > 1 else [start_ms - 30_000, start_ms + 30_000],
        hoverformat="%Y-%m-%d %H:%M:%S UTC",
        showgrid=False,
        nticks=8,
    )
    return plot


def _throughput(report: Report) -> Plot:
    choices: list[tuple[str, Series]] = [("All queues", report.series)]
    choices += [(_short(queue.queue), queue.series) for queue in report.queues if queue.series]
    data = []
    for place, (_, series) in enumerate(choices):
        lines = (("arrived", series.arrivals), ("confirmed", series.confirms), ("left", series.removals))
        for name, counts in lines:
            rates = [float(f"{count / report.bucket_s:.4g}") for count in counts]
            label = f"{name}: %{{y:,.4~r}}/s<extra></extra>"
            filled = _FILLED if name == "arrived" else {}
            data.append(_line(report, rates, name=name, meta=place, uid=name, hovertemplate=label, **filled))
    return _over_time(report, data, ("blue", "orange", "teal"), [name for name, _ in choices])


def _backlog(report: Report) -> Plot:
    lines = [(_short(queue.queue), queue.series) for queue in report.queues if queue.series][:LINES]
    if len(report.queues) > 1:
        lines.insert(0, ("All queues", report.series))
    label = "%{fullData.name}: %{y:,}<extra></extra>"
    data = [
        _line(report, series.backlog, name=_label(name), hovertemplate=label, **({} if place else _FILLED))
        for place, (name, series) in enumerate(lines)
    ]
    plot = _over_time(report, data, _LINE_COLORS[: len(data)])
    plot.figure.update_yaxes(autorangeoptions={"include": _COUNT_MIN})
    return plot


def _rows(data: Sequence[go.Bar | go.Scatter], colors: Sequence[str], names: Sequence[str], **layout: Any) -> Plot:
    """Plot a row for each name, with the name above it; y is the row's index from the top."""
    annotations = [
        {
            "text": _label(name),
            "showarrow": False,
            "xref": "paper",
            "x": 0,
            "xanchor": "left",
            "y": place,
            "yshift": 15,
        }
        for place, name in enumerate(names)
    ]
    height = _ROW_HEIGHT * len(names) + 80
    margin = {"l": 16, "r": 24, "t": 8, "b": 8}
    plot = _plot(data, colors, height=height, annotations=annotations, hovermode="closest", margin=margin, **layout)
    plot.figure.update_yaxes(range=[len(names) - 0.5, -0.75], visible=False)
    plot.figure.update_xaxes(fixedrange=True, ticklabeloverflow="allow")
    return plot


def _latency(report: Report) -> Plot:
    timed = [(_app_name(app.queue, app.app), app.latency) for app in report.apps if app.latency][:ROWS]
    if not timed:
        return _empty("These files contain no confirm with a latency.")
    places = list(range(len(timed)))
    texts = [_latency_text(name, latency) for name, latency in timed]
    spans: list[int | None] = []
    rows: list[int | None] = []
    for place, (_, latency) in enumerate(timed):
        spans += [latency.p50_s, latency.p99_s, None]
        rows += [place, place, None]
    data = [go.Scatter(x=spans, y=rows, mode="lines", line_width=4, opacity=0.3, hoverinfo="skip", showlegend=False)]
    shares = (
        ("99 % within", [latency.p99_s for _, latency in timed]),
        ("90 % within", [latency.p90_s for _, latency in timed]),
        ("50 % within", [latency.p50_s for _, latency in timed]),
    )
    data += [
        go.Scatter(
            x=seconds,
            y=places,
            name=name,
            mode="markers",
            marker={"size": 12, "line": {"width": 1.5}},
            text=texts,
            hovertemplate="%{text}<extra></extra>",
            cliponaxis=False,
        )
        for name, seconds in shares
    ]
    plot = _rows(data, ("blue", "pink", "amber", "blue"), [name for name, _ in timed])
    slowest_s = max(1, *(latency.p99_s for _, latency in timed))
    fastest_s = min(0, *(latency.p50_s for _, latency in timed))  # clocks of two nodes may differ
    ticks = _ticks(slowest_s)
    plot.figure.update_xaxes(
        range=[fastest_s - 0.02 * ticks[-1], 1.04 * max(ticks[-1], slowest_s)],
        tickvals=ticks,
        ticktext=[duration(tick) for tick in ticks],
    )
    plot.figure.update_layout(legend_traceorder="reversed")
    return plot


def _latency_text(name: str, latency: Latency) -> str:
    shares = (("50 %", latency.p50_s), ("90 %", latency.p90_s), ("99 %", latency.p99_s), ("99.9 %", latency.p999_s))
    lines = [f"{share} within {_confirmed_after(seconds)}" for share, seconds in shares]
    lines += [f"slowest {_confirmed_after(latency.max_s)}", f"{latency.count:,} confirms"]
    return "<br>".join([f"<b>{_label(name)}</b>", *lines])


def _confirmed_after(seconds: int) -> str:
    return duration(seconds) if seconds else "less than 1 s"


def _ticks(most_s: int) -> list[int]:
    whole_days = -(-most_s // (86400 * _TICKS_MAX)) * 86400
    step = next((step for step in _TICK_STEPS_S if step * _TICKS_MAX >= most_s), whole_days)
    return [*range(0, most_s + step, step)]


def _spread(report: Report) -> Plot:
    timed = [(_app_name(app.queue, app.app), app.latency) for app in report.apps if app.latency]
    if not timed:
        return _empty("These files contain no confirm with a latency.")
    data = [_bars(place, latency) for place, (_, latency) in enumerate(timed)]
    height = max(_HEIGHT, _ROW_HEIGHT * min(len(timed), ROWS) + 80)  # as high as the latency of apps beside it
    plot = _plot(data, ["blue"], [name for name, _ in timed], height=height, hovermode="closest", bargap=0.12)
    plot.figure.update_layout(showlegend=False, barcornerradius=3)
    plot.figure.update_xaxes(type="category", nticks=5, showgrid=False, fixedrange=True)
    plot.figure.update_yaxes(autorangeoptions={"include": _COUNT_MIN})
    return plot


def _bars(place: int, latency: Latency) -> go.Bar:
    bars = latency.bars
    width = bars[0][1] - bars[0][0]
    start, end, _ = bars[-1]
    if end - start == width:  # few bars must not be wide ones
        bars = [*bars, *((end + n * width, end + (n + 1) * width, 0) for n in range(_BARS_MIN - len(bars)))]
    texts = []
    for start, end, count in bars:
        if end - start == 1:
            span = _confirmed_after(start)
        elif end - start > width:
            span = f"{duration(start)} or more"
        else:
            span = f"{duration(start)} to {duration(end)}"
        texts.append(f"<b>{span}</b><br>{count:,} confirms<br>{count / latency.count:.3%} of all")
    return go.Bar(
        x=[duration(start) for start, _, _ in bars],
        y=[count for _, _, count in bars],
        meta=place,
        uid="confirms",
        hovertext=texts,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _outcomes(report: Report) -> Plot:
    shown = [queue for queue in report.queues if queue.messages][:ROWS]
    if not shown:
        return _empty("No messages.")
    outcomes = [name for name in _OUTCOME_COLORS if any(name in queue.outcomes for queue in shown)]
    data = []
    for name in outcomes:
        counts = [queue.outcomes.get(name, 0) for queue in shown]
        words = name.replace("_", " ")
        data.append(
            go.Bar(
                orientation="h",
                name=words,
                x=[count / queue.messages for count, queue in zip(counts, shown, strict=True)],
                y=list(range(len(shown))),
                width=0.28,
                hovertext=[
                    f"<b>{_label(_short(queue.queue))}</b><br>{words}: {count:,} of {queue.messages:,}"
                    for count, queue in zip(counts, shown, strict=True)
                ],
                hovertemplate="%{hovertext} (%{x:.1%})<extra></extra>",
            )
        )
    colors = [_OUTCOME_COLORS[name] for name in outcomes]
    plot = _rows(data, colors, [_short(queue.queue) for queue in shown], barmode="stack", showlegend=True)
    plot.figure.update_layout(barcornerradius=4)
    plot.figure.update_xaxes(range=[-0.002, 1.002], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%")
    return plot
