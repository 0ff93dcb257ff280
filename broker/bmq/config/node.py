"""A node's whole configuration, with the properties that the composition root needs."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

from broker.bmq.config.broker_schema import (
    AppConfig,
    Configuration,
    ExportMode,
    StatPluginConfig,
    StatPluginConfigPrometheus,
    TcpInterfaceConfig,
    TcpInterfaceListener,
)
from broker.bmq.config.cluster_schema import ClusterDefinition, ClusterNode, ClusterProxyDefinition, ClustersDefinition
from broker.bmq.config.domain_schema import Domain, DomainVariant
from broker.bmq.config.errors import ConfigError, shown
from formats.addresses import shown_place

__all__ = [
    "DOMAIN_NAME",
    "Changes",
    "DomainSource",
    "NodeConfig",
    "ResolvedDomain",
    "refuse_self_as_upstream",
    "this_node",
]

# The reference's plugin whose settings say where metrics are served, and the address without them.
PROMETHEUS = "PrometheusStatConsumer"
METRICS_HOST = "127.0.0.1"

# A domain's name comes from clients and becomes a file name.
DOMAIN_NAME = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")

# The reference follows one redirection: its target must be a defined domain.
_REDIRECTIONS_MAX = 1


@dataclass(frozen=True, slots=True)
class ResolvedDomain:
    """A domain's parameters; `name` is that of the definition, to which a redirection may lead."""

    name: str
    cluster: str
    parameters: Domain


