"""Run worlds: `scripts/simulate --seeds 0..99`. Each is made of its seed alone; a failure names it."""

from __future__ import annotations

import argparse
import difflib
import math
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple
from zlib import crc32

from tests.scenarios.story import STORIES, told
from tests.simulator.cluster import ClusterWorld
from tests.simulator.controllers.run import simulate_controllers
from tests.simulator.controllers.world import CONTROLLER_STEPS, ControllerWorld
from tests.simulator.features import Feature, shape_of
from tests.simulator.invariants import Violation
from tests.simulator.play import play
from tests.simulator.proxies import ProxyWorld
from tests.simulator.rocketmq.run import simulate_rocketmq
from tests.simulator.rocketmq.world import ROCKETMQ_STEPS, RocketWorld
from tests.simulator.world import STEPS, World

__all__ = ["main", "simulate", "simulate_mixed"]


def simulate(
    seed: int,
    steps: int = STEPS,
    *,
    nodes: int = 1,
    lines: list[str] | None = None,
    proxies: bool = False,
    features: frozenset[Feature] | None = None,
) -> World:
    """One world, to its end. `Violation`, with the seed, if an invariant does not hold or the core stumbles.

    The seed decides which `features` it has, unless they are given.
    """
    make: Callable[[], World]
    if proxies:
        make = partial(ProxyWorld, seed, nodes=nodes, features=features)
    elif nodes == 1:
        make = partial(World, seed, features=features)
    else:
        make = partial(ClusterWorld, seed, nodes=nodes, features=features)
    return play(seed, make, steps, lines)


def simulate_mixed(seed: int, steps: int = STEPS, lines: list[str] | None = None) -> World:
    """The world of a seed in the mix of all kinds."""
    shape = shape_of(seed)
    return simulate(seed, steps, nodes=shape.nodes, lines=lines, proxies=shape.has_proxies, features=shape.features)


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

    failure: str
    lines: list[str]
    digest: int
    steps: int
    messages: int
    spent_s: float


def _outcome(seed: int, options: argparse.Namespace, until_s: float) -> Outcome | None:
    """Run one world; None if the time is over by now. `until_s` is of the monotonic clock, which processes share."""
    if time.monotonic() > until_s:
        return None
    lines: list[str] | None = [] if options.trace else None
    at_s = time.process_time()
    world: World | RocketWorld | ControllerWorld
    try:
        if options.controllers:
            world = simulate_controllers(seed, options.steps, lines)
        elif options.rocketmq:
            world = simulate_rocketmq(seed, options.steps, lines)
        elif options.nodes is None:
            world = simulate_mixed(seed, options.steps, lines)
        else:
            features = frozenset[Feature]() if options.plain else None
            world = simulate(
                seed, options.steps, nodes=options.nodes, proxies=options.proxies, lines=lines, features=features
            )
    except Violation as violation:
        text = f"FAILED {violation}\nits story: {_again(seed, options)}"
        if options.trace and violation.__cause__ is not None:
            text += "\n" + "".join(traceback.format_exception(violation.__cause__))
        return Outcome(text, lines or [], 0, 0, 0, time.process_time() - at_s)
    return Outcome("", lines or [], world.digest, world.clock.steps, world.records.acked, time.process_time() - at_s)


def _again(seed: int, options: argparse.Namespace) -> str:
    """The command that tells the story of a world of this run."""
    words = ["scripts/simulate"]
    words += [f"--{name}" for name in ("rocketmq", "controllers", "proxies", "plain") if getattr(options, name)]
    words += [f"--nodes {options.nodes}"] if options.nodes is not None else []
    words += [f"--steps {options.steps}"] if options.steps != _steps(options) else []
    return " ".join([*words, f"--seed {seed} --trace"])


def _steps(options: argparse.Namespace) -> int:
    """The steps of a world unless others are asked for."""
    if options.controllers:
        return CONTROLLER_STEPS
    return ROCKETMQ_STEPS if options.rocketmq else STEPS


