"""The composition root of a RocketMQ proxy: the gRPC service before the brokers that nameservers know."""

from __future__ import annotations

import gc
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from broker.common.faults import Faults
from broker.common.networks import Network, read_networks
from broker.common.timers import Timers
from broker.rocketmq.assembly.group import place_of
from broker.rocketmq.assembly.grpc import dials_to, listen_if_free
from broker.rocketmq.assembly.pages import Watched, listen_for_pages, serve_pages
from broker.rocketmq.assembly.process import LOG_NAME, READ_BYTES, Deferred, Logging, run_to_end, wall_ms
from broker.rocketmq.assembly.tls import TlsNames, make_tls
from broker.rocketmq.config.files import make_seal
from broker.rocketmq.config.node import GRPC_PORT, REMOTING_PORT, PropertyError
from broker.rocketmq.config.proxy_keys import ProxyKeys, load_proxy_keys
from broker.rocketmq.config.tls import TlsMode, TlsOptions
from broker.rocketmq.grpc.service import GrpcService
from broker.rocketmq.node import Connection, Node
from broker.rocketmq.proxy.cluster import Cluster
from broker.shell.host.descriptors import connections_max, descriptors_in_use, raise_limit
from broker.shell.loop.runtime import freeze_collector, start_clock
from broker.shell.loop.server import CONNECTIONS_MAX, Server, listen, run_server
from broker.shell.process.announcing import announce
from broker.shell.process.logs import start_logging
from formats.addresses import shown_place
from formats.rocketmq.hosts import Host

__all__ = [
    "PropertyError",
    "ProxyConfig",
    "ProxyKeys",
    "TlsMode",
    "TlsOptions",
    "listen_for_remoting",
    "load_proxy_keys",
    "run_rocketmq_proxy",
]

log = logging.getLogger("broker.rocketmq.proxy")

_OPTIONS = TlsNames("--tls-certificate and --tls-key", "--tls-mode", "--tls-mode enforcing", "--tls-trust")
# Descriptors for connections to brokers.
_BROKERS_MAX = 256


@dataclass(frozen=True)
class ProxyConfig:
    """A proxy: its nameservers, HOST:PORT each, where it listens, and the folder of its log.

    `remoting_port` is 0 to serve no remoting protocol, and None for the usual port, if that is free. Its clients get
    `told_address` as the brokers' address. `keys` has the key that signs its requests, and its checks of clients.
    Without `metrics_port` there are no pages for monitoring.
    """

    nameservers: tuple[str, ...]
    bind_address: str = "127.0.0.1"
    grpc_port: int = GRPC_PORT
    remoting_port: int | None = None
    told_address: str | None = None
    tls: TlsOptions = field(default_factory=TlsOptions)
    data_dir: Path = Path("rocketmq-proxy-data")
    keys: ProxyKeys = field(default_factory=ProxyKeys)
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    proxy_protocol_from: str = ""

    @property
    def balancers(self) -> tuple[Network, ...]:
        """The networks whose connections begin with a header of the PROXY protocol. Raises `PropertyError`."""
        try:
            return read_networks(self.proxy_protocol_from)
        except ValueError as error:
            raise PropertyError(f"--proxy-protocol-from: {error}") from None

    @property
    def remoting_address(self) -> str:
        """The brokers' address for remoting clients. Raises `PropertyError` if there is none."""
        address = self.told_address or self.bind_address
        if address in ("0.0.0.0", "::"):
            raise PropertyError(
                f"clients cannot connect to {address}; set the address of this host for them, --address, or do not "
                "serve the remoting protocol, --no-remoting"
            )
        return str(Host(address, self.remoting_port or REMOTING_PORT))


def run_rocketmq_proxy(config: ProxyConfig, log_level: str = "WARN", ready: Callable[[], None] = lambda: None) -> int:
    """Run a proxy as `app.run_rocketmq` runs a node."""
    return run_to_end(lambda: _run(config, log_level, ready))


def _run(config: ProxyConfig, log_level: str, ready: Callable[[], None]) -> None:
    limit = raise_limit()
    tls, balancers = make_tls(config.tls, _OPTIONS), config.balancers
    if not config.nameservers:
        raise PropertyError("a proxy needs a nameserver: --nameserver HOST:PORT")
    places = {name: place_of(name, "nameserver") for name in config.nameservers}
    address = "" if config.remoting_port == 0 else config.remoting_address
    with ExitStack() as stack:
        sock = listen(config.bind_address, config.grpc_port, "--grpc-port")
        stack.callback(sock.close)
        pages = listen_for_pages(config.metrics_host, config.metrics_port, stack)
        remoting, without_remoting = listen_for_remoting(config)
        if remoting is not None:
            stack.callback(remoting.close)
        start_logging(Logging(log_level, str(config.data_dir / LOG_NAME)), config.data_dir)
        for warning in config.keys.warnings:
            log.warning("%s", warning)
        if without_remoting:
            log.warning("the remoting protocol is not served: %s", without_remoting)
        gc.disable()
        now = start_clock()
        node = Node(now, Faults(now), Timers(), time.monotonic_ns)
        deferred = Deferred(tls.dials)
        client_id = f"{config.bind_address}@{os.getpid()}@rocketmq-proxy"
        keys, seal = config.keys, make_seal(config.keys.credentials)
        dial_to = dials_to(deferred.dial, places)
        cluster = Cluster(config.nameservers, dial_to, node.open, client_id, seal, keys.checks, lambda: node.now.ms)
        service = GrpcService(cluster.access, cluster, node.faults, wall_ms, lambda: node.now.ms, lambda: cluster.lacks)
        node.add(service)

        def connect(peer: str, certified: Callable[[], frozenset[str]]) -> Connection:
            return node.open_other(
                peer, lambda number, host: service.connect(number, host, node.dirty.add, node.step_time)
            )

        listeners = [tls.listener(sock, connect)]
        if remoting is not None:
            clients = cluster.remoting_clients(address)
            node.add(clients)
            listeners.append(tls.listener(remoting, node.connect_to(clients)))
        most = min(CONNECTIONS_MAX, connections_max(0, limit, descriptors_in_use(), 1, _BROKERS_MAX))
        server = Server(node, listeners, connections_max=most, read_bytes=READ_BYTES, balancers=balancers)
        deferred.server = server
        name = shown_place(config.bind_address, config.grpc_port)
        serve_pages(pages, node, server, partial(_watch, cluster, name))
        freeze_collector()
        run_server(server, partial(_announce, config, ready, has_remoting=remoting is not None))


def _watch(cluster: Cluster, name: str) -> Watched:
    from broker.rocketmq.proxy.metrics import proxy_pieces

    return Watched(partial(proxy_pieces, cluster, name), lambda: cluster.lacks)


def listen_for_remoting(config: ProxyConfig) -> tuple[socket.socket | None, str]:
    if config.remoting_port == 0:
        return None, ""
    port = config.remoting_port or REMOTING_PORT
    return listen_if_free(config.bind_address, port, "remoting", config.remoting_port is not None)


def _announce(config: ProxyConfig, then: Callable[[], None], *, has_remoting: bool) -> None:
    where = f"{shown_place(config.bind_address, config.grpc_port)} (gRPC)"
    if has_remoting:
        where += f", {shown_place(config.bind_address, config.remoting_port or REMOTING_PORT)} (remoting)"
    names = ";".join(config.nameservers)
    log.info("ready: %s, for the brokers that %s know", where, names)
    announce(f"bmqctl: rocketmq-proxy ready on {where} [nameservers: {names}, pid: {os.getpid()}]")
    then()
