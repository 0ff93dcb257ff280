"""One life of a simulated broker of a replica group: the real one, with the disk and the clock of its machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

from broker.common.addresses import Addresses
from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.timers import Timers
from broker.rocketmq.administration.registration import NameserverLink, Nameservers
from broker.rocketmq.assembly.group import Connect, Group, place_of, replication_ports
from broker.rocketmq.assembly.identity import epoch_begins
from broker.rocketmq.broker.broker import Broker
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.flush_gate import Flushed, FlushGate
from broker.rocketmq.node import Connection, Node
from broker.rocketmq.replication.control.membership import ControlledMembership
from broker.rocketmq.replication.metadata import FollowedTables
from broker.rocketmq.replication.options import Role
from broker.rocketmq.store.opening import open_store
from broker.shell.connections.dialing import Endpoint
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.frame import Frame
from tests.simulator.rocketmq.process import STORE, Life, make_state, make_world, read_given
from tests.simulator.rocketmq.tree import Disk

__all__ = ["BrokerProcess", "Clock", "SlowDisk", "SmallFiles"]

SLOW_MS = 400

# Connects to HOST:PORT, later.
DialAddress = Callable[[str, Callable[[str], Any], Callable[[str], None]], None]


class Clock(Protocol):
    """The clocks of a machine: one that never goes back, and the time of day."""

    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...


class SmallFiles:
    """The small files of a disk, each of which is replaced in one step, and flushed with that."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def keep(self, name: str, data: bytes) -> None:
        """Write a file. Raises `OSError` if the disk is full."""
        if len(data) > max(0, self._disk.shared.free):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        self._disk.files[name] = data

    def keeper(self, name: str) -> Callable[[bytes], None]:
        """Make the writer of a file."""
        return lambda data: self.keep(name, data)

    def open(self, name: str) -> _SmallFile:
        """Find a file by its name; see `broker.rocketmq.assembly.identity.OpenFile`."""
        return _SmallFile(self, self._disk.files, name)


class _SmallFile:
    def __init__(self, files: SmallFiles, data: dict[str, bytes], name: str) -> None:
        self.path = Path("/simulated") / name
        self._files = files
        self._data = data

    def read(self) -> bytes:
        return self._data.get(self.path.name, b"")

    def write(self, data: bytes) -> None:
        self._files.keep(self.path.name, data)

    def remove(self) -> None:
        self._data.pop(self.path.name, None)


