"""The composition root of a nameserver alone, and the part that makes one beside a broker, too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from broker.common.addresses import Addresses
from broker.common.faults import Faults
from broker.common.kept import Keeper
from broker.common.timers import Timers
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.assembly.group import place_of
from broker.rocketmq.assembly.pages import Watched, listen_for_pages, serve_pages
from broker.rocketmq.assembly.peers import make_admission, peers_at
from broker.rocketmq.assembly.process import LOG_NAME, Deferred, Logging, run_to_end, wall_ms, warn_of
from broker.rocketmq.assembly.tls import make_tls
from broker.rocketmq.config.files import make_seal, open_access, read_file
from broker.rocketmq.config.node import (
    NAMESERVER_DEFAULTS,
    NAMESERVER_LOCKED,
    NAMESERVER_READERS,
    PropertyError,
    RocketConfig,
    load_rocketmq_config,
    properties_of,
)
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.nameserver.service import SCAN_MS, NameserverService
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.settings import Settings
from broker.shell.connections.account import Account
from broker.shell.connections.dialing import is_own_address
from broker.shell.files.config_files import ConfigFile
from broker.shell.files.flush_thread import FlushThread
from broker.shell.files.store_lock import StoreLock
from broker.shell.host.descriptors import connections_max, descriptors_in_use, raise_limit
from broker.shell.loop.runtime import freeze_collector, start_clock
from broker.shell.loop.server import CONNECTIONS_MAX, Server, listen, run_server
from broker.shell.process.announcing import announce
from broker.shell.process.logs import start_logging
from formats.addresses import shown_place
from formats.rocketmq.files.property_text import PROPERTIES_ENCODING, read_properties, write_properties
from formats.rocketmq.remoting.frame import Frame

__all__ = [
    "PropertyError",
    "RocketConfig",
    "load_rocketmq_config",
    "make_nameserver",
    "open_nameserver",
    "properties_of",
    "run_nameserver",
]


def open_nameserver(config: RocketConfig) -> Nameserver:
    """Make a nameserver from its files."""
    folder = config.store / "namesrv"
    values = ConfigFile(folder / "kvConfig.json")
    settings = _nameserver_settings(config, ConfigFile(folder / "namesrv.properties"), values.path)
    return Nameserver(Routes(), read_file(values, lambda data: KeyValues(data, values.write)), settings)


def _nameserver_settings(config: RocketConfig, file: ConfigFile, values: Path) -> Settings:
    """Return the nameserver's properties; administrators' changes are kept in a file of their own."""
    kept = read_file(file, lambda data: read_properties(data.decode(PROPERTIES_ENCODING)))

    def keep(changes: Mapping[str, str]) -> None:
        kept.update(changes)
        file.write(write_properties(kept))

    fixed = {
        "bindAddress": config.bind_address,
        "listenPort": str(config.nameserver_port),
        "kvConfigPath": str(values),
        "configStorePath": str(file.path),
        "scanNotActiveBrokerInterval": str(SCAN_MS),
    }
    initial = NAMESERVER_DEFAULTS | config.nameserver_properties | kept
    return Settings(fixed, NAMESERVER_READERS, keep, NAMESERVER_LOCKED, initial)


def make_nameserver(
    config: RocketConfig,
    guard: Guard,
    access: AccessTables,
    parts: Nameserver,
    calls: BrokerCalls,
    node: Node,
    seal: Callable[[Frame], Frame],
    addresses: Addresses,
    keeper: Keeper,
) -> NameserverService:
    peers = peers_at(config, addresses, config.nameserver_port)
    admission = make_admission(config, parts.routes, peers, guard, access)
    return NameserverService(parts, guard, wall_ms, calls, seal, lambda: node.now.ms, peers, admission, keeper)


def run_nameserver(config: RocketConfig, log_level: str = "WARN", ready: Callable[[], None] = lambda: None) -> int:
    """Run a nameserver until SIGTERM or SIGINT; return the exit code. Faults are one line on stderr.

    `ready` is called once brokers and clients are served; they wait until it returns.
    """
    return run_to_end(lambda: _run(config, log_level, ready))


def _run(config: RocketConfig, log_level: str, ready: Callable[[], None]) -> None:
    limit = raise_limit()
    tls = make_tls(config.tls)
    with ExitStack() as stack:
        sock = listen(config.bind_address, config.nameserver_port)
        stack.callback(sock.close)
        pages = listen_for_pages(config.metrics_host, config.pages_port, stack)
        stack.callback(StoreLock(config.store).release)
        start_logging(Logging(log_level, str(config.store / LOG_NAME)), config.store)
        warn_of(config)
        now = start_clock()
        node = Node(now, Faults(now), Timers(), time.monotonic_ns)
        access = open_access(config)
        inner = None if config.inner_credentials is None else config.inner_credentials.username
        guard = Guard(config.access, access, config.options.cluster, inner)
        deferred = Deferred(tls.dials)
        addresses = Addresses(config.broker_options.address.address, now, deferred.look_up, is_own_address)
        calls = BrokerCalls(lambda address, *then: deferred.dial(place_of(address, "address"), *then), node.open)
        seal, writer = make_seal(config.inner_credentials), FlushThread()
        parts = open_nameserver(config)
        keeper = Keeper(writer)
        service = make_nameserver(config, guard, access, parts, calls, node, seal, addresses, keeper)
        node.add(service)
        most = min(CONNECTIONS_MAX, connections_max(0, limit, descriptors_in_use(), 1, 0))
        listeners = [tls.listener(sock, node.connect_to(service))]
        account = Account(config.connection_bytes_max)
        server = Server(node, listeners, connections_max=most, account=account, balancers=config.balancers)
        deferred.server = server
        serve_pages(pages, node, server, lambda: Watched(lambda: iter(()), lambda: None))
        server.watch(writer)
        freeze_collector()
        run_server(server, partial(_announce, config, ready))
        keeper.finish()


def _announce(config: RocketConfig, then: Callable[[], None]) -> None:
    place = shown_place(config.bind_address, config.nameserver_port)
    announce(f"bmqctl: rocketmq nameserver ready on {place} [pid: {os.getpid()}]")
    then()
