"""The machines of a replica group: their disks and clocks, and the brokers' processes that come and go on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Protocol

from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.remoting.bodies.routes import MASTER_ID
from tests.simulator.controllers.process import BrokerProcess
from tests.simulator.rocketmq.process import CLUSTER, DELAYS_MS, STORE
from tests.simulator.rocketmq.tree import FLUSHES_MAX, LOG_FOLDER, Disk

__all__ = ["BEGIN_MS", "ENOUGH_ROOM", "FLEETING", "TOPICS", "Machine", "MachineWorld", "Setup", "draw_setup"]

BEGIN_MS = 1_700_000_000_000
ENOUGH_ROOM = 1 << 40
BROKER_PORT = 10911
RATES = (0.9, 1.0, 1.0, 1.1)
# How long a flush takes, at most, on machines that nothing ails.
FLUSH_MS = (1, 1, 100, 400)
TOPICS = {"t": 2}
# A topic that comes and goes in some worlds.
FLEETING = "fleeting"


@dataclass(frozen=True, slots=True)
class Setup:
    """The configuration of all brokers of a group. `is_sync`: SYNC_FLUSH.

    `topics` are there from the beginning. The first message to any other makes it.
    """

    replicas: int
    is_sync: bool
    replication: ReplicationOptions
    slave_read: bool
    topics: Mapping[str, int]
    # Without controllers, the first broker is the master, and the others are its slaves.
    nameservers: tuple[str, ...] = ()

    @property
    def copies(self) -> int:
        """The number of brokers that have a message when it is acknowledged."""
        options = self.replication
        return options.in_sync_replicas_min if options.all_in_sync else max(1, options.in_sync_replicas)


def draw_setup(
    random: Random, controllers: tuple[str, ...], sizes: tuple[int, ...], topics: Mapping[str, int]
) -> Setup:
    """Draw a configuration. All times are shorter than the defaults, in like proportions."""
    replicas = random.choice(sizes)
    all_in_sync = random.random() < 0.7
    options = ReplicationOptions(
        is_controlled=True,
        controllers=controllers,
        all_in_sync=all_in_sync,
        in_sync_replicas=random.choice((2, 2, min(3, replicas), 1 if all_in_sync else 2)),
        in_sync_replicas_min=random.choice((1, 2)),
        slave_timeout_ms=random.choice((500, 1_000, 3_000)),
        heartbeat_ms=1_000,
        silence_ms=random.choice((3_000, 6_000)),
        piece_bytes=random.choice((300, 32 << 10)),
        behind_ms_max=random.choice((2_000, 4_000)),
        check_ms=1_000,
        gone_ms=random.choice((3_000, 6_000)),
        sync_ms=random.choice((1_000, 5_000)),
        leader_ms=2_000,
    )
    return Setup(replicas, random.random() < 0.7, options, random.random() < 0.5, topics)


class MachineWorld(Protocol):
    """The surroundings of machines."""

    now_ms: int

    def dial(
        self, name: str, life: object, address: str, connected: Callable[[str], Any], failed: Callable[[str], None]
    ) -> None:
        """Connect the process `life` on a machine to an address, later."""
        ...

    def opened(self, machine: Machine) -> None:
        """Note that a process has started."""
        ...


@dataclass(eq=False)
class Machine:
    """A machine; its clock has a rate of its own, and its time of day is off."""

    world: MachineWorld
    setup: Setup
    name: str
    number: int
    random: Random
    process: BrokerProcess | None = None
    is_paused: bool = False
    has_power: bool = True
    # How long a flush takes, at most, where that is longer than it should be.
    slow_ms: int = 0
    # When it has lost something, and was given an order to lose power in the midst of a flush.
    lost_ms: int = -1
    is_to_fail: bool = False
    is_full: bool = False
    # Whether it is not the one that it was in the beginning.
    is_replaced: bool = False
    wall_off_ms: int = 0
    disk: Disk = field(init=False)

    def __post_init__(self) -> None:
        self.key = f"{self.name}-{self.number}"
        self.address = f"10.1.{self.number}.{len(self.name)}"
        self.disk = self._make_disk()
        self._rate = self.random.choice(RATES)
        self._flush_ms = self.random.choice(FLUSH_MS)
        self.wall_off_ms = self.random.randrange(-100_000, 100_000)

    # -- its clocks; see `process.Clock`

    def now_ms(self) -> int:
        """Read the clock that never goes back."""
        return 5_000 + int(self.world.now_ms * self._rate)

    def wall_ms(self) -> int:
        """Read the time of day."""
        return BEGIN_MS + self.wall_off_ms + int(self.world.now_ms * self._rate)

    # -- lives

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def is_awake(self) -> bool:
        return self.process is not None and not self.is_paused

    def start(self) -> bool:
        """Begin, with what the disk has; False if the disk is too full for it."""
        self.is_paused, self.has_power, self.is_to_fail = False, True, False
        self.disk.shared.flushes_left = FLUSHES_MAX
        options = BrokerOptions(
            CLUSTER,
            self.name,
            delay_levels_ms=DELAYS_MS,
            revive_queues=1,
            slave_read=self.setup.slave_read,
            broker_id=self.number - 1 if self.setup.nameservers else MASTER_ID,
        )
        replication = replace(self.setup.replication)
        if self.setup.nameservers:
            replication.role = Role.SLAVE if options.broker_id else Role.SYNC_MASTER
        config = RocketConfig(
            store=Path("/simulated"),
            bind_address=self.address,
            port=BROKER_PORT,
            flush_sync=self.setup.is_sync,
            sync_flush_timeout_ms=1_500,
            replication=replication,
            nameservers=self.setup.nameservers,
            options=options,
            store_options=STORE,
        )
        life = object()

        def dial(address: str, connected: Callable[[str], Any], failed: Callable[[str], None]) -> None:
            self.world.dial(self.key, life, address, connected, failed)

        self.life, self.started_ms = life, self.world.now_ms
        try:
            self.process = BrokerProcess(
                config, self.disk, Random(self.random.random()), self, dial, self._takes_ms, self.setup.topics
            )
        except (DiskFull, OSError):
            self.disk.process_died()
            return False
        self.world.opened(self)
        return True

    def _takes_ms(self) -> int:
        return self.random.randrange(self.slow_ms or self._flush_ms)

    def kill(self) -> None:
        """End the process at once."""
        self._end()
        self.disk.process_died()

    def stop(self) -> None:
        """End the process as SIGTERM does. May raise `Crash`."""
        assert self.process is not None
        self.process.stop()
        self.kill()

    def lose_power(self) -> None:
        """End the machine: what was not flushed may be lost."""
        self._end()
        self.has_power = False
        self.lost_ms = self.world.now_ms
        self.disk.power_lost()

    def lose_disk(self) -> None:
        """End the machine for good: another one takes its place, with its address, and an empty disk."""
        self._end()
        self.has_power, self.is_replaced = False, True
        self.lost_ms = self.world.now_ms
        self.disk = self._make_disk()

    def _make_disk(self) -> Disk:
        return Disk(Random(self.random.random()), self.random.choice((512, 4096)))

    def _end(self) -> None:
        self.process, self.is_paused = None, False
        self.life = object()

    # -- its disk

    @property
    def is_well(self) -> bool:
        """Return whether nothing ails it."""
        return self.is_awake and not self.slow_ms and not self.is_full and not self.is_to_fail

    def fill_disk(self, free: int) -> None:
        """Leave a number of bytes free on the disk."""
        self.is_full, self.disk.shared.free = True, free

    def empty_disk(self) -> None:
        """Let there be room."""
        self.is_full, self.disk.shared.free = False, ENOUGH_ROOM

    def heal(self) -> None:
        """Make it well."""
        self.is_paused, self.slow_ms, self.is_to_fail = False, 0, False
        self.empty_disk()
        self.disk.shared.flushes_left = FLUSHES_MAX
        if not self.is_up:
            self.start()

    def written_all(self, begin: int, end: int) -> bytes:
        """Read the log as the disk has it between two offsets."""
        data, size = b"", STORE.commit_log_file_bytes
        while begin < end:
            data += self.written(begin, min(end - begin, size - begin % size))
            begin += size - begin % size
        return data

    def written(self, offset: int, size: int, *, is_flushed: bool = False) -> bytes:
        """Read a part of the log as the disk has it, also if there is no process, or as the platter has it."""
        folder = self.disk.root.folder(LOG_FOLDER)
        start = offset - offset % STORE.commit_log_file_bytes
        name = offset_name(start)
        if is_flushed:
            return folder.platter.get(name, b"")[offset - start : offset - start + size]
        content = folder.files.get(name)
        return b"" if content is None else bytes(memoryview(content.data)[offset - start : offset - start + size])
