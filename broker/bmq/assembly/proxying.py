"""Putting a proxy together from its configuration, and running it."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping

import trio

from broker.bmq.admin.environment import Environment
from broker.bmq.assembly.authenticators import make_authentications
from broker.bmq.assembly.authorizers import make_authorizations
from broker.bmq.assembly.domains import ProxyDomains
from broker.bmq.assembly.process import (
    BROKER_FILE,
    Outgoing,
    addresses,
    announce_available,
    cluster_info,
    configure,
    identity_of,
    make_guids,
    make_server,
    open_listeners,
    run_files,
    take_commands,
    where,
)
from broker.bmq.config import UNNAMED, ConfigError, NodeConfig
from broker.bmq.config.cluster_schema import ClusterProxyDefinition
from broker.bmq.config.dump import to_json
from broker.bmq.node.node import Node
from broker.bmq.proxy.cluster import ProxyCluster
from broker.bmq.proxy.limits import BridgeLimits
from broker.bmq.proxy.links import UpstreamLinks
from broker.bmq.proxy.node import ProxyNode
from broker.bmq.proxy.proxy import Proxy, UpstreamCluster, UpstreamNode
from broker.bmq.session.credentials import Credentials
from broker.shell.descriptors import raise_limit
from broker.shell.dialing import Place
from broker.shell.logs import start_logging
from broker.shell.runtime import freeze_collector, start_clock
from broker.shell.server import Server

__all__ = ["serve_proxy"]

log = logging.getLogger("broker")


def serve_proxy(config: NodeConfig, limits: BridgeLimits) -> None:
    """Run a proxy until it is told to stop. `limits` bound what it keeps while there is nothing upstream."""
    clusters = config.clusters.proxy_clusters
    if not clusters:
        reason = "names no cluster: none that this broker is in, and none to be a proxy to"
        raise ConfigError(where(config), "$", reason, 'fill in "myClusters" or "proxyClusters"')
    raise_limit()
    listeners = open_listeners(config)
    config.run_directory.mkdir(parents=True, exist_ok=True)
    with run_files(config.run_directory) as pipe:
        switches = start_logging(config.broker.task_config.log_controller, config.run_directory)
        authentications = make_authentications(config.broker.app_config.authentication, where(config, BROKER_FILE))
        outgoing = Outgoing(config)
        domains = ProxyDomains(config)
        node = ProxyNode(
            identity_of(config, clusters[0].name),
            start_clock(),
            domains.resolve,
            make_guids(),
            make_authorizations(config.broker.app_config.authorization, where(config, BROKER_FILE)),
        )
        configure(node, clusters[0])
        server = make_server(config, node, listeners, authentications)
        take_commands(node, server, _environment(config, domains), pipe, switches)
        proxy = Proxy(
            node,
            [_upstream(cluster) for cluster in clusters],
            config.broker.app_config.host_data_center,
            limits,
            secrets.randbelow,
        )
        proxy.on_available = announce_available
        _connect(config, outgoing, proxy, node, server)
        freeze_collector()
        trio.run(server.run, _ready(config))


def _upstream(cluster: ClusterProxyDefinition) -> UpstreamCluster:
    nodes = tuple(UpstreamNode(node.id, node.name, node.data_center) for node in cluster.nodes)
    return UpstreamCluster(cluster.name, nodes)


def _connect(config: NodeConfig, outgoing: Outgoing, proxy: Proxy, node: Node, server: Server) -> None:
    """Find the brokers upstream as soon as the server runs."""
    links = []
    credentials = outgoing.credentials(server)
    for cluster in config.clusters.proxy_clusters:
        # Who was given addresses alone asks for no cluster by name.
        asked_name = "" if config.directory is None and cluster.name == UNNAMED else cluster.name
        hub = proxy.clusters[cluster.name]
        links.append(_links(node, server, outgoing.places(cluster), asked_name, hub, credentials))
    leave = node.leave

    def start() -> None:
        proxy.start()
        for each in links:
            each.start()

    def stop() -> None:
        proxy.stop()
        for each in links:
            each.stop()
        leave()

    node.leave = stop
    node.timers.at(node.now.ms, start)


def _links(
    node: Node,
    server: Server,
    places: Mapping[int, Place],
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

    # Each proxy in an order of its own, so that not all of them use the same nodes.
    node_ids = sorted(places, key=lambda node_id: secrets.token_bytes(8))
    links = UpstreamLinks(node, hub, asked_name, node_ids, hub.active.near, dial, credentials)
    return links


def _environment(config: NodeConfig, domains: ProxyDomains) -> Environment:
    """The configuration as administration shows it."""
    return Environment(
        broker_config=to_json(config.broker.app_config),
        clusters=tuple(cluster_info(cluster, "remote") for cluster in config.clusters.proxy_clusters),
        node_name=config.broker.app_config.host_name,
        storage_location="",
        forget_domain=domains.forget,
    )


def _ready(config: NodeConfig) -> Callable[[], None]:
    def announce() -> None:
        log.info("BMQbrkr started successfully")
        names = ", ".join(cluster.name for cluster in config.clusters.proxy_clusters)
        print(f"bmqctl: proxy ready on {addresses(config)} [clusters: {names}, pid: {os.getpid()}]", flush=True)

    return announce
