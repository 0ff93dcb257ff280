"""Faults that only worlds with the feature for them have; beside those of `faults`, which all worlds may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.bmq.consensus.election_table import ElectionRole
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.worlds.features import Feature

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["HarshFaults", "waits"]

SECOND_US = 1_000_000
# How long a trap waits for its moment.
TRAP_US = 3 * SECOND_US


class HarshFaults:
    """One world's; `kinds` are the faults that its features allow."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        by_feature: dict[Feature, list[Callable[[], None]]] = {
            Feature.TERMS: [self.keep_no_terms],
            Feature.DESCRIPTORS: [self.run_out_of_descriptors],
            Feature.HALF_OPEN: [self.halve_link],
            Feature.LEAPS: [self.leap],
            Feature.AIMED: [self.roll_over_and_die],
        }
        if Feature.FSYNC in world.features:
            by_feature[Feature.FLUSHES] = [self.lose_power_between_flushes, self.fail_flushes]
        if world.is_cluster:
            by_feature[Feature.TWINS] = [self.connect_again]
            by_feature[Feature.AIMED] += [
                self.kill_who_voted,
                self.kill_uncommitted_leader,
                self.kill_waiting_primary,
                self.cut_off_waiting_primary,
                self.pause_waiting_primary,
                self.kill_healing,
                self.kill_new_primary,
                self.slow_down_a_follower,
            ]
        self.kinds = [kind for feature, kinds in by_feature.items() if feature in world.features for kind in kinds]

    def _host(self) -> Host:
        return self._random.choice(self._world.hosts)

    def _later(self, us_max: int, action: Callable[[], None]) -> None:
        self._world.clock.after(self._random.randrange(us_max), action)

    # -- disks

    def lose_power_between_flushes(self) -> None:
        """One of the next flushes is the last, and is not done."""
        host = self._host()
        host.directory.flushes_left = self._random.randrange(8)

    def fail_flushes(self) -> None:
        """The disk fails to write what it is asked for, a few times."""
        host = self._host()
        host.fails_flushes = True
        host.directory.flushes_failing = self._random.randrange(1, 4)

    def keep_no_terms(self) -> None:
        host = self._host()
        host.keeps_terms_now = False
        self._later(3 * SECOND_US, host.keep_terms)

    # -- machines and links

    def leap(self) -> None:
        """Set a wall clock hours ahead or back."""
        self._host().clock.set_wall(self._random.choice((-1, 1)) * self._random.randrange(100_000))

    def run_out_of_descriptors(self) -> None:
        """Prevent connections to and from a machine for a while."""
        host = self._host()
        host.is_reachable = False
        self._later(4 * SECOND_US, host.be_reachable)

    def halve_link(self) -> None:
        """One end of a link hears that it is broken; a broker at the other hears nothing, and never will."""
        links = list(self._world.network.links)
        if links:
            self._random.choice(links).halve()

    def connect_again(self) -> None:
        """A node makes another connection to one that it is connected to."""
        one, other = self._random.sample(self._world.hosts, 2)
        if one.node is not None and other.node is not None:
            one.dial_again(other)

    # -- faults that wait for their moment

    def _trap(self, is_time: Callable[[Host], bool], action: Callable[[Host], None]) -> None:
        self._world.trap(TRAP_US, lambda host: None not in (host.node, host.member) and is_time(host), action)

    def _kill(self, host: Host) -> None:
        """A process is killed, and mostly back at once."""
        if host.node is None:
            return
        host.die(Death.KILL)
        self._later(self._random.choice((20_000, 20_000, SECOND_US)), lambda: self._world.revive(host))

    def _pause(self, host: Host) -> None:
        host.pause(self._random.randrange(200_000, 4 * SECOND_US))

    def _cut_off(self, host: Host) -> None:
        """Cut a machine off from all others, or all but one, in one direction or both, for a while."""
        others = [other.name for other in self._world.hosts if other is not host]
        if len(others) > 2 and self._random.random() < 0.5:
            others.pop(self._random.randrange(len(others)))
        ways = self._random.choice((1, 2, 3))
        pairs = {(host.name, other) for other in others if ways & 1}
        pairs |= {(other, host.name) for other in others if ways & 2}
        self._world.network.blocked |= pairs
        self._world.clock.after(self._random.randrange(300_000, 5 * SECOND_US), lambda: self._world.network.heal(pairs))

    def kill_who_voted(self) -> None:
        self._trap(
            lambda host: host.member is not None and host.member.election.role is ElectionRole.SUPPORTING, self._kill
        )

    def kill_uncommitted_leader(self) -> None:
        def is_time(host: Host) -> bool:
            assert host.member is not None
            assert host.node is not None
            return host.member.election.role is ElectionRole.LEADER and bool(host.node.ledger.uncommitted)

        self._trap(is_time, self._kill)

    def kill_waiting_primary(self) -> None:
        self._trap(waits, self._kill)

    def cut_off_waiting_primary(self) -> None:
        self._trap(waits, self._cut_off)

    def pause_waiting_primary(self) -> None:
        self._trap(waits, self._pause)

    def kill_healing(self) -> None:
        def is_time(host: Host) -> bool:
            assert host.member is not None
            return any("HEALING" in partition.state.name for partition in host.member.partitions.values())

        self._trap(is_time, self._kill)

    def kill_new_primary(self) -> None:
        was = {host: self._active(host) for host in self._world.hosts}

        def is_time(host: Host) -> bool:
            return self._active(host) > was[host]

        self._trap(is_time, self._kill)

    def _active(self, host: Host) -> int:
        """The newest lease that a node is the primary under."""
        partitions = host.node.partitions.values() if host.node is not None else ()
        return max((partition.primary_lease_id for partition in partitions if partition.active), default=0)

    def slow_down_a_follower(self) -> None:
        host = self._host()
        host.slow_us = self._random.randrange(20_000, 400_000)
        self._later(6 * SECOND_US, host.fast_disk)

    def roll_over_and_die(self) -> None:
        """The next rollover is cut short."""
        self._host().rollover_calls_left = self._random.randrange(24)


def waits(host: Host) -> bool:
    """Return whether posts wait for copies at a node."""
    return host.node is not None and any(queue.awaiting for queue in host.node.queues.values())
