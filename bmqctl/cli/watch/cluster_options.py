"""The options that name a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.common.render import refuse
from bmqctl.systems.opening import open_cluster
from bmqctl.systems.system import Cluster, ClusterOptions

__all__ = ["BrokerName", "Controller", "IsRocketmq", "Nameserver", "Nodes", "open_nodes", "options_of"]

IsRocketmq = Annotated[
    bool,
    typer.Option("--rocketmq", help="The cluster is RocketMQ's; by default its nameserver is 127.0.0.1:9876."),
]
Nameserver = Annotated[
    list[str] | None,
    typer.Option(
        "--nameserver", metavar="HOST:PORT[;HOST:PORT]", help="Nameservers of a RocketMQ cluster.", show_default=False
    ),
]
Controller = Annotated[
    list[str] | None,
    typer.Option(
        "--controller", metavar="HOST:PORT[;HOST:PORT]", help="Controllers of a RocketMQ cluster.", show_default=False
    ),
]
BrokerName = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-name",
        help="A name of RocketMQ brokers about which the controllers are asked, if no nameserver knows it.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Nodes:
    """The options that name a cluster of RocketMQ."""

    rocketmq: IsRocketmq = False
    nameserver: Nameserver = None
    controller: Controller = None


def options_of(broker: str | None, nodes: Nodes, reach: Reach, names: list[str] | None = None) -> ClusterOptions:
    """Gather the options that name a cluster, and those by which it is reached."""
    return ClusterOptions(broker, nodes.rocketmq, nodes.nameserver, nodes.controller, names, reach)


def open_nodes(command: str, options: ClusterOptions) -> Cluster:
    """Open a cluster; exit with code 2 and one line on stderr for options that are not valid."""
    try:
        return open_cluster(options)
    except CannotBegin as fault:
        refuse(command, str(fault))
