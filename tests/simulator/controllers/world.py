"""A world of controllers and the brokers that they lead, made of a seed: first faults, then none, and all must be well.

What must hold: all controllers have the same state after the same entry; one leader at most is sure of itself; an
epoch of a name has one master; an id is one broker's; a master has every word that was confirmed before it led.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from zlib import crc32

from broker.rocketmq.raft import raft as raft_module
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.codes import RequestCode
from formats.rocketmq.hosts import Host
from tests.simulator.controllers.brokers import CLUSTER, Broker, Link, Word
from tests.simulator.controllers.controllers import Controller
from tests.simulator.controllers.network import Network
from tests.simulator.invariants import Violation

__all__ = ["CONTROLLER_STEPS", "ControllerWorld"]

CONTROLLER_STEPS = 1_600
STEP_MS = 50
TICK_MS = 100
CALM_MS = 90_000
KEPT_MAX = 30
REPAIR = 0.02


class _Clock:
    """The steps that were taken."""

    steps = 0


class _Records:
    """The number of words that were confirmed."""

    acked = 0


class ControllerWorld:
    """A world. With `lines`, its events are added to them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"controllers {seed}")
        self.lines: list[str] | None = None
        self.clock, self.records = _Clock(), _Records()
        self.digest = 0
        self.now_ms = 0
        self.network = Network(Random(self.random.random()), self._is_awake)
        peers = {f"n{number}": f"10.0.0.{number + 1}:9878" for number in range(self.random.choice((1, 3, 3, 5)))}
        self._addresses = {address: name for name, address in peers.items()}
        self.controllers = {
            name: Controller(name, peers, Random(self.random.random()), self.dial, lambda: self.now_ms)
            for name in peers
        }
        names = ("a", "bb")[: self.random.choice((1, 1, 2))]
        self.brokers = {
            broker.key: broker
            for name in names
            for broker in (Broker(self, name, number, tuple(peers)) for number in range(1, 4))
        }
        self._broker_addresses = {broker.address: broker for broker in self.brokers.values()}
        self._later: list[Callable[[], None]] = []
        self._words = 0
        self._states: dict[int, int] = {}
        self._masters: dict[tuple[str, int], int] = {}
        self._ids: dict[tuple[str, int], str] = {}
        self.confirmed: dict[str, list[Word]] = {name: [] for name in names}
        self._chance = self.random.choice((0.01, 0.03, 0.06))

    def note(self, text: str) -> None:
        """Tell what happens."""
        self.digest = crc32(f"{self.now_ms} {text}".encode(), self.digest)
        if self.lines is not None:
            self.lines.append(f"{self.clock.steps:6} {self.now_ms:9} | {text}")

    def _all(self) -> list[Controller | Broker]:
        return [*self.controllers.values(), *self.brokers.values()]

    def _is_awake(self, name: str) -> bool:
        controller = self.controllers.get(name)
        if controller is not None:
            return controller.is_up and not controller.is_paused
        return self.brokers[name].is_awake

    # -- connections

    def dial(self, name: str, address: str, connected: Callable[[str], Session], failed: Callable[[str], None]) -> None:
        """Connect a controller to another one, or to a broker, in the next step."""
        service = self.controllers[name].service

        def later() -> None:
            if self.controllers[name].service is not service:
                return
            other = self._addresses.get(address) or self._broker_addresses[address].key
            if not self._is_awake(other) or not self.network.is_passable(name, other):
                failed("Connection refused")
            elif other in self.controllers:
                here = connected(address)
                self.network.join((name, other), (here, self.controllers[other].accept(Host("10.0.0.99", 1))))
            else:
                self.network.join((name, other), (connected(address), Link(self.brokers[other])))

        self._later.append(later)

    def connect_to(self, broker: Broker, controller: str) -> None:
        """Connect a broker to a controller, in the next step."""

        def later() -> None:
            if controller in broker.links or not broker.is_awake or not self._is_awake(controller):
                return
            if self.network.is_passable(broker.key, controller):
                link = broker.links[controller] = Link(broker, controller)
                self.network.join(
                    (broker.key, controller), (link, self.controllers[controller].accept(Host("10.1.0.9", 1)))
                )

        self._later.append(later)

    # -- what brokers tell

    def mastered(self, broker: Broker, master: int, epoch: int) -> None:
        """See `BrokerWorld`."""
        known = self._masters.setdefault((broker.name, epoch), master)
        if known != master:
            raise Violation(f"epoch {epoch} of {broker.name} has two masters, {known} and {master}")

    def leads(self, broker: Broker) -> None:
        """See `BrokerWorld`."""
        self.note(
            f"{broker.key}, id {broker.broker_id}, leads epoch {broker.master_epoch} with {len(broker.log)} words"
        )
        confirmed = self.confirmed[broker.name]
        if broker.log[: len(confirmed)] != confirmed:
            raise Violation(f"{broker.key} leads epoch {broker.master_epoch}, and lacks what was confirmed")

    def has_id(self, broker: Broker) -> None:
        """See `BrokerWorld`."""
        assert broker.broker_id is not None
        known = self._ids.setdefault((broker.name, broker.broker_id), broker.key)
        if known != broker.key:
            raise Violation(f"{broker.key} and {known} have one id, {broker.broker_id}")

    # -- steps

    def run(self, steps: int) -> None:
        """Run the world to its end. `Violation` if anything is not as it must be."""
        kept, raft_module.KEPT_MAX = raft_module.KEPT_MAX, KEPT_MAX  # type: ignore[misc]
        try:
            for who in self._all():
                who.start()
            for _ in range(steps):
                if self.random.random() < self._chance:
                    self._fault()
                if self.random.random() < REPAIR:
                    self._repair()
                self.step()
            self._calm()
        finally:
            raft_module.KEPT_MAX = kept  # type: ignore[misc]

    def step(self) -> None:
        """Let time pass, and everything happen that is due."""
        self.clock.steps += 1
        self.now_ms += STEP_MS
        later, self._later = self._later, []
        for action in later:
            action()
        if self.clock.steps % (TICK_MS // STEP_MS) == 0:
            for controller in self.controllers.values():
                if controller.service is not None and not controller.is_paused:
                    controller.service.tick()
        for broker in self.brokers.values():
            if broker.is_awake:
                broker.tick()
                if broker.is_master and self.random.random() < 0.2:
                    self._words += 1
                    broker.log.append(Word(broker.master_epoch, self._words))
        self._copy()
        self.network.carry(self.now_ms)
        self._check()

    def _copy(self) -> None:
        """Let slaves copy, and masters confirm."""
        for master in self.brokers.values():
            if not (master.is_awake and master.is_master):
                continue
            for slave in self.brokers.values():
                if slave.follows(master) and self.network.is_passable(slave.key, master.key):
                    master.copy(slave, self.random.choice((0, 1, 3, 100)))
            self._confirm(master)

    def _confirm(self, master: Broker) -> None:
        words, known = master.log[: master.confirmed()], self.confirmed[master.name]
        least = min(len(words), len(known))
        if words[:least] != known[:least]:
            raise Violation(
                f"{master.key} confirms in epoch {master.master_epoch} what differs from what was confirmed"
            )
        if len(words) > len(known):
            self.records.acked += len(words) - len(known)
            self.confirmed[master.name] = words

    def _check(self) -> None:
        sure = []
        for controller in self.controllers.values():
            if controller.service is None:
                continue
            if not controller.is_paused and controller.service.raft.is_sure(controller.now_ms()):
                sure.append(controller.name)
            if controller.service.raft.applied != controller.seen:
                controller.seen, state = controller.state()
                if self._states.setdefault(controller.seen, state) != state:
                    raise Violation(
                        f"{controller.name} has another state than another one after entry {controller.seen}"
                    )
        if len(sure) > 1:
            raise Violation(f"two controllers are sure to lead: {sure}")

    # -- faults

    def _fault(self) -> None:
        luck = self.random.random()
        if luck < 0.35:
            self._disturb_controller(self.random.choice(list(self.controllers.values())))
        elif luck < 0.6:
            masters = [broker for broker in self.brokers.values() if broker.is_master]
            self._disturb_broker(self.random.choice(masters or list(self.brokers.values())))
        elif luck < 0.65:
            self._disturb_broker(self.random.choice(list(self.brokers.values())))
        elif luck < 0.85:
            self._cut()
        elif luck < 0.93 and self.network.wires:
            self.network.drop(self.random.choice(self.network.wires))
        else:
            self._designate()

    def _repair(self) -> None:
        """Make one thing well again, so that the next fault meets something that works."""
        ill = [who for who in self._all() if not self._is_well(who)]
        if self.network.cut and (not ill or self.random.random() < 0.5):
            self.note("all can reach each other")
            self.network.cut.clear()
        elif ill:
            self._heal(self.random.choice(ill))

    def _is_well(self, who: Controller | Broker) -> bool:
        if isinstance(who, Controller) and (who.file.is_full or who.file.fails_to_flush):
            return False
        return who.is_up and not who.is_paused

    def _heal(self, who: Controller | Broker) -> None:
        self.note(f"{who.key} is well")
        who.is_paused = False
        if isinstance(who, Controller):
            who.file.is_full = who.file.fails_to_flush = False
        if not who.is_up:
            who.start()

    def _disturb_controller(self, controller: Controller) -> None:
        file, luck = controller.file, self.random.random()
        if not controller.is_up:
            file.is_full = file.fails_to_flush = False
            self.note(f"{controller.name} starts")
            controller.start()
        elif luck < 0.45:
            self.note(f"{controller.name} is killed")
            self._kill(controller)
        elif luck < 0.7:
            controller.is_paused = not controller.is_paused
            self.note(f"{controller.name} {'stands still' if controller.is_paused else 'goes on'}")
        elif luck < 0.85:
            file.is_full = not file.is_full
            self.note(f"the disk of {controller.name} is {'' if file.is_full else 'no longer '}full")
        else:
            file.fails_to_flush = not file.fails_to_flush
            self.note(f"the disk of {controller.name} {'fails' if file.fails_to_flush else 'is well'}")

    def _kill(self, controller: Controller) -> None:
        controller.kill(tears=self.random.random() < 0.5)
        self.network.drop_all(controller.name, is_dead=True)

    def _disturb_broker(self, broker: Broker) -> None:
        if not broker.is_up:
            self.note(f"{broker.key} starts")
            broker.start()
        elif self.random.random() < 0.6:
            self.note(f"{broker.key} is killed")
            broker.kill()
            self.network.drop_all(broker.key, is_dead=True)
        else:
            broker.is_paused = not broker.is_paused
            self.note(f"{broker.key} {'stands still' if broker.is_paused else 'goes on'}")

    def _cut(self) -> None:
        names = [*self.controllers, *self.brokers]
        one = self.random.choice(names)
        others = self.random.sample(names, self.random.randrange(1, len(names)))
        leaders = [each.name for each in self.controllers.values() if each.service and each.service.raft.is_leader]
        if leaders and self.random.random() < 0.5:
            # Its brokers may still reach it.
            one = self.random.choice(leaders)
            others = [name for name in self.controllers if name != one]
        ways = self.random.choice(((True, True), (True, False), (False, True)))
        self.note(f"{one} and {', '.join(sorted(others))} are cut off from each other, {ways}")
        for other in others:
            self.network.cut |= {pair for pair, is_cut in (((one, other), ways[0]), ((other, one), ways[1])) if is_cut}

    def _designate(self) -> None:
        """Have an administrator elect somebody."""
        broker = self.random.choice(list(self.brokers.values()))
        if broker.broker_id is None or not broker.is_awake or broker.leader not in broker.links:
            return
        self.note(f"{broker.key} is to be master")
        fields = {"clusterName": CLUSTER, "brokerName": broker.name, "brokerId": broker.broker_id}
        link = broker.links[broker.leader]
        link.ask(RequestCode.CONTROLLER_ELECT_MASTER, b"", {**fields, "designateElect": "true"}, lambda frame: None)

    # -- the end

    def _calm(self) -> None:
        """Go on without faults until all is well."""
        self.note("no more faults")
        self.network.cut.clear()
        for who in self._all():
            self._heal(who)
        end_ms = self.now_ms + CALM_MS
        while (missing := self._missing()) is not None:
            if self.now_ms > end_ms:
                raise Violation(f"{CALM_MS // 1000} s after the last fault, {missing}")
            for _ in range(20):
                self.step()
        self.note(f"{self.records.acked} words confirmed")

    def _missing(self) -> str | None:
        """Find what is not well."""
        services = [controller.service for controller in self.controllers.values()]
        leaders = {service.raft.known_leader for service in services if service is not None}
        if len(leaders) != 1 or None in leaders:
            return f"the controllers know different leaders: {leaders}"
        for name, confirmed in self.confirmed.items():
            group = [broker for broker in self.brokers.values() if broker.name == name]
            masters = [broker for broker in group if broker.is_master]
            if len(masters) != 1:
                return f"{name} has {len(masters)} masters"
            if len(masters[0].members) != len(group):
                return f"of {name}, only {sorted(masters[0].members)} are in sync"
            if not confirmed:
                return f"nothing of {name} was confirmed"
        return None
