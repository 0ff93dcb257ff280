"""Run worlds: `scripts/simulate --kind bmq --seeds 0..99`. Each is made of its seed alone; a failure names it."""

from __future__ import annotations

# First: it plants the fault that the environment names before anything of the core is imported.
import tests.simulator.mutants.planting  # noqa: F401 isort: skip
import argparse
import difflib
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tests.scenarios.story import STORIES, told
from tests.simulator.chances import Recording
from tests.simulator.coverage import cover, leaning
from tests.simulator.judges.invariants import Violation
from tests.simulator.play import CPU_S_MAX, bounded, play
from tests.simulator.shrink import read_story, replay, shrink
from tests.simulator.worlds.features import Feature, shape_of
from tests.simulator.worlds.recipes import (
    KINDS,
    Recipe,
    kind_of,
    record,
    simulate,
    simulate_controllers,
    simulate_mixed,
    simulate_rocketmq,
)

__all__ = ["main", "simulate", "simulate_controllers", "simulate_mixed", "simulate_rocketmq"]

FAULTS_SHOWN = 12
EVENTS_SHOWN = 12


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def _tell(*, rewrite: bool) -> int:
    """Tell all stories; 1 if one goes otherwise than it says, unless it is rewritten."""
    others = 0
    for path in STORIES:
        text = path.read_text()
        now = told(text)
        if now == text:
            continue
        others += 1
        print(f"{'rewritten' if rewrite else 'goes otherwise'}: {path.name}")
        if rewrite:
            path.write_text(now)
        else:
            print("".join(difflib.unified_diff(text.splitlines(True), now.splitlines(True), path.name, "now")))
    print(f"simulate: {len(STORIES)} stories, {others} {'rewritten' if rewrite else 'go otherwise'}")
    return 1 if others and not rewrite else 0


class Outcome(NamedTuple):
    """The result of one world; `failure` is empty if it passed, `lines` are its events if requested."""

    recipe: Recipe
    failure: str
    lines: list[str]
    digest: int
    steps: int
    messages: int
    spent_s: float


def play_in_worker(recipe: Recipe, *, is_traced: bool, until_s: float) -> Outcome | None:
    """Play one world in a process of the pool; None if the time is over by now.

    `until_s` is of the monotonic clock, which processes share.
    """
    if time.monotonic() > until_s:
        return None
    lines: list[str] | None = [] if is_traced else None
    at_s = time.process_time()
    try:
        with bounded(CPU_S_MAX):
            world = play(recipe.seed, recipe.make, recipe.steps, lines)
    except Violation as violation:
        spent_s = time.process_time() - at_s
        text = f"FAILED {violation}\n{_seen(recipe, violation)}its story: {recipe.command}"
        if is_traced and violation.__cause__ is not None:
            text += "\n" + "".join(traceback.format_exception(violation.__cause__))
        return Outcome(recipe, text, lines or [], 0, 0, 0, spent_s)
    messages, spent_s = world.records.acked, time.process_time() - at_s
    return Outcome(recipe, "", lines or [], world.digest, world.clock.steps, messages, spent_s)


def _seen(recipe: Recipe, violation: Violation) -> str:
    """The faults and the last events of a world that has failed, by playing it again."""
    chances, lines = Recording(), list[str]()
    if record(recipe, chances, lines) != str(violation):
        return ""
    faults = [text for texts in chances.taken.values() for text in texts]
    shown = [f"its faults, the last of {len(faults)}:", *faults[-FAULTS_SHOWN:], "its last events:"]
    return "\n".join([*shown, *lines[-EVENTS_SHOWN:]]) + "\n"


def _run(seeds: Sequence[int], options: argparse.Namespace) -> int:
    """Run worlds, print the failed ones, and sum up; return their number."""
    steps = messages = digest = 0
    begun, spent = Counter[str](), Counter[str]()
    failures: list[Outcome] = []
    worst_s = 0.0
    recipes = [_recipe(seed, options) for seed in seeds]
    # Processes of their own: what is patched or cached in this one is not in them.
    pool = get_context("spawn").Pool(options.jobs) if options.jobs > 1 else None
    with pool or nullcontext():
        until_s = time.monotonic() + (options.seconds or math.inf)
        one = partial(play_in_worker, is_traced=options.trace, until_s=until_s)
        for outcome in pool.imap(one, recipes, chunksize=4) if pool is not None else map(one, recipes):
            if outcome is None:
                continue
            begun[outcome.recipe.kind] += 1
            spent[outcome.recipe.kind] += round(1000 * outcome.spent_s)
            if outcome.lines:
                print("\n".join(outcome.lines))
            if outcome.failure:
                failures.append(outcome)
                print(outcome.failure, flush=True)
                continue
            digest = crc32(outcome.digest.to_bytes(4, "big"), digest)
            steps += outcome.steps
            messages += outcome.messages
            worst_s = max(worst_s, outcome.spent_s)
    for kind, count in begun.items() if len(begun) > 1 else ():
        failed = sum(outcome.recipe.kind == kind for outcome in failures)
        print(
            f"simulate: {kind}: {count - failed} of {count} passed, {spent[kind] / count / 1000:.2f} s of CPU per seed"
        )
    total = begun.total()
    print(
        f"simulate: {total - len(failures)} of {total} passed: {steps} steps, {messages} messages acked; "
        f"{spent.total() / max(total, 1) / 1000:.2f} s of CPU per seed, at most {worst_s:.2f} s; digest {digest:08x}"
    )
    if total < len(seeds):
        print(f"simulate: {len(seeds) - total} worlds are left out, as the {options.seconds} s are over")
    if failures and options.shrink:
        _shrink(failures[0], options.shrink)
    return len(failures)


