"""A world of a master, its slaves and a nameserver, in which a slave acts as master while the master is gone.

Invariants: slaves store nothing of their own, and a master counts nothing that a slave lacks; a message is the same
wherever it is read; the offsets that an acting master has acknowledged do not go back, neither there nor with the
master that comes back; in the end everything acknowledged was read, and all logs and offsets are the same.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any
from zlib import crc32

from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.config.node import NAMESERVER_DEFAULTS, NAMESERVER_LOCKED, NAMESERVER_READERS
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.settings import Settings
from broker.rocketmq.store.message_store import MessageStore
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.bodies.routes import MASTER_ID, Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.simulator.controllers.clients import GroupClient
from tests.simulator.controllers.controllers import Controller
from tests.simulator.controllers.judge import Judge
from tests.simulator.controllers.machines import TOPICS, Machine, Setup
from tests.simulator.controllers.network import Network
from tests.simulator.controllers.votes import Votes
from tests.simulator.controllers.world import ControllerWorld
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.process import CLUSTER, DELAYS_MS
from tests.simulator.rocketmq.wire import name_of

__all__ = ["ActingWorld"]

NAMESERVER, ADDRESS = "ns", "10.0.0.1:9876"
SETTINGS = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
FAULT_CHANCE = 0.015
AWAY_MS = (200, 25_000)
# A master waits for others that do not answer for a time that its clock measures; see `Returning`.
GIVEN_UP_MS = 7_000
SILENT_MS = 3_000
# The greatest deviation of a clock's rate, and what a delayed message may come early by that.
RATE_MIN = 0.8


class NameserverProcess(Controller):
    """A nameserver, which begins without any routes."""

    service: Any
    routes: Routes

    def start(self) -> None:
        self.is_paused = False
        self.routes = Routes()
        settings = Settings({}, NAMESERVER_READERS, lambda _: None, NAMESERVER_LOCKED, NAMESERVER_DEFAULTS | SETTINGS)
        guard = Guard(AccessOptions(), AccessTables(b"", b"", lambda _: None, lambda _: None), "")
        parts = Nameserver(self.routes, KeyValues(b"", lambda _: None), settings)
        calls = BrokerCalls(self._connect_to, self._open)
        self.service = NameserverService(parts, guard, self.now_ms, calls, lambda frame: frame, self.now_ms)

    def known(self) -> dict[int, str]:
        """Return the addresses of the brokers that are registered, by their ids."""
        return {} if self.service is None else self.routes.member_group(CLUSTER, "a").broker_addrs

    def acting(self) -> str | None:
        """Return the address of the broker that clients take for the master."""
        route = None if self.service is None else self.routes.route("t")
        return None if route is None or not route.broker_datas else route.broker_datas[0].broker_addrs.get(MASTER_ID)


class ActingJudge(Judge):
    """The judge of a group that has one master."""

    def __init__(self, world: ActingWorld, setup: Setup) -> None:
        super().__init__(world, "a", setup)
        self.world = world
        # Each message that was acknowledged or read, by its offset, and the offsets of the acknowledged ones.
        self._names: dict[int, str] = {}
        self.names: dict[str, int] = {}
        # The offsets that a process has acknowledged: by its life, the offset and the time for each queue.
        self._commits: dict[object, dict[int, tuple[int, int]]] = {}
        self._reported: dict[object, int] = {}
        # The delay of each delayed message, and the time at which it was sent; and the places at which it was read.
        self.delayed: dict[str, tuple[int, int]] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._is_back = True
        # The slave whose offsets a master that was started is to take.
        self._acted: Machine | None = None
        # The offsets on the disk of a master that was started, and their version.
        self._kept: tuple[dict[int, int], tuple[int, ...]] = {}, ()

    def opened(self, machine: Machine) -> None:
        if machine.number == 1:
            assert machine.process is not None
            self._is_back = False
            self._kept = machine.process.offsets.queues("t", "g"), _version(machine)
            known = self.world.nameserver.known()
            slaves = [each for each in self.machines[1:] if each.is_awake and each.number - 1 in known]
            # Offsets count as a whole: those of the greatest version are taken.
            newest = max(map(_version, slaves), default=())
            found = [each for each in slaves if _version(each) == newest >= _version(machine)]
            self._acted = found[0] if len(found) == 1 else None

    def look(self, machine: Machine) -> None:
        process = machine.process
        assert process is not None
        if process.group.master is not None:
            self._look_at_master(machine, process.group.master.copies._copies)
        if self.world.nameserver.acting() == f"{machine.address}:{process.config.port}":
            for queue_id, (offset, _) in self._commits.get(machine.life, {}).items():
                self._check_offset(machine, queue_id, offset, f"has acknowledged {offset}")

    def _check_offset(self, machine: Machine, queue_id: int, offset: int, reason: str) -> None:
        assert machine.process is not None
        now = machine.process.offsets.get("t", "g", queue_id)
        if now is None or now < offset:
            raise Violation(f"{machine.key} has offset {now} of queue {queue_id}, and {reason}")

    def _look_at_master(self, machine: Machine, copies: list[Any]) -> None:
        assert machine.process is not None
        for copy in copies:
            if copy.acknowledged > self._reported.get(copy, 0):
                self._reported[copy] = copy.acknowledged
                slave = next(each for each in self.machines if each.address == copy.session.host.address)
                self._check_counted(machine, slave, copy.acknowledged)
        if not self._is_back and not machine.process.nameservers.is_silent:
            self._is_back = True
            self._check_return(machine)

    def _check_return(self, machine: Machine) -> None:
        """Check that a master which comes back has what slaves have acknowledged before it was started.

        It has no less than its disk had if all slaves have older offsets.
        """
        now_ms, known = self._world.now_ms, self.world.nameserver.known()
        self._world.note(f"{machine.key} is back")
        if all(each.process is not None and _version(each) < self._kept[1] for each in self.machines[1:]):
            for queue_id, offset in self._kept[0].items():
                self._check_offset(machine, queue_id, offset, f"its disk had {offset}, and slaves have older ones")
        commits, self._commits = self._commits, {machine.life: self._commits.get(machine.life, {})}
        if now_ms - machine.started_ms > GIVEN_UP_MS:
            return
        slave = self._acted
        # A slave that nameservers do not know, or that does not answer, is not waited for.
        if slave is not None and slave.number - 1 in known and slave.is_awake:
            for queue_id, (offset, ms) in commits.get(slave.life, {}).items():
                if ms < machine.started_ms:
                    self._check_offset(machine, queue_id, offset, f"{slave.key} had acknowledged {offset} before")

    def committed(self, machine: Machine, queue_id: int, offset: int, answer: Frame | None) -> None:
        """Note an offset that a broker acknowledges, in its turn.

        Until a master has returned, clients with an old route may commit to it; the acting master's offsets replace
        theirs, as with the original. A slave whose master runs, and was only out of reach, takes the master's offsets.
        """
        master = self.machines[0].process
        assert machine.process is not None
        is_back = master is not None and not master.nameservers.is_silent
        if is_back != (machine.number == 1):
            return
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self._commits.setdefault(machine.life, {})[queue_id] = offset, self._world.now_ms

    def answered(self, machine: Machine, name: str, offset: int) -> None:
        assert machine.process is not None
        if not machine.process.is_master:
            raise Violation(f"{machine.key} acknowledges {name}, and is a slave")
        have = sum(self._crc_on(each, offset) == self._crc_on(machine, offset) for each in self.machines)
        lost = sum(each.lost_ms >= 0 for each in self.machines)
        options = self.setup.replication
        if have + lost < (options.in_sync_replicas_min if options.auto_in_sync else options.in_sync_replicas):
            raise Violation(f"{machine.key} acknowledges {name}, which {have} have")
        self.names[name] = offset

    @staticmethod
    def _crc_on(machine: Machine, offset: int) -> int:
        size = int.from_bytes(machine.written(offset, 4), "big")
        return crc32(machine.written(offset, size)) if size else -1

    def read(self, machine: Machine, record: Record) -> None:
        name = name_of(record.body)
        if self._names.setdefault(record.physical_offset, name) != name:
            raise Violation(f"{machine.key} gives {name}, and another broker {self._names[record.physical_offset]}")
        place = record.queue_id, record.queue_offset
        is_second = self._places.setdefault(name, place) != place
        if is_second and not self.world.has_died:
            raise Violation(f"{machine.key} gives {name} at {place}, and it was at {self._places[name]}")
        delay_ms, sent_ms = self.delayed.get(name, (0, 0))
        if self._world.now_ms - sent_ms < delay_ms * RATE_MIN:
            raise Violation(f"{machine.key} gives {name} {self._world.now_ms - sent_ms} ms after it was sent")


def _version(machine: Machine) -> tuple[int, ...]:
    """Return what is greater for the newer of two tables of offsets."""
    assert machine.process is not None
    version = machine.process.offsets._version
    return version.state_version, version.counter, version.timestamp


class ActingClient(GroupClient):
    """A producer and a reader that commits its offsets where nameservers say that the master is."""

    judge: ActingJudge
    world: ActingWorld

    def act(self, *, sends: bool = True) -> None:
        if self.world.own_random.random() < 0.3:
            self._commit()
        super().act(sends=sends)

    def _properties(self, name: str) -> dict[str, str]:
        found = super()._properties(name)
        if self.world.own_random.random() < 0.15:
            level = self.world.own_random.choice((1, 2))
            self.judge.delayed[name] = DELAYS_MS[level - 1], self.world.now_ms
            found["DELAY"] = str(level)
        return found

    def _commit(self) -> None:
        address = self.world.nameserver.acting()
        machine = next((each for each in self.judge.machines if f"{each.address}:10911" == address), None)
        link = None if machine is None else self.links.get(machine.key)
        if machine is None or link is None:
            return
        queue_id = self.world.own_random.choice(list(self._next))
        offset = self._next[queue_id]
        fields = {"consumerGroup": "g", "topic": "t", "queueId": queue_id, "commitOffset": offset}
        said = partial(self.judge.committed, machine, queue_id, offset)
        link.ask(RequestCode.UPDATE_CONSUMER_OFFSET, b"", fields, said, lambda answer: None)


class ActingWorld(ControllerWorld):
    """A world; `own_random` decides what clients commit, and what breaks."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.random, self.own_random = Random(f"acting {seed}"), Random(f"acting faults {seed}")
        self._begin(Network(Random(self.random.random()), self._is_awake, self._has_power, self._receive, self._close))
        self._addresses, self._peer_hosts = {ADDRESS: NAMESERVER}, {NAMESERVER: "10.0.0.1"}
        self.nameserver = NameserverProcess(
            NAMESERVER,
            {},
            Random(self.random.random()),
            self._dial_controller,
            lambda: self.now_ms,
            self.network.wake,
            Votes(1),
        )
        self.controllers = {NAMESERVER: self.nameserver}
        replicas = self.random.choice((2, 2, 3))
        options = ReplicationOptions(
            has_acting_master=True,
            total_replicas=replicas,
            in_sync_replicas=self.random.choice((1, 2)),
            auto_in_sync=self.random.random() < 0.5,
            slave_timeout_ms=self.random.choice((500, 3_000)),
            heartbeat_ms=1_000,
            silence_ms=self.random.choice((3_000, 6_000)),
            piece_bytes=self.random.choice((300, 32 << 10)),
            beat_ms=500,
            silent_ms=SILENT_MS,
            port=0,
        )
        setup = Setup(replicas, self.random.random() < 0.5, options, True, TOPICS, (ADDRESS,))
        judge = ActingJudge(self, setup)
        self.machines, self.clients = {}, [ActingClient(self, judge)]
        for number in range(1, replicas + 1):
            machine = Machine(self, setup, "a", number, Random(self.random.random()))
            judge.machines.append(machine)
            self.machines[machine.key] = machine
        self._hosts = {machine.address: machine for machine in self.machines.values()}
        # Whether a master has ended, which may have given out a delayed message without noting it.
        self.has_died = False
        self.faults: Any = self
        self._ill: set[str] = set()

    def _check_controllers(self) -> None:
        """Check that the route has the slave with the least id as master while the master is gone, for readers only."""
        nameserver = self.nameserver
        known, route = nameserver.known(), None if nameserver.service is None else nameserver.routes.route("t")
        if route is None or MASTER_ID in known:
            return
        if nameserver.acting() != known[min(known)]:
            raise Violation(f"the nameserver knows {known}, and {nameserver.acting()} acts as master")
        if any(queue.perm & Permission.WRITE for queue in route.queue_datas):
            raise Violation(f"the nameserver knows {known}, and lets senders write")

    # -- faults

    @property
    def randoms(self) -> tuple[Random, ...]:
        """The generators that decide on faults."""
        return (self.own_random,)

    def _all(self) -> list[Controller | Machine]:
        return [self.nameserver, *self.machines.values()]

    def act(self) -> None:
        """Let something break, and become well after a while."""
        random = self.own_random
        if random.random() >= FAULT_CHANCE:
            return
        who = random.choice([*self._all(), self.machines["a-1"]])
        others = [each.key for each in self._all() if each is not who]
        if who.key in self._ill:
            return
        self._ill.add(who.key)
        luck = random.random()
        if luck < 0.2:
            other = random.choice(others)
            self.note(f"{who.key} and {other} are cut off from each other")
            self.network.cut |= {(who.key, other), (other, who.key)}
        elif luck < 0.4:
            self.note(f"{who.key} stands still")
            who.is_paused = True
        elif isinstance(who, Machine) and who.setup.is_sync and luck < 0.7:
            self.has_died |= who.number == 1
            self.lose_power(who)
        else:
            self.has_died |= who.key == "a-1"
            self.note(f"{who.key} is killed")
            self.kill(who)
        self._after(random.randrange(*AWAY_MS), partial(self._heal, who))

    def _heal(self, who: Controller | Machine) -> None:
        self._ill.discard(who.key)
        self.network.cut = {pair for pair in self.network.cut if who.key not in pair}
        who.is_paused = False
        if not who.is_up:
            self.note(f"{who.key} starts")
            who.start()

    def heal_all(self) -> None:
        """Make everything well."""
        for who in self._all():
            self._heal(who)

    # -- the end

    def _missing(self) -> str | None:
        client = self.clients[0]
        assert isinstance(client, ActingClient)
        judge, master = client.judge, self.machines["a-1"]
        processes = [each.process for each in judge.machines if each.process is not None]
        if len(processes) < len(judge.machines):
            raise Violation("a broker cannot start")
        if len(self.nameserver.known()) < len(processes):
            return f"the nameserver knows {sorted(self.nameserver.known())}"
        if self.nameserver.acting() != f"{master.address}:10911":
            return f"{self.nameserver.acting()} is the master of the route"
        if len({process.store.log.end for process in processes}) > 1:
            return "the logs have different ends"
        if unseen := judge.names.keys() - client.seen:
            return f"readers have not got {sorted(unseen)[:3]}"
        offsets = {tuple(sorted(process.offsets.queues("t", "g").items())) for process in processes}
        if len(offsets) > 1:
            return f"the offsets are {offsets}"
        self._check_same(judge.machines, [process.store for process in processes])
        return None

    def _check_same(self, machines: list[Machine], stores: list[MessageStore]) -> None:
        begin, end = max(store.log.begin for store in stores), stores[0].log.end
        if len({machine.written_all(begin, end) for machine in machines}) > 1:
            raise Violation(f"the logs differ from {begin} on")