class DomainSource(Protocol):
    """A source of domain definitions."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> tuple[str, DomainVariant] | None:
        """Return the file that defines domain `name`, for messages, and its contents; None if there is none."""
        ...


class Changes(TypedDict, total=False):
    """Options of the command line that replace settings of the files; None changes nothing."""

    host: str | None
    port: int | None
    data_dir: Path | None
    instance_id: str | None
    host_name: str | None
    host_tags: str | None
    host_data_center: str | None
    log_level: str | None
    metrics_host: str | None
    metrics_port: int | None


# Members of `appConfig` by the options that replace them.
_MEMBERS = {
    "instance_id": "broker_instance_name",
    "host_name": "host_name",
    "host_tags": "host_tags",
    "host_data_center": "host_data_center",
}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node's configuration. `directory` is None for the built-in one; `run_directory` has pid file and pipe."""

    directory: Path | None
    broker: Configuration
    clusters: ClustersDefinition
    domains: DomainSource
    run_directory: Path

    @property
    def tcp(self) -> TcpInterfaceConfig:
        return self.broker.app_config.network_interfaces.tcp_interface

    @property
    def listeners(self) -> tuple[TcpInterfaceListener, ...]:
        """The addresses to listen on: the listeners, or one for the older `port`, on all addresses."""
        tcp = self.tcp
        return tcp.listeners or (_listener(tcp.name, "0.0.0.0", tcp.port),)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port on which metrics are served; None if they are not."""
        app = self.broker.app_config
        plugin = _prometheus(app)
        if PROMETHEUS not in app.plugins.enabled or plugin is None or plugin.prometheus_specific is None:
            return None
        found = plugin.prometheus_specific
        if found.mode is not ExportMode.PULL:
            return None
        # "localhost" may be several addresses, of which one is listened on.
        return METRICS_HOST if found.host == "localhost" else found.host, found.port

    @property
    def cluster(self) -> ClusterDefinition | None:
        """The cluster that this node is a member of, the first if there are several; None for a proxy."""
        return self.clusters.my_clusters[0] if self.clusters.my_clusters else None

    @property
    def is_proxy(self) -> bool:
        return not self.clusters.my_clusters

    @property
    def virtual_clusters(self) -> dict[str, int]:
        """The clusters that this proxy stands for, with its node id in each."""
        return {virtual.name: virtual.self_node_id for virtual in self.clusters.my_virtual_clusters}

    @property
    def self_node(self) -> ClusterNode | None:
        """The node's entry in its cluster: the first whose endpoint is this host and a listener's port."""
        return None if self.cluster is None else this_node(self.cluster, self, self._clusters_file(), "$.myClusters")

    def proxy_cluster(self, name: str) -> ClusterProxyDefinition | None:
        """Return the cluster `name` that this node is a proxy to."""
        return next((cluster for cluster in self.clusters.proxy_clusters if cluster.name == name), None)

    def resolve_domain(self, name: str) -> ResolvedDomain | None:
        """Read domain `name` and follow its redirection; None if it is not defined.

        Raises `ConfigError` for an unusable definition, or one redirection too many.
        """
        for _ in range(_REDIRECTIONS_MAX + 1):
            found = self.domains.read(name) if DOMAIN_NAME.fullmatch(name) else None
            if found is None:
                return None
            file, variant = found
            if variant.definition is not None:
                return ResolvedDomain(name, variant.definition.location, variant.definition.parameters)
            assert variant.redirect is not None
            name = variant.redirect
        raise ConfigError(
            file, "$.redirect", f"redirects on to {shown(name)}", "redirect to a domain that has a definition"
        )

    def all_domains(self) -> dict[str, ResolvedDomain]:
        """Read every domain, by its name. Raises `ConfigError` for the first that is invalid."""
        resolved = {name: self.resolve_domain(name) for name in self.domains.names()}
        return {name: domain for name, domain in resolved.items() if domain is not None}

    def changed(self, **changes: Unpack[Changes]) -> NodeConfig:
        """Return the configuration with the command line's options applied; None stands for an option not given.

        `host` or `port` replaces all listeners by one. The cluster of a single node moves with it; in a larger one this
        node's endpoint must already be the new one. Raises `ConfigError` if a cluster does not have the node, or if the
        broker is its own upstream.
        """
        config = self.as_node(**changes)
        if config.is_proxy:
            refuse_self_as_upstream(config)
        return config

    def as_node(self, **changes: Unpack[Changes]) -> NodeConfig:
        """Do the same without looking at the upstream, whose nodes may not be known yet."""
        given = {name: value for name, value in changes.items() if value is not None}
        app = self.broker.app_config
        app = app.model_copy(update={member: given[name] for name, member in _MEMBERS.items() if name in given})
        config = replace(self, broker=self.broker.model_copy(update={"app_config": app}))
        if "host" in given or "port" in given:
            # A cluster of one moves with its node, so that must be this one.
            config._find_node(alone=True)
            config = config._listening(changes.get("host"), changes.get("port"))
        data_dir = changes.get("data_dir")
        if data_dir is not None:
            config = config._storing(data_dir)
        app, task = config.broker.app_config, config.broker.task_config
        if "metrics_host" in given or "metrics_port" in given:
            app = _with_metrics(app, changes.get("metrics_host"), changes.get("metrics_port"))
        if "log_level" in given:
            log = task.log_controller.model_copy(update={"console_severity_threshold": given["log_level"]})
            task = task.model_copy(update={"log_controller": log})
        config = replace(config, broker=config.broker.model_copy(update={"app_config": app, "task_config": task}))
        config._find_node()
        return config

    def _find_node(self, *, alone: bool = False) -> None:
        """Raise `ConfigError` if one of its clusters lacks the node; with `alone`, check only its clusters of one."""
        for index, cluster in enumerate(self.clusters.my_clusters):
            if not alone or len(cluster.nodes) == 1:
                this_node(cluster, self, self._clusters_file(), f"$.myClusters[{index}].nodes")

    def _listening(self, host: str | None, port: int | None) -> NodeConfig:
        first = self.listeners[0]
        update = {"address": host or first.address, "port": first.port if port is None else port}
        listener = first.model_copy(update=update)
        tcp = self.tcp.model_copy(update={"port": listener.port, "listeners": (listener,)})
        app = self.broker.app_config
        network = app.network_interfaces.model_copy(update={"tcp_interface": tcp})
        app = app.model_copy(update={"network_interfaces": network})
        clusters = tuple(_moved(cluster, host, listener.port) for cluster in self.clusters.my_clusters)
        return replace(
            self,
            broker=self.broker.model_copy(update={"app_config": app}),
            clusters=self.clusters.model_copy(update={"my_clusters": clusters}),
        )

    def _storing(self, data_dir: Path) -> NodeConfig:
        locations = {"location": str(data_dir), "archive_location": str(data_dir / "archive")}
        clusters = tuple(
            cluster.model_copy(update={"partition_config": cluster.partition_config.model_copy(update=locations)})
            for cluster in self.clusters.my_clusters
        )
        # The log moves with the store.
        task = self.broker.task_config
        log = task.log_controller.model_copy(update={"file_name": ""})
        task = task.model_copy(update={"log_controller": log})
        return replace(
            self,
            broker=self.broker.model_copy(update={"task_config": task}),
            clusters=self.clusters.model_copy(update={"my_clusters": clusters}),
            run_directory=data_dir,
        )

    def _clusters_file(self) -> str:
        return "built-in configuration" if self.directory is None else str(self.directory / "clusters.json")


def _prometheus(app: AppConfig) -> StatPluginConfig | None:
    return next((plugin for plugin in app.stats.plugins if plugin.name == PROMETHEUS), None)


def _with_metrics(app: AppConfig, host: str | None, port: int | None) -> AppConfig:
    plugin = _prometheus(app) or StatPluginConfig(name=PROMETHEUS)
    given = plugin.prometheus_specific or StatPluginConfigPrometheus(host=METRICS_HOST)
    address = {"mode": ExportMode.PULL, "host": host or given.host, "port": given.port if port is None else port}
    plugin = plugin.model_copy(update={"prometheus_specific": given.model_copy(update=address)})
    others = tuple(each for each in app.stats.plugins if each.name != PROMETHEUS)
    enabled = dict.fromkeys((*app.plugins.enabled, PROMETHEUS))
    return app.model_copy(
        update={
            "stats": app.stats.model_copy(update={"plugins": (*others, plugin)}),
            "plugins": app.plugins.model_copy(update={"enabled": tuple(enabled)}),
        }
    )


def _listener(name: str, address: str, port: int) -> TcpInterfaceListener:
    return TcpInterfaceListener.model_validate({"name": name, "address": address, "port": port})


def _moved(cluster: ClusterDefinition, host: str | None, port: int) -> ClusterDefinition:
    if len(cluster.nodes) > 1:
        return cluster
    (node,) = cluster.nodes
    tcp = node.transport.tcp
    assert tcp is not None
    # An unspecified address can be listened on but not connected to.
    dialed = node.host if host is None or host in ("0.0.0.0", "::") else host
    tcp = tcp.model_copy(update={"endpoint": f"tcp://{shown_place(dialed, port)}"})
    transport = node.transport.model_copy(update={"tcp": tcp})
    return cluster.model_copy(update={"nodes": (node.model_copy(update={"transport": transport}),)})


def this_node(cluster: ClusterDefinition, config: NodeConfig, file: str, json_path: str) -> ClusterNode:
    """Find this node in `cluster`. Raises `ConfigError` at `json_path` if it is not there."""
    ports = {listener.port for listener in config.listeners}
    addresses = {listener.address for listener in config.listeners}
    host_name = config.broker.app_config.host_name
    here = [node for node in cluster.nodes if node.port in ports]
    # Configured names come before resolved addresses: several nodes may be on hosts that resolve to this one.
    for node in here:
        if node.host in addresses or node.host == host_name:
            return node
    for node in here:
        if _is_this_host(node.host):
            return node
    where = " or ".join(f"port {port}" for port in sorted(ports))
    raise ConfigError(
        file,
        json_path,
        f"no node of cluster {shown(cluster.name)} has an endpoint on this host with {where}",
        'add this node, correct its "endpoint", or give the name and port of the host that it is for (--host-name, '
        "--port)",
    )


def refuse_self_as_upstream(config: NodeConfig) -> None:
    """Raise `ConfigError` if this broker is a node of a cluster that it is a proxy to: it would connect to itself."""
    ports = {listener.port for listener in config.listeners}
    for index, cluster in enumerate(config.clusters.proxy_clusters):
        for node in cluster.nodes:
            if node.port in ports and _is_this_host(node.host):
                raise ConfigError(
                    config._clusters_file(),
                    f"$.proxyClusters[{index}].nodes",
                    f"{node.host}:{node.port} is this broker itself",
                    "name brokers elsewhere, or listen on another port",
                )


def _is_this_host(host: str) -> bool:
    """Return True if `host` names this machine; uses the resolver if needed."""
    own = socket.gethostname()
    if host in ("localhost", own):
        return True
    addresses = _addresses(host)
    return bool(addresses & _addresses(own)) or any(ipaddress.ip_address(found).is_loopback for found in addresses)


def _addresses(host: str) -> set[str]:
    try:
        return {str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()
