"""A proxy put together: the clusters that it is a proxy to, and the brokers below it (source: mqba::ClusterCatalog)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.bmq.core.cluster_view import ProxyView
from broker.bmq.node.node import Node
from broker.bmq.proxy.active_node import UpstreamNode
from broker.bmq.proxy.cluster import ProxyCluster, UpstreamCluster
from broker.bmq.proxy.limits import BridgeLimits
from broker.bmq.queue.domains import Domain
from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.relay.bulk import WholeEvents
from broker.bmq.relay.guests import Guests
from broker.bmq.relay.last_confirms import LastConfirms
from broker.bmq.relay.put_room import PutRoom
from formats.bmq.control.messages import QueueHandleParameters, StatusCategory

__all__ = ["BridgeLimits", "Proxy", "UpstreamCluster", "UpstreamNode"]


class Proxy:
    """`clusters` are by name; there may be none yet. A domain that names none is in the only one, or in the first."""

    def __init__(
        self,
        node: Node,
        clusters: Iterable[UpstreamCluster],
        data_center: str,
        limits: BridgeLimits,
        random_below: Callable[[int], int],
    ) -> None:
        self.room = PutRoom(limits.bytes_max, limits.messages_max)
        self._node = node
        self._data_center = data_center
        self._random_below = random_below
        self.clusters: dict[str, ProxyCluster] = {}
        self._last_confirms = LastConfirms(node)
        self.guests = Guests(node)
        self.guests.serve()
        # Called when a cluster is available for the first time.
        self.on_available: Callable[[], None] = lambda: None
        for config in clusters:
            self.add(config)
        node.bulk = WholeEvents()
        node.place = self._place
        node.settle = self._settle
        node.retire = self._retire
        node.awaits_confirms = self._last_confirms.awaited
        node.proxy_view = self._view

    def add(self, config: UpstreamCluster) -> ProxyCluster:
        """Begin to be a proxy to one more cluster, which is to be started."""
        cluster = ProxyCluster(config, self._data_center, self._node, self.room, self._random_below)
        cluster.on_available = lambda: self.on_available()
        self.clusters[config.name] = cluster
        return cluster

    def start(self) -> None:
        """Begin to look for nodes; their links may be up already."""
        for cluster in self.clusters.values():
            cluster.start()

    def stop(self) -> None:
        """Look for nodes no longer."""
        for cluster in self.clusters.values():
            cluster.stop()

    def _place(self, name: str, domain: Domain, parameters: QueueHandleParameters, opened: Opened) -> None:
        wanted = domain.config.cluster or next(iter(self.clusters), "")
        cluster = self.clusters.get(wanted)
        if cluster is None:
            message = f"Domain '{domain.config.name}' is in cluster '{wanted}', which this proxy does not know"
            raise Refusal(StatusCategory.UNKNOWN, message, -1)
        cluster.open_queue(name, domain, parameters, opened)

    def _view(self, name: str) -> ProxyView | None:
        cluster = self.clusters.get(name)
        return None if cluster is None else cluster.view()

    def _settle(self) -> bool:
        for cluster in self.clusters.values():
            cluster.flush()
        return False

    def _retire(self) -> bool:
        """The brokers below go elsewhere if they can, and the consumers here have time to confirm what they have."""
        have_left = self.guests.retire()
        return self._last_confirms.done() and have_left
