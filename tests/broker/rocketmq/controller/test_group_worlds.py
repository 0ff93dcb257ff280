"""Replica groups that a controller leads, in worlds made from a seed: nothing that was confirmed is ever lost.

Brokers are killed, started again and cut off, connections carry their bytes piece by piece or break, and the controller
elects whenever it may. An old master that was cut off continues to write until it learns of the new one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from broker.rocketmq.controller.decisions import Decisions
from broker.rocketmq.controller.groups import ApplyId, Groups, Replica
from broker.rocketmq.controller.liveness import Live
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.epochs import EpochBook, last_epoch
from formats.rocketmq.remoting.bodies.controllers import SyncStateSet
from formats.rocketmq.remoting.headers import replicating as headers
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.replication.streams.ends import Clock
from tests.broker.rocketmq.replication.streams.epoch_stream_rig import Broker
from tests.broker.rocketmq.store.copying_rig import log_bytes, open_at
from tests.families import sweep

NAME = "group"
SEEDS = 60
STEPS = 250


@dataclass
class Link:
    """A connection between a slave and its master, with the bytes that are under way."""

    here: ReplicationSession
    there: ReplicationSession
    slave: int
    master: int
    to_slave: bytes = b""
    to_master: bytes = b""

    def carry(self, down: bool, most: int) -> None:
        if down:
            self.to_slave += bytes(self.here.take_output())
            part = memoryview(self.to_slave)[:most]
            self.to_slave = self.to_slave[self.there.receive(part) :]
        else:
            self.to_master += bytes(self.there.take_output())
            part = memoryview(self.to_master)[:most]
            self.to_master = self.to_master[self.here.receive(part) :]

    @property
    def is_over(self) -> bool:
        return self.here.finished or self.there.finished


@dataclass
class World:
    """Three brokers of one name, and a controller that never fails. `truth` is the longest log that was confirmed."""

    seed: int
    clock: Clock = field(default_factory=Clock)
    groups: Groups = field(default_factory=Groups)
    folders: dict[int, MemoryFolder] = field(default_factory=dict)
    brokers: dict[int, Broker] = field(default_factory=dict)
    reachable: set[int] = field(default_factory=set)
    # The master's epoch as each master knows it.
    leading: dict[int, int] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    truth: bytes = b""
    elections: int = 0
    epoch_files: dict[int, bytes] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.decisions = Decisions(self.groups, self._live)
        for each in (1, 2, 3):
            self.groups.apply(ApplyId("c", NAME, each, Replica(f"10.0.0.{each}:1", str(each))))
            self.folders[each] = MemoryFolder(chunk=64)
            self._start(each, b"")
        self._elect(1)
        # Logs whose first epochs differ have nothing in common, and are left to people, as by the original.
        self.put()
        self.settle()

    def _live(self, name: str, each: int) -> Live | None:
        if each not in self.reachable:
            return None
        broker = self.brokers[each]
        return Live(0, 0, last_epoch(broker.epochs.entries), broker.store.log.end, 0, None)

    def _start(self, each: int, epochs: bytes) -> None:
        store = open_at(self.folders[each])
        self.brokers[each] = Broker(each, self.clock, store=store)
        self.brokers[each].options.behind_ms_max = 6_000
        self.epoch_files[each] = epochs

        def write(data: bytes) -> None:
            self.epoch_files[each] = data

        self.brokers[each].epochs = EpochBook(epochs, write)
        self.reachable.add(each)

    # -- what may happen

    def put(self) -> None:
        if self.leading:
            each = self.chance.choice(sorted(self.leading))
            self._count += 1
            self.brokers[each].put(self._count)

    def carry(self) -> None:
        for link in self.chance.sample(self.links, len(self.links)):
            link.carry(self.chance.random() < 0.5, self.chance.choice((5, 100, 10_000)))
            if link.is_over or self.chance.random() < 0.02:
                self._break(link)

    def _break(self, link: Link) -> None:
        for session in (link.here, link.there):
            session.give_up("broken")
            session.end()
        self.links.remove(link)

    def connect(self) -> None:
        group = self.groups.by_name[NAME]
        master = group.master
        # A broker that is cut off stays with whom it has.
        if master is None or master not in self.leading or master not in self.reachable:
            return
        for each in sorted(self.reachable - set(self.leading)):
            if all(link.slave != each for link in self.links):
                here, _ = self.brokers[master].accept(each)
                there, _ = self.brokers[each].follow()
                self.links.append(Link(here, there, each, master))

    def agree(self) -> None:
        """Bring proposals to the controller, and its set to the masters; the answer may be lost on the way."""
        for each in sorted(set(self.leading) & self.reachable):
            broker, group = self.brokers[each], self.groups.by_name[NAME]
            for members, epoch in broker.proposals:
                asked = headers.AlterSyncStateSetRequest(NAME, each, self.leading[each])
                decision = self.decisions.alter_members(asked, SyncStateSet(sorted(members), epoch))
                if decision.command is not None:
                    self.groups.apply(decision.command)
            broker.proposals.clear()
            if self.chance.random() < 0.7 and group.master == each and group.master_epoch == self.leading[each]:
                broker.in_sync.appoint(group.members, group.members_epoch)
                broker.in_sync.answered(is_refused=True)
            else:
                broker.in_sync.answered()

    def kill(self) -> None:
        each = self.chance.choice((1, 2, 3))
        for link in [link for link in self.links if each in (link.slave, link.master)]:
            self._break(link)
        self.leading.pop(each, None)
        self.reachable.discard(each)
        self.folders[each] = self.folders[each].after_crash()
        self._start(each, self.epoch_files[each])
        if self.chance.random() < 0.7:
            self.reachable.discard(each)

    def cut_off(self) -> None:
        self.reachable.discard(self.chance.choice((1, 2, 3)))

    def heal(self) -> None:
        self.reachable.update((1, 2, 3))
        # Old masters learn of it, and so do their followers.
        group = self.groups.by_name[NAME]
        for each in sorted(self.leading):
            if group.master != each or group.master_epoch != self.leading[each]:
                del self.leading[each]
        for link in list(self.links):
            if link.master != group.master:
                self._break(link)

    def elect(self) -> None:
        group = self.groups.by_name[NAME]
        if group.master is None and self.reachable:
            self._elect(self.chance.choice(sorted(self.reachable)))
        elif self.decisions.without_master():
            self._elect(-1)
        elif group.master is not None and group.master not in self.leading:
            # Killed, and back before anyone noticed: it leads again, in an epoch of its own.
            self.reachable.discard(group.master)
            self._elect(-1)

    def _elect(self, broker_id: int) -> None:
        decision = self.decisions.elect(headers.ElectMasterRequest("c", NAME, broker_id, False))
        if decision.command is None:
            return
        self.groups.apply(decision.command)
        group = self.groups.by_name[NAME]
        if group.master is None:
            return
        self.elections += 1
        for link in [link for link in self.links if link.slave in self.reachable or link.slave == group.master]:
            self._break(link)
        broker = self.brokers[group.master]
        broker.proposals.clear()
        broker.lead(group.master_epoch)
        broker.in_sync.appoint(frozenset({group.master}), group.members_epoch)
        self.leading[group.master] = group.master_epoch
        assert log_bytes(broker.store)[: len(self.truth)] == self.truth, "the new master lacks what was confirmed"

    def step(self) -> None:
        chances = {"put": 10, "carry": 30, "connect": 5, "agree": 8, "elect": 8, "kill": 2, "cut_off": 2, "heal": 3}
        (what,) = self.chance.choices(list(chances), list(chances.values()))
        getattr(self, what)()
        self.clock.ms += self.chance.choice((1, 100, 2000))
        for each in sorted(self.leading):
            self.brokers[each].copies.tick()
            self.brokers[each].copies.end_step()
        self.check()

    def check(self) -> None:
        for each, broker in self.brokers.items():
            known = broker.in_sync.confirmed if each in self.leading else broker.confirmed
            confirmed = log_bytes(broker.store)[: max(known, 0)]
            least = min(len(confirmed), len(self.truth))
            assert confirmed[:least] == self.truth[:least], f"broker {each} confirmed what another one did not"
            if len(confirmed) > len(self.truth):
                self.truth = confirmed

    def settle(self) -> None:
        """Let everything get well: then all logs are the same."""
        self.heal()
        for _ in range(60):
            self.elect()
            self.heal()
            self.connect()
            for link in list(self.links):
                link.carry(True, 1 << 30)
                link.carry(False, 1 << 30)
                if link.is_over:
                    self._break(link)
            self.agree()
            self.check()


@pytest.mark.parametrize("seed", sweep(range(SEEDS), 10))
def test_nothing_confirmed_is_lost(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    logs = {log_bytes(broker.store) for broker in world.brokers.values()}
    assert len(logs) == 1
    assert logs.pop()[: len(world.truth)] == world.truth


def test_worlds_have_elections_and_cuts() -> None:
    elections = cuts = truths = 0
    for seed in range(20):
        world = World(seed)
        for _ in range(STEPS):
            before = [(broker, len(broker.cuts)) for broker in world.brokers.values()]
            world.step()
            cuts += sum(len(broker.cuts) - had for broker, had in before)
        elections += world.elections
        truths += len(world.truth) > 0
    assert elections > 60
    assert cuts > 5
    assert truths > 15
