"""A broker's connections to the controllers: heartbeats go to all, requests to the leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker.rocketmq.remoting.outgoing import Outgoing
from broker.rocketmq.replication.options import ReplicationOptions
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.headers.replicating import GetControllerMetadataResponse

__all__ = ["Controllers"]

log = logging.getLogger("broker.rocketmq.replication")

# The interval of requests for the leader while it is unknown.
SEEK_MS: Final = 500


class Controllers:
    """The controllers of a broker. `make_link` makes the connection to one."""

    def __init__(self, options: ReplicationOptions, make_link: Callable[[], Outgoing]) -> None:
        self._options = options
        self._make_link = make_link
        self._links: dict[str, Outgoing] = {}
        self.leader: str | None = None
        self._asked_ms: int | None = None
        self._refused = ""
        for address in options.controllers:
            self._connect(address)

    def _connect(self, address: str) -> None:
        self._links[address] = link = self._make_link()
        link.follow(address)

    @property
    def has_leader(self) -> bool:
        return self.leader is not None and self._links[self.leader].is_connected

    def tell(self, request: Frame) -> None:
        for link in self._links.values():
            link.tell(request)

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None:
        """Send a request to the last known leader; `done` gets the answer, or None."""
        if self.leader is None:
            done(None)
        else:
            self._links[self.leader].ask(request, now_ms, partial(self._answered, self.leader, done))

    def _answered(self, address: str, done: Callable[[Frame | None], None], answer: Frame | None) -> None:
        is_leader = answer is not None and answer.code != ResponseCode.CONTROLLER_NOT_LEADER
        if not is_leader and address == self.leader:
            self.leader = self._asked_ms = None
        done(answer if is_leader else None)

    def tick(self, now_ms: int) -> None:
        for link in self._links.values():
            link.tick(now_ms)
        period_ms = self._options.leader_ms if self.has_leader else SEEK_MS
        if self._asked_ms is None or not 0 <= now_ms - self._asked_ms < period_ms:
            self._asked_ms = now_ms
            for link in list(self._links.values()):
                if link.is_connected:
                    link.ask(Frame(RequestCode.CONTROLLER_GET_METADATA_INFO, 0), now_ms, self._told)

    def _told(self, answer: Frame | None) -> None:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        try:
            leader = read_header(GetControllerMetadataResponse, answer.ext_fields).controller_leader_address
        except FormatError:
            return
        if not leader or leader == self.leader:
            return
        if split_address(leader) is None:
            if leader != self._refused:
                self._refused = leader
                log.warning("a controller says that %r leads, which is no HOST:PORT", leader[:80])
            return
        log.info("controller %s leads", leader)
        self._forget_others(leader)
        if leader not in self._links:
            self._connect(leader)
        self.leader = leader

    def _forget_others(self, leader: str) -> None:
        """Close the connections to controllers that are not configured, except the leader."""
        kept: Iterable[str] = (*self._options.controllers, leader)
        for address in [address for address in self._links if address not in kept]:
            self._links.pop(address).close()

    def close(self) -> None:
        for link in self._links.values():
            link.close()
