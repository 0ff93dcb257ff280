from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.node import Figure, measure, records_in
from tests.golden.archives import storage_records, unpack_store


def test_a_figure_knows_its_target_and_its_ratio() -> None:
    assert Figure("f", "s", 2.0, at_most=1).reached is False
    assert Figure("f", "s", 1.0, at_most=1).reached is True
    assert Figure("f", "/s", 2.0, at_least=1).reached is True
    assert Figure("f", "/s", 2.0).reached is None
    assert Figure("f", "/s", 2.0, relay=8.0).ratio == 0.25
    assert Figure("f", "/s", 2.0).ratio is None


@pytest.mark.parametrize("store", ["single-crash", "single-clean"])
def test_records_are_counted_in_a_store_that_was_killed_or_stopped(tmp_path: Path, store: str) -> None:
    assert records_in(unpack_store(store, tmp_path)) == len(storage_records(store))


def test_all_figures_are_taken(tmp_path: Path) -> None:
    figures = {figure.name: figure for figure in measure(tmp_path, duration_s=0.3, records=500)}
    assert all(figure.value > 0 for figure in figures.values())
    with_relay = [name for name, figure in figures.items() if figure.relay is not None]
    assert len(with_relay) == 6
    (opened,) = (name for name in figures if name.startswith("open a store of "))
    assert 500 <= int(opened.split()[4]) < 520
