"""The recipes of worlds: the kinds that there are, and all that one is made of."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import NamedTuple

from tests.simulator.chances import Chances
from tests.simulator.controllers.acting import ActingWorld
from tests.simulator.controllers.world import CONTROLLER_STEPS, ControllerWorld
from tests.simulator.judges.invariants import Violation
from tests.simulator.play import CPU_S_MAX, Playable, bounded, play
from tests.simulator.rocketmq.world import ROCKETMQ_STEPS, RocketWorld
from tests.simulator.worlds.bridged import BridgedWorld
from tests.simulator.worlds.cluster import ClusterWorld
from tests.simulator.worlds.features import Feature, features_of, shape_of
from tests.simulator.worlds.proxies import ProxyWorld
from tests.simulator.worlds.world import STEPS, World

__all__ = [
    "KINDS",
    "Recipe",
    "kind_of",
    "record",
    "simulate",
    "simulate_controllers",
    "simulate_mixed",
    "simulate_rocketmq",
]


class Kind(NamedTuple):
    """A kind of worlds: a name for people, and the steps with faults unless others are asked for."""

    says: str
    steps: int


KINDS = {
    "bmq": Kind("of all kinds", STEPS),
    "rocketmq": Kind("of a RocketMQ node", ROCKETMQ_STEPS),
    "controllers": Kind("of RocketMQ's controllers", CONTROLLER_STEPS),
    "mixed": Kind("of a bridge between both systems", STEPS),
}
# Of ten worlds of all systems, the kinds.
# One world of controllers of this number is one of acting masters.
ACTING_EVERY = 6
_MIX = ("bmq",) * 6 + ("rocketmq",) * 2 + ("controllers", "mixed")


def kind_of(seed: int) -> str:
    """The kind of the world of a seed in the mix of all systems."""
    return Random(f"system {seed}").choice(_MIX)


class Recipe(NamedTuple):
    """All that a world is made of.

    The seed decides on the nodes and features of a BlazingMQ world that gives none; the world leaves out `without`.
    """

    kind: str
    seed: int
    steps: int
    nodes: int | None = None
    has_proxies: bool = False
    features: frozenset[Feature] | None = None
    without: frozenset[Feature] = frozenset()

    def settled(self) -> Recipe:
        """The same world, with its features."""
        if self.kind != "bmq" or self.features is not None:
            return self
        shape = shape_of(self.seed)
        if self.nodes is None:
            features = shape.features - self.without
            return self._replace(nodes=shape.nodes, has_proxies=shape.has_proxies, features=features)
        return self._replace(features=features_of(self.seed) - self.without)

    def make(self) -> Playable:
        """Make the world."""
        recipe = self.settled()
        if self.kind == "rocketmq":
            return RocketWorld(self.seed)
        if self.kind == "controllers":
            return _controllers(self.seed)
        if self.kind == "mixed":
            return BridgedWorld(self.seed)
        assert recipe.nodes is not None
        if recipe.has_proxies:
            return ProxyWorld(self.seed, nodes=recipe.nodes, features=recipe.features)
        if recipe.nodes == 1:
            return World(self.seed, features=recipe.features)
        return ClusterWorld(self.seed, nodes=recipe.nodes, features=recipe.features)

    @property
    def command(self) -> str:
        """The command that plays the world, and prints its events."""
        words = ["scripts/simulate", f"--kind {self.kind}"] if self.kind != "bmq" else ["scripts/simulate"]
        words += ["--proxies"] if self.has_proxies else []
        words += ["--plain"] if self.features is not None else []
        words += [f"--without {each.name.lower()}" for each in sorted(self.without, key=lambda each: each.name)]
        words += [f"--nodes {self.nodes}"] if self.nodes is not None else []
        words += [f"--steps {self.steps}"] if self.steps != KINDS[self.kind].steps else []
        return " ".join([*words, f"--seed {self.seed} --trace"])


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
    world = play(seed, Recipe("bmq", seed, steps, nodes, proxies, features).make, steps, lines)
    assert isinstance(world, World)
    return world


def simulate_mixed(seed: int, steps: int = STEPS, lines: list[str] | None = None) -> World:
    """The world of a seed in the mix of all kinds."""
    world = play(seed, Recipe("bmq", seed, steps).make, steps, lines)
    assert isinstance(world, World)
    return world


def simulate_rocketmq(seed: int, steps: int = ROCKETMQ_STEPS, lines: list[str] | None = None) -> RocketWorld:
    """A world of a RocketMQ node, to its end."""
    return play(seed, partial(RocketWorld, seed), steps, lines)


def simulate_controllers(seed: int, steps: int = CONTROLLER_STEPS, lines: list[str] | None = None) -> ControllerWorld:
    """A world of RocketMQ's controllers, to its end."""
    return play(seed, partial(_controllers, seed), steps, lines)


def _controllers(seed: int) -> ControllerWorld:
    """Make a world of controllers, or, for one seed of `ACTING_EVERY`, of acting masters."""
    return ActingWorld(seed) if seed % ACTING_EVERY == ACTING_EVERY - 1 else ControllerWorld(seed)


def record(
    recipe: Recipe, chances: Chances, lines: list[str] | None = None, *, silent: frozenset[str] = frozenset()
) -> str:
    """Play a world with other chances, and with fewer clients; the failure, or nothing."""

    def make() -> Playable:
        world = recipe.make()
        world.chances, world.silent = chances, silent
        return world

    try:
        with bounded(CPU_S_MAX):
            play(recipe.seed, make, recipe.steps, lines)
    except Violation as violation:
        return str(violation)
    return ""
