# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A proxy put together: the clusters that it is a proxy to, and the brokers below it (source: mqba::ClusterCatalog)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from broker.bmq.core.cluster_view import CopiedMessage, ProxyView
from broker.bmq.core.config import DomainConfig
from broker.bmq.node.node import Node
from broker.bmq.proxy.active_node import UpstreamNode
from broker.bmq.proxy.cluster import ProxyCluster, UpstreamCluster
from broker.bmq.proxy.limits import BridgeLimits
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.relay.guests import Guests
from broker.bmq.relay.last_confirms import LastConfirms
from broker.bmq.relay.put_room import PutRoom
from formats.bmq.control.messages import QueueHandleParameters, StatusCategory

__all__ = ["BridgeLimits", "Proxy", "UpstreamCluster", "UpstreamNode"]


class DialedLinks(Protocol):
    """The links to the nodes of a cluster."""

    def stop(self) -> None: ...


class Proxy:
    """The role of a node that is a proxy; see `Role`.

    `clusters` are by name; there may be none yet. A domain that names none is in the only one, or in the first.
    `on_available` is called when a cluster is available for the first time.
    """

    is_proxy = True
    assigns_queues = False

    def __init__(
        self,
        node: Node,
        clusters: Iterable[UpstreamCluster],
        data_center: str,
        limits: BridgeLimits,
        random_below: Callable[[int], int],
        on_available: Callable[[], None] = lambda: None,
    ) -> None:
        self.room = PutRoom(limits.bytes_max, limits.messages_max)
        self._node = node
        self._data_center = data_center
        self._random_below = random_below
        self.clusters: dict[str, ProxyCluster] = {}
        self._last_confirms = LastConfirms(node)
        self.guests = Guests(node)
        self.admit = self.guests.admit
        self.awaits_confirms = self._last_confirms.awaited
        self._on_available = on_available
        self._links: list[DialedLinks] = []
        for config in clusters:
            self.add(config)

    def add(self, config: UpstreamCluster) -> ProxyCluster:
        cluster = ProxyCluster(config, self._data_center, self._node, self.room, self._random_below, self._on_available)
        self.clusters[config.name] = cluster
        return cluster

    def attach(self, links: DialedLinks) -> None:
        """Set the links to the nodes of a cluster; the proxy ends them when it leaves.

        Call this once for each cluster: the links are dialed by the process's loop, which is made for the node.
        """
        self._links.append(links)

    def start(self) -> None:
        for cluster in self.clusters.values():
            cluster.start()

    def leave(self) -> None:
        for cluster in self.clusters.values():
            cluster.stop()
        for links in self._links:
            links.stop()

    def place(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        wanted = domain.config.cluster or next(iter(self.clusters), "")
        cluster = self.clusters.get(wanted)
        if cluster is None:
            message = f"Domain '{domain.config.name}' is in cluster '{wanted}', which this proxy does not know"
            raise Refusal(StatusCategory.UNKNOWN, message, -1)
        cluster.open_queue(name, domain, parameters, opened)

    def proxy_view(self, name: str) -> ProxyView | None:
        cluster = self.clusters.get(name)
        return None if cluster is None else cluster.view()

    def rest(self) -> bool:
        return False

    def settle(self) -> bool:
        for cluster in self.clusters.values():
            cluster.flush()
        return False

    def retire(self) -> bool:
        """Let the brokers below go elsewhere if they can, and consumers here confirm their messages."""
        have_left = self.guests.retire()
        return self._last_confirms.done() and have_left

    # -- for nodes of a cluster only: a proxy is no queue's primary, does not vote, and has no copies

    def take_away(self, queue: Queue) -> None:
        raise AssertionError(f"a proxy assigns no queue: '{queue.uri}'")

    def renew_apps(self, config: DomainConfig) -> None:
        raise AssertionError(f"a proxy assigns no apps: domain '{config.name}'")

    def set_elector_quorum(self, quorum: int) -> None:
        """Change nothing."""

    def set_replication_quorum(self, quorum: int) -> None:
        """Change nothing."""

    def cluster_view(self) -> None:
        return None

    def copied(self, partition_id: int) -> Mapping[bytes, tuple[int, int]] | None:
        return None

    def list_copied(self, partition_id: int, queue_key: bytes, first: int, count: int) -> Sequence[CopiedMessage]:
        return ()
