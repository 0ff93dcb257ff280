"""The composition root of a nameserver that runs alone; its parts also make one beside a broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from broker.common.addresses import Addresses
from broker.common.kept import Keeper
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.assembly.alone import Alone, Basis, run_alone
from broker.rocketmq.assembly.group import place_of
from broker.rocketmq.assembly.pages import Watched
from broker.rocketmq.assembly.peers import make_admission, peers_at
from broker.rocketmq.assembly.process import wall_ms
from broker.rocketmq.config.files import make_seal, read_file
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
from broker.shell.connections.dialing import is_own_address
from broker.shell.files.config_files import ConfigFile
from broker.shell.files.flush_thread import FlushThread
from broker.shell.process.announcing import announce
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
    folder = config.store / "namesrv"
    values = ConfigFile(folder / "kvConfig.json")
    settings = _nameserver_settings(config, ConfigFile(folder / "namesrv.properties"), values.path)
    return Nameserver(Routes(), read_file(values, lambda data: KeyValues(data, values.write)), settings)


def _nameserver_settings(config: RocketConfig, file: ConfigFile, values: Path) -> Settings:
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
    """Run a nameserver alone; see `run_alone`."""
    return run_alone(config, config.nameserver_port, log_level, _make_alone, partial(_announce, config, ready))


def _make_alone(basis: Basis) -> Alone:
    config, node, access, guard, deferred = basis
    addresses = Addresses(config.broker_options.address.address, node.now, deferred.look_up, is_own_address)
    calls = BrokerCalls(lambda address, *then: deferred.dial(place_of(address, "address"), *then), node.open)
    writer = FlushThread()
    keeper = Keeper(writer)
    parts, seal = open_nameserver(config), make_seal(config.inner_credentials)
    service = make_nameserver(config, guard, access, parts, calls, node, seal, addresses, keeper)
    node.add(service)
    return Alone(service, lambda: Watched(lambda: iter(()), lambda: None), writer=writer, finish=keeper.finish)


def _announce(config: RocketConfig, then: Callable[[], None]) -> None:
    place = shown_place(config.bind_address, config.nameserver_port)
    announce(f"bmqctl: rocketmq nameserver ready on {place} [pid: {os.getpid()}]")
    then()
