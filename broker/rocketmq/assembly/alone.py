"""The process of a service that runs alone, without a message store: a nameserver or a controller."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from broker.common.faults import Faults
from broker.common.timers import Timers
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.assembly.pages import Watched, listen_for_pages, serve_pages
from broker.rocketmq.assembly.process import LOG_NAME, Deferred, Logging, run_to_end, warn_of
from broker.rocketmq.assembly.tls import make_tls
from broker.rocketmq.config.files import open_access
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.session import Service
from broker.shell.connections.account import Account
from broker.shell.files.flush_thread import FlushThread
from broker.shell.files.store_lock import StoreLock
from broker.shell.host.descriptors import connections_max, descriptors_in_use, raise_limit
from broker.shell.loop.runtime import freeze_collector, start_clock
from broker.shell.loop.server import CONNECTIONS_MAX, Server, listen, run_server
from broker.shell.process.logs import start_logging

__all__ = ["Alone", "Basis", "run_alone"]


class Basis(NamedTuple):
    """The parts of the process from which its service is made."""

    config: RocketConfig
    node: Node
    access: AccessTables
    guard: Guard
    deferred: Deferred


class Alone(NamedTuple):
    """A service and its pages for monitoring; `links` is the number of connections that it makes itself.

    `writer` waits for the disk, and `finish` is called when the loop has ended.
    """

    service: Service
    watch: Callable[[], Watched]
    links: int = 0
    writer: FlushThread | None = None
    finish: Callable[[], None] = lambda: None


def run_alone(
    config: RocketConfig, port: int, log_level: str, make: Callable[[Basis], Alone], ready: Callable[[], None]
) -> int:
    """Run a service until SIGTERM or SIGINT; return the exit code. Faults are one line on stderr.

    `ready` is called once clients are served; they wait until it returns.
    """
    return run_to_end(partial(_run, config, port, log_level, make, ready))


def _run(
    config: RocketConfig, port: int, log_level: str, make: Callable[[Basis], Alone], ready: Callable[[], None]
) -> None:
    limit = raise_limit()
    tls = make_tls(config.tls)
    with ExitStack() as stack:
        sock = listen(config.bind_address, port)
        stack.callback(sock.close)
        pages = listen_for_pages(config.metrics_host, config.pages_port, stack)
        stack.callback(StoreLock(config.store).release)
        start_logging(Logging(log_level, str(config.store / LOG_NAME)), config.store)
        warn_of(config)
        now = start_clock()
        node = Node(now, Faults(now), Timers(), time.monotonic_ns)
        access = open_access(config)
        inner = None if config.inner_credentials is None else config.inner_credentials.username
        guard = Guard(config.access, access, config.options.cluster, inner)
        deferred = Deferred(tls.dials)
        alone = make(Basis(config, node, access, guard, deferred))
        most = min(CONNECTIONS_MAX, connections_max(0, limit, descriptors_in_use(), 1, alone.links))
        listeners = [tls.listener(sock, node.connect_to(alone.service))]
        account = Account(config.connection_bytes_max)
        server = Server(node, listeners, connections_max=most, account=account, balancers=config.balancers)
        deferred.server = server
        serve_pages(pages, node, server, alone.watch)
        if alone.writer is not None:
            server.watch(alone.writer)
        freeze_collector()
        run_server(server, ready)
        alone.finish()
