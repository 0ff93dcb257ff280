"""The part of the composition root that serves the gRPC clients of RocketMQ 5."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from broker.rocketmq.administration.registration import Dial as RemotingDial
from broker.rocketmq.assembly.group import Connect, Dial, place_of
from broker.rocketmq.broker.broker import Broker, State
from broker.rocketmq.config.node import PropertyError, RocketConfig
from broker.rocketmq.flush_gate import FlushGate
from broker.rocketmq.node import Connection, Node
from broker.rocketmq.remoting.session import Session
from broker.shell.connections.certificates import SELF_SIGNED_MODULES
from broker.shell.connections.dialing import Endpoint
from broker.shell.loop.server import ListenError, listen

if TYPE_CHECKING:
    from broker.rocketmq.grpc.brokers.backend import Backend
    from broker.rocketmq.grpc.service import GrpcService

__all__ = [
    "GRPC_MODULES",
    "dials_to",
    "group_backend",
    "grpc_connect",
    "listen_for_grpc",
    "listen_if_free",
]

log = logging.getLogger("broker.rocketmq")

# The modules that the first gRPC connection needs.
GRPC_MODULES: Final = (
    "broker.rocketmq.grpc.service",
    "broker.rocketmq.grpc.access.check",
    "broker.rocketmq.grpc.brokers.local",
    "broker.rocketmq.proxy.cluster",
    *SELF_SIGNED_MODULES,
)


def listen_for_grpc(config: RocketConfig) -> tuple[socket.socket | None, str]:
    port = config.grpc_listen_port
    return (
        (None, "") if port is None else listen_if_free(config.bind_address, port, "grpc", config.grpc_port is not None)
    )


def listen_if_free(host: str, port: int, name: str, was_asked_for: bool) -> tuple[socket.socket | None, str]:
    """Listen on a protocol's port; without a socket, the text says why.

    Raises `ListenError` if the port was requested. An unrequested port may be another program's, as with several nodes
    on one host; the other clients are served all the same.
    """
    try:
        return listen(host, port, f"--{name}-port"), ""
    except ListenError as error:
        if was_asked_for:
            raise
        return None, f"{error}, or --no-{name}"


def dials_to(
    dial: Callable[[Endpoint, Callable[[str], Session], Callable[[str], None]], None],
    places: Mapping[str, Endpoint] = MappingProxyType({}),
) -> Callable[[str], RemotingDial]:
    """Return the function that dials an address: as one of `places`, or as HOST:PORT."""

    def dial_to(address: str) -> RemotingDial:
        def connect(connected: Callable[[str], Session], failed: Callable[[str], None]) -> None:
            try:
                place = places.get(address) or place_of(address, "address")
            except PropertyError as fault:
                failed(str(fault))
                return
            dial(place, connected, failed)

        return connect

    return dial_to


def group_backend(config: RocketConfig, node: Node, dial: Dial) -> Callable[[], Backend] | None:
    """Return the maker of this node's backend for gRPC clients; None where only this broker can be master.

    In a group with a controller any member may be master, and members are asked as by a proxy. Nameservers say which
    one is, and requests to them are not signed: where requests must be signed, a node serves its own broker.
    """
    if not config.replication.is_controlled or config.access.authentication or config.access.authorization:
        return None

    def make() -> Backend:
        from broker.rocketmq.proxy.access import Checks
        from broker.rocketmq.proxy.cluster import Cluster

        own = str(config.broker_options.address._replace(port=config.nameserver_port))
        client_id = f"{config.bind_address}@{os.getpid()}@rocketmq-node"
        nameservers = (own, *config.nameservers)
        as_it_is, now_ms = (lambda frame: frame), (lambda: node.now.ms)
        return Cluster(nameservers, dials_to(dial), node.open, client_id, as_it_is, Checks(), now_ms)

    return make


def grpc_connect(
    state: State,
    node: Node,
    broker: Broker,
    gate: FlushGate | None,
    wall_ms: Callable[[], int],
    elsewhere: Callable[[], Backend] | None = None,
) -> Connect:
    """Return the maker of sessions for the gRPC port.

    Calls go to this broker, or to the brokers of the backend that `elsewhere` makes. The service is made for the first
    connection; its modules, `GRPC_MODULES`, are imported after the start.
    """
    made: list[GrpcService] = []

    def make() -> GrpcService:
        from broker.rocketmq.grpc.access.check import LocalAccess
        from broker.rocketmq.grpc.brokers.local import Local
        from broker.rocketmq.grpc.service import GrpcService

        tables = (state.options, state.topics, state.groups)
        backend: Backend
        if elsewhere is None:
            backend = Local(*tables, broker, gate, node.faults, wall_ms, lambda: node.now.ms)
        else:
            backend = elsewhere()
        access = LocalAccess(state.access, state.guard)
        service = GrpcService(access, backend, node.faults, wall_ms, lambda: node.now.ms, lambda: broker.lacks)
        node.add(service)
        made.append(service)
        return service

    def connect(peer: str, certified: Callable[[], frozenset[str]]) -> Connection:
        service = made[0] if made else make()
        return node.open_other(peer, lambda number, host: service.connect(number, host, node.dirty.add, node.step_time))

    return connect
