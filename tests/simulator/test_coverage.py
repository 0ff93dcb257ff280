"""Coverage by worlds: it is noted and weighed, and each reason for what they cannot reach still fits something."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from broker.bmq.session.session_table import TRANSITIONS, SessionState, SessionTrigger
from tests.simulator.coverage import (
    DECIDING,
    RARE,
    Reached,
    Watched,
    all_pairs,
    all_rows,
    leaning,
    read_unreached,
    reason_of,
    traits,
)
from tests.simulator.mutants.planted import ROOT
from tests.simulator.worlds.features import Feature

pytestmark = pytest.mark.unit


def test_a_reason_is_of_something_that_there_is() -> None:
    modules = [str(path.relative_to(ROOT)) for name in DECIDING for path in Path(ROOT / name).rglob("*.py")]
    names = [*all_rows(), *all_pairs(), *(name.removesuffix(".py").replace("/", ".") for name in modules)]
    for known, reason in read_unreached().items():
        assert reason
        assert any(reason_of(name, {known: reason}) for name in names), known


def test_a_row_that_is_taken_is_noted() -> None:
    found: list[str] = []
    table = Watched("session", TRANSITIONS, found.append)
    key = SessionState.RUNNING, SessionTrigger.ENDED
    assert table[key] is table.get(key) is SessionState.CLOSED
    assert table.get((SessionState.CLOSED, SessionTrigger.IDENTIFIED)) is None
    assert found == ["session: RUNNING ENDED"] * 2
    assert set(found) <= set(all_rows())


def test_traits_of_worlds_that_reach_what_is_rare_weigh_more() -> None:
    reached = Reached(worlds=100)
    reached.each = [(("common",), frozenset({"often"}))] * 98
    reached.each += [(("common", "special"), frozenset({"often", "seldom"})), (("special",), frozenset({"often"}))]
    weights = reached.weights()
    assert weights["special"] > 10 * weights["common"] > 0


def test_worlds_are_chosen_of_which_half_are_likelier_to_reach_what_is_rare() -> None:
    seeds = range(1000, 1040)
    chosen = leaning(seeds, 20)
    assert chosen == leaning(seeds, 20)
    assert len(set(chosen)) == 20
    assert set(chosen) <= set(seeds)
    assert set(range(1000, 1010)) <= set(chosen)


def test_weights_are_of_traits_that_there_are() -> None:
    known = {feature.name.lower() for feature in Feature} | {"proxies"}
    known |= {mark for seed in range(200) for mark in traits("bmq", seed)}
    assert set(tomllib.loads(RARE.read_text())["bmq"]) <= known
