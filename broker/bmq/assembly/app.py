"""The composition root: the only place that picks real ports and puts a node together.

Parts of cluster members and of proxies are imported only when needed, for a faster start.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from broker.bmq.admin.environment import Environment
from broker.bmq.admin.readiness import ClusterReadiness, lacks_as_member
from broker.bmq.assembly.domains import Domains
from broker.bmq.assembly.nodes import make_node, open_store, store_settings
from broker.bmq.assembly.opening import StoreDamaged
from broker.bmq.assembly.pages import WatchedBroker, open_pages, serve_pages
from broker.bmq.assembly.partition_count import partitions_named, too_few_partitions
from broker.bmq.assembly.process import (
    OutgoingSecurity,
    addresses,
    administration,
    announce_available,
    cluster_info,
    identity_of,
    make_guids,
    make_server,
    open_listeners,
    process_services,
    queue_settings,
    run_files,
    take_commands,
)
from broker.bmq.assembly.statistics_file import write_statistics
from broker.bmq.assembly.term_file import TermUnreadable
from broker.bmq.config import Changes, ConfigError, NodeConfig, built_in_config, proxy_config
from broker.bmq.config import load_broker_config as load_config
from broker.bmq.config.consistency import eventual_by_default
from broker.bmq.config.dump import to_json
from broker.bmq.config.local_cluster import write_local_cluster
from broker.bmq.node.durability import NEVER, Durability, FsyncMode, FsyncPolicy, parse_fsync
from broker.bmq.node.node import Basis, Node
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.proxy.limits import BridgeLimits
from broker.bmq.queue.queue import Full
from broker.bmq.store.names import next_timestamp
from broker.common.faults import Change, Inconsistent, describe
from broker.common.files import Directory, StoreFile
from broker.shell.files.mapped_files import DataDirectory, DirectoryInUse
from broker.shell.host.calls import HOST, LONG_SLICE_NS
from broker.shell.host.descriptors import raise_limit
from broker.shell.loop.control_pipe import PipeInUse
from broker.shell.loop.runtime import freeze_collector, start_clock
from broker.shell.loop.server import ListenError, Server, run_server
from broker.shell.process.announcing import announce
from broker.shell.process.logs import start_logging
from broker.shell.process.os_errors import os_error_line
from broker.shell.process.process_end import Ends, run_to_end

if TYPE_CHECKING:
    from broker.bmq.assembly.membership import ClusterMember
    from broker.bmq.config.cluster_schema import ClusterDefinition

__all__ = [
    "BridgeLimits",
    "Changes",
    "ConfigError",
    "FsyncPolicy",
    "NodeConfig",
    "built_in_config",
    "load_config",
    "os_error_line",
    "parse_fsync",
    "proxy_config",
    "run_node",
    "run_proxy",
    "write_local_cluster",
]

log = logging.getLogger("broker")

NAMED_MAX = 10

# Interval between checks that the disk of a node that never flushes still accepts changes.
WATCH_MS = 5_000


def _terminates(failure: Inconsistent) -> None:
    log.critical("PANIC [NODE_INCONSISTENT] the broker terminates deliberately: %s", failure, exc_info=failure)


_ENDS = Ends(
    (ConfigError, ListenError, DirectoryInUse, PipeInUse),
    (StoreDamaged, TermUnreadable, Full),
    log,
    "broker",
    _terminates,
    "BMQbrkr stopped",
)


def run_node(config: NodeConfig, fsync: FsyncPolicy = NEVER, ready: Callable[[], None] = lambda: None) -> int:
    """Run a node until SIGTERM or SIGINT; return the process's exit code. Faults are one line on stderr.

    `ready` is called once clients are served; they wait until it returns. A broker that is in no cluster of its own
    runs as a proxy.
    """
    return run_to_end(
        lambda: _run(config, fsync, ready) if config.cluster else _serve_proxy(config, BridgeLimits(), ready), _ENDS
    )


def run_proxy(config: NodeConfig, limits: BridgeLimits, ready: Callable[[], None] = lambda: None) -> int:
    return run_to_end(lambda: _serve_proxy(config, limits, ready), _ENDS)


def _serve_proxy(config: NodeConfig, limits: BridgeLimits, ready: Callable[[], None]) -> None:
    from broker.bmq.assembly.proxying import serve_proxy

    serve_proxy(config, limits, ready)


def _run(config: NodeConfig, fsync: FsyncPolicy, ready: Callable[[], None]) -> None:
    cluster, me = config.cluster, config.self_node
    assert cluster is not None
    assert me is not None
    raise_limit()
    # The sockets come first: a second node must not touch the files of the first.
    listeners = open_listeners(config)
    pages = open_pages(config)
    stored = store_settings(cluster.partition_config)
    folder = stored.folder
    directory = DataDirectory(folder, stored.archive, stored.archived_file_sets_max)
    _refuse_fewer(config, partitions_named(directory.names()))
    with run_files(config.run_directory) as pipe:
        switches = start_logging(config.broker.task_config.log_controller, folder)
        _warn_of_eventual(config)
        services = process_services(config)
        outgoing = OutgoingSecurity(config)
        gc.disable()
        now = start_clock()
        timestamps = _Timestamps(directory)
        is_member = len(cluster.nodes) > 1
        outlives_power = fsync.mode is not FsyncMode.NEVER
        store = open_store(
            directory,
            stored.num_partitions,
            me.id,
            stored.limits,
            stored.ledger_size_max,
            now,
            timestamps,
            outlives_power=outlives_power,
            heals=is_member,
        )
        _refuse_fewer(config, (queue.partition_id for queue in store.ledger.state.queues.values()))
        partitions = store.partitions
        durability = Durability(partitions.values(), store.ledger)
        if fsync.mode is FsyncMode.ALWAYS:
            services = replace(services, before_sending=durability.sync)
        domains = Domains(config)
        basis = Basis(
            identity_of(config, cluster.name, me.id, _features(cluster)),
            now,
            domains.resolve,
            make_guids(),
            services,
            queue_settings(cluster),
            administration(_environment(config, domains)),
        )
        membership: ClusterMember | None = None
        if not is_member:
            node = make_node(basis, store)
        else:
            from broker.bmq.assembly.membership import ClusterMember

            membership = ClusterMember(cluster, basis, store, folder, _available)
            node = membership.node
        # The queues have made their own objects of it.
        store.recovered.clear()
        freeze_collector()
        server = make_server(config, node, listeners)
        take_commands(node, server, pipe, switches)
        serve_pages(pages, config, node, server, _watched(node))
        write_statistics(config, node)
        if fsync.mode is FsyncMode.INTERVAL:
            _flush_regularly(node, server, durability, fsync.interval_ms)
        elif fsync.mode is FsyncMode.NEVER:
            _watch_disk(node, server, directory)
        if membership is not None:
            # Until it is healed, other nodes have more to do than this one.
            HOST.set_slice(LONG_SLICE_NS)
            membership.connect(config, outgoing, server)
        try:
            run_server(server, _ready(config, node, ready))
        except Inconsistent:
            _save(node, partitions)
            raise
    if membership is not None:
        membership.close()
    with Change("closing the store"):
        _close(node, partitions, flush=stored.flush_at_shutdown)
    directory.close()


def _refuse_fewer(config: NodeConfig, partitions: Iterable[int]) -> None:
    fault = too_few_partitions(config, partitions)
    if fault is not None:
        raise fault


def _warn_of_eventual(config: NodeConfig) -> None:
    names = [domain.name for domain in eventual_by_default(config)]
    if names:
        shown = ", ".join(names[:NAMED_MAX]) + (" and more" if len(names) > NAMED_MAX else "")
        log.warning(
            "Domains whose files give no consistency are eventually consistent: %s. The loss of one node can lose "
            'messages that were acknowledged; for domains that must not lose any, add "consistency": {"strong": {}} '
            "to the files of all nodes.",
            shown,
        )


def _features(cluster: ClusterDefinition) -> str:
    if len(cluster.nodes) == 1:
        return ""
    from broker.bmq.assembly.membership import cluster_features

    return cluster_features(cluster)


def _watched(node: Node) -> WatchedBroker:
    def lacks() -> str | None:
        return lacks_as_member(node.role.cluster_view())

    return WatchedBroker(lambda: (ClusterReadiness(node.identity.cluster_name, lacks() is None),), lacks)


def _flush_regularly(node: Node, server: Server, durability: Durability, interval_ms: int) -> None:
    def flush(files: list[StoreFile | Directory]) -> None:
        for file in files:
            file.flush()

    def next_flush() -> Callable[[], None] | None:
        files = durability.unsynced()
        return partial(flush, files) if files else None

    _repeat_in_thread(node, server, interval_ms, next_flush)


def _watch_disk(node: Node, server: Server, directory: DataDirectory) -> None:
    """End the node when the store's file system has become read-only.

    Without flushes nothing else reveals it: writes to mapped pages succeed, and never reach the disk.
    """
    _repeat_in_thread(node, server, WATCH_MS, lambda: directory.touch)


def _repeat_in_thread(
    node: Node, server: Server, interval_ms: int, next_work: Callable[[], Callable[[], None] | None]
) -> None:
    """Repeat blocking work in a thread, `interval_ms` after the end of the last run. An error ends the node."""

    def again(done: None = None) -> None:
        node.timers.at(node.now.ms + interval_ms, begin)

    def begin() -> None:
        work = next_work()
        if work is None:
            again()
        else:
            server.in_thread(work, again)

    again()


def _ready(config: NodeConfig, node: Node, then: Callable[[], None]) -> Callable[[], None]:
    def say_ready() -> None:
        messages = sum(partition.state().messages for partition in node.partitions.values())
        log.info("BMQbrkr started successfully")
        if config.cluster is not None and len(config.cluster.nodes) == 1:
            # One node leads and is primary from the start.
            log.info("Cluster (%s) is available", node.identity.cluster_name)
        announce(
            f"bmqctl: node ready on {addresses(config)} [cluster: {node.identity.cluster_name}, "
            f"queues: {len(node.queues)}, messages: {messages}, pid: {os.getpid()}]"
        )
        then()

    return say_ready


def _available() -> None:
    HOST.set_slice(0)
    announce_available()


def _close(node: Node, partitions: dict[int, StoredPartition], *, flush: bool) -> None:
    for partition in partitions.values():
        if flush:
            partition.files.flush()
        partition.close()
    if flush:
        node.ledger.flush()
    node.ledger.close()


def _save(node: Node, partitions: dict[int, StoredPartition]) -> None:
    """Flush written data to the disk, as far as possible.

    Files are left untruncated: recovery finds the sound part, as after a crash.
    """
    for flush in (*(partition.files.flush for partition in partitions.values()), node.ledger.flush):
        try:
            flush()
        except Exception as error:
            log.error("the files could not be flushed to the disk: %s", describe(error))


def _environment(config: NodeConfig, domains: Domains) -> Environment:
    assert config.cluster is not None
    assert config.self_node is not None
    own = [
        cluster_info(cluster, "member" if len(cluster.nodes) > 1 else "local")
        for cluster in config.clusters.my_clusters
    ]
    return Environment(
        broker_config=to_json(config.broker.app_config),
        clusters=(*own, *(cluster_info(cluster, "remote") for cluster in config.clusters.proxy_clusters)),
        node_name=config.self_node.name,
        storage_location=config.cluster.partition_config.location,
        forget_domain=domains.forget,
    )


class _Timestamps:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory

    def __call__(self, prefix: str) -> str:
        return next_timestamp(prefix, self._directory.names(), datetime.now(UTC))