def _shrink(outcome: Outcome, cpu_s: float) -> None:
    """Shrink a failed world, and print what is left of it as a story that can be kept."""
    story = shrink(outcome.recipe, outcome.failure, cpu_s)
    print(f"simulate: it may be kept as tests/simulator/stories/NAME.txt\n\n{story}")


def _replay(path: Path) -> int:
    """Play the world of a story; 1 if it fails."""
    lines: list[str] = []
    failure = replay(read_story(path.read_text()), lines)
    print("\n".join([*lines, f"FAILED {failure}" if failure else "passed"]))
    return 1 if failure else 0


def _recipe(seed: int, options: argparse.Namespace) -> Recipe:
    """The recipe of a seed under the options of the command line."""
    kind = kind_of(seed) if options.kind == "all" else options.kind
    steps = options.steps or KINDS[kind].steps
    features = frozenset[Feature]() if options.plain else None
    without = frozenset(Feature[name.upper()] for name in options.without)
    return Recipe(kind, seed, steps, options.nodes, options.proxies, features, without)


def main(words: Sequence[str] | None = None) -> int:
    """The program; 1 if a world failed."""
    parser = argparse.ArgumentParser(prog="simulate", description="Simulate nodes, disks, networks and clients.")
    kind = parser.add_mutually_exclusive_group()
    kinds = [*KINDS, "all"]
    kind.add_argument("--kind", choices=kinds, default="bmq", help="the system of the worlds (bmq); all: a mix")
    kind.add_argument("--rocketmq", dest="kind", action="store_const", const="rocketmq", help="like --kind rocketmq")
    kind.add_argument("--controllers", dest="kind", action="store_const", const="controllers", help="likewise")
    parser.add_argument("--seeds", type=_seeds, default=range(100), metavar="A..B", help="which worlds (0..99)")
    parser.add_argument("--seed", type=int, metavar="N", help="one world")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="in N processes (1)")
    steps_help = ", ".join(f"{name} {each.steps}" for name, each in KINDS.items())
    parser.add_argument("--steps", type=int, metavar="N", help=f"steps with faults ({steps_help})")
    parser.add_argument("--seconds", type=int, metavar="N", help="begin no world after N seconds")
    parser.add_argument("--nodes", type=int, metavar="N", help="all worlds of N nodes, without the harsh faults")
    parser.add_argument("--proxies", action="store_true", help="with --nodes 2 or more: a tree of proxies below them")
    parser.add_argument("--plain", action="store_true", help="with --nodes: two queues, and nobody changes anything")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=[each.name.lower() for each in Feature],
        metavar="FEATURE",
        help="leave out a feature, such as bounds: compiled modules do not look up replaced constants",
    )
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument(
        "--shrink",
        type=float,
        default=60,
        metavar="S",
        help="shrink the first failed world for S s of CPU (60; 0: not)",
    )
    parser.add_argument("--lean", type=int, metavar="N", help="of the seeds, play N: half of them reach what is rare")
    parser.add_argument("--coverage", action="store_true", help="print what these worlds never reach")
    parser.add_argument(
        "--branches", action="store_true", help="with --coverage: branches of the deciding packages, too"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="with --coverage: write the result to a file, too")
    parser.add_argument("--record", action="store_true", help="with --coverage: keep what is rare for --lean")
    parser.add_argument("--story", type=Path, metavar="FILE", help="play the world of a story, and print what happens")
    parser.add_argument("--stories", action="store_true", help="tell the stories of tests/scenarios, and compare")
    parser.add_argument("--rewrite", action="store_true", help="with --stories: let them be as they go now")
    options = parser.parse_args(words)
    if options.stories:
        return _tell(rewrite=options.rewrite)
    if options.story is not None:
        return _replay(options.story)
    if options.kind != "bmq" and (options.nodes is not None or options.proxies or options.plain or options.without):
        theirs = "--nodes, --proxies, --plain and --without"
        parser.error(f"--kind {options.kind}: leave out {theirs}, which are for BlazingMQ's worlds")
    if options.proxies and (options.nodes or 1) < 2:
        parser.error("--proxies: a tree of proxies is below a cluster; give --nodes 3")
    if options.plain and options.nodes is None:
        parser.error("--plain: say how many nodes; give --nodes 1")
    if options.jobs < 1:
        parser.error("--jobs: give 1 or more")
    seeds: Sequence[int] = options.seeds if options.seed is None else range(options.seed, options.seed + 1)
    if not seeds:
        parser.error("--seeds: give A..B, where B is not below A")
    if options.lean is not None:
        if options.kind != "bmq":
            parser.error(f"--kind {options.kind}: leave out --lean, which is for BlazingMQ's worlds")
        seeds = leaning(seeds, options.lean)
    what = "of all systems" if options.kind == "all" else KINDS[options.kind].says
    if options.nodes is not None:
        what = f"of {options.nodes} node(s)"
    steps = options.steps or (KINDS[options.kind].steps if options.kind != "all" else "their usual")
    print(f"simulate: seeds {seeds[0]}..{seeds[-1]}, {steps} steps each, {what}", flush=True)
    if options.seed is not None and options.nodes is None and options.kind == "bmq":
        print(f"simulate: {shape_of(options.seed)}")
    if options.coverage:
        recipes = [_recipe(seed, options) for seed in seeds]
        return cover(recipes, options.jobs, options.json, has_branches=options.branches, is_recorded=options.record)
    return 1 if _run(seeds, options) else 0


if __name__ == "__main__":
    sys.exit(main())
