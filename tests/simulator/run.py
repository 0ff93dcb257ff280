"""Run worlds: `scripts/simulate --seeds 0..99`. Each is made of its seed alone; a failure names it."""

from __future__ import annotations

import argparse
import difflib
import sys
import time
import traceback
from collections.abc import Sequence
from zlib import crc32

from tests.scenarios.story import STORIES, told
from tests.simulator.cluster import ClusterWorld
from tests.simulator.features import Feature
from tests.simulator.invariants import Violation
from tests.simulator.logs import quiet
from tests.simulator.proxies import ProxyWorld
from tests.simulator.world import STEPS, World

__all__ = ["main", "simulate"]


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
    if proxies:
        world: World = ProxyWorld(seed, nodes=nodes, features=features)
    elif nodes == 1:
        world = World(seed, features=features)
    else:
        world = ClusterWorld(seed, nodes=nodes, features=features)
    world.lines = lines
    try:
        with quiet(lines):
            world.run(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {world.clock.steps}: {violation}") from None
    except Exception as error:
        raise Violation(f"seed {seed}, step {world.clock.steps}: {type(error).__name__}: {error}") from error
    return world


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


def main(words: Sequence[str] | None = None) -> int:
    """The program; 1 if a world failed."""
    parser = argparse.ArgumentParser(prog="simulate", description="Simulate nodes, disks, networks and clients.")
    parser.add_argument("--seeds", type=_seeds, default=range(100), metavar="A..B", help="which worlds (0..99)")
    parser.add_argument("--seed", type=int, metavar="N", help="one world")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"steps with faults ({STEPS})")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of the cluster (1)")
    parser.add_argument("--proxies", action="store_true", help="with --nodes 2 or more: a tree of proxies below them")
    parser.add_argument("--plain", action="store_true", help="no features: two queues, and nobody changes anything")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--stories", action="store_true", help="tell the stories of tests/scenarios, and compare")
    parser.add_argument("--rewrite", action="store_true", help="with --stories: let them be as they go now")
    options = parser.parse_args(words)
    if options.stories:
        return _tell(rewrite=options.rewrite)
    if options.proxies and options.nodes < 2:
        parser.error("--proxies: a tree of proxies is below a cluster; give --nodes 3")
    seeds = options.seeds if options.seed is None else range(options.seed, options.seed + 1)
    print(f"simulate: seeds {seeds[0]}..{seeds[-1]}, {options.steps} steps each, {options.nodes} node(s)", flush=True)
    failed = steps = messages = digest = 0
    worst_s = 0.0
    began_s = time.process_time()
    for seed in seeds:
        lines: list[str] | None = [] if options.trace else None
        at_s = time.process_time()
        try:
            features = frozenset[Feature]() if options.plain else None
            world = simulate(
                seed, options.steps, nodes=options.nodes, proxies=options.proxies, lines=lines, features=features
            )
        except Violation as violation:
            failed += 1
            print("\n".join([*(lines or ()), f"FAILED {violation}"]), flush=True)
            if options.trace and violation.__cause__ is not None:
                traceback.print_exception(violation.__cause__)
            continue
        digest = crc32(world.digest.to_bytes(4, "big"), digest)
        steps += world.clock.steps
        messages += world.records.acked
        worst_s = max(worst_s, time.process_time() - at_s)
        if lines is not None:
            print("\n".join(lines))
    spent_s = time.process_time() - began_s
    print(
        f"simulate: {len(seeds) - failed} of {len(seeds)} passed: {steps} steps, {messages} messages acked; "
        f"{spent_s / len(seeds):.2f} s of CPU per seed, at most {worst_s:.2f} s; digest {digest:08x}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
