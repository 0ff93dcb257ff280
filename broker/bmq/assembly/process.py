"""The parts of any broker's process: listening sockets, pid file, control pipe, and identity."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from broker.bmq.admin.answers.results import ClusterInfo, ClusterNode
from broker.bmq.admin.environment import CommandContext, Environment
from broker.bmq.admin.service import Admin
from broker.bmq.assembly.authenticators import make_authentications
from broker.bmq.assembly.authorizers import make_authorizations
from broker.bmq.assembly.certificates import accepting_context, dialing_context
from broker.bmq.assembly.control import ControlLines
from broker.bmq.assembly.credentials import make_credential_provider
from broker.bmq.config import NodeConfig
from broker.bmq.config.cluster_schema import ClusterDefinition, ClusterProxyDefinition
from broker.bmq.core.config import MessageThrottle, NodeIdentity, ReopenPace
from broker.bmq.core.state_monitor import Limits, MonitorLimits
from broker.bmq.node.node import Node
from broker.bmq.node.services import ProcessServices, QueueSettings, RunCommand
from broker.bmq.session.credentials import Credentials
from broker.bmq.session.negotiation import NO_NODE_ID
from broker.shell.connections.account import Account
from broker.shell.connections.dialing import Endpoint
from broker.shell.connections.reloading import TlsContext
from broker.shell.files.rejected import keep_rejected
from broker.shell.host.descriptors import connections_max, descriptors_in_use, raise_limit
from broker.shell.loop.control_pipe import ControlPipe
from broker.shell.loop.server import Listener, Server, listen
from broker.shell.process.announcing import announce
from broker.shell.process.logs import LogSwitches
from broker.shell.process.os_errors import os_error_line
from formats.addresses import shown_place
from formats.bmq.guid import GuidGenerator

__all__ = [
    "BROKER_FILE",
    "OutgoingSecurity",
    "addresses",
    "administration",
    "announce_available",
    "cluster_info",
    "identity_of",
    "make_guids",
    "make_server",
    "monitor_limits",
    "open_listeners",
    "process_services",
    "queue_settings",
    "run_files",
    "take_commands",
    "where",
]

log = logging.getLogger("broker")

# The version of the reference's development builds (bmqp::Protocol::k_DEV_VERSION): clients disable no feature for it.
VERSION = 999_999
USER_AGENT = f"bmqctl bmqbrkr:{version('bmqctl')}"
PID_FILE = "bmqbrkr.pid"
BROKER_FILE = "bmqbrkrcfg.json"
CONTROL_PIPE = "bmqbrkr.ctl"

# Maximum memory of all connections. Each client may leave 4 MiB unread, and one event may take half of the maximum.
CONNECTION_BYTES_MAX = 1 << 30


def open_listeners(config: NodeConfig) -> list[Listener]:
    tls = config.broker.app_config.tls_config
    context = (
        accepting_context(tls, where(config, BROKER_FILE)) if tls and any(x.tls for x in config.listeners) else None
    )
    return [Listener(listen(each.address, each.port), context if each.tls else None) for each in config.listeners]


@contextmanager
def run_files(folder: Path) -> Iterator[ControlPipe]:
    """Create the pid file and the control pipe, for as long as the node runs.

    Errors of their removal are only logged: they must not replace the fault that ended the node.
    """
    pipe = ControlPipe(folder / CONTROL_PIPE)
    pid_file = folder / PID_FILE
    try:
        pid_file.write_text(f"{os.getpid()}\n")
        yield pipe
    finally:
        for remove in (partial(pid_file.unlink, missing_ok=True), pipe.close):
            try:
                remove()
            except OSError as error:
                log.error("%s", os_error_line(error))


def queue_settings(cluster: ClusterDefinition | ClusterProxyDefinition) -> QueueSettings:
    throttle, operations = cluster.message_throttle_config, cluster.queue_operations
    return QueueSettings(
        MessageThrottle(throttle.low_threshold, throttle.high_threshold, throttle.low_interval, throttle.high_interval),
        operations.keepalive_duration_ms,
        operations.open_timeout_ms,
        ReopenPace(operations.reopen_retry_interval_ms, operations.reopen_max_attempts),
        operations.shutdown_timeout_ms,
    )


def monitor_limits(cluster: ClusterDefinition | ClusterProxyDefinition) -> MonitorLimits:
    times = cluster.cluster_monitor_config
    return MonitorLimits(
        leader=Limits(times.threshold_leader * 1000, times.max_time_leader * 1000),
        partition=Limits(times.threshold_master * 1000, times.max_time_master * 1000),
        node=Limits(times.threshold_node * 1000, times.max_time_node * 1000),
        failover=Limits(times.threshold_failover * 1000, times.max_time_failover * 1000),
    )


def process_services(config: NodeConfig) -> ProcessServices:
    app, file = config.broker.app_config, where(config, BROKER_FILE)
    return ProcessServices(
        make_authentications(app.authentication, file),
        make_authorizations(app.authorization, file),
        keep_rejected=keep_rejected,
    )


def administration(environment: Environment) -> Callable[[Node], RunCommand]:
    return lambda node: Admin(CommandContext(node, environment)).run


def make_server(config: NodeConfig, node: Node, listeners: list[Listener]) -> Server:
    app_config, clusters = config.broker.app_config, config.clusters
    peers = sum(len(cluster.nodes) for cluster in (*clusters.my_clusters, *clusters.proxy_clusters))
    limit = connections_max(
        config.tcp.max_connections, raise_limit(), descriptors_in_use(), len(node.partitions), peers
    )
    account = Account(CONNECTION_BYTES_MAX)
    threads, balancers = app_config.authentication.max_threads, config.tcp.balancers
    server = Server(node, listeners, threads, limit, account=account, balancers=balancers)
    node.authentications.attach(server.authenticate)
    return server


class OutgoingSecurity:
    """The credentials and the certificate for outgoing connections, if configured."""

    def __init__(self, config: NodeConfig) -> None:
        app, file = config.broker.app_config, where(config, BROKER_FILE)
        clusters = (*config.clusters.my_clusters, *config.clusters.proxy_clusters)
        needs_tls = any(node.tls for cluster in clusters for node in cluster.nodes)
        self._provider = make_credential_provider(app.authentication, file)
        self._tls_config, self._file = app.tls_config, file
        self._tls = self._context() if needs_tls else None

    def _context(self) -> TlsContext | None:
        return None if self._tls_config is None else dialing_context(self._tls_config, self._file)

    def credentials(self, server: Server) -> Credentials | None:
        """Return the credentials, obtained outside the server's loop; None if this broker has none."""
        return None if self._provider is None else Credentials(self._provider, server.in_thread)

    def places(self, cluster: ClusterDefinition | ClusterProxyDefinition) -> dict[int, Endpoint]:
        if self._tls is None and any(node.tls for node in cluster.nodes):
            self._tls = self._context()
        return {node.id: Endpoint(node.host, node.port, self._tls if node.tls else None) for node in cluster.nodes}


