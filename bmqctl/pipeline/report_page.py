"""A report as one HTML page that needs nothing else: no network, no files beside it."""

from __future__ import annotations

import json
from importlib.resources import files

from bmqctl.pipeline.report_model import Report

__all__ = ["report_page"]

_PLACE = "@DATA@"


def report_page(report: Report) -> str:
    """The page; what it shows is in it as JSON."""
    template = files("bmqctl.pipeline").joinpath("report_page.html").read_text()
    # Within a script element only "<" could end it; JSON has it in strings only, where it may be written so.
    data = json.dumps(report.as_json(), separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(_PLACE, data)
