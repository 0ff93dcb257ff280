"""A world of controllers and the groups that they lead, made of a seed: first faults, then none, and all must be well.

Invariants of controllers: all have the same state after the same entry; one leader at most is sure of itself;
a leader has the votes of a majority of the disks (`votes`).
`judge` has the invariants of groups. In the end each group has one master, and all its brokers the same log, all of
it confirmed, with every message that was acknowledged; readers have got all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from broker.rocketmq.node import Connection
from broker.rocketmq.raft import raft as raft_module
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.hosts import Host, split_address
from tests.broker.fakes import Crash
from tests.simulator.controllers.clients import GroupClient, Link
from tests.simulator.controllers.controllers import OUTSIDE, Controller
from tests.simulator.controllers.faults import Faults
from tests.simulator.controllers.judge import Judge
from tests.simulator.controllers.late import LateClient
from tests.simulator.controllers.machines import TOPICS, Machine, draw_setup
from tests.simulator.controllers.network import End, Network, Watch
from tests.simulator.controllers.votes import Votes
from tests.simulator.judges.invariants import Violation
from tests.simulator.play import NotedWorld

__all__ = ["CONTROLLER_STEPS", "ControllerWorld"]

CONTROLLER_STEPS = 1_600
STEP_MS = 50
TICK_MS = 100
BROKER_TICK_MS = 200
CALM_MS = 120_000
# Groups some of whose messages are delayed or belong to transactions.
LATE_LUCK = 0.4
# Groups that have a topic which comes and goes.
FLEETING_LUCK = 0.3
# The time in which a majority of the controllers has a leader after the others have ended.
SPARED_MS = 20_000
KEPT_MAX = 30
# The entries that a leader sends in one message, in different worlds.
ENTRIES_MAX = (1, 2, 64, 64)
# The time that a dialing process waits for an answer.
DIAL_MS = 2_000
# The time after a machine's restart in which others learn that its connections are gone.
LATE_MS = (0, 3_000, 30_000)
SIZES = (2, 3, 3, 3, 4)


class ControllerWorld(NotedWorld):
    """A world. With `lines`, its events are added to them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.random = Random(f"controllers {seed}")
        self._begin(Network(Random(self.random.random()), self._is_awake, self._has_power, self._receive, self._close))
        peers = {f"n{number}": f"10.0.0.{number + 1}:9878" for number in range(self.random.choice((1, 3, 3, 5)))}
        self._addresses = {address: name for name, address in peers.items()}
        self._peer_hosts = {name: address.rpartition(":")[0] for name, address in peers.items()}
        self._votes = Votes(len(peers))
        self.controllers = {
            name: Controller(
                name,
                peers,
                Random(self.random.random()),
                self._dial_controller,
                lambda: self.now_ms,
                self.network.wake,
                self._votes,
            )
            for name in peers
        }
        names = ("a", "bb")[: self.random.choice((1, 1, 1, 2))]
        self.machines: dict[str, Machine] = {}
        self.clients: list[GroupClient] = []
        for name in names:
            self._make_group(name, tuple(peers.values()), SIZES if len(names) == 1 else (2, 3))
        self._hosts = {machine.address: machine for machine in self.machines.values()}
        self._states: dict[int, int] = {}
        self.faults = Faults(
            self,
            Random(self.random.random()),
            Random(f"own faults {seed}"),
            Random(f"unclean {seed}"),
            Random(f"late proposals {seed}"),
            Random(f"isolated {seed}"),
        )

    def _begin(self, network: Network) -> None:
        super().__init__()
        self.now_ms = 0
        self.network = network
        self._later: list[tuple[int, Callable[[], None]]] = []
        self._ports = 40_000

    def _make_group(self, name: str, controllers: tuple[str, ...], sizes: tuple[int, ...]) -> None:
        # A random of its own, so that everything else in a world stays as it was without this.
        has_topics = Random(f"topics {self._seed} {name}").random() < 0.5
        setup = draw_setup(self.random, controllers, sizes, TOPICS if has_topics else {})
        judge = Judge(self, name, setup)
        for number in range(1, setup.replicas + 1):
            machine = Machine(self, setup, name, number, Random(self.random.random()))
            judge.machines.append(machine)
            self.machines[machine.key] = machine
        own = Random(f"late messages {self._seed} {name}")
        client = LateClient(self, judge, own) if own.random() < LATE_LUCK else GroupClient(self, judge)
        own = Random(f"fleeting topic {self._seed} {name}")
        client.fleeting = own if own.random() < FLEETING_LUCK else None
        self.clients.append(client)

    @property
    def time_ms(self) -> int:
        return self.now_ms

    @property
    def client_names(self) -> list[str]:
        return [client.judge.name for client in self.clients]

    def permit_unclean(self) -> None:
        """Permit the election of brokers that are not in sync: what was confirmed may be lost from here on."""
        self.note("brokers that are not in sync may be elected")
        for controller in self.controllers.values():
            controller.permit_unclean()
        for client in self.clients:
            client.judge.keeps_confirmed = False

    def judge_of(self, machine: Machine) -> Judge:
        """Find the judge of a machine's group."""
        return next(client.judge for client in self.clients if client.judge.name == machine.name)

    # -- see `network.Network`

    def _is_awake(self, name: str) -> bool:
        controller = self.controllers.get(name)
        if controller is not None:
            return controller.is_up and not controller.is_paused
        machine = self.machines.get(name)
        return machine is None or machine.is_awake

    def _has_power(self, name: str) -> bool:
        machine = self.machines.get(name)
        return machine is None or machine.has_power

    def _touch(self, name: str) -> None:
        machine = self.machines.get(name)
        if machine is not None and machine.process is not None:
            machine.process.set_clock()
            machine.process.touch()

    def _receive(self, name: str, end: End, data: memoryview) -> int:
        self._touch(name)
        try:
            return end.receive(data)
        except Crash:
            self.lose_power(self.machines[name])
            return len(data)

    def _close(self, name: str, end: End) -> None:
        machine = self.machines.get(name)
        if machine is None:
            end.end()
        elif machine.process is not None:
            self._touch(name)
            session: Any = end
            machine.process.node.disconnect(session, "the connection is lost")

    # -- connections

    def _after(self, ms: int, action: Callable[[], None]) -> None:
        self._later.append((self.now_ms + ms, action))

    def _dial_controller(
        self, name: str, address: str, connected: Callable[[str], Session], failed: Callable[[str], None]
    ) -> None:
        self.dial(name, self.controllers[name].service, address, connected, failed)

    def _life(self, name: str) -> object:
        controller = self.controllers.get(name)
        return self.machines[name].life if controller is None else controller.service

    def dial(
        self, name: str, life: object, address: str, connected: Callable[[str], Any], failed: Callable[[str], None]
    ) -> None:
        """Connect a process to an address, in the next step; or let it wait for somebody who does not answer."""

        def later() -> None:
            if self._life(name) is not life:
                return
            if not self._is_awake(name):
                # It hears of it when it goes on.
                self._after(STEP_MS, later)
                return
            other = self._name_at(address)
            if self._is_awake(other) and self.network.is_passable(name, other):
                self._join(name, other, address, connected)
            elif self.network.is_passable(name, other) and self._has_power(other) and not self._is_paused(other):
                self._tell(name, partial(failed, "Connection refused"))
            else:
                self._after(DIAL_MS, lambda: self._fail(name, life, failed))

        self._after(0, later)

    def _fail(self, name: str, life: object, failed: Callable[[str], None]) -> None:
        if self._life(name) is not life:
            return
        if self._is_awake(name):
            self._tell(name, partial(failed, "Connection timed out"))
        else:
            self._after(STEP_MS, lambda: self._fail(name, life, failed))

    def _tell(self, name: str, action: Callable[[], None]) -> None:
        """Let somebody do something, which may lead to more in its process."""
        self._touch(name)
        action()

    def _is_paused(self, name: str) -> bool:
        controller = self.controllers.get(name)
        return self.machines[name].is_paused if controller is None else controller.is_paused

    def _name_at(self, address: str) -> str:
        place = split_address(address)
        assert place is not None
        return self._addresses.get(address) or self._hosts[place[0]].key

    def _join(self, name: str, other: str, address: str, connected: Callable[[str], Any]) -> None:
        here: list[Any] = []
        self._tell(name, lambda: here.append(connected(address)))
        self.network.join((name, other), (here[0], self._accept(name, other, address)))

    def _accept(self, name: str, other: str, address: str) -> Any:
        machine = self.machines.get(name)
        self._ports += 1
        host = Host(self._peer_hosts.get(name, OUTSIDE) if machine is None else machine.address, self._ports)
        if other in self.controllers:
            return self.controllers[other].accept(host)
        process = self.machines[other].process
        assert process is not None
        process.set_clock()
        place = split_address(address)
        assert place is not None
        return process.accept(str(host), place[1])

    def connect_client(self, client: GroupClient, machine: Machine) -> None:
        """See `clients.ClientWorld`."""

        def ended() -> None:
            client.links.pop(machine.key, None)

        link = client.links[machine.key] = Link(self.network.wake, ended, client.asked)

        def later() -> None:
            if not machine.is_awake:
                link.end()
                return
            address = f"{machine.address}:10911"
            self._join_client(f"client-{machine.name}", machine.key, link, address, link.hear)

        self._after(0, later)

    def _join_client(self, name: str, other: str, link: Link, address: str, watch: Watch | None) -> None:
        self.network.join((name, other), (link, self._accept(name, other, address)), watch)

    def administer(self, controller: str) -> Link:
        """Connect an administrator to a controller."""
        link = Link(self.network.wake, lambda: None)
        self._join_client("administrator", controller, link, "", None)
        return link

    def connect_from(self, machine: Machine, controller: str) -> Link:
        """Connect to a controller from the host of a machine."""
        name = f"another process of {machine.key}"
        self._peer_hosts[name] = machine.address
        link = Link(self.network.wake, lambda: None)
        self._join_client(name, controller, link, "", None)
        return link

    # -- steps

    def run(self, steps: int) -> None:
        """Run the world to its end. `Violation` if anything is not as it must be."""
        kept = raft_module.KEPT_MAX, raft_module.ENTRIES_MAX  # type: ignore[attr-defined]
        most = Random(f"entries {self._seed}").choice(ENTRIES_MAX)
        raft_module.KEPT_MAX, raft_module.ENTRIES_MAX = KEPT_MAX, most  # type: ignore[misc, attr-defined]
        try:
            for controller in self.controllers.values():
                controller.start()
            for machine in self.machines.values():
                machine.start()
            for _ in range(steps):
                with self.chances.at("step", *self.faults.randoms, self.random) as is_taken:
                    if is_taken:
                        self.faults.act()
                self.step()
            self._calm()
        finally:
            raft_module.KEPT_MAX, raft_module.ENTRIES_MAX = kept  # type: ignore[misc, attr-defined]

    def opened(self, machine: Machine) -> None:
        """See `machines.MachineWorld`."""
        self.judge_of(machine).opened(machine)

    def step(self, *, sends: bool = True) -> None:
        """Let time pass, and everything happen that is due."""
        self.clock.steps += 1
        self.now_ms += STEP_MS
        self._do_later()
        if self.clock.steps % (TICK_MS // STEP_MS) == 0:
            for controller in self.controllers.values():
                if controller.service is not None and not controller.is_paused:
                    controller.service.tick()
        is_tick = self.clock.steps % (BROKER_TICK_MS // STEP_MS) == 0
        for client in self.clients:
            if is_tick:
                client.tick()
            if self.random.random() < 0.4:
                client.act(sends=sends and client.judge.name not in self.silent)
        for machine in self.machines.values():
            self._run(machine, is_tick=is_tick)
        self._take()
        self.network.carry(self.now_ms)
        for machine in self.machines.values():
            self._end_step(machine)
        self._take()
        self._check_controllers()

    def _do_later(self) -> None:
        later, self._later = self._later, []
        for due_ms, action in later:
            if due_ms <= self.now_ms:
                action()
            else:
                self._later.append((due_ms, action))

    def _run(self, machine: Machine, *, is_tick: bool) -> None:
        process = machine.process
        if process is None or machine.is_paused:
            return
        process.set_clock()
        try:
            if is_tick:
                process.tick()
            process.run_disk()
        except Crash:
            self.lose_power(machine)
        self._end_step(machine)

    def _end_step(self, machine: Machine) -> None:
        process = machine.process
        if process is None or machine.is_paused:
            return
        try:
            if process.end_step():
                self.judge_of(machine).look(machine)
        except Crash:
            self.lose_power(machine)
            return
        for session in process.take_dirty():
            self._wake(session)

    def _wake(self, session: Connection) -> None:
        end: Any = session
        self.network.wake(end)

    def _take(self) -> None:
        self.network.take(self.now_ms)

    def lose_power(self, machine: Machine, late_ms: int | None = None) -> None:
        """End a machine, whose disk may lose what was not flushed; others learn of it `late_ms` after its return."""
        self.note(f"{machine.key} loses power")
        machine.lose_power()
        self.network.drop_all(machine.key, self.random.choice(LATE_MS) if late_ms is None else late_ms)

    def kill(self, who: Controller | Machine) -> None:
        """End a process at once."""
        if isinstance(who, Controller):
            who.kill(tears=self.random.random() < 0.5)
        else:
            who.kill()
        self.network.drop_all(who.key)

    def _check_controllers(self) -> None:
        sure = []
        for controller in self.controllers.values():
            if controller.service is None:
                continue
            if controller.service.raft.is_leader:
                self._votes.leads(controller.name, controller.service.raft.term)
            if not controller.is_paused and controller.service.raft.is_sure(controller.now_ms()):
                sure.append(controller.name)
            if controller.service.raft.applied < controller.seen:
                applied = controller.service.raft.applied
                raise Violation(f"{controller.name} goes back from entry {controller.seen} to entry {applied}")
            if controller.service.raft.applied != controller.seen:
                controller.seen, state = controller.state()
                if self._states.setdefault(controller.seen, state) != state:
                    raise Violation(
                        f"{controller.name} has another state than another one after entry {controller.seen}"
                    )
        if len(sure) > 1:
            raise Violation(f"two controllers are sure to lead: {sure}")

    # -- the end

    def _calm(self) -> None:
        """Go on without faults until all is well."""
        self.note("no more faults")
        self.faults.heal_all()
        end_ms = self.now_ms + CALM_MS
        while (missing := self._missing()) is not None:
            if self.now_ms > end_ms:
                raise Violation(f"{CALM_MS // 1000} s after the last fault, {missing}")
            for _ in range(20):
                self.step(sends=False)
        self.records.acked = sum(client.acked for client in self.clients)
        self.note(f"{self.records.acked} messages acknowledged")
        self._spare_controllers()

    def _spare_controllers(self) -> None:
        """Check that a majority of the controllers goes on without the others, of which one leads."""
        if len(self.controllers) < 3:
            return
        everyone = sorted(self.controllers.values(), key=lambda each: not _leads(each))
        spared = everyone[: (len(everyone) - 1) // 2]
        for controller in spared:
            self.note(f"{controller.name} is killed")
            self.kill(controller)
        end_ms = self.now_ms + SPARED_MS
        while not any(map(_leads, everyone)):
            if self.now_ms > end_ms:
                names = ", ".join(each.name for each in spared)
                raise Violation(f"{SPARED_MS // 1000} s after {names} ended, no controller is sure to lead")
            self.step(sends=False)

    def _missing(self) -> str | None:
        """Find what is not well."""
        services = [controller.service for controller in self.controllers.values()]
        leaders = {service.raft.known_leader for service in services if service is not None}
        if len(leaders) != 1 or None in leaders:
            return f"the controllers know different leaders: {leaders}"
        applied = {service.raft.applied for service in services if service is not None}
        if len(applied) != 1:
            return f"the controllers have applied {sorted(applied)} entries"
        return next(filter(None, map(self._missing_in, self.clients)), None)

    def _is_lost(self, judge: Judge) -> bool:
        """Return whether all who were in sync have died, so that an operator is needed."""
        ids = {each.process.membership.broker_id for each in judge.machines if each.process is not None}
        services = [each.service for each in self.controllers.values() if each.service is not None]
        newest = max(services, key=lambda service: service.raft.applied)
        group = newest.groups.by_name.get(judge.name)
        return group is not None and bool(group.members) and not group.members & ids

    def _missing_in(self, client: GroupClient) -> str | None:
        judge = client.judge
        down = [machine.key for machine in judge.machines if not machine.is_awake]
        if down:
            raise Violation(f"{down} cannot start")
        processes = [machine.process for machine in judge.machines if machine.process is not None]
        masters = [process for process in processes if process.is_master]
        if not judge.keeps_confirmed and judge.needs_operator():
            return None
        if not masters and self._is_lost(judge):
            judge.check_disks()
            return None
        if len(masters) != 1:
            return f"{judge.name} has {len(masters)} masters"
        if masters[0].in_sync != len(processes):
            return f"of {judge.name}, only {masters[0].in_sync} are in sync"
        ends = {process.store.log.end for process in processes} | {process.store.confirmed for process in processes}
        if len(ends) != 1 or (min(ends) < judge.end and judge.keeps_confirmed):
            return f"the logs of {judge.name} end and are confirmed at {sorted(ends)}"
        if not judge.keeps_confirmed:
            judge.check_same()
            return None
        lost = [known.name for offset, known in judge.acked.items() if offset not in judge.truth]
        if lost:
            raise Violation(f"{lost[:3]} of {judge.name} were acknowledged, and are lost")
        if unseen := client.unseen:
            return f"{len(unseen)} messages of {judge.name} are confirmed, and readers have not got them"
        judge.check_same()
        return None


def _leads(controller: Controller) -> bool:
    """Return whether a controller is sure to lead."""
    return controller.service is not None and controller.service.raft.is_sure(controller.now_ms())
