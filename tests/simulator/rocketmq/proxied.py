"""A proxy before a simulated node, the nameservers that both know, and all connections between them.

Bytes pass at once: what a client is given comes no later than without a proxy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.timers import Timers
from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.administration.registration import Dial, NameserverLink
from broker.rocketmq.config.node import NAMESERVER_DEFAULTS, NAMESERVER_LOCKED, NAMESERVER_READERS
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.grpc.service import GrpcService
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.node import Connection, Node
from broker.rocketmq.proxy.access import Checks
from broker.rocketmq.proxy.cluster import Cluster
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.settings import Settings
from tests.simulator.judges.invariants import Violation

__all__ = ["ADDRESS", "NAMES", "Proxied"]

NAMES = ("127.0.0.1:9876", "127.0.0.1:9877")
ADDRESS = "127.0.0.1:8080"
# The address that clients of the proxy connect from.
_HERE = "127.0.0.1"


class _Pipe:
    """A connection: the node and the session at either end."""

    def __init__(self, address: str, near: tuple[Node, Session], far: tuple[Node, Connection]) -> None:
        self.address = address
        self.nodes = near[0], far[0]
        self._ends = (near[0], near[1], bytearray()), (far[0], far[1], bytearray())
        self.is_cut = False

    def carry(self) -> bool:
        """Carry bytes both ways; return whether there were any."""
        moved = False
        for (_, source, _), (_, target, rest) in (self._ends, self._ends[::-1]):
            data = source.take_output()
            if data:
                moved = True
                rest += data
                del rest[: target.receive(memoryview(bytes(rest)))]
        return moved

    @property
    def is_over(self) -> bool:
        return any(isinstance(session, Session) and session.finished for _, session, _ in self._ends)

    def cut(self) -> None:
        """End the connection, for both."""
        if not self.is_cut:
            self.is_cut = True
            for node, session, _ in self._ends:
                if node.sessions.get(session.session_id) is session:
                    node.disconnect(session, "the connection is lost")


class _Part:
    """A process with its connections."""

    accept: Callable[[str, Callable[[], frozenset[str]]], Session]

    def __init__(self) -> None:
        self.now = Now(0, 0)
        self.node = Node(self.now, Faults(self.now), Timers())

    def connect(self, port: int) -> Session:
        """Open the session of a client that connects."""
        return self.accept(f"{_HERE}:{port}", frozenset)

    def end_step(self) -> bool:
        """End a round of a step; True if there is more to do."""
        self.node.end_failed()
        has_more, _ = self.node.end_step()
        faults = self.node.faults
        if faults.of_sessions or faults.others:
            raise Violation(f"a proxy or a nameserver has stumbled over {faults.of_sessions + faults.others} fault(s)")
        self.node.dirty.clear()
        return has_more


class _NameserverProcess(_Part):
    """A nameserver, which begins without any routes, and with the values that are `kept`."""

    def __init__(self, wall_ms: Callable[[], int], kept: dict[str, bytes]) -> None:
        super().__init__()
        settings = Settings({}, NAMESERVER_READERS, lambda _: None, NAMESERVER_LOCKED, NAMESERVER_DEFAULTS)
        guard = Guard(AccessOptions(), AccessTables(b"", b"", lambda _: None, lambda _: None), "")
        self.routes = Routes()
        parts = Nameserver(
            self.routes, KeyValues(kept.get("values", b""), lambda data: kept.update(values=data)), settings
        )
        service = NameserverService(parts, guard, wall_ms)
        self.node.add(service)
        self.accept = self.node.connect_to(service)


class _ProxyProcess(_Part):
    """A proxy; `dial` is the network's, for one of its connections."""

    def __init__(self, dial: Callable[[Node, str], Dial], wall_ms: Callable[[], int]) -> None:
        super().__init__()
        node = self.node
        self.cluster = Cluster(
            NAMES,
            lambda address: dial(node, address),
            node.open,
            "proxy",
            lambda frame: frame,
            Checks(),
            lambda: node.now.ms,
        )
        self.grpc = GrpcService(self.cluster.access, self.cluster, node.faults, wall_ms, lambda: node.now.ms)
        clients = self.cluster.remoting_clients(ADDRESS)
        node.add(self.grpc)
        node.add(clients)
        self.accept = node.connect_to(clients)

    def connect_grpc(self, port: int) -> GrpcSession:
        """Open the session of a client of the gRPC service that connects."""
        node = self.node
        make = lambda number, host: self.grpc.connect(number, host, node.dirty.add, node.step_time)  # noqa: E731
        return node.open_other(f"{_HERE}:{port}", make)


