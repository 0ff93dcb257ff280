"""A controller of a world: its process, which ends and begins again, and its disk, which is full or fails at times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from zlib import crc32

from broker.common.networks import read_networks
from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.config.node import CONTROLLER_READERS
from broker.rocketmq.controller.commands import GroupMachine
from broker.rocketmq.controller.links import controller_link
from broker.rocketmq.controller.options import ControllerOptions
from broker.rocketmq.controller.service import ControllerService, ControllerWorld
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.remoting.session import Service, Session
from broker.rocketmq.settings import Settings
from formats.rocketmq.hosts import Host
from tests.simulator.controllers.votes import VotedFile, Votes

__all__ = ["OUTSIDE", "Controller", "Dial"]

# Where administrators and clients are.
OUTSIDE = "10.9.9.9"
SETTINGS = {"notifyBrokerRoleChanged": "true"}
# Connects somebody to an address, later.
Dial = Callable[[str, str, Callable[[str], Session], Callable[[str], None]], None]


class Controller:
    """A controller; its clock has a rate of its own, and restarts with its machine."""

    def __init__(
        self,
        name: str,
        peers: dict[str, str],
        random: Random,
        dial: Dial,
        world_ms: Callable[[], int],
        wake: Callable[[Session], None],
        votes: Votes,
    ) -> None:
        self.name = name
        self.random = random
        self.file = VotedFile(voted=partial(votes.voted, name))
        self.is_paused = False
        # A hasty controller waits no longer than it must before it stands for election.
        self.is_hasty = False
        self._settings = dict(SETTINGS)
        self.service: ControllerService | None = None
        self._peers = peers
        self._dial = dial
        self._world_ms = world_ms
        self._wake = wake
        self._rate = random.choice((0.9, 1.0, 1.0, 1.1))
        self._begun_ms = 0
        self._sessions = 0
        # The state after each entry, as all controllers must have it.
        self.seen = -1

    @property
    def key(self) -> str:
        return self.name

    @property
    def is_up(self) -> bool:
        return self.service is not None

    def _random_below(self, number: int) -> int:
        return 0 if self.is_hasty else self.random.randrange(number)

    def now_ms(self) -> int:
        """Read its clock."""
        return int((self._world_ms() - self._begun_ms) * self._rate) + 5_000

    def start(self) -> None:
        """Begin with what the disk has."""
        self._begun_ms = self._world_ms() - self.random.randrange(100_000)
        self.is_paused = False
        self.seen = -1
        options = ControllerOptions(peers=self._peers, self_id=self.name, scan_silent_ms=1_000, scan_masters_ms=2_000)
        self.service = ControllerService(
            options,
            self.file,
            Settings(self._settings, CONTROLLER_READERS, lambda changes: None),
            Guard(AccessOptions(), AccessTables(b"", b"", lambda data: None, lambda data: None), "cluster"),
            {
                name: controller_link(address, self._connect_to, self._open)
                for name, address in self._peers.items()
                if name != self.name
            },
            BrokerCalls(self._connect_to, self._open),
            ControllerWorld(
                lambda frame: frame,
                self._random_below,
                self.now_ms,
                administrators=Administrators(read_networks(OUTSIDE)),
            ),
        )

    def _connect_to(self, address: str, connected: Callable[[str], Session], failed: Callable[[str], None]) -> None:
        service = self.service

        def now_connected(where: str) -> Session:
            assert self.service is service, "a process that has ended connects"
            return connected(where)

        self._dial(self.name, address, now_connected, failed)

    def _open(self, address: str, service: Service) -> Session:
        host, _, port = address.rpartition(":")
        return self.session(Host(host, int(port)), service)

    def session(self, host: Host, service: Service) -> Session:
        """Make the session of a connection."""
        self._sessions += 1
        return Session(self._sessions, host, service, self._wake, self.now_ms)

    def accept(self, host: Host) -> Session:
        """Take a connection."""
        assert self.service is not None
        return self.session(host, self.service)

    def kill(self, *, tears: bool) -> None:
        """End at once; perhaps in the middle of a write, which leaves a part of it."""
        self.service = None
        if tears:
            self.file.tear(b"bmqraft\x01\x00\x00\x01\x00" + self.random.randbytes(200), self.random)

    def lose_disk(self) -> None:
        """End, and have an empty disk instead of the one that it had."""
        self.service = None
        self.file.data, self.file.is_sound = b"", True

    def permit_unclean(self) -> None:
        """Permit the election of brokers that are not in sync, also after a start."""
        self._settings["enableElectUncleanMaster"] = "true"
        if self.service is not None:
            self.service._permit_unclean(True)

    def state(self) -> tuple[int, int]:
        """Tell how many entries are applied, and what they have led to, with the term of the last one."""
        assert self.service is not None
        raft = self.service.raft
        state = f"{raft._journal.term_of(raft.applied)} {GroupMachine(self.service.groups).state()}"
        return raft.applied, crc32(state.encode())
