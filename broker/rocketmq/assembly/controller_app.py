"""The composition root of a controller that runs alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from broker.common.addresses import Addresses
from broker.common.faults import Faults
from broker.common.timers import Timers
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.assembly.controller import make_controller
from broker.rocketmq.assembly.pages import Watched, listen_for_pages, serve_pages
from broker.rocketmq.assembly.process import LOG_NAME, Deferred, Logging, run_to_end, warn_of
from broker.rocketmq.assembly.tls import make_tls
from broker.rocketmq.config.controller import with_peers
from broker.rocketmq.config.files import make_seal, open_access
from broker.rocketmq.config.node import PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.controller.service import ControllerService
from broker.rocketmq.node import Node
from broker.shell.connections.account import Account
from broker.shell.connections.dialing import is_own_address
from broker.shell.files.store_lock import StoreLock
from broker.shell.host.descriptors import connections_max, descriptors_in_use, raise_limit
from broker.shell.loop.runtime import freeze_collector, start_clock
from broker.shell.loop.server import CONNECTIONS_MAX, Server, listen, run_server
from broker.shell.process.announcing import announce
from broker.shell.process.logs import start_logging
from formats.addresses import shown_place

__all__ = ["PropertyError", "RocketConfig", "load_rocketmq_config", "run_controller", "with_peers"]


def run_controller(config: RocketConfig, log_level: str = "WARN", ready: Callable[[], None] = lambda: None) -> int:
    """Run a controller until SIGTERM or SIGINT; return the exit code. Faults are one line on stderr.

    `ready` is called once brokers are served; they wait until it returns.
    """
    return run_to_end(lambda: _run(config, log_level, ready))


def _run(config: RocketConfig, log_level: str, ready: Callable[[], None]) -> None:
    limit = raise_limit()
    port = config.controller_port
    assert port is not None
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
        tls = make_tls(config.tls)
        deferred = Deferred(tls.dials)
        own_host = config.controller.address.rpartition(":")[0].strip("[]")
        addresses = Addresses(own_host, now, deferred.look_up, is_own_address)
        service = make_controller(config, guard, node, deferred.dial, make_seal(config.inner_credentials), addresses)
        most = min(CONNECTIONS_MAX, connections_max(0, limit, descriptors_in_use(), 1, len(config.controller.peers)))
        listeners, account = [tls.listener(sock, node.connect_to(service))], Account(config.connection_bytes_max)
        server = Server(node, listeners, connections_max=most, account=account, balancers=config.balancers)
        deferred.server = server
        serve_pages(pages, node, server, partial(_watch, config, service))
        freeze_collector()
        run_server(server, partial(_announce, config, ready))


def _watch(config: RocketConfig, service: ControllerService) -> Watched:
    from broker.rocketmq.controller.metrics import controller_pieces

    return Watched(partial(controller_pieces, config.controller, service), lambda: service.lacks)


def _announce(config: RocketConfig, then: Callable[[], None]) -> None:
    announce(
        f"bmqctl: rocketmq controller ready on {shown_place(config.bind_address, config.controller_port)} [group: "
        f"{config.controller.group}, id: {config.controller.self_id}, controllers: {len(config.controller.peers)}, "
        f"pid: {os.getpid()}]"
    )
    then()
