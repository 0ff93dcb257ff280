"""Clients that use more of the protocol than others: two apps under one queue id, many confirms in one event, and
parameters that change in mid-stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.clients import PARTS, Consumer, Tuning
from tests.simulator.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.world import World

__all__ = ["WholeClients"]

CONFIRM_US = 60_000
TUNE_US = 250_000
PRIORITIES = (0, 0, 1, 2)
LIMITS = (1, 2, 5, 1000)


class WholeClients:
    """One world's, with a schedule and a generator of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = own_random(Feature.WHOLE_CLIENTS, world.seed)
        self._consumers = [client for client in world.clients if isinstance(client, Consumer)]
        self._first: dict[Consumer, Tuning] = {}  # what each wanted before

    def begin(self) -> None:
        """Confirm in large events, and change parameters, until the faults end."""
        self._first = {consumer: consumer.tuning for consumer in self._consumers}
        self._confirm()
        self._tune()

    def _confirm(self) -> None:
        world, random = self._world, self._random
        for consumer in self._consumers:
            if consumer.keeps_part == 1:
                consumer.confirm_some(random)
        if world.is_busy:
            world.clock.after(int(random.expovariate(1) * CONFIRM_US) + 1, self._confirm)

    def _tune(self) -> None:
        world, random = self._world, self._random
        if not world.is_busy:
            return
        world.clock.after(int(random.expovariate(1) * TUNE_US) + 1, self._tune)
        consumer = random.choice(self._consumers)
        part = random.choice((*PARTS, "")) if self._first[consumer].part else ""
        tuning = Tuning(random.choice(PRIORITIES), random.choice(LIMITS), part)
        world.say(f"{consumer.name} wants {tuning}")
        consumer.tune(tuning)

    def rest(self) -> None:
        """Let all messages have a consumer again."""
        for consumer, tuning in self._first.items():
            consumer.tune(tuning)
