"""Plant faults in the core one by one, and see which worlds show them: `scripts/mutate`.

Each fault is planted in processes of their own, which simulate worlds of all kinds until one of them notices. A world
that fails without the fault as well says nothing of it, and the next ones are looked at. With `--unit` the unit test
that the catalogue names runs under the fault as well, and must fail.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.simulator.catalogue import MUTANTS
from tests.simulator.mutations import ALL_MUTATIONS
from tests.simulator.planted import ROOT, stale
from tests.simulator.planting import VARIABLE

__all__ = ["Failure", "first_shown", "main"]

WORLDS = 300
PROCESS_S_MAX = 3600


class Failure(NamedTuple):
    """A world that fails, and what it says."""

    seed: int
    says: str


class Verdict(NamedTuple):
    """The result for one fault: the first world that shows it and its message, or None."""

    name: str
    seed: int | None
    says: str
    unit: str = ""  # what became of its unit test
    anyway: tuple[int, ...] = ()  # worlds that fail without the fault too


class _Broken(Exception):
    """A process ended in another way than by its verdict."""


def first_shown(
    next_failure: Callable[[int], Failure | None], fails_anyway: Callable[[int], bool]
) -> tuple[Failure | None, tuple[int, ...]]:
    """The first world that fails under a fault alone, and those before it that fail without the fault as well.

    `next_failure` gives the first world from a seed on that fails under the fault.
    """
    anyway: list[int] = []
    failure = next_failure(0)
    while failure is not None and fails_anyway(failure.seed):
        anyway.append(failure.seed)
        failure = next_failure(failure.seed + 1)
    return failure, tuple(anyway)


def _kind(name: str) -> str | None:
    """The option for the worlds that are to show a fault; None for those of all kinds of BlazingMQ's."""
    if name not in MUTANTS or not MUTANTS[name].module.startswith("broker.rocketmq"):
        return None
    return "--controllers" if MUTANTS[name].area in ("controllers", "groups") else "--rocketmq"


def _simulate(name: str, first: int, end: int, *, kind: str | None) -> Failure | None:
    """The first of some worlds that fails under a fault; without any if there is no name."""
    command = [sys.executable, "-m", "tests.simulator.mutant_worlds", "--first", str(first), "--end", str(end)]
    if kind is not None:
        command.append(kind)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop(VARIABLE, None)
    if name in MUTANTS:
        environment[VARIABLE] = name
    elif name:
        command += ["--mutation", name]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PROCESS_S_MAX, check=False
    )
    if done.returncode == 0:
        return None
    found = re.match(r"seed (\d+), step \d+: (.*)", done.stdout)
    if done.returncode != 1 or found is None:
        raise _Broken(f"the process failed: {done.stderr.strip().splitlines()[-1:]}")
    return Failure(int(found[1]), found[2])


def _look_for(name: str, worlds: int) -> Verdict:
    """The first of so many worlds that notices a fault."""
    kind = _kind(name)
    try:
        failure, anyway = first_shown(
            lambda first: _simulate(name, first, worlds, kind=kind),
            lambda seed: _simulate("", seed, seed + 1, kind=kind) is not None,
        )
    except _Broken as broken:
        return Verdict(name, None, str(broken))
    seed, says = failure or (None, "")
    return Verdict(name, seed, says, anyway=anyway)


def _test(verdict: Verdict) -> Verdict:
    """Run the unit test that the catalogue names for a fault: it must fail."""
    unit = MUTANTS[verdict.name].unit if verdict.name in MUTANTS else ""
    if not unit:
        return verdict
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.simulator.planting", *unit.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: verdict.name}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PROCESS_S_MAX, check=False
    )
    if done.returncode == 1:
        failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
        return verdict._replace(unit=f"caught by {failed[1] if failed else unit}")
    return verdict._replace(unit=f"MISSED by {unit}: exit code {done.returncode}")


def _told(verdict: Verdict) -> tuple[str, bool]:
    """A line of the table, and whether it is as it should be."""
    mutant = MUTANTS.get(verdict.name)
    if verdict.seed is not None:
        line, is_well = f"world {verdict.seed}: {verdict.says}", True
    elif verdict.says:
        line, is_well = verdict.says, False
    elif mutant is not None and mutant.hidden and mutant.unit:
        line, is_well = f"no world: {mutant.hidden} Shown by {mutant.unit}", True
    else:
        line, is_well = "NOT CAUGHT, and no reason is given", False
    if verdict.unit:
        line += f"; {verdict.unit}"
        is_well &= not verdict.unit.startswith("MISSED")
    if verdict.anyway:
        line += f"; without the fault fail as well: {', '.join(map(str, verdict.anyway))}"
    return line, is_well


def main(words: Sequence[str] | None = None) -> int:
    """The program; 1 if a fault is not caught, and nobody says why."""
    parser = argparse.ArgumentParser(prog="mutate", description="Plant faults; see which worlds show them.")
    parser.add_argument("--only", action="append", metavar="NAME", help="this fault; more than once for more")
    parser.add_argument("--worlds", type=int, default=WORLDS, metavar="N", help=f"so many worlds at most ({WORLDS})")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many faults at a time (1)")
    parser.add_argument("--unit", action="store_true", help="run the unit tests that the catalogue names as well")
    parser.add_argument("--list", action="store_true", help="say what there is, and what each is about")
    options = parser.parse_args(words)
    names = [*MUTANTS, *ALL_MUTATIONS]
    if options.list:
        for mutant in MUTANTS.values():
            print(f"{mutant.area:12} {mutant.name:28} {mutant.says}")
        for name in ALL_MUTATIONS:
            print(f"{'core':12} {name}")
        return 0
    if unknown := set(options.only or ()) - set(names):
        parser.error(f"--only: there is no fault named {', '.join(sorted(unknown))}; see --list")
    if old := stale(list(MUTANTS.values())):
        print("\n".join(old))
        print("mutate: the catalogue is out of date: adapt what it changes to the source as it is now")
        return 1
    names = [name for name in names if not options.only or name in options.only]
    # Those of which no world is expected to show anything take longest.
    names.sort(key=lambda name: name in MUTANTS and bool(MUTANTS[name].hidden))
    caught = failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        found = pool.map(lambda name: _look_for(name, options.worlds), names)
        for verdict in map(_test, found) if options.unit else found:
            line, is_well = _told(verdict)
            caught += verdict.seed is not None
            failed += not is_well
            print(f"{verdict.name:32} {line}", flush=True)
    print(f"mutate: {len(names)} faults: {caught} caught by worlds, {failed} not as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
