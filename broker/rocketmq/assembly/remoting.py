"""The part of the composition root that serves remoting clients with one address only."""

from __future__ import annotations

import socket

from broker.rocketmq.access.guard import Guard
from broker.rocketmq.assembly.grpc import listen_if_free
from broker.rocketmq.broker.broker import Broker
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.nameserver.one_port import OnePort, moved_routes
from broker.rocketmq.nameserver.requests import Nameserver, RouteRequests

__all__ = ["listen_for_remoting", "one_port"]


def listen_for_remoting(config: RocketConfig) -> tuple[socket.socket | None, str]:
    """Listen for clients with one address only, if they are to be served; see `listen_if_free`."""
    port, was_asked_for = config.remoting_listen_port, config.remoting_port is not None
    return (None, "") if port is None else listen_if_free(config.bind_address, port, "remoting", was_asked_for)


def one_port(config: RocketConfig, nameserver: Nameserver, guard: Guard, broker: Broker) -> OnePort:
    address, port = config.broker_options.address, config.remoting_listen_port
    assert port is not None
    find = moved_routes(nameserver.routes.route, str(address), str(address._replace(port=port)))
    return OnePort(broker, RouteRequests(find, nameserver.values), guard)
