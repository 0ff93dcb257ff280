"""The pages of a broker for monitoring: `/metrics`, `/healthz` and `/readyz`.

The modules that serve them are imported only if they are wanted: other brokers start sooner.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from broker.rocketmq.assembly.disks import disk_used_bytes
from broker.rocketmq.broker.broker import Broker
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.node import Node
from broker.shell.loop.server import Server, listen

__all__ = ["listen_for_pages", "serve_pages"]


def listen_for_pages(config: RocketConfig, stack: ExitStack) -> socket.socket | None:
    if not config.exports_metrics:
        return None
    sock = listen(config.metrics_host, config.metrics_port, "--metrics-port")
    stack.callback(sock.close)
    return sock


def serve_pages(
    sock: socket.socket | None,
    config: RocketConfig,
    node: Node,
    server: Server,
    broker: Broker,
    wall_ms: Callable[[], int],
) -> None:
    if sock is None:
        return
    from broker.rocketmq.administration.metrics import Metrics
    from broker.shell.loop.pages import Pages, standard_pages

    def lacks() -> str | None:
        return "this broker is stopping" if server.is_retiring else broker.lacks

    disk_bytes = partial(disk_used_bytes, config.store)
    metrics = Metrics(broker.services, wall_ms, disk_bytes, lambda: bool(broker.retention.alarm))
    makers = standard_pages(metrics.pieces, lacks)
    server.serve_beside(Pages(sock, makers, node.faults, server.making_page).serve)
