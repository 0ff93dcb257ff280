# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Metrics as text that Prometheus reads: its exposition format 0.0.4.

The text of a node with very many queues is long: between its pieces of at most `LINES_MAX` lines the caller does other
work. Prometheus wants all lines of a metric together. `prometheus_client`, which reads the pages in the tests, takes
seconds to write that of 10,000 queues, in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

__all__ = ["CONTENT_TYPE", "LINES_MAX", "MetricLabels", "Series", "label_text", "metric_pieces"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Lines of a piece: less than 3 ms.
LINES_MAX: Final = 1000

# A byte that no text in UTF-8 has.
NAME: Final = b"\xff"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class MetricLabels:
    """The labels of many values, as `label_text` returns them; metrics share them."""

    __slots__ = ("_templates", "_texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = list(texts)
        self._templates: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> None:
        """Add the labels of another value. There must be no pieces yet."""
        self._texts.append(text)

    def templates(self) -> Iterator[tuple[int, bytes]]:
        """Return the number and the text of each piece's lines: `NAME` is for the metric's name, `%d` for a value."""
        if not self._templates:
            for start in range(0, len(self._texts), LINES_MAX):
                some = self._texts[start : start + LINES_MAX]
                lines = [text.replace("%", "%%").encode() for text in some]
                self._templates.append((len(some), NAME + (b"%d\n" + NAME).join(lines) + b"%d\n"))
        return iter(self._templates)


class Series(NamedTuple):
    """Values of one metric and the labels of each."""

    labels: MetricLabels | Sequence[str]
    values: Iterable[int]


def label_text(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return f"{{{pairs}}} "


def metric_pieces(name: str, parts: Iterable[Series], kind: str = "gauge") -> Iterator[bytes]:
    """Format a metric with all its series; one without any gives no text."""
    head = f"# TYPE {name} {kind}\n".encode()
    encoded = name.encode()
    for labels, values in parts:
        remaining = iter(values)
        shared = labels if isinstance(labels, MetricLabels) else MetricLabels(labels)
        for count, template in shared.templates():
            yield head + (template % tuple(islice(remaining, count))).replace(NAME, encoded)
            head = b""
