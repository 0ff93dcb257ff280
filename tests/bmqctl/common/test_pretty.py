"""JSON for people, of values that strangers have posted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bmqctl.common.pretty import LEVELS_MAX, pretty, pretty_front


def nested(levels: int, value: Any) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "é\n",
        [],
        {},
        [[], {}, [1, 2.5, True]],
        {"a": {"b": [], 'c"': "x"}, "": [None]},
        {1: 2, None: 4, 1.5: 5, False: 6},
        (1, (2,)),
        nested(LEVELS_MAX, 1),
    ],
)
@pytest.mark.parametrize("indent", [1, 2, 4])
def test_values_are_written_as_by_the_library(value: Any, indent: int) -> None:
    assert pretty(value, indent) == json.dumps(value, indent=indent)
    assert pretty_front(value, indent, 10_000) == (json.dumps(value, indent=indent, ensure_ascii=False), False)


def test_deep_values_are_not_longer_than_their_items() -> None:
    """Indentation at every level would make the text 900 times as long."""
    value = nested(900, [0] * 10_000)
    text = pretty(value, 2)
    assert json.loads(text) == value
    assert len(text) < 3 * len(json.dumps(value))


def test_no_more_than_the_front_is_made() -> None:
    made = 0

    def make(value: object) -> str:
        nonlocal made
        made += 1
        return "x" * 100

    shown, is_cut = pretty_front([object() for _ in range(10_000)], 2, 1_000, default=make)
    assert is_cut
    assert len(shown) == 1_000
    assert made <= 11
