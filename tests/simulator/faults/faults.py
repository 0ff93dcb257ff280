"""Faults and their times: each seed has its own kinds of faults with their probabilities, and none after the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulator.actors.clients import Consumer
from tests.simulator.faults.harsh import HarshFaults
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.worlds.features import Feature

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["Faults"]

SECOND_US = 1_000_000
CLOCK_OFF_S_MAX = 400


class Faults:
    """The schedule of one world's faults. At least one kind is in force, seldom all."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random = world.random
        kinds: list[Callable[[], None]] = [
            self.kill,
            self.kill_in_call,
            self.tear,
            self.stop,
            self.lose_power,
            self.rot,
            self.fill_disk,
            self.slow_disk,
            self.pause,
            self.cut_link,
            self.partition,
            self.client_leaves,
            self.jump_clock,
            self.slow_network,
        ]
        self._recovering = False  # a node has lost what it had written: until it has that again, nothing else happens
        if world.is_cluster:
            kinds.remove(self.lose_power)
            kinds.remove(self.rot)
            kinds += [self.lose_power_alone, self.lose_disk_alone, self.rot_anywhere]
        if Feature.FSYNC in world.features:
            kinds += [self.lose_power, self.lose_power_in_step, self.lose_power_everywhere]
        self._harsh = HarshFaults(world)
        chosen = [kind for kind in kinds if random.random() < 0.5]
        self._kinds = (chosen or [self.kill]) + self._harsh.kinds
        self.interval_us = random.choice((200_000, 600_000, 2 * SECOND_US))

    def add(self, *kinds: Callable[[], None]) -> None:
        """Add kinds of faults, each with the same probability as those of this world."""
        self._kinds += [kind for kind in kinds if self._random.random() < 0.5]

    @property
    def must_wait(self) -> bool:
        """Return whether a node has yet to get again what it has lost."""
        if self._recovering and self._world.is_whole():
            self._recovering = False
        return self._recovering

    def next(self) -> None:
        """One fault, and the next after a while."""
        world = self._world
        if not world.is_busy:
            return
        with world.chances.at("faults", self._random) as is_taken:
            world.clock.after(int(self._random.expovariate(1) * self.interval_us) + 1, self.next)
            if self.must_wait or not is_taken:
                return
            kind = self._random.choice(self._kinds)
            world.say(f"fault: {kind.__name__.replace('_', ' ')}")
            kind()

    def _host(self) -> Host:
        return self._random.choice(self._world.hosts)

    def _restart(self, host: Host) -> None:
        """A dead process comes back after a while."""
        self._world.clock.after(self._random.randrange(10_000, SECOND_US), lambda: self._world.revive(host))

    def _end(self, host: Host, how: Death) -> None:
        if host.node is not None:
            host.die(how)
            self._restart(host)

    # -- processes

    def kill(self) -> None:
        self._end(self._host(), Death.KILL)

    def stop(self) -> None:
        host = self._host()
        if host.node is not None:
            self._world.say(f"{host.name} is asked to stop")
            host.retire(lambda: self._restart(host))

    def lose_power(self) -> None:
        self._end(self._host(), Death.POWER)

    def lose_power_in_step(self) -> None:
        """The next step that writes something is the last, and what it has written is not synced."""
        self._host().power_fails_next = True

    def lose_power_everywhere(self) -> None:
        for host in self._world.hosts:
            self._end(host, Death.POWER)

    def lose_power_alone(self) -> None:
        """A machine loses what was never flushed. As nodes do not flush, a quorum does not outlive two of that."""
        if self._world.is_whole():
            self._recovering = True
            self._end(self._host(), Death.POWER)

    def lose_disk_alone(self) -> None:
        """A node restarts on an empty disk."""
        if self._world.is_whole():
            self._recovering = True
            host = self._host()
            self._end(host, Death.KILL)
            host.disk.wipe()

    def kill_in_call(self) -> None:
        """One of the next calls to the disk is the last."""
        self._host().directory.steps_left = self._random.randrange(40)

    def tear(self) -> None:
        """The next step that writes something is cut short."""
        self._host().tear_next = True

    def pause(self) -> None:
        self._host().pause(self._random.randrange(10_000, 4 * SECOND_US))

    def jump_clock(self) -> None:
        """Set a wall clock, by less than the time after which producers give a message up."""
        self._host().clock.set_wall(self._random.randrange(-CLOCK_OFF_S_MAX, CLOCK_OFF_S_MAX))

    # -- disks

    def rot(self) -> None:
        """A process dies, and while it is gone a bit of its payloads rots."""
        host = self._host()
        if host.node is not None:
            host.die(Death.KILL)
            host.disk.rot()
            self._restart(host)

    def rot_anywhere(self) -> None:
        """A process dies, and a bit of any of its files rots: never at more than a minority of the disks."""
        hosts = self._world.hosts
        host = self._host()
        damaged = sum(other.is_damaged for other in hosts if other is not host)
        if host.node is not None and not host.is_damaged and damaged < (len(hosts) - 1) // 2:
            host.die(Death.KILL)
            host.rot(self._random.choice(("journal", "data", "qlist", "csl")))
            self._restart(host)

    def fill_disk(self) -> None:
        host = self._host()
        host.fill_disk(self._random.randrange(4000))
        self._world.clock.after(self._random.randrange(2 * SECOND_US), host.free_disk)

    def slow_disk(self) -> None:
        host = self._host()
        host.slow_us = self._random.randrange(1000, 100_000)
        self._world.clock.after(self._random.randrange(3 * SECOND_US), host.fast_disk)

    # -- the network and who uses it

    def slow_network(self) -> None:
        network = self._world.network
        network.delay_us_max = self._random.choice((200, 2000, 50_000, 500_000))

    def cut_link(self) -> None:
        links = list(self._world.network.links)
        if links:
            self._random.choice(links).cut("the connection was reset")

    def partition(self) -> None:
        """Have nothing pass between two sets of machines, maybe in one direction only, for a while."""
        world = self._world
        machines = [*(host.name for host in world.hosts), *(client.name for client in world.clients)]
        some = {name for name in machines if self._random.random() < 0.4}
        pairs = {(one, other) for one in some for other in machines if other not in some}
        if self._random.random() < 0.6:
            pairs |= {(other, one) for one, other in pairs}
        world.network.blocked |= pairs
        world.clock.after(self._random.randrange(100_000, 6 * SECOND_US), lambda: world.network.heal(pairs))

    def client_leaves(self) -> None:
        """A client's process dies; consumers may be done with what they hold, and stay."""
        if not self._world.clients:
            return
        client = self._random.choice(self._world.clients)
        if isinstance(client, Consumer) and self._random.random() < 0.3:
            client.confirm_kept()
        else:
            client.leave(self._random.randrange(3 * SECOND_US))