def take_commands(node: Node, server: Server, pipe: ControlPipe, switches: LogSwitches) -> None:
    pipe.on_line = ControlLines(node.run_command, switches.run, server.retire, node.faults)
    server.watch(pipe)


def identity_of(
    config: NodeConfig, cluster_name: str, node_id: int = NO_NODE_ID, cluster_features: str = ""
) -> NodeIdentity:
    """Make the identity of node `node_id` of its cluster, or of a proxy to a cluster."""
    app = config.broker.app_config
    heartbeats = app.network_interfaces.heartbeats
    return NodeIdentity(
        cluster_name=cluster_name,
        node_id=node_id,
        host=app.host_name,
        process_name="bmqbrkr.tsk",
        process_id=os.getpid(),
        version=VERSION,
        user_agent=USER_AGENT,
        heartbeat_interval_ms=config.tcp.heartbeat_interval_ms,
        heartbeats_missed_max=heartbeats.client,
        peer_heartbeats_missed_max=heartbeats.cluster_peer,
        downstream_heartbeats_missed_max=heartbeats.downstream_broker,
        upstream_heartbeats_missed_max=heartbeats.upstream_broker,
        cluster_features=cluster_features,
        virtual_clusters=config.virtual_clusters,
    )


def cluster_info(cluster: ClusterDefinition | ClusterProxyDefinition, locality: str) -> ClusterInfo:
    nodes = tuple(ClusterNode(node.name, node.id, node.data_center) for node in cluster.nodes)
    return ClusterInfo(locality, cluster.name, nodes)


def make_guids() -> Callable[[], bytes]:
    generator = GuidGenerator(secrets.token_bytes(6), time.monotonic_ns())
    return lambda: generator.make(time.monotonic_ns())


def announce_available() -> None:
    """Print the line that programs wait for when they start several brokers."""
    announce("bmqctl: cluster available")


def addresses(config: NodeConfig) -> str:
    return ", ".join(shown_place(listener.address, listener.port) for listener in config.listeners)


def where(config: NodeConfig, file: str = "clusters.json") -> str:
    return str(config.directory / file) if config.directory else "built-in configuration"
