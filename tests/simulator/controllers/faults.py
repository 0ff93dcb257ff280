"""The faults of a world of controllers and replica groups: what breaks when, and what becomes well again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from random import Random
from typing import Protocol

from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.replicating import AlterSyncStateSetRequest
from tests.broker.fakes import Crash
from tests.simulator.controllers.clients import Link
from tests.simulator.controllers.controllers import Controller
from tests.simulator.controllers.judge import Judge
from tests.simulator.controllers.machines import Machine
from tests.simulator.controllers.network import Network
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.process import CLUSTER

__all__ = ["Faults"]

REPAIR = 0.02
CHANCES = (0.01, 0.03, 0.06)
# With ASYNC_FLUSH, a machine that has lost power has this time to get again what it has lost.
MENDING_MS = 60_000
LITTLE_ROOM = 3_000
SLOW_MS = (200, 1_000, 4_000)
# Controllers that have not heard each other for this time all stand for election as soon as they do.
CONTEST_MS = (1_000, 4_000)
# In these parts of the steps of a world, a machine loses power for a moment only.
FLICKER_CHANCES = (0.0, 0.005, 0.01)
HALF_OPEN_MS = (2_000, 4_000, 8_000, 30_000)
EMPTY_CHANCE = 0.003
# From a time on, brokers that are not in sync may be elected in these worlds, and power may fail at any time.
UNCLEAN_CHANCE = 0.3
UNCLEAN_MS = (10_000, 40_000)
FORK_CHANCE = 0.01
LATE_CHANCE = 0.005
# In these worlds a leader loses one follower, and the others when that one is about to ask them for their votes.
ISOLATED_CHANCE = 0.4
ISOLATE_CHANCE = 0.01
ISOLATE_MS = (800, 2_500)
ISOLATED_MS = 2_500
FORK_MS = (3_000, 10_000)


class FaultyWorld(Protocol):
    """The surroundings of faults."""

    now_ms: int
    network: Network
    controllers: dict[str, Controller]
    machines: dict[str, Machine]

    def note(self, text: str) -> None: ...
    def judge_of(self, machine: Machine) -> Judge: ...
    def lose_power(self, machine: Machine, late_ms: int | None = None) -> None: ...
    def kill(self, who: Controller | Machine) -> None: ...
    def administer(self, controller: str) -> Link: ...
    def connect_from(self, machine: Machine, controller: str) -> Link: ...
    def permit_unclean(self) -> None: ...


class Faults:
    """All faults of a world. With SYNC_FLUSH power may fail anywhere at any time.

    With ASYNC_FLUSH one machine may lose power while all others are well, and nothing else happens until it has again
    what it has lost: what a group keeps of that is on the others only.
    """

    def __init__(
        self,
        world: FaultyWorld,
        random: Random,
        own_random: Random,
        unclean_random: Random,
        late_random: Random,
        isolating: Random,
    ) -> None:
        self._world = world
        self._random = random
        # A random of their own, so that worlds without these faults stay as they were.
        self._own_random = own_random
        self._flicker_chance = own_random.choice(FLICKER_CHANCES)
        self._chance = random.choice(CHANCES)
        # The machine that gets again what it has lost, up to where, and until when.
        self._mending: tuple[Machine, int, int] | None = None
        # The controller that gets again what its disk had, and the number of entries that those are.
        self._rejoining: tuple[Controller, int] | None = None
        # The time at which the controllers of a contested election hear each other again.
        self._contest_ms: int | None = None
        self._late_random = late_random
        self._isolating = isolating
        self._isolates = isolating.random() < ISOLATED_CHANCE
        # The leader that is to lose its other followers, too, and when.
        self._isolated: tuple[str, int] | None = None
        self._unclean_random = unclean_random
        has_unclean = unclean_random.random() < UNCLEAN_CHANCE
        self._unclean_ms = unclean_random.randrange(*UNCLEAN_MS) if has_unclean else None
        self._is_unclean = False
        # The master that is cut off from the other brokers, and the time at which it ends.
        self._forked: tuple[Machine, int] | None = None

    @property
    def randoms(self) -> tuple[Random, ...]:
        """The generators that decide on faults."""
        return self._random, self._own_random, self._unclean_random, self._late_random, self._isolating

    def act(self) -> None:
        """Let something break, or become well."""
        if self._contest_ms is not None and self._world.now_ms >= self._contest_ms:
            self._contest_ms = None
            self._world.note("all can reach each other")
            self._world.network.cut.clear()
        if self._isolated is not None and self._world.now_ms >= self._isolated[1]:
            self._cut_controller(self._isolated[0], self._world.controllers)
            self._isolated, self._contest_ms = None, self._world.now_ms + ISOLATED_MS
        if self._unclean_ms is not None and self._world.now_ms >= self._unclean_ms:
            self._is_unclean, self._unclean_ms = True, None
            self._world.permit_unclean()
        if self._late_random.random() < LATE_CHANCE:
            self._propose_late()
        if self._is_mending() or self._is_rejoining():
            return
        if self._is_unclean:
            self._fork()
        if self._isolates and self._isolating.random() < ISOLATE_CHANCE:
            self._isolate()
        if self._flicker_chance and self._own_random.random() < EMPTY_CHANCE:
            self._empty_controller()
        if self._flicker_chance and self._own_random.random() < self._flicker_chance:
            self._flicker()
            return
        if self._random.random() < self._chance:
            self._break()
        if self._random.random() < REPAIR:
            self._repair()

    def _is_mending(self) -> bool:
        if self._mending is None:
            return False
        machine, end, until_ms = self._mending
        if not machine.is_up and self._random.random() < 0.05:
            self._heal(machine)
        is_over = machine.process is not None and machine.process.store.confirmed >= end
        if is_over or self._world.now_ms > until_ms:
            self._mending = None
        return not is_over

    def _break(self) -> None:
        random, world = self._random, self._world
        luck = random.random()
        if luck < 0.25:
            self._disturb_controller(random.choice(list(world.controllers.values())))
        elif luck < 0.55:
            masters = [each for each in world.machines.values() if each.process is not None and each.process.is_master]
            self._disturb(random.choice(masters or list(world.machines.values())))
        elif luck < 0.67:
            self._disturb(random.choice(list(world.machines.values())))
        elif luck < 0.85:
            self._cut()
        elif luck < 0.91 and world.network.wires:
            world.network.drop(random.choice(world.network.wires))
        elif luck < 0.95:
            self._contest()
        else:
            self._designate()

    def _fork(self) -> None:
        """Cut a master off from the other brokers, so that it takes messages alone, and end it after a while."""
        world, random = self._world, self._unclean_random
        if self._forked is not None:
            machine, end_ms = self._forked
            if world.now_ms >= end_ms:
                self._forked = None
                world.network.cut.clear()
                if machine.is_up and random.random() < 0.5:
                    world.lose_power(machine)
                elif machine.is_up:
                    world.note(f"{machine.key} is killed")
                    world.kill(machine)
        elif random.random() < FORK_CHANCE:
            masters = [each for each in world.machines.values() if each.process is not None and each.process.is_master]
            if masters:
                machine = random.choice(masters)
                names = [each.key for each in world.judge_of(machine).machines]
                world.note(f"{machine.key} and other brokers are cut off from each other")
                world.network.cut |= {pair for pair in permutations(names, 2) if machine.key in pair}
                self._forked = machine, world.now_ms + random.randrange(*FORK_MS)

    # -- what becomes well

    def _all(self) -> list[Controller | Machine]:
        return [*self._world.controllers.values(), *self._world.machines.values()]

    def _repair(self) -> None:
        """Make one thing well again, so that the next fault meets something that works."""
        ill = [who for who in self._all() if not _is_well(who)]
        cut = self._world.network.cut
        if cut and (not ill or self._random.random() < 0.5):
            self._world.note("all can reach each other")
            cut.clear()
        elif ill:
            self._heal(self._random.choice(ill))

    def _heal(self, who: Controller | Machine) -> None:
        self._world.note(f"{who.key} is well")
        if isinstance(who, Machine):
            who.heal()
            return
        who.is_paused = False
        who.file.is_full = who.file.fails_to_flush = False
        if not who.is_up:
            who.start()

    def heal_all(self) -> None:
        """Make everything well."""
        if self._flicker_chance:
            self._flicker(is_slave=True)
        self._mending = self._contest_ms = self._rejoining = self._forked = self._isolated = None
        for controller in self._world.controllers.values():
            controller.is_hasty = False
        self._world.network.cut.clear()
        for who in self._all():
            self._heal(who)

    # -- controllers

    def _disturb_controller(self, controller: Controller) -> None:
        file, luck, note = controller.file, self._random.random(), self._world.note
        if not controller.is_up:
            file.is_full = file.fails_to_flush = False
            note(f"{controller.name} starts")
            controller.start()
        elif luck < 0.45:
            note(f"{controller.name} is killed")
            self._world.kill(controller)
        elif luck < 0.7:
            controller.is_paused = not controller.is_paused
            note(f"{controller.name} {'stands still' if controller.is_paused else 'goes on'}")
        elif luck < 0.85:
            file.is_full = not file.is_full
            note(f"the disk of {controller.name} is {'' if file.is_full else 'no longer '}full")
        else:
            file.fails_to_flush = not file.fails_to_flush
            note(f"the disk of {controller.name} {'fails' if file.fails_to_flush else 'is well'}")

    def _contest(self) -> None:
        """Cut off all controllers from each other, until all of them stand for election at once."""
        world = self._world
        is_hasty = self._random.random() < 0.8
        for controller in world.controllers.values():
            controller.is_hasty = is_hasty
        world.network.cut |= set(permutations(world.controllers, 2))
        self._contest_ms = world.now_ms + self._random.randrange(*CONTEST_MS)
        world.note(f"no controller can reach another one{', and none waits at random' if is_hasty else ''}")

    def _isolate(self) -> None:
        """Cut off a follower from its leader, which loses all others when the follower has missed it for long."""
        world, random = self._world, self._isolating
        sure = [
            name
            for name, each in world.controllers.items()
            if each.service and each.service.raft.is_sure(each.now_ms())
        ]
        if len(world.controllers) < 3 or not sure or world.network.cut:
            return
        self._cut_controller(sure[0], [random.choice([name for name in world.controllers if name != sure[0]])])
        self._isolated = sure[0], world.now_ms + random.randrange(*ISOLATE_MS)

    def _cut_controller(self, name: str, others: Iterable[str]) -> None:
        others = [other for other in others if other != name]
        self._world.note(f"{name} and {', '.join(others)} are cut off from each other")
        self._world.network.cut |= {pair for other in others for pair in ((name, other), (other, name))}

    def _empty_controller(self) -> None:
        """Replace a controller's disk, while all others run and one of them leads."""
        world, controllers = self._world, list(self._world.controllers.values())
        services = [each.service for each in controllers if _is_well(each) and each.service is not None]
        sure = [each for each in controllers if each.service and each.service.raft.is_sure(each.now_ms())]
        if len(controllers) < 3 or len(services) < len(controllers) or not sure or world.network.cut:
            return
        controller = self._own_random.choice([each for each in controllers if each is not sure[0]])
        self._rejoining = controller, max(service.raft.applied for service in services)
        world.note(f"the disk of {controller.name} is replaced by an empty one")
        world.kill(controller)
        controller.lose_disk()
        controller.start()

    def _is_rejoining(self) -> bool:
        """Return whether a controller still lacks what its disk had: with one more fault that could be lost."""
        if self._rejoining is None:
            return False
        controller, applied = self._rejoining
        if controller.service is not None and controller.service.raft.applied >= applied:
            self._rejoining = None
        return self._rejoining is not None

    def _propose_late(self) -> None:
        """Have a set of brokers in sync proposed that follows an older set than the controllers have."""
        world, random = self._world, self._late_random
        services = {each.name: each.service for each in world.controllers.values() if not each.is_paused}
        leader = next((name for name, each in services.items() if each and each.raft.is_leader), None)
        service = None if leader is None else services[leader]
        machine = random.choice([each for each in world.machines.values() if each.process] or [None])
        if leader is None or service is None or machine is None or machine.process is None:
            return
        group, broker_id = service.groups.by_name.get(machine.name), machine.process.membership.broker_id
        if group is None or group.master != broker_id or not group.members_epoch:
            return
        other = random.choice([each for each in group.replicas if each != broker_id] or [0])
        epoch, known = random.randrange(group.members_epoch), group.members_epoch
        header = AlterSyncStateSetRequest(group.name, broker_id, group.master_epoch, 0)
        body = SYNC_STATE_SET.write(SyncStateSet(sorted(group.members ^ {other}), epoch))

        def done(answer: Frame | None) -> None:
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                raise Violation(f"{leader} takes a set of {machine.name} that follows set {epoch}, and has set {known}")

        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        world.connect_from(machine, leader).ask(code, body, write_header(header), lambda answer: None, done)

    def _designate(self) -> None:
        """Have an administrator elect somebody."""
        world = self._world
        leaders = [
            each for each in world.controllers.values() if each.service is not None and each.service.raft.is_leader
        ]
        machine = self._random.choice(list(world.machines.values()))
        if not leaders or leaders[0].is_paused or machine.process is None or not machine.process.membership.broker_id:
            return
        world.note(f"{machine.key} is to be master")
        fields = {"clusterName": CLUSTER, "brokerName": machine.name, "brokerId": machine.process.membership.broker_id}
        link = world.administer(leaders[0].name)
        code = RequestCode.CONTROLLER_ELECT_MASTER
        link.ask(code, b"", {**fields, "designateElect": "true"}, lambda frame: None, lambda frame: None)

    # -- brokers

    def _disturb(self, machine: Machine) -> None:
        random, note = self._random, self._world.note
        luck = random.random()
        if not machine.is_up:
            note(f"{machine.key} starts")
            machine.start()
        elif luck < 0.3:
            note(f"{machine.key} is killed")
            self._world.kill(machine)
        elif luck < 0.35 and not machine.is_paused:
            self._stop(machine)
        elif luck < 0.55:
            machine.is_paused = not machine.is_paused
            note(f"{machine.key} {'stands still' if machine.is_paused else 'goes on'}")
        elif luck < 0.65:
            self._fill(machine)
        elif luck < 0.75:
            machine.slow_ms = 0 if machine.slow_ms else random.choice(SLOW_MS)
            note(f"a flush takes up to {machine.slow_ms} ms on {machine.key}")
        elif luck < 0.8:
            machine.wall_off_ms += random.randrange(-3_600_000, 3_600_000)
            note(f"the clock of {machine.key} is set, {machine.wall_off_ms} ms off")
        elif luck > 0.97:
            self._replace(machine)
        elif machine.setup.is_sync:
            self._lose_power(machine)
        else:
            self._lose_power_alone(machine)

    def _stop(self, machine: Machine) -> None:
        self._world.note(f"{machine.key} stops")
        try:
            machine.stop()
        except Crash:
            self._world.lose_power(machine)
            return
        self._world.network.drop_all(machine.key)

    def _replace(self, machine: Machine) -> None:
        """Let a machine die for good, unless too many have already for what was acknowledged to be there."""
        world = self._world
        dead = sum(each.is_replaced for each in world.judge_of(machine).machines)
        if machine.is_replaced or dead >= machine.setup.copies - 1:
            return
        world.note(f"{machine.key} dies, and another machine takes its place")
        machine.lose_disk()
        world.network.drop_all(machine.key)

    def _fill(self, machine: Machine) -> None:
        if machine.is_full:
            machine.empty_disk()
        else:
            machine.fill_disk(self._random.randrange(LITTLE_ROOM))
        self._world.note(f"the disk of {machine.key} is {'' if machine.is_full else 'no longer '}full")

    def _lose_power(self, machine: Machine) -> None:
        """Let some machines of a group lose power, or one between two flushes."""
        random = self._random
        group = self._world.judge_of(machine).machines
        if random.random() < 0.4:
            self._world.note(f"{machine.key} is to lose power between two flushes")
            machine.is_to_fail = True
            machine.disk.shared.flushes_left = random.randrange(6)
            return
        for each in group if random.random() < 0.2 else [machine]:
            if each.is_up:
                self._world.lose_power(each)

    def _lose_power_alone(self, machine: Machine, late_ms: int | None = None) -> None:
        world, judge = self._world, self._world.judge_of(machine)
        if self._is_unclean:
            world.lose_power(machine, late_ms)
            return
        master = next((each.process for each in judge.machines if each.process and each.process.is_master), None)
        if master is None or master.in_sync < len(judge.machines) or world.network.cut:
            return
        if not all(map(_is_well, world.controllers.values())) or not all(map(_is_well, judge.machines)):
            return
        if any(each.process is not None and each.process.store.confirmed < judge.end for each in judge.machines):
            return
        self._mending = machine, judge.end, world.now_ms + MENDING_MS
        world.lose_power(machine, late_ms)

    def _flicker(self, *, is_slave: bool = False) -> None:
        """Let a machine lose power and return at once, while its old connections still stand at the others."""
        world, random = self._world, self._own_random
        machines = [each for each in world.machines.values() if each.is_up]
        masters = [each for each in machines if each.process is not None and each.process.is_master]
        if not machines:
            return
        if is_slave:
            machine = random.choice([each for each in machines if each not in masters] or machines)
        else:
            machine = random.choice(masters if masters and random.random() < 0.5 else machines)
        if not machine.setup.is_sync:
            self._lose_power_alone(machine, random.choice(HALF_OPEN_MS))
        elif random.random() < 0.3:
            self._lose_power(machine)
        else:
            world.lose_power(machine, random.choice(HALF_OPEN_MS))
        if not machine.is_up:
            world.note(f"{machine.key} is back at once")
            machine.start()

    # -- the network

    def _cut(self) -> None:
        world, random = self._world, self._random
        names = [*world.controllers, *world.machines]
        one = random.choice(names)
        others = random.sample(names, random.randrange(1, len(names)))
        leaders = [each.name for each in world.controllers.values() if each.service and each.service.raft.is_leader]
        luck = random.random()
        if leaders and luck < 0.3:
            # Its brokers may still reach it.
            one = random.choice(leaders)
            others = [name for name in world.controllers if name != one]
        elif luck < 0.6:
            # A master that clients may still reach.
            masters = [each.key for each in world.machines.values() if each.process and each.process.is_master]
            one = random.choice(masters or names)
            others = list(world.controllers) if random.random() < 0.5 else [name for name in names if name != one]
        ways = random.choice(((True, True), (True, False), (False, True)))
        world.note(f"{one} and {', '.join(sorted(others))} are cut off from each other, {ways}")
        for other in others:
            world.network.cut |= {pair for pair, is_cut in (((one, other), ways[0]), ((other, one), ways[1])) if is_cut}


def _is_well(who: Controller | Machine) -> bool:
    if isinstance(who, Machine):
        return who.is_well
    return who.is_up and not who.is_paused and not who.file.is_full and not who.file.fails_to_flush
