"""A broker with a controller: master in one epoch and slave in the next, while it runs; see `node.Part`.

Source: ReplicasManager, AutoSwitchHAService, AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.remoting.requests import Handlers, Request, success, with_body
from broker.rocketmq.replication.control.appointments import Appointment, InSync, read_notice
from broker.rocketmq.replication.control.membership import ControlledMembership, LogState
from broker.rocketmq.replication.control.terms import Log, MasterTerm, NoMaster, SlaveTerm, TermWorld
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.streams.connection import ReplicationEnd, ReplicationSession
from broker.rocketmq.replication.streams.epochs import begin_epoch, cut_epochs, drop_epochs, epoch_end, last_epoch
from broker.rocketmq.replication.waiting import ALL_IN_SYNC, WaitingSenders
from broker.rocketmq.tables.options import BrokerOptions
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.replication import EPOCH_CACHE, EpochCache, EpochSpan, HaRuntime
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.replicating import ExchangeHaInfoResponse

__all__ = ["Controlled", "RoleChange"]

log = logging.getLogger("broker.rocketmq.replication")

_MASTER_ID: Final = 0


class RoleChange(NamedTuple):
    """The calls by which the rest of the broker changes with its role.

    `end_waits` answers the requests that wait for the disk, `begin_epoch` raises the version of the topics, and
    `changed` rebuilds the parts that only a master has, and notifies the nameservers.
    """

    end_waits: Callable[[], None]
    begin_epoch: Callable[[int], None]
    changed: Callable[[], None]


class Controlled:
    """The roles of one broker, one at a time; it has none before a controller has named a master."""

    def __init__(self, shared: Log, options: ReplicationOptions, broker: BrokerOptions) -> None:
        self._shared = shared
        self._options = options
        self._broker = broker
        self.membership: ControlledMembership | None = None
        self._change: RoleChange | None = None
        self._world: TermWorld | None = None
        self._master: MasterTerm | None = None
        self._slave: SlaveTerm | None = None
        self.waiting: WaitingSenders | None = None
        self.handlers: Handlers = {
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notified,
            RequestCode.GET_BROKER_EPOCH_CACHE: self._show_epochs,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._exchange,
        }
        options.role = Role.SLAVE
        entries = shared.epochs.entries
        # A process killed before its first note had an epoch; the log before it predates the controller.
        shared.store.hold_back(entries[0].start_offset if entries else None)

    def join(self, membership: ControlledMembership, change: RoleChange, world: TermWorld) -> None:
        self.membership, self._change, self._world = membership, change, world

    # -- see `waiting.Acknowledged` and `role.BrokerRole`

    def acknowledged_by(self, replicas: int) -> int:
        if self._master is None:
            return -1
        in_sync = self._master.in_sync
        if replicas != ALL_IN_SYNC:
            return in_sync.acknowledged_by(replicas)
        # Others may have left the set since the message was taken.
        is_short = len(in_sync.counted) < self._options.in_sync_replicas_min
        return -1 if is_short else in_sync.acknowledged_by_all()

    def in_sync(self) -> int:
        return 0 if self._master is None else self._master.in_sync.size

    def advance(self) -> None:
        if self._master is not None:
            self._master.in_sync.advance()

    def status(self) -> HaRuntime:
        term = self._master or self._slave
        return HaRuntime(False) if term is None else term.status()

    # -- see `membership.Roles`

    @property
    def log_state(self) -> LogState:
        store, entries = self._shared.store, self._shared.epochs.entries
        end = store.log.end
        return LogState(last_epoch(entries), last_epoch(cut_epochs(entries, end)), end, store.confirmed)

    def lead(self, epoch: int, in_sync: InSync) -> bool:
        assert self._change is not None
        assert self.membership is not None
        assert self._world is not None
        store, book = self._shared.store, self._shared.epochs
        if self._slave is not None:
            # Later input from that master is ignored.
            self._slave.close()
            self._slave = None
        try:
            if last_epoch(cut_epochs(book.entries, store.log.end)) < epoch:
                book.replace(begin_epoch(book.entries, epoch, store.log.end))
            self._change.begin_epoch(epoch)
        except OSError as error:
            log.error("this broker cannot be master, as a file cannot be written: %s", error)
            return False
        log.warning("this broker is master of epoch %d, from offset %d on", epoch, store.log.end)
        if self._master is not None:
            self._master.in_sync.appoint(*in_sync)
            self._change.changed()
            return True
        self._options.role, self._broker.broker_id = Role.SYNC_MASTER, _MASTER_ID
        self._master = MasterTerm(
            self.membership.broker_id,
            self._shared,
            self._options,
            self.membership.propose,
            self._moved,
            self._world.now_ms,
            in_sync,
        )
        self._moved()
        self._change.changed()
        return True

    def follow(self, appointment: Appointment) -> None:
        assert self._change is not None
        assert self.membership is not None
        assert self._world is not None
        if self._master is not None:
            self._master.close()
            self._master = None
            if self.waiting is not None:
                self.waiting.end()
            self._change.end_waits()
        elif self._slave is not None:
            if (self._slave.master_id, self._slave.address) == (appointment.master_id, appointment.address):
                return
            self._slave.close()
        own_id = self.membership.broker_id
        log.warning("broker %s at %s is master of epoch %d", appointment.master_id, appointment.address, appointment[0])
        self._options.role, self._broker.broker_id = Role.SLAVE, own_id
        self._slave = SlaveTerm(own_id, self._shared, self._options, self._world, appointment)
        self._change.changed()

    def appoint(self, in_sync: InSync) -> None:
        if self._master is not None:
            self._master.in_sync.appoint(*in_sync)

    def _moved(self) -> None:
        if self._master is not None:
            self._shared.store.confirm(self._master.in_sync.confirmed)
            if self.waiting is not None:
                self.waiting.moved()

    # -- requests

    def make_end(self, session: ReplicationSession) -> ReplicationEnd:
        return NoMaster(session) if self._master is None else self._master.copies.add(session)

    def _notified(self, request: Request) -> Frame:
        if self.membership is not None:
            self.membership.notified(read_notice(request.frame))
        return success()

    def _exchange(self, request: Request) -> Frame:
        if self._master is None:
            return success(ExchangeHaInfoResponse())
        end, broker = self._shared.store.flushed, self._broker
        return success(ExchangeHaInfoResponse(broker.ha_address, end, str(broker.address)))

    def _show_epochs(self, request: Request) -> Frame:
        entries, broker = self._shared.epochs.entries, self._broker
        spans = []
        for entry in entries:
            end = epoch_end(entries, entry.epoch)
            spans.append(EpochSpan(*entry) if end is None else EpochSpan(*entry, end))
        cache = EpochCache(broker.cluster, broker.name, broker.broker_id, spans, self._shared.store.log.end)
        return with_body(EPOCH_CACHE.write(cache))

    # -- the clock

    def end_step(self) -> bool:
        term = self._master or self._slave
        if term is not None:
            term.end_step()
        return False

    def tick(self) -> None:
        if self.membership is not None:
            self.membership.tick()
        term = self._master or self._slave
        if term is not None:
            term.tick()
        if self.waiting is not None:
            self.waiting.tick()
        self._drop_epochs()

    def _drop_epochs(self) -> None:
        book = self._shared.epochs
        if len(book.entries) > 1 and book.entries[1].start_offset <= self._shared.store.log.begin:
            try:
                book.replace(drop_epochs(book.entries, self._shared.store.log.begin))
            except (OSError, FormatError) as error:
                log.error("the file of epochs cannot be written: %s", error)

    def leave(self) -> None:
        if self.membership is not None:
            self.membership.stop()
        if self._slave is not None:
            self._slave.close()
