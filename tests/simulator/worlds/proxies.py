"""A cluster with proxies below it, in a tree: clients connect to nodes and to proxies, and notice no difference.

n0 n1 n2      the cluster
 |  |  |
x0     x1     both linked to all nodes
  \\   /
   x2         linked to both
    |
   x3
"""

from __future__ import annotations

from broker.bmq.assembly.nodes import make_proxy
from broker.bmq.core.config import DomainConfig, Mode, NodeIdentity
from broker.bmq.node.node import Basis, Node
from broker.bmq.node.services import ProcessServices
from broker.bmq.proxy.links import UpstreamLinks
from broker.bmq.proxy.proxy import BridgeLimits, Proxy, UpstreamCluster, UpstreamNode
from broker.common.clock import Now
from formats.bmq.guid import GuidGenerator
from tests.simulator.judges.invariants import Records, check_queue
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.machines.proofs import ask_for_proofs, with_users
from tests.simulator.worlds.cluster import ClusterRecords, ClusterWorld
from tests.simulator.worlds.features import Feature

__all__ = ["ProxyHost", "ProxyWorld"]

# After the nodes' numbers.
FIRST_ID = 100


class ProxyHost(Host):
    """A machine that a proxy runs on. `above` are the machines that it links to; nothing of it is on a disk."""

    def __init__(self, world: ProxyWorld, number: int, above: list[Host], drift_ppm: int) -> None:
        super().__init__(world, FIRST_ID + number, drift_ppm)
        self.name = f"x{number}"
        self.above = above
        self.proxy: Proxy | None = None
        self.links: UpstreamLinks | None = None
        self._starts = 0

    def start(self) -> None:
        if self.node is not None:
            return
        self._starts += 1
        self._now = now = Now()
        self._set_clock()
        # A process makes GUIDs that no other does.
        guids = GuidGenerator(bytes(4) + bytes((self.node_id, self._starts & 255)), 0)
        services = with_users(ProcessServices()) if Feature.USERS in self.world.features else ProcessServices()
        basis = Basis(self._identity(), now, _anywhere, lambda: guids.make(now.ms), services, self._settings())
        nodes = tuple(UpstreamNode(number, host.name) for number, host in enumerate(self.above))
        clusters = [UpstreamCluster("local", nodes)]
        node, proxy = make_proxy(basis, clusters, "", BridgeLimits(), self.world.random.randrange)
        ask_for_proofs(self, node, self.proofs_random)
        self.node, self.proxy = node, proxy
        self.links = UpstreamLinks(node, proxy.clusters["local"], "local", range(len(nodes)), (), self._dial)
        proxy.attach(self.links)
        self.world.say(f"{self.name} starts")
        self.step(self._begin)
        self._tick_later(node)

    def _begin(self) -> None:
        assert self.proxy is not None
        assert self.links is not None
        self.proxy.start()
        self.links.start()

    def _identity(self) -> NodeIdentity:
        return NodeIdentity(
            cluster_name="",
            node_id=-1,
            host=self.name,
            process_name="bmqbrkr.tsk",
            process_id=1,
            version=999_999,
            user_agent="simulator",
            heartbeat_interval_ms=500,
            heartbeats_missed_max=4,
            downstream_heartbeats_missed_max=4,
            upstream_heartbeats_missed_max=4,
        )

    def _stop(self, node: Node) -> None:
        node.stopping = True
        node.leave()
        node.role.settle()
        self._flush(node)
        for session in list(node.sessions.values()):
            node.disconnect(session, "the node stops")
        node.role.settle()
        self._flush(node)

    def _written(self, node: Node) -> int:
        return 0

    def peer(self, node_id: int) -> Host:
        return self.above[node_id]

    def _dial(self, node_id: int) -> None:
        links, other = self.links, self.peer(node_id)
        assert links is not None
        self._dial_host(
            other,
            lambda: self.links is links,
            lambda: links.connected(node_id, other.name),
            lambda reason: links.failed(node_id, reason),
        )


def _anywhere(name: str) -> DomainConfig:
    return DomainConfig(name, Mode.PRIORITY)


class ProxyRecords(ClusterRecords):
    """Proxies keep posts, too."""

    def durable(self, uri: str, app: str, guid: bytes) -> None:
        """A proxy sends again what it has no ack for, whether or not an app was done with it."""
        post = self.posts[guid]
        post.again |= not post.acked
        super().durable(uri, app, guid)


class ProxyWorld(ClusterWorld):
    """Nodes, and four proxies below them."""

    def __init__(self, seed: int, *, nodes: int = 3, features: frozenset[Feature] | None = None) -> None:
        super().__init__(seed, nodes=nodes, features=features)
        first = ProxyHost(self, 0, list(self.hosts), 0)
        second = ProxyHost(self, 1, list(self.hosts), 200)
        third = ProxyHost(self, 2, [first, second], 0)
        self.proxies = [first, second, third, ProxyHost(self, 3, [third], -200)]
        for client in self.clients:
            # Some go anywhere; others stay with proxies, or with the lowest.
            places: list[list[Host]] = [[*self.hosts, *self.proxies], [*self.proxies], [self.proxies[3]]]
            client.hosts = self.random.choice(places)
        self.faults.add(self.kill_proxy, self.stop_proxy, self.pause_proxy, self.part_proxy)

    @property
    def brokers(self) -> list[Host]:
        return [*self.hosts, *self.proxies]

    def make_records(self) -> Records:
        return ProxyRecords(self.apps, self.promises, self)

    def run(self, steps: int = 2000) -> None:
        for proxy in self.proxies:
            proxy.start()
        super().run(steps)

    def rest(self) -> None:
        for proxy in self.proxies:
            proxy.recover()
            proxy.start()
        super().rest()

    def unrest(self) -> str:
        for proxy in self.proxies:
            if proxy.node is None or proxy.proxy is None:
                return f"{proxy.name} does not run"
            if proxy.proxy.clusters["local"].active_id is None:
                return f"{proxy.name} has no active node"
            for queue in proxy.node.queues.values():
                if queue.messages:
                    return f"{proxy.name} holds messages"
            if proxy.proxy.room.messages or proxy.proxy.room.bytes:
                return f"{proxy.name} keeps posts"
        return super().unrest()

    def look(self) -> None:
        super().look()
        for proxy in self.proxies:
            if proxy.node is not None:
                for queue in proxy.node.queues.values():
                    check_queue(queue)

    # -- faults

    def _restart(self, proxy: ProxyHost) -> None:
        self.clock.after(self.random.randrange(10_000, 3_000_000), proxy.start)

    def kill_proxy(self) -> None:
        proxy = self.random.choice(self.proxies)
        if proxy.node is not None:
            proxy.die(Death.KILL)
            self._restart(proxy)

    def stop_proxy(self) -> None:
        proxy = self.random.choice(self.proxies)
        if proxy.node is not None:
            self.say(f"{proxy.name} is asked to stop")
            proxy.retire(lambda: self._restart(proxy))

    def pause_proxy(self) -> None:
        self.random.choice(self.proxies).pause(self.random.randrange(10_000, 4_000_000))

    def part_proxy(self) -> None:
        """Have nothing pass between a proxy and some of the nodes above it, for a while."""
        proxy = self.random.choice(self.proxies)
        some = [host.name for host in proxy.above if self.random.random() < 0.6]
        pairs = {(proxy.name, name) for name in some} | {(name, proxy.name) for name in some}
        self.network.blocked |= pairs
        self.clock.after(self.random.randrange(100_000, 6_000_000), lambda: self.network.heal(pairs))
