"""The composition root: the only place that picks real ports and puts a node together."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import trio

from broker.admin.environment import Context, Environment
from broker.admin.results import ClusterInfo, ClusterNode
from broker.admin.service import Admin
from broker.authenticators import make_authentications
from broker.certificates import make_context
from broker.config import ConfigError, NodeConfig, default_config
from broker.config import load_broker_config as load_config
from broker.config.cluster_schema import ClusterDefinition, ClusterProxyDefinition
from broker.config.dump import to_json
from broker.config.local_cluster import write_local_cluster
from broker.control import ControlLines
from broker.core.clock import Now
from broker.core.config import MessageThrottle, NodeIdentity
from broker.core.durability import NEVER, Durability, FsyncMode, FsyncPolicy, parse_fsync
from broker.core.node import Node
from broker.core.queue import Full
from broker.core.shard import Shard
from broker.domains import Domains
from broker.membership import Membership, cluster_features
from broker.opening import StoreDamaged, open_ledger, open_shards
from broker.ports.files import Directory, StoreFile
from broker.shell.control_pipe import ControlPipe, PipeInUse
from broker.shell.files import DataDirectory, DirectoryInUse
from broker.shell.logs import start_logging
from broker.shell.rejected import keep_rejected
from broker.shell.server import Listener, ListenError, Server, listen
from broker.store.names import next_timestamp
from broker.store.partition_files import PartitionLimits
from formats.guid import GuidGenerator

__all__ = [
    "ConfigError",
    "FsyncPolicy",
    "NodeConfig",
    "default_config",
    "load_config",
    "parse_fsync",
    "run_node",
    "write_local_cluster",
]

log = logging.getLogger("broker")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIG = 2

# The version that development builds of the reference give (bmqp::Protocol::k_DEV_VERSION): clients turn nothing off.
VERSION = 999_999
USER_AGENT = "bmqctl"
PID_FILE = "bmqbrkr.pid"
BROKER_FILE = "bmqbrkrcfg.json"
CONTROL_PIPE = "bmqbrkr.ctl"


def run_node(config: NodeConfig, fsync: FsyncPolicy = NEVER) -> int:
    """Run a node until SIGTERM or SIGINT; the process's exit code. Faults are one line on stderr."""
    try:
        return _run(config, fsync)
    except (ConfigError, ListenError, DirectoryInUse, PipeInUse) as fault:
        print(f"bmqctl: {fault}", file=sys.stderr)
        return EXIT_CONFIG
    except (StoreDamaged, Full) as fault:
        print(f"bmqctl: {fault}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"bmqctl: {where}{error.strerror}; make it writable, or name another folder", file=sys.stderr)
        return EXIT_CONFIG


def _run(config: NodeConfig, fsync: FsyncPolicy) -> int:
    cluster, me = config.cluster, config.self_node
    if cluster is None or me is None:
        raise ConfigError(_where(config), "$.myClusters", "this node is in no cluster", "proxies cannot be run yet")
    # First the sockets: a second node must not touch the files of the first.
    listeners = _listen(config)
    partition = cluster.partition_config
    folder = Path(partition.location)
    directory = DataDirectory(folder, Path(partition.archive_location), partition.max_archived_file_sets)
    with _run_files(config.run_directory) as pipe:
        switches = start_logging(config.broker.task_config.log_controller, folder)
        authentications = make_authentications(config.broker.app_config.authentication, _where(config, BROKER_FILE))
        gc.disable()
        now = Now(int(time.time()), time.monotonic_ns() // 1_000_000)
        limits = PartitionLimits(
            journal=partition.max_journal_file_size,
            data=partition.max_data_file_size,
            qlist=partition.max_qlist_file_size,
        )
        timestamps = _Timestamps(directory)
        opened = open_shards(directory, partition.num_partitions, me.id, limits, now, timestamps)
        ledger = open_ledger(directory, partition.max_csl_file_size, now, timestamps, opened)
        shards = {shard.partition_id: shard for shard, _ in opened}
        domains = Domains(config)
        node = Node(_identity(config, me.id), now, domains.resolve, ledger, shards, _guids())
        _configure(node, cluster)
        recovered = {shard.partition_id: state for shard, state in opened}
        membership = None
        if len(cluster.nodes) == 1:
            node.start(recovered)
        else:
            membership = Membership(cluster, node, recovered, folder, synced=fsync.mode is FsyncMode.ALWAYS)
        # The queues have made their own of it.
        opened.clear()
        recovered.clear()
        _freeze_collector()
        node.run_command = Admin(Context(node, _environment(config, domains))).run
        node.authentications = authentications
        server = Server(node, listeners, max(1, config.broker.app_config.authentication.max_threads))
        authentications.run_blocking = server.in_thread
        pipe.on_line = ControlLines(node.run_command, switches.run, server.retire)
        server.watch(pipe)
        _keep_durable(node, server, fsync)
        if membership is not None:
            membership.connect(server, _announce_available)
        trio.run(server.run, _ready(config, node))
    if membership is not None:
        membership.close()
    _close(node, shards, flush=partition.flush_at_shutdown)
    directory.close()
    log.info("BMQbrkr stopped")
    return EXIT_OK


def _listen(config: NodeConfig) -> list[Listener]:
    """Open all listeners, those for TLS with the one certificate."""
    tls = config.broker.app_config.tls_config
    context = make_context(tls, _where(config, BROKER_FILE)) if tls and any(x.tls for x in config.listeners) else None
    return [Listener(listen(each.address, each.port), context if each.tls else None) for each in config.listeners]


@contextmanager
def _run_files(folder: Path) -> Iterator[ControlPipe]:
    """The pid file and the control pipe, there while the node runs."""
    pipe = ControlPipe(folder / CONTROL_PIPE)
    pid_file = folder / PID_FILE
    try:
        pid_file.write_text(f"{os.getpid()}\n")
        yield pipe
    finally:
        pid_file.unlink(missing_ok=True)
        pipe.close()


def _configure(node: Node, cluster: ClusterDefinition) -> None:
    """What queues take from the cluster's parameters; before there are queues."""
    throttle = cluster.message_throttle_config
    node.throttle = MessageThrottle(
        throttle.low_threshold, throttle.high_threshold, throttle.low_interval, throttle.high_interval
    )
    node.keepalive_ms = cluster.queue_operations.keepalive_duration_ms
    node.keep_rejected = keep_rejected


def _keep_durable(node: Node, server: Server, fsync: FsyncPolicy) -> None:
    """Take what is written to the disk, as often as is wanted."""
    durability = Durability(node.shards.values(), node.ledger)

    def flush(files: list[StoreFile | Directory]) -> None:
        for file in files:
            file.flush()

    def again(done: None = None) -> None:
        node.timers.at(node.now.ms + fsync.interval_ms, in_background)

    def in_background() -> None:
        files = durability.unsynced()
        if files:
            server.in_thread(lambda: flush(files), again)
        else:
            again()

    if fsync.mode is FsyncMode.ALWAYS:
        node.before_sending = durability.sync
    elif fsync.mode is FsyncMode.INTERVAL:
        again()


def _freeze_collector() -> None:
    """Keep Python's cycle collector off what cannot be garbage; it rests until here, while the store is read.

    A message is freed by its reference count. Left alone, the collector would walk all that are outstanding again
    and again: at a million of them, for a second each time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    gc.enable()


def _ready(config: NodeConfig, node: Node) -> Callable[[], None]:
    def announce() -> None:
        where = ", ".join(f"{listener.address}:{listener.port}" for listener in config.listeners)
        messages = sum(shard.state().messages for shard in node.shards.values())
        log.info("BMQbrkr started successfully")
        if config.cluster is not None and len(config.cluster.nodes) == 1:
            # One node leads and is primary from the start.
            log.info("Cluster (%s) is available", node.identity.cluster_name)
        print(
            f"bmqctl: node ready on {where} [cluster: {node.identity.cluster_name}, queues: {len(node.queues)}, "
            f"messages: {messages}, pid: {os.getpid()}]",
            flush=True,
        )

    return announce


def _announce_available() -> None:
    # Programs that started several nodes wait for this line of each; the log has it for people.
    print("bmqctl: cluster available", flush=True)


def _close(node: Node, shards: dict[int, Shard], *, flush: bool) -> None:
    for shard in shards.values():
        if flush:
            shard.files.flush()
        shard.files.close()
    if flush:
        node.ledger.flush()
    node.ledger.close()


def _identity(config: NodeConfig, node_id: int) -> NodeIdentity:
    app = config.broker.app_config
    assert config.cluster is not None
    return NodeIdentity(
        cluster_name=config.cluster.name,
        node_id=node_id,
        host=app.host_name,
        process_name="bmqbrkr.tsk",
        process_id=os.getpid(),
        version=VERSION,
        user_agent=USER_AGENT,
        heartbeat_interval_ms=config.tcp.heartbeat_interval_ms,
        heartbeats_missed_max=app.network_interfaces.heartbeats.client,
        peer_heartbeats_missed_max=app.network_interfaces.heartbeats.cluster_peer,
        cluster_features=cluster_features(config.cluster),
    )


def _environment(config: NodeConfig, domains: Domains) -> Environment:
    """What administration shows of the configuration."""
    assert config.cluster is not None
    assert config.self_node is not None
    own = [_cluster_info(cluster, "local") for cluster in config.clusters.my_clusters]
    return Environment(
        broker_config=to_json(config.broker.app_config),
        clusters=(*own, *(_cluster_info(cluster, "remote") for cluster in config.clusters.proxy_clusters)),
        node_name=config.self_node.name,
        storage_location=config.cluster.partition_config.location,
        forget_domain=domains.forget,
    )


def _cluster_info(cluster: ClusterDefinition | ClusterProxyDefinition, locality: str) -> ClusterInfo:
    nodes = tuple(ClusterNode(node.name, node.id, node.data_center) for node in cluster.nodes)
    return ClusterInfo(locality, cluster.name, nodes)


def _guids() -> Callable[[], bytes]:
    """GUIDs for clients that make none themselves."""
    generator = GuidGenerator(secrets.token_bytes(6), time.monotonic_ns())
    return lambda: generator.make(time.monotonic_ns())


class _Timestamps:
    """Names for new files; see `next_timestamp`."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory

    def __call__(self, prefix: str) -> str:
        return next_timestamp(prefix, self._directory.names(), datetime.now(UTC))


def _where(config: NodeConfig, file: str = "clusters.json") -> str:
    return str(config.directory / file) if config.directory else "built-in configuration"
