"""The part of the composition root that serves the gRPC clients of RocketMQ 5."""

from __future__ import annotations

from collections.abc import Callable

from broker.rocketmq.assembly.config import RocketConfig
from broker.rocketmq.assembly.group import Connect
from broker.rocketmq.core.broker import Broker, State
from broker.rocketmq.flush_gate import FlushGate
from broker.rocketmq.node import Connection, Node

__all__ = ["grpc_connects", "grpc_ports"]


def grpc_ports(config: RocketConfig) -> list[int]:
    """Return the port for gRPC, if there is to be one."""
    return [] if config.grpc_port is None else [config.grpc_port]


def grpc_connects(
    config: RocketConfig, state: State, node: Node, broker: Broker, gate: FlushGate | None, wall_ms: Callable[[], int]
) -> list[Connect]:
    """Return what makes the sessions of those who connect to `grpc_ports`."""
    if config.grpc_port is None:
        return []
    # HTTP/2 and Protocol Buffers take time and memory, which nodes without gRPC are to be spared.
    from broker.rocketmq.grpc.service import GrpcService, Tables

    tables = Tables(state.options, state.topics, state.groups, state.access, state.guard)
    service = GrpcService(tables, broker, gate, node.faults, wall_ms, lambda: node.now.ms)
    node.add(service)

    def connect(peer: str, certified: Callable[[], frozenset[str]]) -> Connection:
        return node.open_other(peer, lambda number, host: service.connect(number, host, node.dirty.add))

    return [connect]