class Proxied:
    """The proxy, and two nameservers, one of which at a time may be away."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._start_ms = wall_ms()
        self._pipes: list[_Pipe] = []
        self._dials: list[tuple[Node, str, Callable[[str], Session], Callable[[str], None]]] = []
        self._ports = 50_000
        # The broker's node, and the function that opens a session with it.
        self._broker: tuple[Node, str, Callable[[int], Session]] | None = None
        self._kept: dict[str, dict[str, bytes]] = {name: {} for name in NAMES}
        self.nameservers = {name: _NameserverProcess(wall_ms, self._kept[name]) for name in NAMES}
        self.proxy = _ProxyProcess(self._dial, wall_ms)
        self._set_clock()

    def _dial(self, node: Node, address: str) -> Dial:
        return lambda connected, failed: self._dials.append((node, address, connected, failed))

    def links(self, node: Node, hello: Callable[[], Any]) -> list[NameserverLink]:
        """Make the links of a broker to the nameservers."""
        return [NameserverLink(name, self._dial(node, name), node.open, hello) for name in NAMES]

    def serve(self, node: Node, address: str, accept: Callable[[int], Session]) -> None:
        """Let the proxy find a broker that was started, and that has registered."""
        self._broker = node, address, accept

    @property
    def _parts(self) -> list[_Part]:
        return [*self.nameservers.values(), self.proxy]

    # -- steps

    def _set_clock(self) -> None:
        ms = self._wall_ms()
        for part in self._parts:
            part.now.ms, part.now.wall_s = ms - self._start_ms, ms // 1000

    def set_back(self, ms: int) -> None:
        """Note that the time of day was set back: the clock that never goes back goes on."""
        self._start_ms -= ms

    def tick(self) -> None:
        """Do what is due."""
        for part in self._parts:
            part.node.tick()

    def carry(self) -> bool:
        """Connect, and carry what is to be carried; return whether there was anything."""
        self._set_clock()
        dials, self._dials = self._dials, []
        for node, address, connected, failed in dials:
            far = self._accept(node, address)
            if far is None:
                failed("Connection refused")
            else:
                self._pipes.append(_Pipe(address, (node, connected(address)), far))
        moved = [part.end_step() for part in self._parts] + [pipe.carry() for pipe in self._pipes]
        for pipe in self._pipes:
            if pipe.is_over:
                pipe.cut()
        self._pipes = [pipe for pipe in self._pipes if not pipe.is_cut]
        return bool(dials) or any(moved)

    def _accept(self, node: Node, address: str) -> tuple[Node, Connection] | None:
        self._ports += 1
        nameserver = self.nameservers.get(address)
        if nameserver is not None:
            if node is self.proxy.node and not nameserver.routes.topics():
                # One that was started is out of the proxy's reach until the broker has registered.
                return None
            return nameserver.node, nameserver.accept(f"{_HERE}:{self._ports}", frozenset)
        if self._broker is None or self._broker[1] != address:
            return None
        return self._broker[0], self._broker[2](self._ports)

    # -- faults

    def _cut(self, node: Node) -> None:
        for pipe in self._pipes:
            if node in pipe.nodes:
                pipe.cut()
        self._pipes = [pipe for pipe in self._pipes if not pipe.is_cut]

    def broker_died(self) -> None:
        """End the connections to the broker, and its own."""
        assert self._broker is not None
        node, self._broker = self._broker[0], None
        self._dials = [each for each in self._dials if each[0] is not node]
        self._cut(node)

    def cut_broker(self, choose: Callable[[int], int]) -> None:
        """Cut one of the proxy's connections to the broker."""
        links = [pipe for pipe in self._pipes if pipe.nodes[0] is self.proxy.node and pipe.address not in NAMES]
        if links:
            links[choose(len(links))].cut()

    def restart_nameserver(self, name: str) -> None:
        """End a nameserver, and start it, without any routes."""
        self._cut(self.nameservers[name].node)
        self.nameservers[name] = _NameserverProcess(self._wall_ms, self._kept[name])

    def restart_proxy(self) -> None:
        """End the proxy, and start another one."""
        node = self.proxy.node
        self._dials = [each for each in self._dials if each[0] is not node]
        self._cut(node)
        self.proxy = _ProxyProcess(self._dial, self._wall_ms)
        self._set_clock()
