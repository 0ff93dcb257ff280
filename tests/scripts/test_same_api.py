"""The comparison of compiled modules with their sources, by modules that differ."""

from __future__ import annotations

from types import ModuleType

import pytest

from scripts.releases.same_api import api_of, differences

SOURCE = """
from collections.abc import Sequence
import os

LIMIT = 3
_HIDDEN = 4

def work(data: bytes, limit: int = LIMIT, *, strict: bool = False) -> int: ...
def _help() -> None: ...

class Worker:
    def __init__(self, count: int = 1) -> None: ...
    def run(self, item: str) -> None: ...
    @property
    def done(self) -> int: ...
    @staticmethod
    def make(text: str) -> "Worker": ...
    def _step(self) -> None: ...
"""


def module(source: str) -> ModuleType:
    made = ModuleType("made")
    exec(source, vars(made))
    return made


def test_public_names_have_their_parameters() -> None:
    assert api_of(module(SOURCE)) == {
        "LIMIT": "",
        "Worker": "(count=...)",
        "Worker.done": "",
        "Worker.make": "(text)",
        "Worker.run": "(self, item)",
        "work": "(data, limit=..., *, strict=...)",
    }


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("LIMIT", "MAX", "m.LIMIT is missing"),
        ("def run(self, item: str)", "def run(self, thing: str)", "m.Worker.run takes (self, thing), not (self, item)"),
        ("*, strict", "strict", "m.work takes (data, limit=..., strict=...), not (data, limit=..., *, strict=...)"),
        ("count: int = 1", "count: int", "m.Worker takes (count), not (count=...)"),
        ("def done", "def ready", "m.Worker.done is missing"),
    ],
)
def test_differences_are_found(old: str, new: str, line: str) -> None:
    source = {"m": api_of(module(SOURCE))}
    assert differences(source, source) == []
    assert differences(source, {"m": api_of(module(SOURCE.replace(old, new)))}) == [line]


def test_unknown_parameters_are_no_difference() -> None:
    source = {"m": api_of(module(SOURCE))}
    assert differences(source, {"m": {**source["m"], "work": "?"}}) == []
    assert differences(source, {"m": {**source["m"], "work": ""}}) == [
        "m.work takes no call, not (data, limit=..., *, strict=...)"
    ]


def test_more_names_are_no_difference() -> None:
    source = {"m": api_of(module(SOURCE))}
    assert differences(source, {"m": {**source["m"], "more": ""}}) == []