class SlowDisk:
    """The thread that flushes the log, whose disk takes its time; see `broker.rocketmq.flush_gate.Flusher`."""

    def __init__(self, now_ms: Callable[[], int], takes_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._takes_ms = takes_ms
        self._work: tuple[int, Callable[[], None], Flushed] | None = None

    def begin(self, work: Callable[[], None], done: Flushed) -> None:
        """See `Flusher`."""
        self._work = self._now_ms() + self._takes_ms(), work, done

    def wait(self, timeout_s: float) -> bool:
        """See `Flusher`. The clock stands still meanwhile."""
        if self._work is None or self._work[0] > self._now_ms() + timeout_s * 1000:
            return False
        self._end()
        return True

    def run(self) -> bool:
        """Be done with what is due; True if that was something. May raise `Crash`."""
        if self._work is None or self._work[0] > self._now_ms():
            return False
        self._end()
        return True

    def _end(self) -> None:
        assert self._work is not None
        (_, work, done), self._work = self._work, None
        work()
        done(None)


class BrokerProcess(Life):
    """A process with its sessions. Raises `StoreDamaged` and `DiskFull` as the node does.

    `takes_ms` tells how long the disk takes for a flush.
    """

    def __init__(
        self,
        config: RocketConfig,
        disk: Disk,
        random: Random,
        clock: Clock,
        dial: DialAddress,
        takes_ms: Callable[[], int],
        topics: Mapping[str, int],
    ) -> None:
        super().__init__(clock.wall_ms)
        self._random = random
        self._clock = clock
        self.config = config
        self.options = options = config.broker_options
        files = SmallFiles(disk)
        due_time = make_due_time(options.delay_levels_ms)
        self.store = open_store(disk.root, STORE, lambda ms: f"{ms:017d}", due_time, epoch_begins(files.open))
        self.now = Now(clock.wall_ms() // 1000, clock.now_ms())
        self.node = Node(self.now, Faults(self.now), Timers())
        self._disk = SlowDisk(clock.now_ms, takes_ms) if config.flush_sync else None
        self._takes_ms = takes_ms
        if self._disk is not None:
            self._gate = FlushGate(self.store, self._disk, self.now, config.sync_flush_timeout_ms)
        # Whether something has happened since the last step.
        self._is_touched = True
        self.group = Group(
            config,
            self.store,
            self.node,
            lambda place, connected, failed: _dial(dial, place, connected, failed),
            lambda frame: frame,
            clock.wall_ms,
            self._gate,
            files.open,
            Addresses(config.bind_address, self.now, lambda host, done: done("nobody knows it")),
        )
        self.broker = self._make_broker(disk, files, topics)
        connects = [self.node.connect_to(self.broker, self._gate), *self.group.connects(self.broker)]
        self._connects: dict[int, Connect] = dict(zip([config.port, *replication_ports(config)], connects, strict=True))
        self.broker.start()
        self._flush_again()

    def _make_broker(self, disk: Disk, files: SmallFiles, topics: Mapping[str, int]) -> Broker:
        options, clock = self.options, self._clock
        state = make_state(options, self.store, disk.files, files.keeper)
        for name, queues in topics.items():
            if state.topics.get(name) is None:
                state.topics.put(TopicConfig(name, queues, queues), clock.wall_ms())
        world = make_world(clock.wall_ms, self._random.randrange, self._make_id, self._flush_log, files.keeper)
        self.offsets = state.offsets
        self.nameservers = nameservers = Nameservers(options, state.topics, self._make_links())
        broker = Broker(state, world, self.node.faults, nameservers, self.group.make_role(options))
        self.node.add(broker)
        kept = FollowedTables(
            self.store,
            state.topics,
            state.groups,
            state.offsets,
            files.keeper("delays"),
            files.keeper("timers"),
            files.keeper("modes"),
        )
        self.group.join(broker, nameservers, kept, options, lambda: read_given(disk.files))
        if self._gate is not None:
            self.node.add(self._gate)
        return broker

    def _make_links(self) -> list[NameserverLink]:
        def hello() -> Frame | None:
            return self.nameservers.hello()

        group = self.group
        return [
            NameserverLink(
                name,
                partial(group.dial, place_of(name, "nameserver")),
                self.node.open,
                hello,
                registered=group.registered,
            )
            for name in self.config.nameservers
        ]

    @property
    def membership(self) -> ControlledMembership:
        """The life with the controllers."""
        assert self.group.controlled is not None
        assert self.group.controlled.membership is not None
        return self.group.controlled.membership

    @property
    def broker_id(self) -> int:
        """Return the id that the controllers have given, or 0."""
        return self.membership.broker_id

    @property
    def is_master(self) -> bool:
        """Return whether it takes messages."""
        return self.config.replication.role is not Role.SLAVE

    @property
    def in_sync(self) -> int:
        """Return how many are in sync, as a master knows it."""
        assert self.group.controlled is not None
        return self.group.controlled.status().in_sync_slave_nums + 1

    @property
    def counted(self) -> dict[int, int]:
        """Return how far each slave is, by its id, as a master counts it."""
        assert self.group.controlled is not None
        term = self.group.controlled._master
        return {} if term is None else {each: slave.acknowledged for each, slave in term.in_sync.slaves.items()}

    @property
    def agreed_with(self) -> str | None:
        """Return the address of the master whose stream this slave takes."""
        assert self.group.controlled is not None
        term = self.group.controlled._slave
        return None if term is None or not term._slave.is_agreed else term.address

    def accept(self, peer: str, port: int) -> Connection:
        """Open the session of who connects to a port."""
        self._is_touched = True
        return self._connects[port](peer, frozenset)

    # -- steps

    def set_clock(self) -> None:
        """Tell the node the time."""
        self.now.ms, self.now.wall_s = self._clock.now_ms(), self._clock.wall_ms() // 1000

    def touch(self) -> None:
        """Note that something has happened, so that a step is to be ended."""
        self._is_touched = True

    def tick(self) -> None:
        """Do what is due."""
        self._is_touched = True
        self.node.tick()

    def run_disk(self) -> None:
        """Let the disk get on. May raise `Crash`: the power fails."""
        if self._disk is not None and self._disk.run():
            self._is_touched = True
        if self._flush is not None and self._random.random() < (0.02 if self._takes_ms() > SLOW_MS else 0.6):
            self._is_touched |= self.flush_some(self._random.choice((0, 1, 2, 100)))

    def end_step(self) -> bool:
        """End a step, if anything has happened; True then. May raise `Crash`."""
        if not self._is_touched:
            return False
        self._is_touched = False
        has_more = True
        while has_more:
            has_more = self._end_round()
        return True

    def take_dirty(self) -> list[Connection]:
        """Take the connections that have something to say, in their order."""
        if not self.node.dirty:
            return []
        dirty = sorted(self.node.dirty, key=lambda session: session.session_id)
        self.node.dirty.clear()
        return dirty

    def stop(self) -> None:
        """Stop as SIGTERM does it, when nobody is connected any longer. May raise `Crash`."""
        self.node.leave()
        super().stop()


def _dial(dial: DialAddress, place: Endpoint, connected: Callable[[str], Any], failed: Callable[[str], None]) -> None:
    dial(f"{place.host}:{place.port}", connected, failed)
