"""A report as one self-contained HTML page."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

from bmqctl.pipeline.report.report_figures import THEMES, plots
from bmqctl.pipeline.report.report_model import Report

__all__ = ["report_page"]


def report_page(report: Report) -> str:
    """The page, which includes its data as JSON and the library that draws it."""
    data = {
        "report": _told_in_words(report),
        "plots": {
            name: {
                **plot.figure.to_plotly_json(),
                "choices": plot.choices,
                "colorways": {name: [theme.palette[color] for color in plot.colors] for name, theme in THEMES.items()},
            }
            for name, plot in plots(report).items()
        },
        "templates": {name: theme.template().to_plotly_json() for name, theme in THEMES.items()},
    }
    # Only "<" could end a script element; JSON has it only in strings, where it may be escaped.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    template = files("bmqctl.pipeline.report").joinpath("report_page.html").read_text()
    before, between, after = template.replace("@PLOTLY@", "@DATA@").split("@DATA@")
    return "".join((before, text, between, get_plotlyjs(), after))


def _told_in_words(report: Report) -> dict[str, Any]:
    queues = [replace(queue, series=None) for queue in report.queues]
    apps = [
        replace(app, latency=replace(app.latency, bars=[])) if app.latency is not None else app for app in report.apps
    ]
    told = replace(report, queues=queues, apps=apps).as_json()
    del told["series"]
    return told
