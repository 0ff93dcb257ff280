"""Run worlds of a RocketMQ node: `scripts/simulate --rocketmq`."""

from __future__ import annotations

from broker.common.faults import Inconsistent
from tests.simulator.invariants import Violation
from tests.simulator.logs import quiet
from tests.simulator.rocketmq.world import ROCKETMQ_STEPS, RocketWorld

__all__ = ["simulate_rocketmq"]


def simulate_rocketmq(seed: int, steps: int = ROCKETMQ_STEPS, lines: list[str] | None = None) -> RocketWorld:
    """One world, to its end. `Violation`, with the seed, if a promise is broken or the node stumbles."""
    world = None
    try:
        with quiet(lines):
            world = RocketWorld(seed)
            world.lines = lines
            world.run(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {_step_of(world)}: {violation}") from None
    except (Exception, Inconsistent) as error:
        raise Violation(f"seed {seed}, step {_step_of(world)}: {type(error).__name__}: {error}") from error
    return world


def _step_of(world: RocketWorld | None) -> int:
    return 0 if world is None else world.clock.steps
