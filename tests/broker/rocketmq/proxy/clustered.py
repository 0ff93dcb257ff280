"""A proxy before brokers and a nameserver, without sockets, and a client that calls it over gRPC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from broker.rocketmq.access.guard import Guard
from broker.rocketmq.administration.registration import Dial, register_frame
from broker.rocketmq.config.node import NAMESERVER_DEFAULTS, NAMESERVER_LOCKED, NAMESERVER_READERS
from broker.rocketmq.grpc.access.check import Access
from broker.rocketmq.grpc.brokers.backend import Backend
from broker.rocketmq.grpc.brokers.loopback import FrameGate
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.proxy.access import Checks
from broker.rocketmq.proxy.cluster import Cluster
from broker.rocketmq.proxy.wire import Wire
from broker.rocketmq.remoting.session import Gate, Service, Session
from broker.rocketmq.settings import Settings
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed
from tests.broker.rocketmq.grpc.served import Served
from tests.broker.rocketmq.rig import OPTIONS, Rig

__all__ = ["NAMESERVER", "Clustered", "Network", "Pipe"]

NAMESERVER = "127.0.0.1:9876"
NO_CHECKS = Checks()


class Pipe:
    """A connection: the session of who dialed, and that of who listens."""

    def __init__(self, near: Session, far: Session) -> None:
        self.near = near
        self.far = far
        self.is_cut = False
        self.is_stuck = False
        self._rest = {near: b"", far: b""}

    def exchange(self) -> bool:
        """Carry bytes both ways; return whether there were any."""
        if self.is_stuck:
            return False
        moved = self._carry(self.near, self.far)
        moved = self._carry(self.far, self.near) or moved
        if self.near.finished or self.far.finished:
            self.cut()
        return moved

    def _carry(self, source: Session, target: Session) -> bool:
        data = bytes(source.take_output())
        if not data:
            return False
        data = self._rest[target] + data
        self._rest[target] = data[target.receive(memoryview(data)) :]
        return True

    def cut(self) -> None:
        """End the connection, for both."""
        if not self.is_cut:
            self.is_cut = True
            self.near.end()
            self.far.end()


class Network:
    """Services at addresses, and the connections to them. `is_stuck`: nothing is connected or carried."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.services: dict[str, Service] = {}
        self.pipes: list[tuple[str, Pipe]] = []
        self.is_stuck = False
        self.dialed: list[str] = []
        self._dials: list[tuple[str, Callable[[str], Session], Callable[[str], None]]] = []
        self._now_ms = now_ms
        self._numbers = 0

    def dial(self, address: str) -> Dial:
        """Return what connects to an address."""
        return lambda connected, failed: self._dials.append((address, connected, failed))

    def open(self, address: str, wire: Wire) -> Session:
        """Make the session of who has dialed."""
        return self._session(wire)

    def _session(self, service: Service) -> Session:
        self._numbers += 1
        return Session(self._numbers, Host("127.0.0.1", 50_000 + self._numbers), service, lambda _: None, self._now_ms)

    def exchange(self) -> bool:
        """Connect, and carry what is to be carried; return whether there was anything."""
        if self.is_stuck:
            return False
        dials, self._dials = self._dials, []
        for address, connected, failed in dials:
            self.dialed.append(address)
            if address in self.services:
                self.pipes.append((address, Pipe(connected(address), self._session(self.services[address]))))
            else:
                failed("Connection refused")
        moved = [pipe.exchange() for _, pipe in self.pipes]
        self.pipes = [each for each in self.pipes if not each[1].is_cut]
        return bool(dials) or any(moved)

    def end(self, address: str) -> None:
        """End who listens at an address, and its connections."""
        self.services.pop(address, None)
        for place, pipe in self.pipes:
            if place == address:
                pipe.cut()
        self.pipes = [each for each in self.pipes if not each[1].is_cut]


class Clustered(Served):
    """A client of a proxy, before the broker of `rig` and as many more as wanted.

    The proxy makes `checks`, and signs with `key`, if it has one.
    """

    def __init__(
        self,
        rig: Rig | None = None,
        gate: Gate | None = None,
        others: int = 0,
        checks: Checks = NO_CHECKS,
        key: tuple[str, str] | None = None,
    ) -> None:
        assert gate is None
        self.checks = checks
        self.key = key
        self.rigs = [rig or Rig(replace(OPTIONS))]
        for number in range(others):
            address = Host("127.0.0.1", OPTIONS.address.port + 10 * (number + 1))
            self.rigs.append(Rig(replace(OPTIONS, name=f"broker-{number + 1}", address=address)))
            self.rigs[-1].topics.put(TopicConfig("many", 4, 4, attributes={"message.type": "MIXED"}), 0)
        self.network = Network(lambda: self.ms)
        settings = Settings({}, NAMESERVER_READERS, lambda _: None, NAMESERVER_LOCKED, NAMESERVER_DEFAULTS)
        self.routes = Routes()
        self.nameserver = Nameserver(self.routes, KeyValues(b"", lambda _: None), settings)
        super().__init__(self.rigs[0])

    def _backend(self, gate: FrameGate | None) -> Backend:
        guard = Guard(self.rig.access_options, self.rig.access, "")
        self.network.services[NAMESERVER] = NameserverService(self.nameserver, guard, lambda: self.rig.wall_ms)
        for rig in self.rigs:
            self.network.services[str(rig.options.address)] = rig.broker
        names = [NAMESERVER, "127.0.0.1:9877"]
        dials = (self.network.dial, self.network.open)
        self.cluster = Cluster(names, *dials, "proxy", self._seal, self.checks, lambda: self.ms)
        return self.cluster

    def _access(self) -> Access:
        return self.cluster.access

    def _seal(self, frame: Frame) -> Frame:
        return frame if self.key is None else signed(frame, *self.key)

    def register(self) -> None:
        """Have the brokers that are there tell the nameserver of their topics."""
        for rig in self.rigs:
            if str(rig.options.address) in self.network.services:
                frame = register_frame(rig.options, rig.topics)
                assert self.nameserver.answer(frame, rig, self.rig.wall_ms)

    def end_broker(self, number: int) -> None:
        """End a broker as `kill -9` does: the nameserver notices by its connection."""
        rig = self.rigs[number]
        self.network.end(str(rig.options.address))
        self.routes.disconnected(rig)

    def step(self) -> None:
        """Let the brokers, the proxy and the network do what there is to do."""
        self.register()
        again = True
        while again:
            again = self.service.end_step()
            for rig in self.rigs:
                again = rig.broker.end_step() or again
            again = self.network.exchange() or again
        self.client.exchange()

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(0, ms, 500):
            for rig in self.rigs:
                rig.pass_time(500)
            self.ms += 500
            self.client.ms += 500
            self.service.tick()
            self.step()
