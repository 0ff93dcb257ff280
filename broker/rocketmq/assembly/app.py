"""The composition root of a RocketMQ node: a nameserver and a broker in one process, with one loop."""

from __future__ import annotations

import gc
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from broker.common.addresses import Addresses
from broker.common.faults import Faults
from broker.common.kept import Keeper
from broker.common.timers import Timers
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.administration.registration import NameserverLink, Nameservers
from broker.rocketmq.administration.retention import RetentionLimits
from broker.rocketmq.assembly.controller import controller_connects
from broker.rocketmq.assembly.group import Group, place_of
from broker.rocketmq.assembly.grpc import (
    GRPC_MODULES,
    group_backend,
    grpc_connect,
    listen_for_grpc,
)
from broker.rocketmq.assembly.identity import OpenFile, epoch_begins, small_file
from broker.rocketmq.assembly.nameserver import make_nameserver, open_nameserver
from broker.rocketmq.assembly.pages import listen_for_pages, serve_pages, watch_broker
from broker.rocketmq.assembly.ports import node_ports
from broker.rocketmq.assembly.process import LOG_NAME, READ_BYTES, Deferred, Logging, run_to_end, wall_ms, warn_of
from broker.rocketmq.assembly.remoting import listen_for_remoting, one_port
from broker.rocketmq.assembly.store_check import check_store, disk_of_store, log_folders, root_of_store
from broker.rocketmq.assembly.tls import make_tls
from broker.rocketmq.broker.broker import Broker, Given, State, World
from broker.rocketmq.config.controller import with_controller
from broker.rocketmq.config.files import make_seal, open_access, read_file
from broker.rocketmq.config.node import (
    BROKER_READERS,
    LOCKED,
    PropertyError,
    RocketConfig,
    load_rocketmq_config,
)
from broker.rocketmq.config.tls import TlsMode
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.flush_gate import FlushGate
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.replication.metadata import FollowedTables
from broker.rocketmq.replication.options import Role
from broker.rocketmq.settings import Settings
from broker.rocketmq.store.message_store import Flush, MessageStore
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.routes import QueueFinder
from broker.rocketmq.tables.topics import Topics
from broker.shell.connections.account import Account
from broker.shell.connections.certificates import SELF_SIGNED_MODULES
from broker.shell.connections.dialing import is_own_address
from broker.shell.files.config_files import ConfigFile
from broker.shell.files.flush_thread import FlushThread
from broker.shell.files.folders import FileFolder
from broker.shell.files.store_lock import FolderLock, StoreLock
from broker.shell.host.descriptors import (
    DESCRIPTORS_PER_FILE,
    connections_max,
    descriptors_in_use,
    mapped_files_max,
    mappings_max,
    raise_limit,
)
from broker.shell.loop.runtime import freeze_collector, import_beside, start_clock
from broker.shell.loop.server import CONNECTIONS_MAX, Server, listen, run_server
from broker.shell.process.announcing import announce
from broker.shell.process.logs import start_logging
from formats.addresses import shown_place
from formats.rocketmq.files.checkpoints import TIMER_CHECKPOINT
from formats.rocketmq.files.property_text import (
    PROPERTIES_ENCODING,
    changed_properties,
)
from formats.rocketmq.message_ids import UniqueId
from formats.rocketmq.remoting.bodies.clients import OFFSET_FILES
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS, DelayOffsets
from formats.rocketmq.remoting.bodies.popping import REQUEST_MODES
from formats.rocketmq.remoting.frame import Frame

__all__ = [
    "PropertyError",
    "RocketConfig",
    "Role",
    "TlsMode",
    "load_rocketmq_config",
    "run_rocketmq",
    "with_controller",
]

log = logging.getLogger("broker.rocketmq")

T = TypeVar("T")


def run_rocketmq(config: RocketConfig, log_level: str = "WARN", ready: Callable[[], None] = lambda: None) -> int:
    """Run a node until SIGTERM or SIGINT; return the exit code. Faults are one line on stderr.

    `ready` is called once clients are served; they wait until it returns.
    """
    return run_to_end(lambda: _run(config, log_level, ready))


