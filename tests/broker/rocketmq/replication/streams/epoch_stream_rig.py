"""A master and a slave joined by a stream of epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.epoch_copy import EpochCopies, EpochCopy
from broker.rocketmq.replication.streams.epoch_slave import EpochSlaveStream, SlaveListener
from broker.rocketmq.replication.streams.epochs import EpochBook, begin_epoch
from broker.rocketmq.replication.streams.in_sync import InSyncSet
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from formats.rocketmq.hosts import Host
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.replication.streams.ends import Clock
from tests.broker.rocketmq.store.message_store_rig import SMALL, make_message

HOST = Host("10.0.0.1", 10912)


@dataclass
class Broker:
    """A broker that is made a master or a slave, again and again; its logs stay."""

    broker_id: int
    clock: Clock = field(default_factory=Clock)
    options: ReplicationOptions = field(default_factory=lambda: ReplicationOptions(Role.SYNC_MASTER))
    store: MessageStore = field(
        default_factory=lambda: open_store(MemoryFolder(chunk=64), SMALL, lambda ms: f"{ms:017d}")
    )
    epochs: EpochBook = field(default_factory=lambda: EpochBook(b"", lambda data: None))
    proposals: list[tuple[frozenset[int], int]] = field(default_factory=list)
    dirty: set[ReplicationSession] = field(default_factory=set)
    confirmed: int = -1
    cuts: list[int] = field(default_factory=list)
    # How much of the log is on the disk; None where nobody waits for that.
    on_disk: int | None = None
    in_sync: InSyncSet = field(init=False)
    copies: EpochCopies = field(init=False)

    def lead(self, epoch: int, *members: int) -> None:
        self.epochs.replace(begin_epoch(self.epochs.entries, epoch, self.store.log.end))
        self.serve(*members)

    def reach(self) -> int:
        return self.store.log.end if self.on_disk is None else self.on_disk

    def serve(self, *members: int) -> None:
        self.in_sync = InSyncSet(
            self.broker_id,
            self.reach,
            self.epochs,
            self.options,
            lambda *proposal: self.proposals.append(proposal),
            lambda: None,
            lambda: self.clock.ms,
        )
        self.in_sync.appoint(frozenset(members or {self.broker_id}), 1)
        self.copies = EpochCopies(
            self.store.log, self.epochs, self.in_sync, self.options, lambda: self.clock.ms, self.reach
        )

    def agree(self, members: set[int], epoch: int) -> None:
        """Have the controller agree to what was proposed."""
        self.in_sync.appoint(frozenset(members), epoch)
        self.in_sync.answered()

    def put(self, *numbers: int) -> None:
        for number in numbers:
            Writer(self.store).put(make_message(number), 1000 + number)
        self.copies.end_step()

    def accept(self, number: int = 1) -> tuple[ReplicationSession, EpochCopy]:
        made: list[EpochCopy] = []

        def make(session: ReplicationSession) -> EpochCopy:
            made.append(self.copies.add(session))
            return made[0]

        session = ReplicationSession(number, HOST, self.options, self.dirty.add, lambda: self.clock.ms, make)
        return session, made[0]

    def _confirm(self, offset: int) -> None:
        self.confirmed = offset

    def follow(self) -> tuple[ReplicationSession, EpochSlaveStream]:
        made: list[EpochSlaveStream] = []

        def make(session: ReplicationSession) -> EpochSlaveStream:
            stream = EpochSlaveStream(
                self.store,
                self.epochs,
                self.broker_id,
                self.options,
                session,
                SlaveListener(
                    lambda *arrived: None, lambda offset: setattr(self, "confirmed", offset), self.cuts.append
                ),
                lambda stream, reason: None,
                self.reach,
            )
            made.append(stream)
            return stream

        session = ReplicationSession(1, HOST, self.options, self.dirty.add, lambda: self.clock.ms, make)
        return session, made[0]
