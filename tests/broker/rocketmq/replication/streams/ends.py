"""A master and its slaves over stores in memory, with connections whose bytes the tests carry, and a clock they set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.copies import Copies, Copy
from broker.rocketmq.replication.streams.slave import Slave, SlaveStream
from broker.rocketmq.replication.waiting import WaitingSenders
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from formats.rocketmq.hosts import Host
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import SMALL, make_message

__all__ = ["MASTER", "Clock", "Master", "Replica", "carry", "pump"]

MASTER = "10.0.0.1:10912"


@dataclass
class Clock:
    ms: int = 0


class Master:
    """A master with a log. `put` adds messages to it."""

    def __init__(self, clock: Clock, options: ReplicationOptions | None = None) -> None:
        self.clock = clock
        self.options = options or ReplicationOptions(Role.SYNC_MASTER, in_sync_replicas=2)
        self.folder = MemoryFolder(chunk=64)
        self.store = open_store(self.folder, SMALL, lambda ms: f"{ms:017d}")
        # How much of the log is on the disk; None where nobody waits for that.
        self.on_disk: int | None = None
        self.copies = Copies(self.store.log, self.options, self.moved, self._reach)
        self.waiting = WaitingSenders(self.options, self.copies, lambda: clock.ms)
        self.dirty: set[ReplicationSession] = set()
        self._count = 0

    def moved(self) -> None:
        self.waiting.moved()

    def _reach(self) -> int:
        return self.store.log.end if self.on_disk is None else self.on_disk

    def put(self, count: int = 1) -> int:
        """Store messages; the log's end."""
        for _ in range(count):
            Writer(self.store).put(make_message(self._count), 1000 + self._count)
            self._count += 1
        self.copies.end_step()
        return self.store.log.end

    def accept(self, number: int = 1) -> tuple[ReplicationSession, Copy]:
        """Make the session of a slave that connects."""
        made: list[Copy] = []

        def make(session: ReplicationSession) -> Copy:
            made.append(self.copies.add(session))
            return made[0]

        host = Host("10.0.0.2", 40_000 + number)
        session = ReplicationSession(number, host, self.options, self.dirty.add, lambda: self.clock.ms, make)
        return session, made[0]


@dataclass
class Replica:
    """A slave. `dialed` are its attempts to connect that nobody has answered."""

    clock: Clock
    options: ReplicationOptions = field(default_factory=lambda: ReplicationOptions(Role.SLAVE))
    folder: MemoryFolder = field(default_factory=lambda: MemoryFolder(chunk=64))
    dialed: list[tuple[str, Callable[[str], ReplicationSession], Callable[[str], None]]] = field(default_factory=list)
    dirty: set[ReplicationSession] = field(default_factory=set)
    arrived: list[tuple[str, int, int, int]] = field(default_factory=list)
    # How much of the log is on the disk; None where nobody waits for that.
    on_disk: int | None = None
    # Makes its end of what precedes the stream, where something does.
    make_entrance: Callable[[ReplicationSession], Any] | None = None
    store: MessageStore = field(init=False)
    slave: Slave[SlaveStream] = field(init=False)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = open_store(self.folder, SMALL, lambda ms: f"{ms:017d}")
        self.slave = Slave(
            lambda: self.store.log.end,
            lambda address, connected, failed: self.dialed.append((address, connected, failed)),
            self._open_session,
            lambda session, ended: SlaveStream(
                self.store,
                self.options,
                session,
                lambda *arrived: self.arrived.append(arrived),
                ended,
                lambda: self.store.log.end if self.on_disk is None else self.on_disk,
            ),
            lambda: self.clock.ms,
        )

    def crash(self) -> None:
        """End the process as `kill -9` does, and start it again."""
        self.folder = self.folder.after_crash()
        self.dialed.clear()
        self.dirty.clear()
        self.open()

    def _open_session(self, address: str, make: Callable[[ReplicationSession], SlaveStream]) -> ReplicationSession:
        name, _, port = address.rpartition(":")
        host, changed = Host(name, int(port)), self.dirty.add
        if self.make_entrance is None:
            return ReplicationSession(1, host, self.options, changed, lambda: self.clock.ms, make)
        return ReplicationSession(1, host, self.options, changed, lambda: self.clock.ms, make, self.make_entrance)

    def connect(self) -> ReplicationSession:
        """Have the oldest attempt succeed."""
        address, connected, _ = self.dialed.pop(0)
        return connected(address)


def carry(source: ReplicationSession, target: ReplicationSession, piece: int = 1 << 30) -> int:
    """Carry one output from one end to the other, in pieces; the number of bytes. It ends with a whole structure."""
    data = bytes(source.take_output())
    source.output_sent()
    held = b""
    for at in range(0, len(data), piece):
        held += data[at : at + piece]
        held = held[target.receive(memoryview(held)) :]
    assert not held
    return len(data)


def pump(master: ReplicationSession, slave: ReplicationSession, piece: int = 1 << 30) -> None:
    """Carry everything, until both ends have nothing more to say."""
    while carry(slave, master, piece) + carry(master, slave, piece):
        pass
