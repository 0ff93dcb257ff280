"""Producers whose acks are lost until a disturbance is over: they repeat what brokers have removed in the meantime.

The worlds with it have queues that recognise a repetition for some seconds only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.actors.clients import Consumer, Producer
from tests.simulator.faults.moments import roll_over_all
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.worlds.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["LateAcks", "Repeats", "shorten_windows"]

WINDOWS_MS = (1000, 2000, 5000, 300_000)
SHORTENED = ("priority", "fanout", "eventual")
INTERVAL_US = 700_000
QUIET_US_MAX = 600_000  # before a disturbance
OVER_US_MAX = 1_500_000  # from its beginning until the producer repeats
LONG_US = 3_000_000  # a deduplication time for which no consumer stays away
REVIVE_US = (10_000, 600_000)
# Of `Repeats`.
CUT_PART = 0.5
CONNECTS_US = 50_000
GIVEN_UP_US = 600_000  # from the end of a deduplication time until posts are given up, and repeated
LAST_PART = 0.9
KILL_US = (5_000, 40_000)  # from the repetition


def shorten_windows(world: World) -> None:
    """Give some domains another deduplication time, and let the judge know each queue's."""
    random = own_random(Feature.LATE_ACKS, world.seed)
    for name in SHORTENED:
        config = world.domains[name] = replace(world.domains[name], deduplication_time_ms=random.choice(WINDOWS_MS))
        for uri in world.promises:
            if uri.startswith(f"bmq://{name}/"):
                world.records.windows_us[uri] = config.deduplication_time_ms * 1000


class LateAcks:
    """One world's, with a schedule and a generator of its own."""

    site = "late acks"
    feature = Feature.LATE_ACKS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = own_random(self.feature, world.seed)
        self._kinds: list[Callable[[str], None]] = [
            self.wait,
            self.linger,
            self.linger,
            self.roll_over,
            self.purge,
            self.kill,
        ]
        if Feature.FSYNC in world.features:
            self._kinds.append(self.lose_power)
        if world.is_cluster:
            self._kinds += [self.cut_off, self.hand_over]

    def next(self) -> None:
        """One producer loses its acks from now on; another one after a while."""
        world = self._world
        if world.is_busy:
            with world.chances.at(self.site, self._random) as is_taken:
                world.clock.after(int(self._random.expovariate(1) * INTERVAL_US) + 1, self.next)
                if is_taken:
                    self._lose_acks(self._random)

    def _lose_acks(self, random: Random) -> None:
        world = self._world
        producer = random.choice([client for client in world.clients if isinstance(client, Producer)])
        if producer.is_deaf or world.faults.must_wait:
            return
        producer.is_deaf = True
        world.chances.note(world.clock.us // 1000, f"{producer.name} gets no acks")
        kind, uri = random.choice(self._kinds), random.choice(producer.uris)
        quiet_us = random.randrange(QUIET_US_MAX)
        over_us = random.randrange(OVER_US_MAX)
        short = [each for each in producer.uris if self._lingers_us(each)]
        if kind == self.linger and short:
            uri = random.choice(short)
            over_us += self._lingers_us(uri)
            world.clock.after(quiet_us, lambda: producer.silent.add(uri))

        def disturb() -> None:
            if world.is_busy and not world.faults.must_wait:
                world.say(f"while {producer.name} gets no acks: {kind.__name__.replace('_', ' ')}")
                kind(uri)

        world.clock.after(quiet_us, disturb)
        world.clock.after(quiet_us + over_us, producer.repeat)

    def _primary(self, uri: str) -> Host:
        """The primary of a queue, or another node if none runs."""
        hosts = self._world.hosts
        queues = [(host, host.node.queues.get(uri)) for host in hosts if host.node is not None]
        roots = [host for host, queue in queues if queue is not None and queue.is_root]
        return self._random.choice(roots or hosts)

    def wait(self, uri: str) -> None:
        """Let the time alone pass."""

    def _lingers_us(self, uri: str) -> int:
        """Return more than two of a queue's deduplication times, if these are short."""
        window_us = self._world.records.windows_us.get(uri, LONG_US)
        return window_us * 9 // 4 if window_us < LONG_US else 0

    def linger(self, uri: str) -> None:
        """Messages wait for longer than their queue would remember them, as all consumers are away."""
        for client in self._world.clients:
            if isinstance(client, Consumer) and any(uri == read for read, _ in client.reads):
                client.leave(self._lingers_us(uri) + 1)

    def roll_over(self, uri: str) -> None:
        roll_over_all(self._world)

    def purge(self, uri: str) -> None:
        if uri in self._world.records.windows_us:
            self._world.operator.purge(uri)

    def kill(self, uri: str, how: Death = Death.KILL) -> None:
        host = self._primary(uri)
        if host.node is not None:
            host.die(how)
            self._revive_later(host)

    def lose_power(self, uri: str) -> None:
        self.kill(uri, Death.POWER)

    def hand_over(self, uri: str) -> None:
        host = self._primary(uri)
        if host.node is not None:
            host.retire(lambda: self._revive_later(host))

    def _revive_later(self, host: Host) -> None:
        self._world.clock.after(self._random.randrange(*REVIVE_US), lambda: self._world.revive(host))

    def cut_off(self, uri: str) -> None:
        """Cut the primary off from the others, which elect another one and heal the first afterwards."""
        self._cut(self._primary(uri), self._random.randrange(200_000, 3_000_000))

    def _cut(self, host: Host, us: int) -> None:
        world = self._world
        others = [other.name for other in world.hosts if other is not host]
        pairs = {pair for other in others for pair in ((host.name, other), (other, host.name))}
        world.network.blocked |= pairs
        world.clock.after(us, lambda: world.network.heal(pairs))


class Repeats(LateAcks):
    """Producers that repeat when it matters most: just before their queue forgets what it has removed, just before the
    primary that takes that for new is killed, or at one that has given up posts for lack of copies.
    """

    site = "repeats"
    feature = Feature.REPEATS

    def _lose_acks(self, random: Random) -> None:
        world = self._world
        producer = random.choice([client for client in world.clients if isinstance(client, Producer)])
        short = [uri for uri in producer.uris if self._lingers_us(uri)]
        if producer.is_deaf or producer.hosts or world.faults.must_wait or not short:
            return
        uri = random.choice(short)
        window_us = world.records.windows_us[uri]
        producer.is_deaf = True
        world.say(f"{producer.name} gets no acks of {uri} for as long as it remembers")
        primary = self._primary(uri)
        if world.is_cluster and primary.node is not None and random.random() < CUT_PART:
            producer.hosts = [primary]
            producer.leave(1)
            us = window_us + GIVEN_UP_US
            world.clock.after(CONNECTS_US, lambda: self._if_busy(lambda: self._cut(primary, us + GIVEN_UP_US)))
            world.clock.after(us, producer.repeat)
            world.clock.after(us + 2 * GIVEN_UP_US, producer.hosts.clear)
        elif random.random() < CUT_PART:
            world.clock.after(int(window_us * random.uniform(LAST_PART, 1)), producer.repeat)
        else:
            us = self._lingers_us(uri)
            world.clock.after(us, producer.repeat)
            world.clock.after(us + random.randrange(*KILL_US), lambda: self._if_busy(lambda: self.kill(uri)))

    def _if_busy(self, disturb: Callable[[], None]) -> None:
        """Disturb the world unless the faults are over, or a disk is being healed."""
        if self._world.is_busy and not self._world.faults.must_wait:
            disturb()
