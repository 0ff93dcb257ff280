"""A world from its beginning to its end, and how its failure is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from broker.common.faults import Inconsistent
from tests.simulator.invariants import Violation
from tests.simulator.logs import quiet

__all__ = ["play"]


class Stepped(Protocol):
    """A clock that counts the steps of its world."""

    steps: int


class Playable(Protocol):
    """A world; its events are added to `lines`, if it has any."""

    lines: list[str] | None

    @property
    def clock(self) -> Stepped: ...

    def run(self, steps: int) -> None: ...


W = TypeVar("W", bound=Playable)


def play(seed: int, make: Callable[[], W], steps: int, lines: list[str] | None) -> W:
    """Make a world and run it. `Violation`, with the seed and the step, for whatever goes wrong."""
    world = None
    try:
        with quiet(lines):
            world = make()
            world.lines = lines
            world.run(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {_step_of(world)}: {violation}") from None
    except (Exception, Inconsistent) as error:
        raise Violation(f"seed {seed}, step {_step_of(world)}: {type(error).__name__}: {error}") from error
    return world


def _step_of(world: Playable | None) -> int:
    return 0 if world is None else world.clock.steps