def _run(config: RocketConfig, log_level: str, ready: Callable[[], None]) -> None:
    limit = raise_limit()
    tls = make_tls(config.tls)
    # Sockets come first: a second node must not touch the first one's files.
    with ExitStack() as stack:
        sockets = []
        for port in node_ports(config):
            sockets.append(listen(config.bind_address, port.number, port.option))
            stack.callback(sockets[-1].close)
        pages_socket = listen_for_pages(config.metrics_host, config.pages_port, stack)
        (grpc_socket, without_grpc), (remoting_socket, without_remoting) = _listen_besides(config, stack)
        config, notes = check_store(config)
        root = _hold_store(config, stack)
        start_logging(Logging(log_level, str(config.store / LOG_NAME)), config.store)
        warn_of(config, [*notes, without_grpc, without_remoting])
        gc.disable()
        files_max = mapped_files_max(limit, CONNECTIONS_MAX, mappings_max())
        open_file = partial(_open_file, config)
        store = _open_store(config, root, files_max, open_file)
        kept = _Kept(config, store)
        now = start_clock()
        node = Node(now, Faults(now), Timers(), time.monotonic_ns)
        flusher = FlushThread() if config.flush_sync else None
        gate = None if flusher is None else FlushGate(store, flusher, now, config.sync_flush_timeout_ms)
        keeper = Keeper(writer := FlushThread())
        parts = open_nameserver(config)
        deferred = Deferred(tls.dials)
        seal = make_seal(config.inner_credentials)
        addresses = Addresses(config.broker_options.address.address, now, deferred.look_up, is_own_address)
        group = Group(config, store, node, deferred.dial, seal, wall_ms, gate, open_file, addresses)
        calls = BrokerCalls(group.dial_address, node.open)
        nameserver = make_nameserver(config, kept.guard, kept.access, parts, calls, node, seal, addresses, keeper)
        broker = _make_broker(config, kept, node, nameserver, group, keeper)
        connects = [node.connect_to(nameserver), node.connect_to(broker, gate), *group.connects(broker)]
        connects += controller_connects(config, kept.guard, node, deferred.dial, seal, addresses)
        listeners = [tls.listener(sock, connect) for sock, connect in zip(sockets, connects, strict=True)]
        if grpc_socket is not None:
            connect = grpc_connect(kept.state, node, broker, gate, wall_ms, group_backend(config, node, deferred.dial))
            listeners.append(tls.listener(grpc_socket, connect))
        if remoting_socket is not None:
            both = one_port(config, parts, kept.guard, broker)
            listeners.append(tls.listener(remoting_socket, node.connect_to(both, gate)))
        most = _connections_max(config, limit, files_max - store.queue_table.files.number)
        server = Server(node, listeners, 8, most, READ_BYTES, Account(config.connection_bytes_max), config.balancers)
        deferred.server = server
        serve_pages(pages_socket, node, server, partial(watch_broker, config, broker, wall_ms))
        for thread in (writer, flusher) if flusher is not None else (writer,):
            server.watch(thread)
        freeze_collector()
        _flush_now_and_then(config, node, server, store)
        broker.start()
        served = _served_besides(config, grpc_socket, remoting_socket)
        needed = ("numpy", *(SELF_SIGNED_MODULES if grpc_socket is None else GRPC_MODULES))
        run_server(server, partial(_announce, config, store, served, needed, ready))
        broker.close()
        store.close()


def _hold_store(config: RocketConfig, stack: ExitStack) -> FileFolder:
    """Open the folder of the store, locked until the stack is left. Raises `StoreInUse`."""
    stack.callback(StoreLock(config.store).release)
    root = root_of_store(config)
    for folder in log_folders(config):
        stack.callback(FolderLock(folder).release)
    return root


