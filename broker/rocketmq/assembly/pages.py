"""The pages of a node for monitoring: `/metrics`, `/healthz` and `/readyz`.

Their modules are imported only if they are wanted: other nodes start sooner.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from broker.rocketmq.assembly.disks import disk_used_bytes
from broker.rocketmq.broker.broker import Broker
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.node import Node
from broker.shell.loop.server import Server, listen

__all__ = ["Watched", "listen_for_pages", "serve_pages", "watch_broker"]


class Watched(NamedTuple):
    """A node for its pages: the pieces of its metrics, and what it lacks to serve clients, if anything."""

    pieces: Callable[[], Iterator[bytes]]
    lacks: Callable[[], str | None]


def listen_for_pages(host: str, port: int | None, stack: ExitStack) -> socket.socket | None:
    """Listen for requests of pages until the stack is left; None without a port."""
    if port is None:
        return None
    sock = listen(host, port, "--metrics-port")
    stack.callback(sock.close)
    return sock


def serve_pages(sock: socket.socket | None, node: Node, server: Server, watch: Callable[[], Watched]) -> None:
    if sock is None:
        return
    from broker.shell.loop.pages import Pages, standard_pages

    watched = watch()

    def lacks() -> str | None:
        return "this node is stopping" if server.is_retiring else watched.lacks()

    server.serve_beside(Pages(sock, standard_pages(watched.pieces, lacks), node.faults, server.making_page).serve)


def watch_broker(config: RocketConfig, broker: Broker, wall_ms: Callable[[], int]) -> Watched:
    from broker.rocketmq.administration.metrics import Metrics

    disk_bytes = partial(disk_used_bytes, config.store)
    metrics = Metrics(broker.services, wall_ms, disk_bytes, lambda: bool(broker.retention.alarm))
    return Watched(metrics.pieces, lambda: broker.lacks)
