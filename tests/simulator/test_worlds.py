"""A slice of the worlds that `scripts/simulate` can make, and what makes them worth trusting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.invariants import Violation
from tests.simulator.mutations import MUTATIONS, mutated
from tests.simulator.run import main, simulate

ROOT = Path(__file__).resolve().parents[2]

# Seeds that have failed once, and what was wrong.
FOUND = {
    12: "a message restored at a start, then confirmed, was taken for new when its producer sent it again",
    125: "the same",
}

# A seed whose world notices the mutation, where the first does not.
NOTICES = {
    "a confirm is not written": 0,
    "a retransmission is taken twice": 12,
    "a lost consumer's messages are not given back": 7,
    "a full shard takes messages": 6,
}


@pytest.mark.parametrize("seed", [*range(12), *FOUND])
def test_one_node(seed: int) -> None:
    world = simulate(seed)
    assert world.clock.steps >= 2000
    assert world.records.acked or not world.records.posts


def test_a_world_is_made_of_its_seed_alone() -> None:
    """Neither the run before it nor the hashes of this process change anything."""
    command = [sys.executable, "-m", "tests.simulator.run", "--seeds", "3..5", "--steps", "600"]
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout.rpartition("digest ")[2])
    assert outputs[0] == outputs[1]
    assert len({simulate(seed, 600).digest for seed in (3, 4, 3)}) == 2


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_core_is_noticed(name: str) -> None:
    seed = NOTICES.get(name, 0)
    with mutated(name), pytest.raises(Violation, match=f"^seed {seed}, step"):
        simulate(seed)


def test_a_failure_names_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with mutated("a message is not written"):
        assert main(["--seed", "1", "--trace"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "simulate: seeds 1..1, 2000 steps each, 1 node(s)"
    assert any(line.startswith("FAILED seed 1, step ") and "was acked and is lost" in line for line in lines)
