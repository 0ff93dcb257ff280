"""Faults with a schedule and random numbers of their own: worlds without their features are as they were before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING

from broker.bmq.consensus.election_table import ElectionRole
from broker.bmq.core.messages import Full
from broker.bmq.node.node import Node
from tests.simulator.actors.clients import Consumer, Producer
from tests.simulator.faults.moments import cut_from_brokers, roll_over, roll_over_all
from tests.simulator.faults.not_ready import NotReady
from tests.simulator.faults.rotting import rotted_at
from tests.simulator.machines.disk import CAPACITY
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.worlds.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["VACANT", "OwnFaults"]

SECOND_US = 1_000_000
VACANT = "bmq://priority/v"  # a queue to which nobody posts
VACANT_US_MAX = 60_000
OPENS_US_MAX = 10_000
LATE_US = (0, 0, 100_000, 700_000)  # of answers to posts that a broker is not ready for
CHANGES = 12  # of apps, while a disk is full
CHANGE_US = 20_000
BURST_MAX = 20  # posts before a rollover that is made in slices
AMID_US_MAX = 30_000  # before it, and from its end to that of its process


class OwnFaults:
    """One world's."""

    def __init__(self, world: World) -> None:
        self._world = world
        kinds: dict[Feature, tuple[Callable[[Random], None], int]] = {
            Feature.FILES: (self.run_out_of_files, 2 * SECOND_US),
            Feature.TTL: (self.set_clock, SECOND_US),
            Feature.WHOLE_QUEUES: (self.trouble_queues, SECOND_US),
            Feature.VACANT: (self.remove_vacant, SECOND_US // 3),
            Feature.SLICES: (self.act_amid_rollover, SECOND_US),
        }
        if world.is_cluster:
            kinds[Feature.ROTTING] = (self.rot_running, SECOND_US)
            kinds[Feature.NOT_READY] = (self.refuse_posts, SECOND_US // 3)
            kinds[Feature.FULL_LEDGERS] = (self.fill_leader, SECOND_US // 2)
            kinds[Feature.LAGGING] = (self.roll_over_while_healing, SECOND_US // 2)
            kinds[Feature.CONTESTS] = (self.contest_election, 6 * SECOND_US)
        else:
            kinds[Feature.APPS] = (self.fill_while_apps_change, SECOND_US)
        self._kinds = [
            (kind, interval_us, own_random(feature, world.seed))
            for feature, (kind, interval_us) in kinds.items()
            if feature in world.features
        ]

    def begin(self) -> None:
        """Let each happen from time to time, until the faults end."""
        for kind, interval_us, random in self._kinds:
            self._later(kind, interval_us, random)

    def _later(self, kind: Callable[[Random], None], interval_us: int, random: Random) -> None:
        def happen() -> None:
            if self._world.is_busy:
                with self._world.chances.at(kind.__name__, random) as is_taken:
                    if is_taken:
                        self._world.say(f"fault: {kind.__name__.replace('_', ' ')}")
                        kind(random)
                self._later(kind, interval_us, random)

        self._world.clock.after(int(random.expovariate(1) * interval_us) + 1, happen)

    def run_out_of_files(self, random: Random) -> None:
        """A process can open no file for a while, nor read its folder, or only the first files of a set."""
        host = random.choice(self._world.hosts)
        directory = host.directory
        if host.node is None:
            return
        directory.opens_left = random.choice((0, 0, 1, 2, 3))
        self._world.records.runs_short()

        def close_some() -> None:
            directory.opens_left = CAPACITY
            self._world.records.is_short = any(each.directory.free < 1 << 39 for each in self._world.hosts)

        self._world.clock.after(random.randrange(3 * SECOND_US), close_some)

    def trouble_queues(self, random: Random) -> None:
        """An operator empties one app of a queue, or a primary rolls over while it is cut off from all others."""
        world = self._world
        if not world.is_cluster or random.random() < 0.7:
            uri = random.choice(sorted(world.records.wants))[0]
            world.operator.purge(uri, random.choice(world.apps[uri]))
            return
        apart = [host for host in world.hosts if any(world.leads(host, uri) for uri in world.promises if host.node)]
        names = {host.name for host in world.hosts}
        pairs = {pair for host in apart[:1] for pair in permutations(names, 2) if host.name in pair}
        world.network.blocked |= pairs
        world.clock.after(random.randrange(1, SECOND_US), lambda: roll_over_all(world))
        world.clock.after(random.randrange(SECOND_US, 4 * SECOND_US), lambda: world.network.heal(pairs))

    def set_clock(self, random: Random) -> None:
        """Set a wall clock, by more than any message's time to live."""
        random.choice(self._world.hosts).clock.set_wall(random.choice((-1, 1)) * random.randrange(100_000))

    def rot_running(self, random: Random) -> None:
        """A bit of a payload rots under a running process: never at more than a minority of the disks."""
        hosts = self._world.hosts
        host: Host = random.choice(hosts)
        damaged = sum(each.is_damaged for each in hosts if each is not host)
        is_alone = damaged < (len(hosts) - 1) // 2 and not self._world.faults.must_wait
        if host.node is not None and not host.is_damaged and is_alone:
            host.rot_running(random)
            for guid in rotted_at(host.node, *host.disk.running_rot[-1][:2]) if host.is_rotten else ():
                self._world.records.posts[guid].rotted = True

    def fill_leader(self, random: Random) -> None:
        """A leader's disk has no room for what a queue's assignment appends to the ledger, and soon has room again."""
        world = self._world
        for host in world.hosts:
            if host.member is not None and host.member.election.role is ElectionRole.LEADER:
                host.fill_disk(random.randrange(200))
                world.clock.after(random.randrange(1, SECOND_US // 4), host.free_disk)
                for asked in random.sample(world.hosts, 2):
                    world.ask_place(asked, f"bmq://priority/l{random.randrange(40)}")

    def fill_while_apps_change(self, random: Random) -> None:
        """A node's disk has no room, and an operator changes the apps of its queues until that is refused, too."""
        (host,) = self._world.hosts
        host.fill_disk(random.randrange(200))
        for number in range(CHANGES):
            self._world.clock.after(number * CHANGE_US + 1, self._world.operator.change_apps)
        self._world.clock.after(CHANGES * CHANGE_US, host.free_disk)

    def refuse_posts(self, random: Random) -> None:
        """The brokers that a producer's broker is linked to are not ready for posts for a while."""
        brokers = [client.host for client in self._world.clients if isinstance(client, Producer) and client.link]
        broker = random.choice(brokers or [None])
        refusals = []
        for end in broker.broker_ends() if broker is not None else ():
            if end.not_ready is None:
                end.not_ready = NotReady(random.choice(LATE_US))
                refusals.append(end.not_ready)

        def disarm() -> None:
            for each in refusals:
                each.is_armed = False

        self._world.clock.after(random.randrange(1, SECOND_US // 2), disarm)

    def remove_vacant(self, random: Random) -> None:
        """Clients leave a queue, and an operator has it removed at about the moment in which they open it again."""
        world = self._world
        closed_us = random.randrange(1, VACANT_US_MAX)
        for client in world.clients:
            if isinstance(client, Consumer) and (VACANT, "") in client.reads:
                client.closed_us = closed_us + random.randrange(OPENS_US_MAX)
                client.close_and_open()
        for _ in range(4):
            world.clock.after(closed_us + random.randrange(OPENS_US_MAX), self._remove_vacant)

    def _remove_vacant(self) -> None:
        for host in self._world.hosts:
            if host.node is not None:
                host.step(partial(_take_away, host.node))

    def roll_over_while_healing(self, random: Random) -> None:
        """A primary rolls over while it heals a replica, which had lost its links, and missed what was posted then."""
        world = self._world
        host = random.choice(world.hosts)
        pairs = {pair for pair in permutations([each.name for each in world.hosts], 2) if host.name in pair}
        cut_from_brokers(world, host)
        world.network.blocked |= pairs
        world.clock.after(random.randrange(SECOND_US // 2), lambda: world.network.heal(pairs))
        world.trap(3 * SECOND_US, _heals, _roll_over, is_over=lambda: world.faults.must_wait)

    def act_amid_rollover(self, random: Random) -> None:
        """Much happens between two slices of a rollover, and its process dies soon after: it must be in the new files.

        Consumers go on in any case. An operator may change apps, or empty a queue of a single node.
        """
        world = self._world
        for client in world.clients:
            if isinstance(client, Producer) and client.opened:
                client.post(random.choice(sorted(client.opened)), random.randrange(BURST_MAX))
        amid: list[Callable[[], None]] = [lambda: None]
        if Feature.APPS in world.features:
            amid.append(world.operator.change_apps)
        if Feature.PURGE in world.features and not world.is_cluster:
            # In a cluster the purge is held back: no journal says yet which posts it refuses.
            amid.append(lambda: world.operator.purge(random.choice(sorted(world.promises))))
        act = random.choice(amid)

        def changed(host: Host) -> None:
            world.clock.after(random.randrange(AMID_US_MAX), partial(self._kill, host, random))

        def rolling(host: Host) -> None:
            act()
            world.trap(SECOND_US, lambda other: other is host and not _rolls(host), changed, is_over=is_over)

        def is_over() -> bool:
            return world.faults.must_wait

        world.trap(SECOND_US, _rolls, rolling, is_over=is_over)
        world.clock.after(random.randrange(AMID_US_MAX), partial(roll_over_all, world))

    def _kill(self, host: Host, random: Random) -> None:
        world = self._world
        if world.is_busy and host.node is not None and not world.faults.must_wait:
            host.die(Death.KILL)
            world.clock.after(random.randrange(1, SECOND_US), lambda: world.revive(host))

    def contest_election(self, random: Random) -> None:
        """Cut off all nodes from each other for a while, after which each stands for election as soon as it may."""
        world = self._world
        pairs = set(permutations([host.name for host in world.hosts], 2))
        world.network.blocked |= pairs
        for host in world.hosts:
            host.is_hasty = True

        def end_haste() -> None:
            for host in world.hosts:
                host.is_hasty = False

        apart_us = random.randrange(SECOND_US // 2, 3 * SECOND_US)
        world.clock.after(apart_us, lambda: world.network.heal(pairs))
        world.clock.after(apart_us + 2 * SECOND_US, end_haste)


def _take_away(node: Node) -> None:
    """An operator has the vacant queue removed, if this node is its primary and nobody has it open."""
    queue = node.queues.get(VACANT)
    if queue is not None and queue.is_root and queue.is_idle:
        with suppress(Full):
            node.role.take_away(queue)


def _rolls(host: Host) -> bool:
    partitions = host.node.partitions.values() if host.node is not None else ()
    return any(partition.records.rolling is not None for partition in partitions)


def _heals(host: Host) -> bool:
    partitions = host.member.partitions.values() if host.member is not None else ()
    return any(each.stored.active and each.stream is not None and each.stream.heals for each in partitions)


def _roll_over(host: Host) -> None:
    if host.node is not None:
        host.step(partial(roll_over, host.node))
