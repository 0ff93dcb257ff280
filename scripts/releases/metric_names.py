"""The names of the metrics that expressions of PromQL use, for those of `packaging`.

It knows only the parts of the language that occur there; `promtool` judges the syntax.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["Names", "metric_names"]

_TOKEN: Final = re.compile(
    r"""
    (?P<text>"(?:[^"\\]|\\.)*") | (?P<range>\[[^\]]*\]) | (?P<number>(?<![\w:])\d[\w.]*)
    | (?P<word>[A-Za-z_:][\w:]*) | (?P<mark>[{}()]|=~|!~|!=|=|,) | (?P<other>\S)
    """,
    re.VERBOSE,
)
# Each is followed by labels in parentheses.
_GROUPING: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
# A function, or an aggregation with its labels in front.
_BEHIND_FUNCTION: Final = frozenset({"(", "by", "without"})
_WORDS: Final = frozenset({"and", "or", "unless", "offset", "bool"})


class Names(NamedTuple):
    """Names as they are written, and regular expressions for names."""

    plain: frozenset[str]
    patterns: frozenset[str]


def metric_names(expression: str) -> Names:
    tokens = [(str(found.lastgroup), found.group()) for found in _TOKEN.finditer(expression)]
    plain: set[str] = set()
    patterns: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if text == "{":
            end = tokens.index(("mark", "}"), at)
            patterns.update(_patterns(tokens[at:end]))
            at = end
        elif kind == "word" and text in _GROUPING and after == "(":
            at = tokens.index(("mark", ")"), at)
        elif kind == "word" and text not in _WORDS and after not in _BEHIND_FUNCTION:
            plain.add(text)
        at += 1
    return Names(frozenset(plain), frozenset(patterns))


def _patterns(matchers: list[tuple[str, str]]) -> list[str]:
    texts = [text for _, text in matchers]
    return [
        texts[at + 2][1:-1]
        for at, text in enumerate(texts)
        if text == "__name__" and at + 2 < len(texts) and texts[at + 1] == "=~"
    ]
