"""The configuration of a group of RocketMQ nodes on this host, in files like the original's.

Each node has a directory with `broker.conf` and its store. It is a nameserver, a controller and a broker of one name,
and knows all others. Further groups, whose brokers have other names, are under the controllers of the first. New groups
get a random secret by which their nodes recognize each other, since other processes on this host have the same address.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.rocketmq.assembly.group import SECOND_PORT_BELOW
from broker.rocketmq.config.node import GRPC_PORT, REMOTING_PORT, PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.controller.options import read_peers, write_peers
from broker.shell.files.config_files import ConfigFile
from broker.shell.loop.server import ListenError, listen
from broker.shell.process.os_errors import os_error_line
from formats.rocketmq.hosts import Host, split_address
from formats.rocketmq.numbers import read_digits

__all__ = [
    "CONFIG_NAME",
    "STORE_NAME",
    "GroupNode",
    "GroupOptions",
    "PropertyError",
    "group_nodes",
    "lack_of_secret",
    "open_local_group",
    "os_error_line",
]

CONFIG_NAME: Final = "broker.conf"
STORE_NAME: Final = "store"
# The distance between the ports of consecutive nodes.
STEP: Final = 10
# If a port is taken, all ports that were not requested move by this.
SHIFT: Final = 100
SHIFTS: Final = 10
PORT_MAX: Final = 65_535
# The names of each group's brokers; the first is a single node's.
_BROKER_NAMES: Final = ("broker-a", "broker-b", "broker-c", "broker-d")
GROUPS_MAX: Final = len(_BROKER_NAMES)
_USUAL: Final = {
    "nameserver_port": 9876,
    "controller_port": 9878,
    "port": 10911,
    "grpc_port": GRPC_PORT,
    "remoting_port": REMOTING_PORT,
}


@dataclass(frozen=True)
class GroupOptions:
    """A user's wishes for a group. Ports are the first node's; 0 for one that is not served.

    None keeps the value of an existing group, and is the default in a new one.
    """

    nodes: int
    host: str | None = None
    address: str | None = None
    nameserver_port: int | None = None
    controller_port: int | None = None
    port: int | None = None
    grpc_port: int | None = None
    remoting_port: int | None = None
    groups: int | None = None


@dataclass(frozen=True)
class GroupNode:
    """A node of a group: where clients and other nodes find it. `grpc` and `remoting` are None if not served.

    `controller` is None in groups after the first.
    """

    name: str
    broker_name: str
    bind: str
    nameserver: Host
    controller: Host | None
    broker: Host
    grpc: Host | None
    remoting: Host | None

    @property
    def ports(self) -> list[int]:
        broker = self.broker.port
        found = [self.nameserver.port, broker, broker + 1, broker - SECOND_PORT_BELOW]
        return found + [each.port for each in (self.controller, self.grpc, self.remoting) if each is not None]


def group_nodes(options: GroupOptions, shift: int = 0) -> list[GroupNode]:
    """Return the nodes of a new group; all ports that were not requested are shifted.

    Raises `PropertyError` if two nodes would have the same port.
    """
    bind = options.host or RocketConfig().bind_address
    # Refuses an address to which others could not connect.
    told = RocketConfig(bind_address=bind, told_address=options.address).broker_options.address.address
    first = {name: _first_port(options, name, usual, shift) for name, usual in _USUAL.items()}
    count = options.nodes * (options.groups or 1)
    found = [_node(number, options.nodes, bind, told, first) for number in range(count)]
    ports = [port for node in found for port in node.ports]
    if len(set(ports)) < len(ports) or max(ports) > PORT_MAX or min(ports) < 1:
        raise PropertyError(
            f"the ports of {count} nodes are {STEP} apart; with the ports given, two are equal or one is out of range: "
            "give others"
        )
    return found


def _first_port(options: GroupOptions, name: str, usual: int, shift: int) -> int:
    asked: int | None = getattr(options, name)
    return usual + shift if asked is None else asked


def _node(number: int, of_group: int, bind: str, told: str, first: Mapping[str, int]) -> GroupNode:
    def place(name: str) -> Host:
        return Host(told, first[name] + STEP * number)

    return GroupNode(
        f"node{number + 1}",
        _BROKER_NAMES[number // of_group],
        bind,
        place("nameserver_port"),
        place("controller_port") if number < of_group else None,
        place("port"),
        place("grpc_port") if first["grpc_port"] else None,
        place("remoting_port") if first["remoting_port"] else None,
    )


def open_local_group(directory: Path, options: GroupOptions) -> list[tuple[GroupNode, Path]]:
    """Return the nodes of a group with their directories, `node1` and so on, writing missing ones.

    Existing ones stay as they are, so a stopped group continues. Raises `PropertyError` if another group is there, or
    its ports are taken, and `OSError` if files cannot be written.
    """
    kept = _kept_node(directory, options)
    nodes = _new_group(options) if kept is None else kept
    folders = [directory / node.name for node in nodes]
    secret = secrets.token_hex(32) if kept is None else _kept_secret(directory)
    for node, folder in zip(nodes, folders, strict=True):
        file = folder / CONFIG_NAME
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            ConfigFile(file).write(_config_text(node, nodes, secret).encode())
    return list(zip(nodes, folders, strict=True))


def _kept_secret(directory: Path) -> str | None:
    """Return the secret of an existing group; None for a group that was made without one."""
    for file in sorted(directory.glob(f"node[1-9]/{CONFIG_NAME}")):
        secret = load_rocketmq_config(file).peer_secret
        return None if secret is None else secret.decode()
    return None


def lack_of_secret(directory: Path) -> str | None:
    """Return what to do about a group without a secret, made by an earlier version; None if it has one."""
    if _kept_secret(directory) is not None:
        return None
    return (
        "the nodes of this group have no secret, and take every process of this host for one of them; to change that, "
        "add the same line, peerSecretKey= and the output of `openssl rand -hex 32`, to "
        f"{directory}/node*/{CONFIG_NAME}, and start the group again"
    )


def _new_group(options: GroupOptions) -> list[GroupNode]:
    last_fault = ""
    for turn in range(SHIFTS):
        nodes = group_nodes(options, turn * SHIFT)
        fault = _fault_of_ports(nodes)
        if fault is None:
            return nodes
        last_fault = fault
    raise PropertyError(last_fault)


def _fault_of_ports(nodes: Sequence[GroupNode]) -> str | None:
    """Return why the nodes could not listen on their ports; None if they could."""
    try:
        for node in nodes:
            for port in node.ports:
                listen(node.bind, port, "--port, --nameserver-port and their like").close()
    except ListenError as error:
        return str(error)
    return None


def _kept_node(directory: Path, options: GroupOptions) -> list[GroupNode] | None:
    """Return the nodes of the group that is there, from the configuration of one of them; None without one."""
    for file in sorted(directory.glob(f"node[1-9]/{CONFIG_NAME}")):
        return _read_group(file, (read_digits(file.parent.name.removeprefix("node")) or 0) - 1, options)
    return None


def _read_group(file: Path, number: int, options: GroupOptions) -> list[GroupNode]:
    config = load_rocketmq_config(file)
    controllers = [split_address(each) for each in config.replication.controllers]
    told = config.told_address or config.bind_address
    # It may also name nodes of other hosts, or of another group.
    own = {(told, config.nameserver_port + STEP * (other - number)) for other in range(GROUPS_MAX * len(controllers))}
    named = {split_address(each) for each in config.nameservers} - {(told, config.nameserver_port)}
    groups = max(1, (1 + len(own & named)) // max(1, len(controllers)))
    if not controllers or controllers[0] is None or number >= groups * len(controllers):
        raise PropertyError(f"{file}: is not the configuration of a node of a group; name another directory (--store)")
    first = {
        "nameserver_port": config.nameserver_port,
        "controller_port": controllers[0][1] + STEP * number,
        "port": config.port,
        "grpc_port": config.grpc_port or 0,
        "remoting_port": config.remoting_port or 0,
    }
    first = {name: port - STEP * number if port else 0 for name, port in first.items()}
    there = GroupOptions(len(controllers), config.bind_address, told, **first, groups=groups)
    wanted = vars(options)
    others = {name: value for name, value in vars(there).items() if wanted[name] not in (None, value)}
    if others:
        has = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in others.items())
        raise PropertyError(
            f"{file}: the group that is there has {has}; start it as it is, or name another directory (--store)"
        )
    return group_nodes(there)


def _config_text(node: GroupNode, nodes: Sequence[GroupNode], secret: str | None) -> str:
    controllers = [each for each in nodes if each.controller is not None]
    ids = {f"n{number}": str(each.controller) for number, each in enumerate(controllers, 1)}
    peers = write_peers(ids)
    assert read_peers(peers) == ids
    told = node.broker.address
    majority = len(controllers) // 2 + 1
    found = {
        "brokerName": node.broker_name,
        "brokerClusterName": RocketConfig().options.cluster,
        "bindAddress": node.bind,
        **({} if told == node.bind else {"brokerIP1": told}),
        "listenPort": str(node.broker.port),
        "haListenPort": str(node.broker.port + 1),
        "nameserverPort": str(node.nameserver.port),
        "namesrvAddr": ";".join(str(each.nameserver) for each in nodes if each is not node),
        "grpcServerPort": "0" if node.grpc is None else str(node.grpc.port),
        "remotingListenPort": "0" if node.remoting is None else str(node.remoting.port),
        **({} if node.controller is None else _controller(peers, nodes.index(node) + 1)),
        "enableControllerMode": "true",
        "controllerAddr": ";".join(ids.values()),
        "allAckInSyncStateSet": "true",
        "minInSyncReplicas": str(majority),
        **({} if secret is None else {"peerSecretKey": secret}),
    }
    return "".join(f"{name}={value}\n" for name, value in found.items())


def _controller(peers: str, number: int) -> dict[str, str]:
    return {
        "enableControllerInNamesrv": "true",
        "controllerDLegerPeers": peers,
        "controllerDLegerSelfId": f"n{number}",
    }
