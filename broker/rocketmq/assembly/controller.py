"""The part of the composition root that makes a controller, beside a nameserver or alone."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.common.addresses import Addresses
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.assembly.alone import Alone, Basis, run_alone
from broker.rocketmq.assembly.group import Connect, Dial, place_of
from broker.rocketmq.assembly.pages import Watched
from broker.rocketmq.assembly.peers import controller_peers, controller_secret
from broker.rocketmq.config.controller import with_peers
from broker.rocketmq.config.files import make_seal, read_file
from broker.rocketmq.config.node import (
    CONTROLLER_LOCKED,
    CONTROLLER_READERS,
    PropertyError,
    RocketConfig,
    load_rocketmq_config,
)
from broker.rocketmq.controller.links import controller_link
from broker.rocketmq.controller.service import ControllerService, ControllerWorld
from broker.rocketmq.node import Node
from broker.rocketmq.raft.raft import Times
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.settings import Settings
from broker.shell.connections.dialing import is_own_address
from broker.shell.files.appended_file import AppendedFile
from broker.shell.files.config_files import ConfigFile
from broker.shell.process.announcing import announce
from formats.addresses import shown_place
from formats.rocketmq.files.property_text import PROPERTIES_ENCODING, read_properties, write_properties
from formats.rocketmq.remoting.frame import Frame

__all__ = [
    "PropertyError",
    "RocketConfig",
    "controller_connects",
    "load_rocketmq_config",
    "make_controller",
    "run_controller",
    "with_peers",
]

# The properties that can change while a controller runs.
CONTROLLER_CHANGEABLE: Final = frozenset(
    {
        "enableElectUncleanMaster",
        "notifyBrokerRoleChanged",
        "scanNotActiveBrokerInterval",
        "scanInactiveMasterInterval",
    }
)

# If a master is lost together with the leading controller, on one host, another is elected within 2 seconds.
TIMES: Final = Times(election_ms=750, heartbeat_ms=150)


def controller_connects(
    config: RocketConfig, guard: Guard, node: Node, dial: Dial, seal: Callable[[Frame], Frame], addresses: Addresses
) -> list[Connect]:
    """Return the maker of sessions for the controller's port, if it has one."""
    if config.controller_port is None:
        return []
    return [node.connect_to(make_controller(config, guard, node, dial, seal, addresses))]


def make_controller(
    config: RocketConfig, guard: Guard, node: Node, dial: Dial, seal: Callable[[Frame], Frame], addresses: Addresses
) -> ControllerService:
    """Make the controller, with its periodic work. Raises `JournalDamaged` and `OSError`."""

    def dial_address(address: str, connected: Callable[[str], Session], failed: Callable[[str], None]) -> None:
        dial(place_of(address, "address"), connected, failed)

    options = config.controller
    folder = config.controller_store or config.store / "controller"
    secret = controller_secret(config)
    others = {name: address for name, address in options.peers.items() if name != options.self_id}
    service = ControllerService(
        options,
        AppendedFile(folder / "raft.log"),
        _settings(config, ConfigFile(folder / "controller.properties")),
        guard,
        {
            name: controller_link(address, dial_address, node.open, options.self_id, secret)
            for name, address in others.items()
        },
        BrokerCalls(dial_address, node.open),
        ControllerWorld(
            seal,
            random.randrange,
            lambda: node.now.ms,
            TIMES,
            controller_peers(config, addresses),
            Administrators(config.administrators, lambda: guard.authenticates),
        ),
    )
    node.add(service)
    return service


def _settings(config: RocketConfig, file: ConfigFile) -> Settings:
    configured = config.controller_properties
    kept = read_file(file, lambda data: read_properties(data.decode(PROPERTIES_ENCODING)))

    def keep(changes: Mapping[str, str]) -> None:
        kept.update(changes)
        file.write(write_properties(kept))

    fixed = {
        **configured,
        "bindAddress": config.bind_address,
        "listenPort": str(config.controller_port),
        "controllerStorePath": os.fspath(file.path.parent),
        "configStorePath": os.fspath(file.path),
    }
    initial = {name: configured[name] for name in CONTROLLER_CHANGEABLE} | kept
    return Settings(fixed, CONTROLLER_READERS, keep, CONTROLLER_LOCKED, initial)


def run_controller(config: RocketConfig, log_level: str = "WARN", ready: Callable[[], None] = lambda: None) -> int:
    """Run a controller alone; see `run_alone`."""
    port = config.controller_port
    assert port is not None
    return run_alone(config, port, log_level, _make_alone, partial(_announce, config, ready))


def _make_alone(basis: Basis) -> Alone:
    config, node, _, guard, deferred = basis
    own_host = config.controller.address.rpartition(":")[0].strip("[]")
    addresses = Addresses(own_host, node.now, deferred.look_up, is_own_address)
    service = make_controller(config, guard, node, deferred.dial, make_seal(config.inner_credentials), addresses)
    return Alone(service, partial(_watch, config, service), len(config.controller.peers))


def _watch(config: RocketConfig, service: ControllerService) -> Watched:
    from broker.rocketmq.controller.metrics import controller_pieces

    return Watched(partial(controller_pieces, config.controller, service), lambda: service.lacks)


def _announce(config: RocketConfig, then: Callable[[], None]) -> None:
    announce(
        f"bmqctl: rocketmq controller ready on {shown_place(config.bind_address, config.controller_port)} [group: "
        f"{config.controller.group}, id: {config.controller.self_id}, controllers: {len(config.controller.peers)}, "
        f"pid: {os.getpid()}]"
    )
    then()
