"""Clients that use more of the protocol than others: two apps under one queue id, many confirms in one event, and
parameters that change in mid-stream, of all consumers or of the ones at their limits. They close queues, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulator.actors.clients import PARTS, Consumer, Tuning
from tests.simulator.faults.moments import cut_from_brokers
from tests.simulator.worlds.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["WholeClients"]

CONFIRM_US = {Feature.WHOLE_CLIENTS: 60_000, Feature.WHOLE_QUEUES: 2_500_000}
TUNE_US = 250_000
PRIORITIES = {Feature.WHOLE_CLIENTS: (0, 0, 1, 2), Feature.WHOLE_QUEUES: (0, 1, 1)}
KEEPS_PART_MIN = 0.5
LIMITS = {Feature.WHOLE_CLIENTS: (1, 2, 5, 1000), Feature.WHOLE_QUEUES: (10, 12, 20, 1000)}
BYTES = (700, 3000, 1 << 20)
REOPEN_US = 500_000
CUT_PART = 0.4
CUT_US = 5000


class WholeClients:
    """One world's, with a schedule and a generator of its own."""

    def __init__(self, world: World, feature: Feature) -> None:
        self._world = world
        self._random = own_random(feature, world.seed)
        self._feature = feature
        self._has_bytes = feature is Feature.WHOLE_QUEUES
        consumers = [client for client in world.clients if isinstance(client, Consumer)]
        # Consumers that keep nearly all that they get reach their limits.
        self._consumers = [each for each in consumers if not self._has_bytes or each.keeps_part > KEEPS_PART_MIN]
        self._first: dict[Consumer, Tuning] = {}  # what each wanted before

    def begin(self) -> None:
        """Confirm in large events, and change parameters, until the faults end."""
        self._first = {consumer: consumer.tuning for consumer in self._consumers}
        self._confirm()
        self._tune()
        if self._has_bytes:
            self._reopen()

    def _confirm(self) -> None:
        world, random = self._world, self._random
        for consumer in self._consumers:
            if consumer.keeps_part > KEEPS_PART_MIN:
                consumer.confirm_some(random)
        if world.is_busy:
            world.clock.after(int(random.expovariate(1) * CONFIRM_US[self._feature]) + 1, self._confirm)

    def _tune(self) -> None:
        world, random = self._world, self._random
        if not world.is_busy:
            return
        world.clock.after(int(random.expovariate(1) * TUNE_US) + 1, self._tune)
        consumer = random.choice(self._consumers)
        part = random.choice((*PARTS, "")) if self._first[consumer].part else ""
        tuning = Tuning(random.choice(PRIORITIES[self._feature]), random.choice(LIMITS[self._feature]), part)
        if self._has_bytes:
            tuning = tuning._replace(bytes_max=random.choice(BYTES))
        world.say(f"{consumer.name} wants {tuning}")
        consumer.tune(tuning)

    def _reopen(self) -> None:
        """A client closes its queues, and its broker may lose what it has sent others of that, or before."""
        world, random = self._world, self._random
        if not world.is_busy:
            return
        world.clock.after(int(random.expovariate(1) * REOPEN_US) + 1, self._reopen)
        client = random.choice(world.clients)
        # A consumer that closes a queue must not count as one that has died. A broker forgets refused posts of a
        # producer that closes its queue, and does not hold back what the producer repeats after them.
        leaves_out = Feature.ATTEMPTS if isinstance(client, Consumer) else Feature.NOT_READY
        if client.link is None or client.host is None or leaves_out in world.features:
            return
        world.say(f"{client.name} closes its queues")
        client.close_and_open()
        if random.random() < CUT_PART:
            world.clock.after(random.randrange(CUT_US), partial(cut_from_brokers, world, client.host))

    def rest(self) -> None:
        """Let all messages have a consumer again."""
        for consumer, tuning in self._first.items():
            consumer.tune(tuning)
