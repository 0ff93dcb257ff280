"""The brokers of the cluster: their addresses, from nameservers, and the connections to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker.rocketmq.grpc.brokers.backend import Done
from broker.rocketmq.grpc.statuses import NO_BROKER, not_asked
from broker.rocketmq.proxy.nameservers import ProxyNameservers
from broker.rocketmq.proxy.wire import Events, Wire
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO, MASTER_ID, BrokerData
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Brokers"]

log = logging.getLogger("broker.rocketmq.proxy")

_REFRESH_MS: Final = 30_000
# Minimum interval of lookups at nameservers, after a broker was lost or for an unknown name.
_RETRY_MS: Final = 1_000
_WAITING_MAX: Final = 10_000
# Handles of a broker stay valid for this time after nameservers forget it, as it may come back.
_GONE_MS: Final = 30_000


# Takes an address, or the frame that replaces the answer of a broker without one.
Located = Callable[[str | Frame], None]


class Brokers:
    """All brokers by name. `make_wire` makes the connection to an address; `connected` and `lost` get the name.

    `asked` takes a broker's request, and returns whether it was accepted. `seal` signs requests to brokers.
    """

    def __init__(
        self,
        nameservers: ProxyNameservers,
        make_wire: Callable[[str, Events], Wire],
        connected: Callable[[str], None],
        lost: Callable[[str], None],
        asked: Callable[[str, Frame], bool],
        later: Callable[[Callable[[], None]], None],
        seal: Callable[[Frame], Frame],
        now_ms: Callable[[], int],
    ) -> None:
        self._nameservers = nameservers
        self._make_wire = make_wire
        self._connected = connected
        self._lost = lost
        self._asked = asked
        self._later = later
        self._seal = seal
        self._now_ms = now_ms
        self._addresses: dict[str, dict[int, str]] = {}
        self._clusters: dict[str, str] = {}
        self._gone: dict[str, int] = {}
        self._wires: dict[str, Wire] = {}
        self._waiting: list[tuple[str, Located]] = []
        self._waiting_for_names: list[Callable[[], None]] = []
        self._is_loading = False
        self._asked_ms: int | None = None
        self._due_ms = 0

    @property
    def names(self) -> list[str]:
        return sorted(self._addresses)

    def learn(self, brokers: Iterable[BrokerData]) -> None:
        for broker in brokers:
            if broker.broker_addrs:
                self._addresses[broker.broker_name] = dict(broker.broker_addrs)
                self._clusters[broker.broker_name] = broker.cluster
                self._gone.pop(broker.broker_name, None)

    def ask(self, name: str, frame: Frame, until_ms: int, done: Done) -> None:
        """Ask the broker of a name: the master, or its stand-in."""

        def located(where: str | Frame) -> None:
            if isinstance(where, Frame):
                self._later(lambda: done(where))
            else:
                self._wire(where, name).ask(self._seal(frame), until_ms, answered)

        def answered(answer: Frame) -> None:
            if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                # The broker may no longer be master.
                self._due_ms = min(self._due_ms, self._now_ms())
            done(answer)

        self.locate(name, located)

    def find_names(self, cluster: str, found: Callable[[list[str]], None]) -> None:
        """Look up the names of a cluster's brokers; none if nameservers know none, or cannot be asked."""

        def give() -> None:
            found([name for name in self.names if self._clusters[name] == cluster])

        is_known = cluster in self._clusters.values()
        if is_known or not (self._is_loading or self._may_look()) or len(self._waiting_for_names) >= _WAITING_MAX:
            give()
        else:
            self._waiting_for_names.append(give)
            self._look()

    def address_of(self, name: str) -> str | None:
        addresses = self._addresses.get(name)
        return (addresses.get(MASTER_ID) or addresses[min(addresses)]) if addresses else None

    def locate(self, name: str, located: Located) -> None:
        """Look up the address of a broker, or the frame that replaces its answer; now or later."""
        address = self.address_of(name)
        if address is not None:
            located(address)
        elif not self._is_loading and not self._may_look():
            located(_unknown(name))
        elif len(self._waiting) >= _WAITING_MAX:
            located(not_asked(ResponseCode.SYSTEM_BUSY, "too many requests wait"))
        else:
            self._waiting.append((name, located))
            self._look()

    def tell(self, name: str, frame: Frame) -> None:
        """Send a one-way request to a broker, if it is connected."""
        address = self.address_of(name)
        if address is not None:
            self._wire(address, name).tell(self._seal(frame))

    def _wire(self, address: str, name: str) -> Wire:
        wire = self._wires.get(address)
        if wire is None:
            events = Events(
                lambda: self._connected(name), lambda: self._note_lost(name), lambda frame: self._asked(name, frame)
            )
            wire = self._wires[address] = self._make_wire(address, events)
        return wire

    def _note_lost(self, name: str) -> None:
        # Another broker of the name may have replaced it.
        self._due_ms = min(self._due_ms, self._now_ms())
        self._lost(name)

    # -- lookups

    def _may_look(self) -> bool:
        return self._asked_ms is None or not 0 <= self._now_ms() - self._asked_ms < _RETRY_MS

    def _look(self) -> None:
        if not self._is_loading:
            self._is_loading, self._asked_ms = True, self._now_ms()
            self._nameservers.ask(Frame(RequestCode.GET_BROKER_CLUSTER_INFO, 0), self._looked)

    def _looked(self, answer: Frame) -> None:
        self._is_loading = False
        self._due_ms = self._now_ms() + _RETRY_MS
        if answer.code == ResponseCode.SUCCESS:
            try:
                table = CLUSTER_INFO.read(answer.body).broker_addr_table
            except FormatError as error:
                log.warning("a nameserver says of the brokers what cannot be read: %s", error)
            else:
                self._replace(table.values())
                self._due_ms = self._now_ms() + _REFRESH_MS
        waiting, self._waiting = self._waiting, []
        waiting_for_names, self._waiting_for_names = self._waiting_for_names, []
        for give in waiting_for_names:
            give()
        for name, located in waiting:
            located(self.address_of(name) or (_unknown(name) if answer.code == ResponseCode.SUCCESS else answer))

    def _replace(self, brokers: Iterable[BrokerData]) -> None:
        now_ms = self._now_ms()
        before, self._addresses = self._addresses, {}
        self.learn(brokers)
        for name in before.keys() - self._addresses.keys():
            if name not in self._gone:
                # Routes that name it must be looked up again.
                self._gone[name] = now_ms
                self._lost(name)
            if now_ms - self._gone[name] < _GONE_MS:
                self._addresses[name] = before[name]
            else:
                del self._gone[name]
                self._clusters.pop(name, None)

    def tick(self) -> None:
        now_ms = self._now_ms()
        if now_ms >= self._due_ms and self._may_look():
            self._look()
        known = {address for addresses in self._addresses.values() for address in addresses.values()}
        for address, wire in list(self._wires.items()):
            wire.expire(now_ms)
            if wire.is_idle and not wire.waiting and address not in known:
                del self._wires[address]

    def leave(self) -> None:
        for wire in self._wires.values():
            wire.leave()


def _unknown(name: str) -> Frame:
    return not_asked(NO_BROKER, f"cannot find broker {name[:80]}")
