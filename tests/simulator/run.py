"""Run worlds: `scripts/simulate --seeds 0..99`. Each is made of its seed alone; a failure names it."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Sequence
from zlib import crc32

from tests.simulator.cluster import ClusterWorld
from tests.simulator.invariants import Violation
from tests.simulator.world import STEPS, World

__all__ = ["main", "simulate"]


def simulate(seed: int, steps: int = STEPS, *, nodes: int = 1, lines: list[str] | None = None) -> World:
    """One world, to its end. `Violation`, with the seed, if an invariant does not hold or the core stumbles."""
    log = logging.getLogger("broker")
    level, propagate = log.level, log.propagate
    log.setLevel(logging.CRITICAL + 1 if lines is None else logging.INFO)
    log.propagate = False
    handler = None
    if lines is not None:
        handler = _Lines(lines)
        log.addHandler(handler)
    world = World(seed) if nodes == 1 else ClusterWorld(seed, nodes=nodes)
    world.lines = lines
    try:
        world.run(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {world.clock.steps}: {violation}") from None
    except Exception as error:
        raise Violation(f"seed {seed}, step {world.clock.steps}: {type(error).__name__}: {error}") from error
    finally:
        log.setLevel(level)
        log.propagate = propagate
        if handler is not None:
            log.removeHandler(handler)
    return world


class _Lines(logging.Handler):
    """What the core logs stands among what happens, without a time of its own."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{'':17} | {record.getMessage()}")


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def main(words: Sequence[str] | None = None) -> int:
    """The program; 1 if a world failed."""
    parser = argparse.ArgumentParser(prog="simulate", description="Simulate nodes, disks, networks and clients.")
    parser.add_argument("--seeds", type=_seeds, default=range(100), metavar="A..B", help="which worlds (0..99)")
    parser.add_argument("--seed", type=int, metavar="N", help="one world")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"steps with faults ({STEPS})")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of the cluster (1)")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    options = parser.parse_args(words)
    seeds = options.seeds if options.seed is None else range(options.seed, options.seed + 1)
    print(f"simulate: seeds {seeds[0]}..{seeds[-1]}, {options.steps} steps each, {options.nodes} node(s)", flush=True)
    failed = steps = messages = digest = 0
    worst_s = 0.0
    began_s = time.process_time()
    for seed in seeds:
        lines: list[str] | None = [] if options.trace else None
        at_s = time.process_time()
        try:
            world = simulate(seed, options.steps, nodes=options.nodes, lines=lines)
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