def _listen_besides(config: RocketConfig, stack: ExitStack) -> list[tuple[socket.socket | None, str]]:
    """Listen for gRPC, and for clients with one address only; each has a note if it is not served.

    See `listen_if_free`.
    """
    found = []
    for listen_for, effect in (
        (listen_for_grpc, "gRPC is not served"),
        (listen_for_remoting, "there is no port that is nameserver and broker at once"),
    ):
        sock, reason = listen_for(config)
        found.append((sock, reason and f"{effect}: {reason}"))
        if sock is not None:
            stack.callback(sock.close)
    return found


def _open_store(config: RocketConfig, root: FileFolder, files_max: int, open_file: OpenFile) -> MessageStore:
    sizes = config.store_options._replace(queue_files_max=files_max)
    due_time = make_due_time(config.options.delay_levels_ms)
    return open_store(root, sizes, _index_name, due_time, epoch_begins(open_file))


def _open_file(config: RocketConfig, name: str) -> ConfigFile:
    return ConfigFile(small_file(config, name))


class _Kept:
    def __init__(self, config: RocketConfig, store: MessageStore) -> None:
        options = replace(
            config.broker_options, read_behind_bytes=_physical_memory() * config.replication.memory_percent // 100
        )

        def file(*parts: str) -> ConfigFile:
            return ConfigFile(config.store.joinpath(*parts))

        topics, groups = file("config", "topics.json"), file("config", "subscriptionGroup.json")
        offsets_files = [file("config", name) for name in OFFSET_FILES]
        # The other file may be of a broker with another value of the property.
        self.offsets_file, other = reversed(offsets_files) if config.has_lmq else offsets_files
        self.delays_file = file("config", "delayOffset.json")
        self.timers_file = file("config", "timercheck")
        self.orders_file = file("config", "consumerOrderInfo.json")
        self.modes_file = file("config", "messageRequestMode.json")
        self.settings = Settings(config.properties, BROKER_READERS, partial(_keep_properties, config.file), LOCKED)
        self.access = open_access(config)
        inner = None if config.inner_credentials is None else config.inner_credentials.username
        self.guard = Guard(config.access, self.access, options.cluster, inner)
        self.state = State(
            options,
            store,
            read_file(topics, lambda data: Topics(options, data, topics.write)),
            read_file(groups, lambda data: Groups(data, groups.write, auto_create=config.auto_create_group)),
            read_file(
                self.offsets_file,
                lambda data: Offsets(data, other.read(), parts_lmq=config.has_lmq),
                other,
            ),
            read_file(self.orders_file, Orders),
            self.settings,
            self.access,
            self.guard,
            self.given(),
            config.times,
            RetentionLimits(
                config.reserved_hours * 3_600_000,
                forced_after_ms=config.forced_after_ms,
                is_time=lambda ms: time.localtime(ms // 1000).tm_hour in config.delete_hours,
            ),
        )

    def given(self) -> Given:
        """Read the state that a new master continues from."""
        return Given(
            read_file(self.delays_file, lambda data: DELAY_OFFSETS.read(data) if data else DelayOffsets()),
            read_file(self.timers_file, lambda data: TIMER_CHECKPOINT.unpack(data) if data else None),
            read_file(self.modes_file, _checked_modes),
        )


def _keep_properties(file: Path | None, changes: Mapping[str, str]) -> None:
    if file is not None:
        text = changed_properties(file.read_bytes().decode(PROPERTIES_ENCODING), changes)
        ConfigFile(file).write(text.encode(PROPERTIES_ENCODING))


def _checked_modes(data: bytes) -> bytes:
    """Return the file of request modes. Raises `FormatError` if it cannot be read."""
    if data:
        REQUEST_MODES.read(data)
    return data


def _make_broker(
    config: RocketConfig, kept: _Kept, node: Node, nameserver: NameserverService, group: Group, keeper: Keeper
) -> Broker:
    options, topics = kept.state.options, kept.state.topics
    links: list[NameserverLink] = []

    def hello() -> Frame | None:
        return nameservers.hello()

    for name in config.other_nameservers:
        dial = partial(group.dial, place_of(name, "nameserver"))
        links.append(NameserverLink(name, dial, node.open, hello, group.seal, group.registered, config.peer_secret))
    nameserver.registered = group.registered
    world = World(
        wall_ms,
        random.randrange,
        _UniqueIds(options.address.address),
        _nothing_first if group.gate is None else group.gate.keep_order,
        kept.offsets_file.write,
        kept.delays_file.write,
        kept.timers_file.write,
        kept.orders_file.write,
        kept.modes_file.write,
        QueueFinder(nameserver.find_queues, links),
        partial(disk_of_store, config),
        keeper,
    )
    nameservers = Nameservers(options, topics, [nameserver, *links])
    broker = Broker(kept.state, world, node.faults, nameservers, group.make_role(options))
    node.add(broker)
    node.add(nameserver)
    tables = (kept.state.store, topics, kept.state.groups, kept.state.offsets)
    files = (world.keep_delay_offsets, world.keep_timer_checkpoint, world.keep_request_modes)
    group.join(broker, nameservers, FollowedTables(*tables, *files), options, kept.given)
    if group.gate is not None:
        node.add(group.gate)
    return broker


def _flush_now_and_then(config: RocketConfig, node: Node, server: Server, store: MessageStore) -> None:
    """Flush everything to the disk at intervals, beside the loop."""

    def again() -> None:
        node.timers.at(node.now.ms + config.flush_interval_ms, begin)

    def begin() -> None:
        flush = store.begin_flush()
        if flush is None:
            again()
        else:
            server.in_thread(partial(carry_out, flush), done)

    def carry_out(flush: Flush) -> Flush:
        for file in flush.files:
            file.flush()
        return flush

    def done(flush: Flush) -> None:
        store.end_flush(flush)
        again()

    again()


def _connections_max(config: RocketConfig, limit: int, files_to_come: int) -> int:
    """Return the maximum of connections, reduced where descriptors are short: no user has set it."""
    in_use = descriptors_in_use() + DESCRIPTORS_PER_FILE * max(0, files_to_come)
    return min(CONNECTIONS_MAX, connections_max(0, limit, in_use, 1, len(config.nameservers) + 2))


def _served_besides(
    config: RocketConfig, grpc_socket: socket.socket | None, remoting_socket: socket.socket | None
) -> str:
    served = {
        "gRPC": (grpc_socket, config.grpc_listen_port),
        "remoting": (remoting_socket, config.remoting_listen_port),
    }
    return "".join(
        f", {shown_place(config.bind_address, port)} ({name})"
        for name, (sock, port) in served.items()
        if sock is not None
    )


def _announce(
    config: RocketConfig, store: MessageStore, served_besides: str, needed: Sequence[str], then: Callable[[], None]
) -> None:
    """Report readiness, and import the modules that requests will need."""
    messages = sum(queue.end - queue.begin for queue in store.queues.values())
    log.info("ready: nameserver on port %d, broker on port %d", config.nameserver_port, config.port)
    announce(
        f"bmqctl: rocketmq ready on {shown_place(config.bind_address, config.nameserver_port)} (nameserver), "
        f"{shown_place(config.bind_address, config.port)} (broker){served_besides} [cluster: {config.options.cluster}, "
        f"broker: {config.options.name}, messages: {messages}, pid: {os.getpid()}]"
    )
    then()
    import_beside(needed)


def _nothing_first() -> None:
    """Leave writing to the kernel: nothing waits for the disk."""


def _physical_memory() -> int:
    """Return the memory of this machine, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _index_name(ms: int) -> str:
    """Return the name of an index file: its start in local time, to the millisecond."""
    return datetime.fromtimestamp(ms // 1000).strftime("%Y%m%d%H%M%S") + f"{ms % 1000:03d}"


class _UniqueIds:
    def __init__(self, address: str) -> None:
        self._first = UniqueId(address, os.getpid() & 0xFFFF, random.getrandbits(32), 0, 0)
        self._counter = 0

    def __call__(self) -> str:
        self._counter = self._counter + 1 & 0xFFFF
        now = datetime.now()
        begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        month_ms = int((now - begin).total_seconds() * 1000)
        return str(self._first._replace(month_ms=month_ms, counter=self._counter))
