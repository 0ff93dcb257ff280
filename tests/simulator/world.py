"""A world from a seed: machines, nodes, clients and faults, and what must be true of them at every step.

First come faults, and safety is watched; then they end, and what was begun must come to its end (liveness).
"""

from __future__ import annotations

from random import Random
from zlib import crc32

from broker.core.config import DomainConfig, Mode
from broker.store.partition_files import PartitionLimits
from tests.broker.rig import store_faults
from tests.simulator.clients import Client, Consumer, Producer
from tests.simulator.clock import Clock
from tests.simulator.faults import Faults
from tests.simulator.hosts import Death, Host
from tests.simulator.invariants import Records, Violation, check_queue
from tests.simulator.network import Network

__all__ = ["STEPS", "World"]

STEPS = 2000
# Steps and time that the world has for coming to rest once the faults have ended.
REST_STEPS_MAX = 40_000
REST_US_MAX = 120_000_000
WRITE_BACK_US = 5_000_000
ASK_US = 200_000
LOOK_EVERY = 200  # steps between two looks into the nodes

LIMITS = PartitionLimits(journal=32 << 10, data=96 << 10, qlist=4 << 10)
APPS = ("foo", "bar")
PRIORITY, FANOUT = "bmq://priority/p", "bmq://fanout/f"


class World:
    """Everything that there is. `say` gets a line for whatever happens that a person would want to know of."""

    is_cluster = False
    partition_count = 1

    def __init__(self, seed: int, *, nodes: int = 1) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = Clock()
        self.network = Network(self.clock, self.random)
        self.domains = {
            config.name: config
            for config in (
                DomainConfig("priority", Mode.PRIORITY, strong=self.is_cluster),
                DomainConfig("fanout", Mode.FANOUT, APPS, strong=self.is_cluster),
            )
        }
        self.records = self.make_records({PRIORITY: ("__default",), FANOUT: APPS})
        self.is_busy = True
        self.limits = LIMITS
        self.spread = self.random.random() < 0.5  # primaries, over the nodes
        self.lines: list[str] | None = None
        self.digest = 0
        drift = self.random.choice((0, 0, 200, 5000))
        self.hosts = [Host(self, number, self.random.randint(-drift, drift)) for number in range(nodes)]
        self.clients = self.make_clients()
        self.faults = Faults(self)

    def make_records(self, apps: dict[str, tuple[str, ...]]) -> Records:
        """What is written down, and the rules for it."""
        return Records(apps)

    def make_clients(self) -> list[Client]:
        """Who posts and who reads."""
        clients: list[Client] = [Producer(self, f"p{number}", [PRIORITY, FANOUT]) for number in range(2)]
        clients += [Consumer(self, f"c{number}", [(PRIORITY, "")]) for number in range(2)]
        clients += [Consumer(self, f"f{app}", [(FANOUT, app)]) for app in APPS]
        return clients

    def say(self, text: str) -> None:
        """Something happened."""
        line = f"{self.clock.steps:6} {self.clock.us / 1_000_000:10.6f} {text}"
        self.digest = crc32(line.encode(), self.digest)
        if self.lines is not None:
            self.lines.append(line)

    # -- the two phases

    def run(self, steps: int = STEPS) -> None:
        """Live through `steps` steps with faults, then come to rest. `Violation` if anything is not as it must be."""
        for host in self.hosts:
            host.start()
        for client in self.clients:
            client.dial()
            if isinstance(client, Producer):
                client.act()
        self.clock.after(self.faults.interval_us, self.faults.next)
        self._write_back()
        while self.clock.steps < steps:
            self.clock.step()
            if self.clock.steps % LOOK_EVERY == 0:
                self.look()
        self.rest()

    def run_until(self, us: int) -> None:
        """Live until a moment, without faults but those that somebody makes."""
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.clock.after(us - self.clock.us, end)
        while not is_over:
            self.clock.step()

    def rest(self) -> None:
        """The faults end; everything must be delivered, and the stores be sound."""
        self.say("the faults end")
        self.is_busy = False
        self.network.delay_us_max = 2000
        self.network.heal()
        for host in self.hosts:
            host.recover()
            self.revive(host)
        for client in self.clients:
            client.come_back()
            if isinstance(client, Consumer):
                client.confirm_kept()
        until_us = self.clock.us + REST_US_MAX
        last_step = self.clock.steps + REST_STEPS_MAX
        while not self.is_at_rest():
            if self.clock.us > until_us or self.clock.steps > last_step:
                self.records.check_all_delivered()
                raise Violation(f"no rest: {self.unrest()}")
            self.clock.step()
        self.look()
        for host in self.hosts:
            host.die(Death.STOP)
            faults = store_faults(host.directory)
            if faults:
                raise Violation(f"the store of {host.name} is not sound: {faults[0]}")

    def is_at_rest(self) -> bool:
        """Whether all is acked, delivered and confirmed."""
        if self.clock.steps % 16:
            return False  # looking costs more than a step
        return not self.unrest()

    def unrest(self) -> str:
        """What is still under way."""
        for client in self.clients:
            if client.link is None:
                return f"{client.name} is not connected"
            if isinstance(client, Producer) and any(client.unacked.values()):
                return f"{client.name} waits for acks"
        for uri, views in self.records.views.items():
            for app, view in views.items():
                if view.owed:
                    return f"{len(view.owed)} messages of {uri} are not confirmed by '{app}'"
        for host in self.hosts:
            if host.node is None:
                return f"{host.name} does not run: {host.refused}"
            if any(queue.messages for queue in host.node.queues.values()):
                return f"{host.name} holds messages"
        return ""

    def is_whole(self) -> bool:
        """Whether every node runs, can reach all, and has everything."""
        return not self.network.blocked and all(host.is_sound for host in self.hosts)

    # -- what hosts tell

    def started(self, host: Host) -> None:
        """A node has started: it has what it must have."""
        assert host.node is not None
        self.records.check_node(host.node)

    def before_flush(self, host: Host) -> None:
        """A node has taken a step, and nothing of it has left yet."""

    def rolled_over(self, host: Host) -> None:
        """A node has put old files of a shard away."""
        self.records.forgets += 1
        self.say(f"{host.name} has rolled over")

    def power_lost(self, host: Host) -> None:
        self.records.power_lost()

    def revive(self, host: Host) -> None:
        """Start a process where there is none; an operator helps with what a node cannot."""
        if host.node is not None:
            return
        host.start()
        if not host.refused:
            return
        if host.disk.rotten is not None:
            host.disk.mend()
        else:
            self.lose_disk(host)
        host.refused = ""
        host.start()

    def lose_disk(self, host: Host) -> None:
        """A node does not start on what is there, and never will."""
        host.disk.wipe()

    def _write_back(self) -> None:
        for host in self.hosts:
            host.disk.write_back()
        if self.is_busy:
            self.clock.after(WRITE_BACK_US, self._write_back)

    def look(self) -> None:
        """What can be seen inside the nodes at any time."""
        for host in self.hosts:
            if host.node is not None:
                for queue in host.node.queues.values():
                    check_queue(queue)
                self.records.check_node(host.node)
