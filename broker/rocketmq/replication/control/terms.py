"""A broker's time as master or as slave, from one change of roles to the next (source: AutoSwitchHAService)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.rocketmq.remoting.outgoing import Outgoing
from broker.rocketmq.replication.control.appointments import Appointment, InSync
from broker.rocketmq.replication.control.membership import ProposalDone
from broker.rocketmq.replication.metadata import MasterMetadata
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.connection import ReplicationEnd, ReplicationSession
from broker.rocketmq.replication.streams.epoch_copy import EpochCopies
from broker.rocketmq.replication.streams.epoch_slave import EpochSlaveStream, SlaveListener
from broker.rocketmq.replication.streams.epochs import EpochBook
from broker.rocketmq.replication.streams.in_sync import InSyncSet
from broker.rocketmq.replication.streams.slave import DialMaster, Slave
from broker.rocketmq.store.copying import Arrived
from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.replication import HaRuntime, HaSlave
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.replicating import ExchangeHaInfoRequest, ExchangeHaInfoResponse

__all__ = ["Log", "MasterTerm", "NoMaster", "SlaveTerm", "TermWorld"]

log = logging.getLogger("broker.rocketmq.replication")

# The interval at which a slave requests the address of its master's stream, until it gets one.
ASK_MS: Final = 1_000


class Log(NamedTuple):
    """The log of a broker with its epochs. `reach` is as in `copies.Copies`."""

    store: MessageStore
    epochs: EpochBook
    reach: Callable[[], int]


class OpenStream(Protocol):
    """Makes the session of a connection to a master."""

    def __call__(self, address: str, make: Callable[[ReplicationSession], EpochSlaveStream]) -> ReplicationSession: ...


class TermWorld(NamedTuple):
    """The connections and clocks of a broker; `now_ms` never goes back."""

    dial: DialMaster
    open_stream: OpenStream
    make_link: Callable[[], Outgoing]
    make_metadata: Callable[[Outgoing], MasterMetadata]
    arrived: Arrived
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]


class NoMaster(ReplicationEnd):
    """The end of a stream at a broker that is no master: it closes the connection."""

    def __init__(self, session: ReplicationSession) -> None:
        session.give_up("this broker is no master")

    def take(self, data: memoryview, at: int, end: int) -> int:
        return end

    def output(self) -> bytearray:
        return bytearray()

    def has_output(self) -> bool:
        return False

    def ended(self, session: ReplicationSession, reason: str) -> None:
        """Do nothing: no object keeps this end."""


class MasterTerm:
    """A broker as master. `propose` proposes another set of brokers in sync.

    `moved` is called when a slave has acknowledged more. A term lasts over consecutive epochs without another master
    between.
    """

    def __init__(
        self,
        own_id: int,
        shared: Log,
        options: ReplicationOptions,
        propose: Callable[[frozenset[int], int, ProposalDone], None],
        moved: Callable[[], None],
        now_ms: Callable[[], int],
        in_sync: InSync,
    ) -> None:
        self._store = shared.store
        self._ask = propose
        self._is_over = False
        self.in_sync = InSyncSet(
            own_id,
            shared.reach,
            shared.epochs,
            options,
            self._propose,
            moved,
            now_ms,
            shared.store.confirmed,
        )
        self.copies = EpochCopies(shared.store.log, shared.epochs, self.in_sync, options, now_ms, shared.reach)
        self.in_sync.appoint(*in_sync)

    def _propose(self, members: frozenset[int], epoch: int) -> None:
        # Connections closed with the term have not failed.
        if not self._is_over:
            self._ask(members, epoch, self._answered)

    def _answered(self, taken: InSync | None, is_refused: bool) -> None:
        if taken is not None:
            self.in_sync.appoint(*taken)
        self.in_sync.answered(is_refused=is_refused)

    def status(self) -> HaRuntime:
        return HaRuntime(True, self._store.log.end, len(self.in_sync.members) - 1, self.copies.status())

    def end_step(self) -> None:
        self.copies.end_step()

    def tick(self) -> None:
        self.copies.tick()

    def close(self) -> None:
        self._is_over = True
        self.copies.close()


class SlaveTerm:
    """A broker as the slave of a master, from which it requests the address of the stream."""

    def __init__(
        self, own_id: int, shared: Log, options: ReplicationOptions, world: TermWorld, appointment: Appointment
    ) -> None:
        assert appointment.address is not None
        self.master_id, self.address = appointment.master_id, appointment.address
        self._shared = shared
        self._world = world
        store = shared.store
        listener = SlaveListener(self._arrived, store.confirm, lambda offset: None)
        self._slave: Slave[EpochSlaveStream] = Slave(
            lambda: store.log.end,
            world.dial,
            world.open_stream,
            lambda session, ended: EpochSlaveStream(
                store, shared.epochs, own_id, options, session, listener, ended, shared.reach
            ),
            world.now_ms,
        )
        self._link = world.make_link()
        self._metadata = world.make_metadata(self._link)
        self._link.follow(appointment.address)
        self._asked_ms: int | None = None
        self._refused = ""

    def _arrived(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        self._metadata.saw(topic)
        self._world.arrived(topic, queue_id, messages, size)

    def _told(self, answer: Frame | None) -> None:
        """Take the address of the stream. A broker that is not master yet sends none."""
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        try:
            address = read_header(ExchangeHaInfoResponse, answer.ext_fields).master_ha_address
        except FormatError:
            return
        if address and split_address(address) is not None:
            self._slave.follow(address)
        elif address and address != self._refused:
            self._refused = address
            log.warning("the master says that its stream is at %r, which is no HOST:PORT", address[:80])

    def status(self) -> HaRuntime:
        stream, end = self._slave.stream, self._shared.store.log.end
        if stream is None:
            return HaRuntime(False, ha_client_runtime_info=HaSlave(self._slave.master, 0, end))
        wall_ms = self._world.wall_ms()
        heard_ms = wall_ms - (self._world.now_ms() - stream.session.heard_ms)
        told = HaSlave(self._slave.master, 0, end, heard_ms, wall_ms - stream.session.idle_ms, 0, True)
        return HaRuntime(False, ha_client_runtime_info=told)

    def end_step(self) -> None:
        self._slave.end_step()

    def tick(self) -> None:
        now_ms = self._world.now_ms()
        self._link.tick(now_ms)
        # After a loss of the stream, a master may come back with another address.
        is_due = self._asked_ms is None or not 0 <= now_ms - self._asked_ms < ASK_MS
        if is_due and self._slave.stream is None and self._link.is_connected:
            self._asked_ms = now_ms
            request = Frame(RequestCode.EXCHANGE_BROKER_HA_INFO, 0, ext_fields=write_header(ExchangeHaInfoRequest()))
            self._link.ask(request, now_ms, self._told)
        self._slave.tick()
        if self._slave.is_agreed:
            self._metadata.tick(now_ms)

    def close(self) -> None:
        self._slave.stop()
        self._link.close()