def _run(seeds: range, options: argparse.Namespace) -> int:
    """Run worlds, tell of those that fail, and sum up; how many failed."""
    begun = failed = steps = messages = digest = 0
    spent_s = worst_s = 0.0
    # Processes that are made anew, as what is patched or cached in this one is none of theirs.
    pool = get_context("spawn").Pool(options.jobs) if options.jobs > 1 else None
    with pool or nullcontext():
        one = partial(_outcome, options=options, until_s=time.monotonic() + (options.seconds or math.inf))
        for outcome in pool.imap(one, seeds, chunksize=4) if pool is not None else map(one, seeds):
            if outcome is None:
                continue
            begun += 1
            spent_s += outcome.spent_s
            if outcome.lines:
                print("\n".join(outcome.lines))
            if outcome.failure:
                failed += 1
                print(outcome.failure, flush=True)
                continue
            digest = crc32(outcome.digest.to_bytes(4, "big"), digest)
            steps += outcome.steps
            messages += outcome.messages
            worst_s = max(worst_s, outcome.spent_s)
    print(
        f"simulate: {begun - failed} of {begun} passed: {steps} steps, {messages} messages acked; "
        f"{spent_s / max(begun, 1):.2f} s of CPU per seed, at most {worst_s:.2f} s; digest {digest:08x}"
    )
    if begun < len(seeds):
        print(f"simulate: {len(seeds) - begun} worlds are left out, as the {options.seconds} s are over")
    return failed


def main(words: Sequence[str] | None = None) -> int:
    """The program; 1 if a world failed."""
    parser = argparse.ArgumentParser(prog="simulate", description="Simulate nodes, disks, networks and clients.")
    parser.add_argument("--seeds", type=_seeds, default=range(100), metavar="A..B", help="which worlds (0..99)")
    parser.add_argument("--seed", type=int, metavar="N", help="one world")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="in so many processes (1)")
    steps_help = f"steps with faults ({STEPS}; with --rocketmq {ROCKETMQ_STEPS}, with --controllers {CONTROLLER_STEPS})"
    parser.add_argument("--steps", type=int, metavar="N", help=steps_help)
    parser.add_argument("--seconds", type=int, metavar="N", help="begin no world after so many seconds")
    parser.add_argument("--nodes", type=int, metavar="N", help="all worlds of so many nodes, without the harsh faults")
    parser.add_argument("--proxies", action="store_true", help="with --nodes 2 or more: a tree of proxies below them")
    parser.add_argument("--plain", action="store_true", help="with --nodes: two queues, and nobody changes anything")
    parser.add_argument("--rocketmq", action="store_true", help="worlds of a RocketMQ node and its clients")
    parser.add_argument("--controllers", action="store_true", help="worlds of RocketMQ's controllers and brokers")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--stories", action="store_true", help="tell the stories of tests/scenarios, and compare")
    parser.add_argument("--rewrite", action="store_true", help="with --stories: let them be as they go now")
    options = parser.parse_args(words)
    if options.stories:
        return _tell(rewrite=options.rewrite)
    if options.steps is None:
        options.steps = _steps(options)
    if options.controllers and (options.rocketmq or options.nodes is not None or options.proxies or options.plain):
        parser.error("--controllers: leave out --rocketmq, --nodes, --proxies and --plain")
    if options.rocketmq and (options.nodes is not None or options.proxies or options.plain):
        parser.error("--rocketmq: such a world has one node; leave out --nodes, --proxies and --plain")
    if options.proxies and (options.nodes or 1) < 2:
        parser.error("--proxies: a tree of proxies is below a cluster; give --nodes 3")
    if options.plain and options.nodes is None:
        parser.error("--plain: say how many nodes; give --nodes 1")
    if options.jobs < 1:
        parser.error("--jobs: give 1 or more")
    seeds = options.seeds if options.seed is None else range(options.seed, options.seed + 1)
    if not seeds:
        parser.error("--seeds: give A..B, where B is not below A")
    kind = "of all kinds" if options.nodes is None else f"of {options.nodes} node(s)"
    if options.rocketmq:
        kind = "of a RocketMQ node"
    if options.controllers:
        kind = "of RocketMQ's controllers"
    print(f"simulate: seeds {seeds[0]}..{seeds[-1]}, {options.steps} steps each, {kind}", flush=True)
    if options.seed is not None and options.nodes is None and not (options.rocketmq or options.controllers):
        print(f"simulate: {shape_of(options.seed)}")
    return 1 if _run(seeds, options) else 0


if __name__ == "__main__":
    sys.exit(main())
