"""Brokers in memory, one above the other: nodes of clusters, proxies, and the links of bytes between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from broker.bmq.assembly.nodes import make_proxy
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.links.dialing import DialedSession
from broker.bmq.links.peer_links import PeerLink
from broker.bmq.node.node import Basis, Node
from broker.bmq.proxy.cluster import ProxyCluster
from broker.bmq.proxy.node import ProxyNode
from broker.bmq.proxy.proxy import BridgeLimits, Proxy, UpstreamCluster, UpstreamNode
from broker.bmq.relay.guests import Guests
from broker.bmq.session.negotiation import own_identity, tells_status
from broker.bmq.session.session import Session
from broker.bmq.session.session_ports import BrokerPeer
from broker.common.clock import Now
from formats.bmq.control.messages import BrokerResponse, ClientIdentity, ControlMessage, OpenQueue, SubQueueIdInfo
from tests.broker.bmq.relay.hop_rig import World
from tests.broker.bmq.rig import NODE, Client, Rig, guid, handle, identity, start

__all__ = ["CLUSTER", "Below", "Link", "Tree", "TreeClient"]

CLUSTER = "local"


@dataclass
class Below:
    """A proxy."""

    name: str
    node: ProxyNode
    proxy: Proxy
    now: Now

    @property
    def cluster(self) -> ProxyCluster:
        (cluster,) = self.proxy.clusters.values()
        return cluster


class Link:
    """A connection that a proxy has made to a broker above it; `up` and `down` are the bytes that it has carried."""

    credentials = None

    def __init__(self, below: Below, node_id: int, above: Node) -> None:
        self.below = below
        self.node_id = node_id
        self.up, self.down = bytearray(), bytearray()
        self.blocked = self.up_blocked = False  # whether what comes down, or goes up, stays where it is
        self.lower: Session = below.node.adopt(lambda number: DialedSession(below.node, number, "above", self, node_id))
        self.upper = above.connect("below")
        self.above = above

    # -- see `broker.bmq.links.dialing.Dialer` and `broker.bmq.links.peer_links.LinkOwner`

    def introduce(self, session_id: int) -> ClientIdentity:
        return own_identity(self.below.node.identity, session_id, self.below.cluster.name)

    def accept(self, node_id: int, session: Session, answer: BrokerResponse) -> BrokerPeer | str:
        self.tells_status = tells_status(answer.broker_identity)
        return PeerLink(self, node_id, session, self.below.cluster.receive, 0, answer.broker_identity.features)

    def failed(self, node_id: int, reason: str) -> None:
        """Do nothing: the tree dials when a test says so."""

    def refused(self, node_id: int, reason: str) -> None:
        raise AssertionError(reason)

    def begun(self, link: PeerLink) -> None:
        self.below.node.sessions.pop(link.session.session_id, None)
        self.below.cluster.peer_up(self.node_id, link, tells_status=self.tells_status)

    def ended(self, link: PeerLink) -> None:
        if self.below.cluster.links.peers.get(self.node_id) is link:
            self.below.cluster.peer_down(self.node_id)

    # -- bytes

    def carry(self) -> bool:
        """Carry over what both sides have; whether there was something."""
        moved = False
        for source, target, wire in ((self.lower, self.upper, self.up), (self.upper, self.lower, self.down)):
            if self.blocked if source is self.upper else self.up_blocked:
                continue
            data = source.take_output()
            if data:
                moved = True
                wire += data
                assert target.receive(memoryview(bytearray(data))) == len(data)
                source.output_sent()
        return moved

    def cut(self) -> None:
        """The connection is gone."""
        self.below.node.disconnect(self.lower, "cut")
        self.above.disconnect(self.upper, "cut")


@dataclass
class Tree:
    """`run` lets everything happen that follows from what a test does."""

    domains: dict[str, DomainConfig]
    links: list[Link] = field(default_factory=list)
    proxies: list[Below] = field(default_factory=list)
    rigs: list[Rig] = field(default_factory=list)
    world: World | None = None

    def root(self, **options: Any) -> Rig:
        """A cluster of one node."""
        rig = start(domains=self.domains, make_door=Guests, **options)
        self.rigs.append(rig)
        return rig

    def cluster(self, node_ids: Iterable[int]) -> World:
        """A cluster of several; the first of them is primary of all."""
        node_ids = tuple(node_ids)
        self.world = World(self.domains.values(), node_ids)
        self.world.make_primary(node_ids[0])
        return self.world

    def proxy(
        self,
        name: str,
        nodes: Iterable[UpstreamNode] = (UpstreamNode(0, "root"),),
        limits: BridgeLimits | None = None,
        data_center: str = "",
    ) -> Below:
        now = Now(NODE_START_S, 1_000_000)
        guids = (guid(len(self.proxies) << 24 | number) for number in range(1 << 20))
        basis = Basis(replace(NODE, cluster_name="", process_name=name), now, unknown_domain, guids.__next__)
        clusters = [UpstreamCluster(CLUSTER, tuple(nodes))]
        node, proxy = make_proxy(basis, clusters, data_center, limits or BridgeLimits(), lambda below: below - 1)
        proxy.start()
        below = Below(name, node, proxy, now)
        self.proxies.append(below)
        return below

    def join(self, below: Below, above: Node, node_id: int = 0) -> Link:
        """A proxy connects to a broker, and calls it by this number."""
        link = Link(below, node_id, above)
        self.links.append(link)
        self.run()
        return link

    def cut(self, link: Link) -> None:
        self.links.remove(link)
        link.cut()
        self.run()

    def run(self) -> None:
        while True:
            for each in self.proxies:
                each.node.role.settle()
            if self.world is not None:
                self.world.run()
            moved = [link.carry() for link in self.links]
            if not any(moved):
                return

    def wait(self, ms: int) -> None:
        """Let time pass everywhere."""
        for _ in range(0, ms, 100):
            for each in self.proxies:
                each.now.ms += 100
                each.node.timers.run(each.now.ms)
            for rig in self.rigs:
                rig.now.ms += 100
                rig.node.timers.run(rig.now.ms)
            self.run()
            if self.world is not None:
                self.world.wait(100)

    def client(self, node: Node, **options: Any) -> TreeClient:
        client = TreeClient(node)
        client.tree = self
        client.negotiate(identity(**options))
        return client


NODE_START_S = 1_795_237_864


def unknown_domain(name: str) -> DomainConfig:
    """All that a proxy knows of any domain."""
    return DomainConfig(name, Mode.PRIORITY)


@dataclass
class TreeClient(Client):
    """A client whose requests may need other brokers before they are answered."""

    tree: Tree | None = None

    def ask_later(self, uri: str, flags: int, app: str) -> None:
        """Ask for an app of a queue; there may be no answer yet."""
        info = SubQueueIdInfo(sub_id=1, app_id=app)
        parameters = handle(0, f"{uri}?id={app}", flags, sub_id_info=info)
        self.send(self._schema_event(ControlMessage(r_id=99, choice=OpenQueue(handle_parameters=parameters))))

    def taken(self) -> list[object]:
        """The answers that have come."""
        return [answer.choice for answer in self._pick(ControlMessage)]

    def send(self, data: bytes) -> None:
        super().send(data)
        if self.tree is not None:
            self.tree.run()

    def drop(self) -> None:
        super().drop()
        if self.tree is not None:
            self.tree.run()

    def take(self) -> bytes:
        output = super().take()
        # Its link has room again.
        if self.tree is not None:
            self.tree.run()
        return output
