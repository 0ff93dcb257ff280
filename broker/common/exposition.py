"""Metrics as text that Prometheus reads: its exposition format 0.0.4.

The text is made in pieces of at most `LINES_MAX` lines, since the pages of nodes with very many queues are long: the
caller does other work between two pieces. Prometheus wants all lines of a metric together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

__all__ = ["CONTENT_TYPE", "LINES_MAX", "Series", "label_text", "metric_pieces"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Lines of a piece; they take about half a millisecond.
LINES_MAX = 2500

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Series(NamedTuple):
    """Values of one metric and, in the same order, the labels of each, as `label_text` gives them."""

    labels: Sequence[str]
    values: Iterable[float]


def label_text(labels: Mapping[str, str]) -> str:
    """Format labels, sorted by their names."""
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return f"{{{pairs}}} "


def metric_pieces(name: str, parts: Iterable[Series], kind: str = "gauge") -> Iterator[bytes]:
    """Format a metric with all its series; one without any gives nothing."""
    head = f"# TYPE {name} {kind}\n"
    separator = f"\n{name}"
    for labels, values in parts:
        remaining = iter(values)
        for start in range(0, len(labels), LINES_MAX):
            some = labels[start : start + LINES_MAX]
            lines = [f"{label}{value}" for label, value in zip(some, islice(remaining, len(some)), strict=True)]
            yield f"{head}{name}{separator.join(lines)}\n".encode()
            head = ""
