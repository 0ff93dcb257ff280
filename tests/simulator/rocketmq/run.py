"""Run worlds of a RocketMQ node: `scripts/simulate --rocketmq`."""

from __future__ import annotations

from functools import partial

from tests.simulator.play import play
from tests.simulator.rocketmq.world import ROCKETMQ_STEPS, RocketWorld

__all__ = ["simulate_rocketmq"]


def simulate_rocketmq(seed: int, steps: int = ROCKETMQ_STEPS, lines: list[str] | None = None) -> RocketWorld:
    """One world, to its end. `Violation`, with the seed, if a promise is broken or the node stumbles."""
    return play(seed, partial(RocketWorld, seed), steps, lines)
