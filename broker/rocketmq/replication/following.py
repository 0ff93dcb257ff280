"""The work of a slave's process: it finds the master, copies its log, and requests its other data; see `node.Part`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.rocketmq.remoting.outgoing import Outgoing
from broker.rocketmq.replication.metadata import MasterMetadata
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.slave import Slave, SlaveStream
from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.replication import HaRuntime, HaSlave
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.headers.routing import RegisterBrokerResponse

__all__ = ["Following"]

log = logging.getLogger("broker.rocketmq.replication")

# The interval at which a slave without a master asks its nameservers.
ASK_MS: Final = 3_000


class Following:
    """A slave at work. `register` registers with the nameservers; `registered` gets their answers."""

    def __init__(
        self,
        store: MessageStore,
        options: ReplicationOptions,
        slave: Slave[SlaveStream],
        link: Outgoing,
        metadata: MasterMetadata,
        register: Callable[[], None],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._options = options
        self._slave = slave
        self._link = link
        self._metadata = metadata
        self._register = register
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._asked_ms = now_ms()
        self._refused = ""
        if options.master_address is not None:
            slave.follow(options.master_address)

    def registered(self, answer: Frame) -> None:
        try:
            told = read_header(RegisterBrokerResponse, answer.ext_fields)
        except FormatError:
            return
        if told.master_addr and self._is_place(told.master_addr):
            self._link.follow(told.master_addr)
        if told.ha_server_addr and self._options.master_address is None and self._is_place(told.ha_server_addr):
            self._slave.follow(told.ha_server_addr)

    def found(self, address: str, ha_address: str | None) -> None:
        if self._is_place(address):
            self._link.follow(address)
        if ha_address is None:
            self._register()
        elif self._options.master_address is None and self._is_place(ha_address):
            self._slave.follow(ha_address)

    def _is_place(self, address: str) -> bool:
        if split_address(address) is not None:
            return True
        if address != self._refused:
            self._refused = address
            log.warning("the master is said to be at %r, which is no HOST:PORT", address[:80])
        return False

    def status(self) -> HaRuntime:
        stream = self._slave.stream
        if stream is None:
            return HaRuntime(False, ha_client_runtime_info=HaSlave(self._slave.master, 0, self._store.log.end))
        heard_ms = self._wall_ms() - (self._now_ms() - stream.session.heard_ms)
        written_ms = self._wall_ms() - stream.session.idle_ms
        told = HaSlave(self._slave.master, 0, self._store.log.end, heard_ms, written_ms, 0, True)
        return HaRuntime(False, ha_client_runtime_info=told)

    def end_step(self) -> bool:
        self._slave.end_step()
        return False

    def tick(self) -> None:
        now_ms = self._now_ms()
        knows_master = self._slave.master is not None and self._link.address is not None
        if not knows_master and now_ms - self._asked_ms >= ASK_MS:
            self._asked_ms = now_ms
            self._register()
        self._slave.tick()
        self._link.tick(now_ms)
        if self._slave.is_agreed:
            self._metadata.tick(now_ms)

    def leave(self) -> None:
        self._slave.stop()
