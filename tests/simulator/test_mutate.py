"""The catalogue of planted faults: it fits the source, each fault has its reasons, and planting works."""

from __future__ import annotations

import pytest

from tests.simulator import mutate
from tests.simulator.catalogue import MUTANTS
from tests.simulator.mutations import ALL_MUTATIONS
from tests.simulator.planted import ROOT, stale


def test_every_fault_can_be_planted() -> None:
    assert stale(list(MUTANTS.values())) == []
    assert len(MUTANTS) + len(ALL_MUTATIONS) >= 90
    assert not MUTANTS.keys() & ALL_MUTATIONS.keys()


def test_a_fault_that_no_world_shows_names_a_test() -> None:
    for mutant in MUTANTS.values():
        assert bool(mutant.hidden) == bool(mutant.unit), mutant.name
        assert not mutant.unit or (ROOT / mutant.unit.partition("::")[0]).exists(), mutant.name


def test_a_planted_fault_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate.main(["--only", "one-copy-too-few", "--worlds", "20"]) == 0
    out = capsys.readouterr().out
    assert "without enough copies" in out
    assert "1 faults: 1 caught by worlds, 0 not as they should be" in out


def test_a_fault_that_nobody_catches_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate.main(["--only", "one-copy-too-few", "--worlds", "0"]) == 1
    assert "NOT CAUGHT, and no reason is given" in capsys.readouterr().out


def test_the_unit_test_of_a_fault_is_run_under_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate.main(["--only", "payload-unchecked", "--worlds", "0", "--unit"]) == 0
    assert "caught by tests/broker/cluster/test_fencing.py::test_a_replica_takes_no_payload" in capsys.readouterr().out
