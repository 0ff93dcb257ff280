from __future__ import annotations

import pytest

from scripts.checks.idioms import complaints, find, prose_of

MODULE = '''"""Shelves.

What was put on one is told of here.
"""

SIZE = 3  # so many books


class Shelf:
    """A shelf, behind which whoever reads may stand."""

    text = "What is no prose does not count, whoever reads it anew"
'''


def idioms(text: str) -> list[tuple[int, str]]:
    return sorted((each.line, each.idiom) for each in find("a.py", prose_of(text)))


def test_docstrings_and_comments_are_prose() -> None:
    assert idioms(MODULE) == [(3, "What"), (3, "is told"), (6, "so many"), (10, "behind"), (10, "who")]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("It ends. What was read is kept.", ["What"]),
        ("What is the time?", []),
        ("Those that wait are told.", ["is told", "those who"]),
        ("It takes so long as a second.", []),
        ("It reads so long.", ["so many"]),
        ("A client behind a proxy.", []),
        ("The bytes behind the head.", ["behind"]),
        ("Who asks gets no answer.", ["who"]),
        ("He retries.", []),
        ("Then he retries with his key.", ["he", "he"]),
    ],
)
def test_an_idiom_is_found_where_it_is_one(line: str, found: list[str]) -> None:
    assert sorted(each.idiom for each in find("a.md", [(1, line)])) == found


def test_a_room_above_its_limit_is_named() -> None:
    assert complaints({"docs": 9.0, "bmqctl": 12.3}, {"docs": 9, "bmqctl": 12}) == [
        "bmqctl: 12.3 idioms for each 1,000 lines of prose, the limit is 12: see docs/contribute/prose.md"
    ]
