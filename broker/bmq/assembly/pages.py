"""The pages of a broker for monitoring: `/metrics`, `/healthz` and `/readyz`.

Their address is that of the reference's Prometheus plugin in the configuration, or the command line's.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from broker.bmq.admin.readiness import ClusterReadiness
from broker.bmq.config import NodeConfig
from broker.bmq.node.node import Node
from broker.shell.loop.server import Server, listen

__all__ = ["WatchedBroker", "open_pages", "serve_pages"]


class WatchedBroker:
    """The state of a broker for its pages: `clusters`, and what it `lacks` to serve clients, None for nothing."""

    def __init__(self, clusters: Callable[[], Iterable[ClusterReadiness]], lacks: Callable[[], str | None]) -> None:
        self.clusters = clusters
        self.lacks = lacks


def open_pages(config: NodeConfig) -> socket.socket | None:
    """Listen for requests of pages, if the configuration wants any."""
    address = config.metrics_address
    return None if address is None else listen(*address, "--metrics-port")


def serve_pages(
    sock: socket.socket | None, config: NodeConfig, node: Node, server: Server, watched: WatchedBroker
) -> None:
    if sock is None:
        return
    from broker.bmq.admin.metrics import Metrics
    from broker.shell.host.usage import SAMPLE_MS, ProcessUsage
    from broker.shell.loop.pages import Pages, standard_pages

    usage = ProcessUsage()
    metrics = Metrics(node, config.broker.app_config.broker_instance_name, watched.clusters, usage.metrics)

    def sample() -> None:
        usage.sample()
        node.timers.at(node.now.ms + SAMPLE_MS, sample)

    def lacks() -> str | None:
        return "this node is stopping" if server.is_retiring else watched.lacks()

    makers = standard_pages(metrics.pieces, lacks)
    pages = Pages(sock, makers, node.faults, server.making_page)
    node.timers.at(node.now.ms + SAMPLE_MS, sample)
    server.serve_beside(pages.serve)
