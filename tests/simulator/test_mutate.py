"""The catalogue of planted faults: it fits the source, each fault has its reasons, and planting works."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.simulator import mutate
from tests.simulator.mutants.catalogue import MUTANTS
from tests.simulator.mutants.imports import importers
from tests.simulator.mutants.mutant_worlds import first_failure
from tests.simulator.mutants.mutations import ALL_MUTATIONS
from tests.simulator.mutants.planted import ROOT, stale
from tests.simulator.mutate import kind_of, read_seen, write_seen


def test_every_fault_can_be_planted() -> None:
    assert stale(list(MUTANTS.values())) == []
    assert len(MUTANTS) + len(ALL_MUTATIONS) >= 90
    assert not MUTANTS.keys() & ALL_MUTATIONS.keys()


def test_a_fault_that_no_world_shows_names_a_test() -> None:
    for mutant in MUTANTS.values():
        assert mutant.unit or not mutant.hidden, mutant.name
        assert not mutant.unit or (ROOT / mutant.unit.partition("::")[0]).exists(), mutant.name


def test_every_recorded_fault_exists() -> None:
    assert read_seen().keys() <= {*MUTANTS, *ALL_MUTATIONS}


def test_records_of_seen_faults_are_kept_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "SEEN", tmp_path / "seen.toml")
    seen = {"one-copy-too-few": ("bmq", 0), "payload-unchecked": ("controllers", 7)}
    write_seen(seen | {"a fault that is gone": ("bmq", 1)})
    assert read_seen() == seen
    assert f'[{kind_of("bmq", 0)}]\n"one-copy-too-few" = 0\n' in mutate.SEEN.read_text()


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
    assert (
        "caught by tests/broker/bmq/member/test_fencing.py::test_a_replica_takes_no_payload" in capsys.readouterr().out
    )


def test_a_world_that_fails_without_the_fault_shows_nothing() -> None:
    failures = [mutate.Failure(seed, f"world {seed}") for seed in (3, 4, 9)]

    def next_failure(first: int) -> mutate.Failure | None:
        return next((failure for failure in failures if failure.seed >= first), None)

    assert mutate.first_shown(next_failure, {3, 4}.__contains__) == (failures[2], (3, 4))
    assert mutate.first_shown(next_failure, {3, 4, 9}.__contains__) == (None, (3, 4, 9))
    assert mutate.first_shown(next_failure, {9}.__contains__) == (failures[0], ())


def test_a_fault_with_a_reason_needs_a_test_that_fails_under_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = "tests/broker/bmq/member/test_fencing.py::test_a_receipt_of_an_older_lease_counts_for_nothing"
    monkeypatch.setitem(MUTANTS, "payload-unchecked", MUTANTS["payload-unchecked"]._replace(unit=sound))
    assert mutate.main(["--only", "payload-unchecked", "--worlds", "0", "--unit"]) == 1
    assert f"MISSED by {sound}: exit code 0" in capsys.readouterr().out


def test_only_the_faulty_module_and_its_users_are_loaded_again() -> None:
    name = "broker.rocketmq.raft.raft"
    users = importers(name, ROOT)
    assert {name, "broker.rocketmq.controller.service", "tests.simulator.worlds.recipes"} <= users
    assert "broker.rocketmq.raft.journal" not in users
    before = sys.modules[name]
    assert first_failure(MUTANTS["controllers-two-votes"], [], system="controllers") is None
    assert sys.modules[name] is before
