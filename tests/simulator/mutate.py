"""Plant faults in the core one by one, and see which worlds show them: `scripts/mutate`.

Each fault is planted in forked processes, which simulate worlds until one of them notices: first the one that
`seen.toml` names, then those of the fault's systems. A world that fails without the fault as well says nothing of it,
and the next ones are looked at. With `--unit` the unit test that the catalogue names runs under the fault as well, and
must fail. `--record` keeps in `seen.toml` which world of which kind has shown a fault.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import os
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from tests.simulator.mutants.catalogue import MUTANTS
from tests.simulator.mutants.imports import importers
from tests.simulator.mutants.mutant_worlds import PROCESS_S_MAX, Broken, Failure, first_failure
from tests.simulator.mutants.mutations import ALL_MUTATIONS
from tests.simulator.mutants.planted import ROOT, stale
from tests.simulator.mutants.planting import VARIABLE
from tests.simulator.worlds import recipes
from tests.simulator.worlds.features import shape_of

__all__ = ["KINDS", "Failure", "first_shown", "kind_of", "main", "read_seen", "write_seen"]

WORLDS = 300
SEEN = Path(__file__).with_name("seen.toml")
KINDS = ("node", "cluster", "proxies", "rocketmq", "controllers", "mixed")
_SEEN_HEAD = """\
# The world of each kind that has shown a planted fault: written by `scripts/mutate --record`.
"""


class Verdict(NamedTuple):
    """The result for one fault: the first world that shows it, its system and its message, or None."""

    name: str
    seed: int | None
    says: str
    system: str = ""
    unit: str = ""  # what became of its unit test
    anyway: tuple[int, ...] = ()  # worlds that fail without the fault too

    @property
    def kind(self) -> str:
        """The kind of the world that shows it; empty without one."""
        return "" if self.seed is None else kind_of(self.system, self.seed)


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


def kind_of(system: str, seed: int) -> str:
    """The kind of a world."""
    if system != "bmq":
        return system
    shape = shape_of(seed)
    return "proxies" if shape.has_proxies else "node" if shape.nodes == 1 else "cluster"


def read_seen() -> dict[str, tuple[str, int]]:
    """The system and the seed of the world that has shown each fault, by its name."""
    table = tomllib.loads(SEEN.read_text()) if SEEN.exists() else {}
    return {
        name: (kind if kind in recipes.KINDS else "bmq", seed)
        for kind, worlds in table.items()
        for name, seed in worlds.items()
    }


def write_seen(seen: dict[str, tuple[str, int]]) -> None:
    """Write the file, by kinds and names; without the faults that are gone."""
    lines = [_SEEN_HEAD]
    for kind in KINDS:
        worlds = {name: seed for name, (system, seed) in seen.items() if kind_of(system, seed) == kind}
        known = sorted(name for name in worlds if name in MUTANTS or name in ALL_MUTATIONS)
        lines += [f"[{kind}]\n", *(f'"{name}" = {worlds[name]}\n' for name in known), "\n"]
    SEEN.write_text("".join(lines).rstrip("\n") + "\n")


def _simulate(name: str, seeds: Iterable[int], *, system: str) -> Failure | None:
    """The first of some worlds that fails under a fault; without any if there is no name."""
    return first_failure(MUTANTS.get(name, name), seeds, system=system)


def _next(name: str, system: str, end: int, first: int) -> Failure | None:
    return _simulate(name, range(first, end), system=system)


@cache
def _fails_anyway(system: str, seed: int) -> bool:
    return _simulate("", [seed], system=system) is not None


def _look_for(name: str, worlds: int, seen: tuple[str, int] | None = None) -> Verdict:
    """The world that is known to show a fault, or the first one of `worlds` in each of its systems."""
    try:
        if seen is not None and seen[1] < worlds:
            system, seed = seen
            failure = _simulate(name, [seed], system=system)
            if failure is not None and not _fails_anyway(system, seed):
                return Verdict(name, failure.seed, failure.says, system)
        anyway: tuple[int, ...] = ()
        systems = MUTANTS[name].systems if name in MUTANTS else ("bmq",)
        for system in systems if worlds else ():
            failure, others = first_shown(partial(_next, name, system, worlds), partial(_fails_anyway, system))
            anyway += others
            if failure is not None:
                return Verdict(name, failure.seed, failure.says, system, anyway=anyway)
    except Broken as broken:
        return Verdict(name, None, str(broken))
    return Verdict(name, None, "", anyway=anyway)


def _test(verdict: Verdict) -> Verdict:
    """Run the unit test that the catalogue names for a fault: it must fail."""
    unit = MUTANTS[verdict.name].unit if verdict.name in MUTANTS else ""
    if not unit:
        return verdict
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.simulator.mutants.planting", *unit.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: verdict.name}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PROCESS_S_MAX, check=False
    )
    if done.returncode == 1:
        failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
        return verdict._replace(unit=f"caught by {failed[1] if failed else unit}")
    return verdict._replace(unit=f"MISSED by {unit}: exit code {done.returncode}")


def _look(name: str, options: argparse.Namespace, seen: dict[str, tuple[str, int]], until_s: float) -> Verdict | None:
    """The result for one fault; None if the time is over."""
    if time.monotonic() > until_s:
        return None
    is_looked_for = not _is_hidden(name) or options.hidden or options.only
    verdict = _look_for(name, options.worlds if is_looked_for else 0, seen.get(name))
    return _test(verdict) if options.unit else verdict


def _told(verdict: Verdict) -> tuple[str, bool]:
    """A line of the table, and whether it is as it should be."""
    mutant = MUTANTS.get(verdict.name)
    if verdict.seed is not None:
        line, is_well = f"{verdict.kind:12} world {verdict.seed}: {verdict.says}", True
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
    parser.add_argument("--seconds", type=int, metavar="N", help="begin with no fault after N seconds")
    parser.add_argument("--unseen", action="store_true", help="only faults that no recorded world has shown")
    parser.add_argument("--hidden", action="store_true", help="look also for those that no world is expected to show")
    parser.add_argument("--record", action="store_true", help=f"keep what has shown each fault in {SEEN.name}")
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
    seen = read_seen()
    names = [name for name in names if name in (options.only or names) and not (options.unseen and name in seen)]
    # Those of which no world is expected to show anything take longest.
    names.sort(key=_is_hidden)
    until_s = time.monotonic() + (options.seconds or math.inf)

    look = partial(_look, options=options, seen=seen, until_s=until_s)
    # Each process shares what is known and loaded by now.
    importers(__name__, ROOT)
    gc.freeze()
    failed = left_out = 0
    kinds = Counter(dict.fromkeys(KINDS, 0))
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        for verdict in pool.map(look, names):
            if verdict is None:
                left_out += 1
                continue
            line, is_well = _told(verdict)
            failed += not is_well
            print(f"{verdict.name:32} {line}", flush=True)
            if verdict.seed is None:
                continue
            kinds[verdict.kind] += 1
            if options.record:
                seen[verdict.name] = verdict.system, verdict.seed
                write_seen(seen)
    by_kind = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
    print(f"mutate: caught by kinds of worlds: {by_kind}")
    print(f"mutate: {len(names)} faults: {kinds.total()} caught by worlds, {failed} not as they should be")
    if left_out:
        print(f"mutate: {left_out} faults are left out, as the {options.seconds} s are over")
    blind = [kind for kind, count in kinds.items() if not count]
    is_whole = not (options.only or options.unseen or left_out)
    if is_whole and blind:
        print(f"mutate: no fault is seen by worlds of {', '.join(blind)}")
    return 1 if failed or (is_whole and blind) else 0


def _is_hidden(name: str) -> bool:
    """Return whether no world is expected to show a fault."""
    return name in MUTANTS and bool(MUTANTS[name].hidden)


if __name__ == "__main__":
    sys.exit(main())
