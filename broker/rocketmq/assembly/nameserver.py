"""The part of the composition root that makes a nameserver, beside a broker or alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from broker.common.addresses import Addresses
from broker.common.kept import Keeper
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.assembly.peers import make_admission, peers_at
from broker.rocketmq.assembly.process import wall_ms
from broker.rocketmq.config.files import read_file
from broker.rocketmq.config.node import NAMESERVER_DEFAULTS, NAMESERVER_LOCKED, NAMESERVER_READERS, RocketConfig
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.nameserver.service import SCAN_MS, NameserverService
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.settings import Settings
from broker.shell.files.config_files import ConfigFile
from formats.rocketmq.files.property_text import PROPERTIES_ENCODING, read_properties, write_properties
from formats.rocketmq.remoting.frame import Frame

__all__ = ["make_nameserver", "open_nameserver"]


def open_nameserver(config: RocketConfig) -> Nameserver:
    """Make a nameserver of what its files hold."""
    folder = config.store / "namesrv"
    values = ConfigFile(folder / "kvConfig.json")
    settings = _nameserver_settings(config, ConfigFile(folder / "namesrv.properties"), values.path)
    return Nameserver(Routes(), read_file(values, lambda data: KeyValues(data, values.write)), settings)


def _nameserver_settings(config: RocketConfig, file: ConfigFile, values: Path) -> Settings:
    """The nameserver's properties; administrators' changes are kept in a file of their own."""
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
