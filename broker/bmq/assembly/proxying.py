"""Assembly of a proxy from its configuration, and its run."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence

from broker.bmq.admin.answers.results import ClusterInfo
from broker.bmq.admin.environment import Environment
from broker.bmq.admin.readiness import ClusterReadiness, lacks_as_proxy
from broker.bmq.assembly.domains import ProxyDomains
from broker.bmq.assembly.nodes import make_proxy
from broker.bmq.assembly.pages import WatchedBroker, open_pages, serve_pages
from broker.bmq.assembly.process import (
    OutgoingSecurity,
    addresses,
    administration,
    announce_available,
    cluster_info,
    identity_of,
    make_guids,
    make_server,
    monitor_limits,
    open_listeners,
    process_services,
    queue_settings,
    run_files,
    take_commands,
    where,
)
from broker.bmq.assembly.statistics_file import write_statistics
from broker.bmq.config import UNNAMED, NodeConfig, reload_clusters
from broker.bmq.config.cluster_schema import ClusterProxyDefinition
from broker.bmq.config.dump import to_json
from broker.bmq.core.state_monitor import Observed, StateMonitor
from broker.bmq.node.node import Basis, Node
from broker.bmq.proxy.cluster import ProxyCluster
from broker.bmq.proxy.limits import BridgeLimits
from broker.bmq.proxy.links import UpstreamLinks
from broker.bmq.proxy.proxy import Proxy, UpstreamCluster, UpstreamNode
from broker.bmq.session.credentials import Credentials
from broker.shell.connections.dialing import Endpoint
from broker.shell.files.mapped_files import make_folder
from broker.shell.host.descriptors import raise_limit
from broker.shell.loop.runtime import freeze_collector, start_clock
from broker.shell.loop.server import Server, run_server
from broker.shell.process.announcing import announce
from broker.shell.process.logs import start_logging

__all__ = ["serve_proxy"]

log = logging.getLogger("broker")


def serve_proxy(config: NodeConfig, limits: BridgeLimits, ready: Callable[[], None]) -> None:
    """Run a proxy until SIGTERM or SIGINT. `limits` bound what it keeps while there is nothing upstream.

    `ready` is called once clients are served.
    """
    clusters = config.clusters.proxy_clusters
    raise_limit()
    listeners = open_listeners(config)
    pages = open_pages(config)
    make_folder(config.run_directory)
    with run_files(config.run_directory) as pipe:
        switches = start_logging(config.broker.task_config.log_controller, config.run_directory)
        services = process_services(config)
        outgoing = OutgoingSecurity(config)
        upstream = _Clusters(config, outgoing)
        domains = ProxyDomains(config, upstream.links.keys(), upstream.learn)
        basis = Basis(
            identity_of(config, clusters[0].name if clusters else ""),
            start_clock(),
            domains.resolve,
            make_guids(),
            services,
            administer=administration(_environment(config, upstream.known, domains)),
        )
        data_center = config.broker.app_config.host_data_center
        node, proxy = make_proxy(basis, (), data_center, limits, secrets.randbelow, announce_available)
        server = make_server(config, node, listeners)
        take_commands(node, server, pipe, switches)
        upstream.begin(proxy, node, server)
        serve_pages(pages, config, node, server, _watched(proxy))
        write_statistics(config, node)
        freeze_collector()
        run_server(server, _ready(config, ready))


def _watched(proxy: Proxy) -> WatchedBroker:
    def health(cluster: ProxyCluster) -> ClusterReadiness:
        active = cluster.active_id
        upstream = "" if active is None else cluster.active.nodes[active].name
        return ClusterReadiness(cluster.name, active is not None, upstream)

    clusters = proxy.clusters
    return WatchedBroker(
        lambda: map(health, clusters.values()),
        lambda: lacks_as_proxy({name: each.active_id for name, each in clusters.items()}),
    )


def _upstream(cluster: ClusterProxyDefinition) -> UpstreamCluster:
    nodes = tuple(UpstreamNode(node.id, node.name, node.data_center) for node in cluster.nodes)
    return UpstreamCluster(cluster.name, nodes)


class _Clusters:
    """The clusters that this broker is a proxy to: `links` to each, by name, and their descriptions for administration.

    A cluster that the files did not have at the start is added when a domain in it is first wanted.
    """

    def __init__(self, config: NodeConfig, outgoing: OutgoingSecurity) -> None:
        self._config = config
        self._outgoing = outgoing
        self._is_running = False
        self.links: dict[str, UpstreamLinks] = {}
        self.monitors: dict[str, StateMonitor] = {}
        self.known: list[ClusterInfo] = []

    def begin(self, proxy: Proxy, node: Node, server: Server) -> None:
        """Connect upstream once the server runs, and leave when it ends."""
        self._proxy, self._node, self._server = proxy, node, server
        self._credentials = self._outgoing.credentials(server)
        for cluster in self._config.clusters.proxy_clusters:
            self._add(cluster)

        def start() -> None:
            self._is_running = True
            proxy.start()
            for name in self.links:
                self._start(name)

        node.timers.at(node.now.ms, start)

    def learn(self, name: str) -> None:
        """Become a proxy to a cluster, if the files have it by now. Raises `ConfigError` if they are faulty."""
        cluster = reload_clusters(self._config).proxy_cluster(name)
        if cluster is None:
            log.warning("Cluster (%s): unknown, and %s has no definition of it for a proxy", name, where(self._config))
            return
        log.info("Cluster (%s): definition loaded from %s", name, where(self._config))
        self._add(cluster)
        if self._is_running:
            self._proxy.clusters[name].start()
            self._start(name)

    def _start(self, name: str) -> None:
        self.links[name].start()
        self.monitors[name].start()

    def _add(self, cluster: ClusterProxyDefinition) -> None:
        if not self.links:
            # There are no queues before there is a cluster.
            self._node.configure(queue_settings(cluster))
        # A proxy that was given addresses only requests no cluster by name.
        asked_name = "" if self._config.directory is None and cluster.name == UNNAMED else cluster.name
        places = self._outgoing.places(cluster)
        hub = self._proxy.add(_upstream(cluster))
        links = _links(self._node, self._server, places, asked_name, hub, self._credentials)
        self.links[cluster.name] = links
        self._proxy.attach(links)
        node = self._node

        def observe() -> Observed | None:
            return None if node.stopping else hub.observed()

        limits = monitor_limits(cluster)
        self.monitors[cluster.name] = StateMonitor(cluster.name, limits, node.now, node.timers, observe, is_proxy=True)
        self.known.append(cluster_info(cluster, "remote"))


def _links(
    node: Node,
    server: Server,
    places: Mapping[int, Endpoint],
    asked_name: str,
    hub: ProxyCluster,
    credentials: Credentials | None,
) -> UpstreamLinks:
    def dial(node_id: int) -> None:
        server.dial(
            places[node_id],
            lambda address: links.connected(node_id, address),
            lambda reason: links.failed(node_id, reason),
        )

    # In a random order, so that proxies do not all use the same nodes.
    node_ids = sorted(places, key=lambda node_id: secrets.token_bytes(8))
    links = UpstreamLinks(node, hub, asked_name, node_ids, hub.active.near, dial, credentials)
    return links


def _environment(config: NodeConfig, clusters: Sequence[ClusterInfo], domains: ProxyDomains) -> Environment:
    return Environment(
        broker_config=to_json(config.broker.app_config),
        clusters=clusters,
        node_name=config.broker.app_config.host_name,
        storage_location="",
        forget_domain=domains.forget,
    )


def _ready(config: NodeConfig, then: Callable[[], None]) -> Callable[[], None]:
    def say_ready() -> None:
        log.info("BMQbrkr started successfully")
        if not config.clusters.proxy_clusters:
            log.warning(
                "no cluster is known yet: %s is reread when a client opens a queue of a domain whose file names one",
                where(config),
            )
        names = ", ".join(cluster.name for cluster in config.clusters.proxy_clusters) or "none yet"
        announce(f"bmqctl: proxy ready on {addresses(config)} [clusters: {names}, pid: {os.getpid()}]")
        then()

    return say_ready
