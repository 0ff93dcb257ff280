"""The ports that a node listens on, and the settings that choose them."""

from __future__ import annotations

from typing import NamedTuple

from broker.rocketmq.assembly.group import SECOND_PORT_BELOW, replication_ports
from broker.rocketmq.config.node import RocketConfig

__all__ = ["NodePort", "node_ports"]


class NodePort(NamedTuple):
    """A port, with the option and the property that choose it."""

    number: int
    option: str
    setting: str


_OF_REPLICATION = (("--ha-port", "haListenPort"), ("--port", f"listenPort less {SECOND_PORT_BELOW}"))


def node_ports(config: RocketConfig) -> list[NodePort]:
    """Return the ports for peers that speak the remoting protocol, and for slaves.

    In this order: the nameserver's, the broker's, `replication_ports`, and the controller's.
    """
    found = [
        NodePort(config.nameserver_port, "--nameserver-port", "nameserverPort"),
        NodePort(config.port, "--port", "listenPort"),
    ]
    numbers = replication_ports(config)
    settings = _OF_REPLICATION[len(_OF_REPLICATION) - len(numbers) :]
    found += [NodePort(number, *names) for number, names in zip(numbers, settings, strict=True)]
    if config.controller_port is not None:
        found.append(NodePort(config.controller_port, "--controller-port", "the port in controllerDLegerPeers"))
    return found
