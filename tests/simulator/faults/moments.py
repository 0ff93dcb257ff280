"""Faults in the midst of rollovers, and while confirms are on their way: what worlds seldom come to by themselves.

They have a schedule and a generator of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.bmq.core.messages import Full
from broker.bmq.node.node import Node
from broker.bmq.replication.partition_table import State
from tests.simulator.faults.harsh import waits
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.worlds.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["Moments", "cut_from_brokers", "roll_over", "roll_over_all"]

INTERVAL_US = 700_000
SPLIT_US = 300_000  # the time for which most data arrive in pieces
SPLIT_PART = 0.9
TRAP_US = 2_000_000
REVIVE_US = (20_000, 1_000_000)


class Moments:
    """One world's; `brokers` are all its brokers, nodes and proxies."""

    def __init__(self, world: World, brokers: list[Host]) -> None:
        self._world = world
        self._brokers = brokers
        self._random = own_random(Feature.MOMENTS, world.seed)
        self._kinds: list[Callable[[], None]] = [self.roll_over]
        if Feature.FSYNC in world.features:
            self._kinds.append(self.lose_power_in_rollover)
        if world.is_cluster:
            self._kinds += [
                self.kill_amid_rollover,
                self.kill_primary_amid_rollover,
                self.fill_new_primary,
                self.lose_confirms,
            ]
            if Feature.PURGE in world.features:
                self._kinds.append(self.purge_what_waits)

    def next(self) -> None:
        """One of them, and the next after a while; none while a disk is being healed that has lost something."""
        world = self._world
        if not world.is_busy:
            return
        with world.chances.at("moments", self._random) as is_taken:
            world.clock.after(int(self._random.expovariate(1) * INTERVAL_US) + 1, self.next)
            if is_taken and not world.faults.must_wait:
                kind = self._random.choice(self._kinds)
                world.say(f"moment: {kind.__name__.replace('_', ' ')}")
                kind()

    def _trap(self, brokers: list[Host], is_time: Callable[[Host], bool], action: Callable[[Host], None]) -> None:
        world = self._world
        world.trap(
            TRAP_US, lambda host: host in brokers and is_time(host), action, is_over=lambda: world.faults.must_wait
        )

    def _kill(self, host: Host, how: Death = Death.KILL) -> None:
        if host.node is not None:
            host.die(how)
            self._world.clock.after(self._random.randrange(*REVIVE_US), lambda: self._world.revive(host))

    # -- rollovers

    def roll_over(self) -> None:
        """An operator has all partitions roll over; what that says arrives in pieces."""
        world = self._world
        world.network.split_part = SPLIT_PART
        world.clock.after(SPLIT_US, world.network.splits_seldom)
        roll_over_all(world)

    def lose_power_in_rollover(self) -> None:
        """Power fails at one of the flushes that follow new files."""
        self._random.choice(self._world.hosts).rollover_flushes_left = self._random.randrange(10)
        self.roll_over()

    def kill_amid_rollover(self) -> None:
        """A replica has heard of a rollover, and not of all, when its process is killed, or its machine loses power."""
        loses_power = Feature.FSYNC in self._world.features and self._random.random() < 0.5
        how = Death.POWER if loses_power else Death.KILL
        self._trap(self._world.hosts, _is_rolling, lambda host: self._kill(host, how))
        self.roll_over()

    def kill_primary_amid_rollover(self) -> None:
        """A replica never hears the rest of a rollover, as its primary is killed, and what that has sent is lost."""
        self._trap(self._world.hosts, _is_rolling, self._kill_primary)
        self.roll_over()

    def _kill_primary(self, host: Host) -> None:
        for partition in host.member.partitions.values() if host.member is not None else ():
            if partition.copy.rollovers.is_rolling and partition.primary_id is not None:
                primary = self._world.hosts[partition.primary_id]
                cut_from_brokers(self._world, primary)
                self._kill(primary)

    # -- a primary that is about to serve

    def fill_new_primary(self) -> None:
        """A primary is gone with posts that wait for copies, and comes back when the next one has no room to begin."""
        self._trap(self._world.hosts, waits, self._fill_next)

    def _fill_next(self, host: Host) -> None:
        self._trap([other for other in self._world.hosts if other is not host], _is_next, self._fill)
        cut_from_brokers(self._world, host)
        self._kill(host)

    def _fill(self, host: Host) -> None:
        host.fill_disk(0)
        self._world.clock.after(self._random.randrange(500_000, 2_500_000), host.free_disk)

    # -- messages

    def lose_confirms(self) -> None:
        """Lose the confirms that a broker has just sent for its clients."""
        passage, clock = self._world.passage, self._world.clock
        self._trap(
            self._brokers,
            lambda host: passage.last_confirm_us(host) == clock.us,
            partial(cut_from_brokers, self._world),
        )

    def purge_what_waits(self) -> None:
        """A queue is emptied while posts wait for their copies; the clients do not hear what became of these."""
        self._trap(self._world.hosts, waits, self._purge)

    def _purge(self, host: Host) -> None:
        waiting = [uri for uri, queue in host.node.queues.items() if queue.awaiting] if host.node is not None else []
        for uri in waiting:
            if uri in self._world.promises:
                self._world.operator.purge(uri)
        for link in list(self._world.network.links):
            if host.name in {end.machine for end in link.ends}:
                link.cut("the connection was reset")


def _is_rolling(host: Host) -> bool:
    return host.member is not None and any(each.copy.rollovers.is_rolling for each in host.member.partitions.values())


def _is_next(host: Host) -> bool:
    partitions = host.member.partitions.values() if host.member is not None else ()
    return any(partition.state is State.PRIMARY_HEALING_STG1 for partition in partitions)


def cut_from_brokers(world: World, host: Host) -> None:
    """All links from a broker to others break, and what is on its way is lost."""
    names = {broker.name for broker in world.brokers}
    for link in list(world.network.links):
        machines = {end.machine for end in link.ends}
        if host.name in machines and machines <= names:
            link.cut("the connection was reset")


def roll_over_all(world: World) -> None:
    """An operator has each primary begin new files."""
    for host in world.hosts:
        if host.node is not None:
            host.step(partial(roll_over, host.node))


def roll_over(node: Node) -> None:
    """An operator has a node begin new files of its partitions."""
    for partition in node.partitions.values():
        if partition.active:
            try:
                partition.roll_over()
            except Full:
                """It would not help, or there is no disk."""
