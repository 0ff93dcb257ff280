"""A slice of the worlds of `scripts/simulate --controllers`, and that they notice planted faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.families import sweep
from tests.simulator import mutate
from tests.simulator.mutants.controllers import CONTROLLERS
from tests.simulator.mutants.groups import GROUPS
from tests.simulator.run import main, simulate_controllers

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", sweep(range(1, 15), 4))
def test_controllers(seed: int) -> None:
    world = simulate_controllers(seed)
    assert world.clock.steps >= 1_600
    assert world.records.acked


@pytest.mark.process
def test_worlds_are_the_same_in_every_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.simulator.run", "--controllers", "--seeds", "4..6"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout.rpartition("digest")[2])
    assert len(digests) == 1


def test_worlds_of_one_kind_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--controllers", "--rocketmq"])
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("name", ["controllers-told-too-early", "groups-cut-by-end", "groups-confirmed-alone"])
def test_planted_fault_is_caught(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate.main(["--only", name, "--worlds", "60"]) == 0
    assert "1 faults: 1 caught by worlds, 0 not as they should be" in capsys.readouterr().out


def test_there_are_faults_of_every_part() -> None:
    assert len(CONTROLLERS) >= 15
    assert len(GROUPS) >= 15
    parts = {"administration", "assembly", "broker", "nameserver", "replication", "store", "tables"}
    assert {mutant.module.split(".")[2] for mutant in GROUPS} == parts
    assert {mutant.module.split(".")[2] for mutant in CONTROLLERS} == {"controller", "raft"}
