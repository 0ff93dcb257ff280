"""Run worlds of controllers: `scripts/simulate --controllers`."""

from __future__ import annotations

from functools import partial

from tests.simulator.controllers.world import CONTROLLER_STEPS, ControllerWorld
from tests.simulator.play import play

__all__ = ["simulate_controllers"]


def simulate_controllers(seed: int, steps: int = CONTROLLER_STEPS, lines: list[str] | None = None) -> ControllerWorld:
    """One world, to its end. `Violation`, with the seed, if a promise is broken or a controller stumbles."""
    return play(seed, partial(ControllerWorld, seed), steps, lines)
