"""A report on RocketMQ's stores as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from bmqctl.pipeline.report.log_report import LogReport
from bmqctl.pipeline.report.report_figures import THEMES

__all__ = ["log_report_page"]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_HEIGHT: Final = 320


def log_report_page(report: LogReport) -> str:
    sections = _sections(report)
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>Topic report</title>'
        f"<style>{_style()}</style><script>{get_plotlyjs()}</script></head><body><main><header><div>"
        f'<h1>What went through the topics</h1><p class="soft">{_moment(report.from_s)} to {_moment(report.to_s)} UTC: '
        f'{report.messages:,} messages, {report.body_bytes:,} bytes of bodies</p><p class="mono soft">'
        f'{escape(", ".join(report.sources))}</p></div></header><div class="grid">{"".join(sections)}'
        f'<section class="notes"><h2>What the files tell, and what not</h2><ul class="small soft">{notes}</ul>'
        "</section></div></main></body></html>"
    )


def _sections(report: LogReport) -> list[str]:
    topics = [(topic.topic, topic.arrivals) for topic in report.topics if topic.arrivals]
    rates = [(name, [count / report.bucket_s for count in counts]) for name, counts in topics]
    lags = [(f"{each.group} of {each.topic}", each.over_time) for each in report.groups if each.over_time]
    return [
        _section("Throughput", "Messages stored per second, of the hottest topics", _plot(report, rates)),
        _section("Lag over time", "Messages that wait for a group, by when they were stored", _plot(report, lags))
        if lags
        else "",
        _section(
            "Hottest topics",
            "Most messages first",
            _table(
                ("topic", "kind", "messages", "body bytes", "log bytes", "peak per s"),
                ((t.topic, t.kind, t.messages, t.body_bytes, t.log_bytes, t.peak_per_s) for t in report.topics),
            ),
        ),
        _section(
            "Hottest keys",
            "Keys of most messages, by topic",
            _table(("key", "topic", "messages"), ((key.key, key.topic, key.messages) for key in report.keys)),
        ),
        _section(
            "Groups",
            "Most lag first; ages at the end of the report's time",
            _table(
                ("group", "topic", "queues", "lag", "oldest waits"),
                (
                    (
                        each.group,
                        each.topic,
                        each.queues,
                        each.lag,
                        "" if each.oldest_s is None else f"{each.oldest_s:,} s",
                    )
                    for each in report.groups
                ),
            ),
        ),
        _section(
            "Retries and dead letters",
            "Messages that groups sent back, and gave up",
            _table(
                ("group", "sent back", "by times", "dead letters"),
                (
                    (each.group, each.retried, ", ".join(f"{n}: {m:,}" for n, m in each.by_times.items()), each.dead)
                    for each in report.retries
                ),
            ),
        ),
    ]


def _style() -> str:
    page = files("bmqctl.pipeline.report").joinpath("report_page.html").read_text()
    return page.partition("<style>")[2].partition("</style>")[0]


def _section(title: str, text: str, content: str) -> str:
    head = f'<div class="head"><div><h2>{title}</h2><p class="soft small">{text}</p></div></div>'
    return f'<section>{head}<div class="scroll">{content}</div></section>'


def _table(titles: Sequence[str], rows: Iterable[Sequence[str | float]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{value:,}"


def _plot(report: LogReport, lines: Sequence[tuple[str, Sequence[float]]]) -> str:
    theme = THEMES["light"]
    times = [
        datetime.fromtimestamp(report.from_s + number * report.bucket_s, UTC)
        for number in range((report.to_s - report.from_s) // report.bucket_s + 1)
    ]
    figure = go.Figure(
        [go.Scatter(x=times, y=values, name=escape(name), mode="lines+markers") for name, values in lines],
        {"template": theme.template(), "height": _HEIGHT, "margin": {"l": 8, "r": 8, "t": 8, "b": 8}},
    )
    figure.update_layout(colorway=list(theme.palette.values()), hovermode="x unified", showlegend=True)
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True, rangemode="tozero")
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})
    return text


def _moment(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"
