"""The entry to administration: takes a line of text, returns a status and a text."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from broker.bmq.admin.answers.json_form import dumped, to_json
from broker.bmq.admin.answers.results import (
    BrokerConfig,
    ClusterDomain,
    ClusterHealthResult,
    ClusterNodeInfo,
    ClusterProxyStatusResult,
    ClusterQueue,
    CommandSpec,
    HelpResult,
    NodeStatuses,
    Problem,
    QueueHelperResult,
    Result,
    StorageContent,
    Success,
    Tunable,
    TunableConfirmation,
    Tunables,
)
from broker.bmq.admin.answers.text import to_text
from broker.bmq.admin.clusters import (
    check_cluster,
    cluster_health,
    cluster_list,
    cluster_status,
    force_gc,
    queue_helper,
    sub_ids,
)
from broker.bmq.admin.commands import (
    BrokerConfigDump,
    ClearConfigCache,
    ClearResolverCache,
    ClusterHealth,
    ClusterQueueHelper,
    Clusters,
    ClusterStatus,
    Command,
    DomainInfos,
    DomainPurge,
    DomainReconfigure,
    DomainRemove,
    ElectorGet,
    ElectorList,
    ElectorSet,
    Encoding,
    ForceGcQueues,
    Help,
    PartitionAvailability,
    PartitionRollover,
    PartitionSummary,
    QueueInternals,
    QueueList,
    QueueMessage,
    QueuePurge,
    ReplicationGet,
    ReplicationList,
    ReplicationSet,
    StatGet,
    StatList,
    StatSet,
    StatShow,
    StorageQueueStatus,
    StorageSummary,
    Value,
)
from broker.bmq.admin.domains import (
    clear_cache,
    domain_infos,
    find_domain,
    internals,
    list_messages,
    purge_domain,
    purge_queue,
    reconfigure,
    remove,
    show_message,
)
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.admin.parse import AdminCommandError, parse
from broker.bmq.admin.statistics import get_interval, list_intervals, set_interval, show
from broker.bmq.admin.storage import (
    NO_PARTITION,
    domain_storages,
    queue_storage,
    roll_over,
    set_available,
    storage_summary,
)
from broker.bmq.admin.table import TABLE
from broker.bmq.core.cluster_view import ProxyView
from formats.bmq.uri import parse_uri

__all__ = ["Admin"]

log = logging.getLogger("broker.admin")

# The reference's codes (mqba::Application::processCommand).
OK = 0
FAILED = -2
NOT_A_COMMAND = -31


# Maximum number of logged characters of a command.
SHOWN_MAX = 1000


def execute_at_proxy(context: CommandContext, command: Command) -> Result | None:
    """Return the result of a command that differs at a proxy; None for one that does not."""
    match command:
        case DomainPurge() | QueuePurge() | DomainRemove():
            raise Failed("Not supported on a proxy: ask a node of the cluster that has the domain.")
        case DomainReconfigure(domain):
            # A proxy learns about the domain with each queue that it opens.
            find_domain(context, domain)
            return Success()
        case ClusterStatus(cluster) | ClusterHealth(cluster):
            return _status(context, _view(context, cluster))
        case ClusterQueueHelper(cluster):
            return _queue_helper(context, _view(context, cluster))
        case ForceGcQueues(cluster):
            # A queue that no client has open is gone already.
            _view(context, cluster)
            return Success()
        case Clusters():
            return None
        case _ if hasattr(command, "cluster"):
            _view(context, command.cluster)
            raise Failed("Not supported on a proxy: ask a node of the cluster.")
        case _:
            return None


def _view(context: CommandContext, name: str) -> ProxyView:
    view = context.node.role.proxy_view(name)
    if view is None:
        raise Failed(f"cluster '{name}' not found !")
    return view


def _describe(context: CommandContext, view: ProxyView, node_id: int) -> str:
    for cluster in context.environment.clusters:
        if cluster.name == view.name:
            for node in cluster.nodes:
                if node.node_id == node_id:
                    return f"[{node.host_name}, {node_id}]"
    return f"[, {node_id}]"


def _status(context: CommandContext, view: ProxyView) -> ClusterProxyStatusResult:
    nodes = tuple(
        ClusterNodeInfo(_describe(context, view, node_id), node_id in view.connected_ids, f"E_{status}", ())
        for node_id, status in view.statuses
    )
    active = view.active_node_id
    return ClusterProxyStatusResult(
        description=f"Cluster ({view.name})",
        active_node_description=None if active is None else _describe(context, view, active),
        is_healthy=active is not None,
        node_statuses=NodeStatuses(nodes),
        queues_info=StorageContent(
            tuple(queue_storage(context, context.node.queues[uri]) for uri, _ in view.queue_ids)
        ),
    )


def _queue_helper(context: CommandContext, view: ProxyView) -> QueueHelperResult:
    by_domain = Counter(parse_uri(uri).qualified_domain for uri, _ in view.queue_ids)
    domains = tuple(ClusterDomain(name, count, loaded=True) for name, count in sorted(by_domain.items()))
    ids = sub_ids(context)
    active = view.active_node_id
    upstream = None if active is None else f" (active: {_describe(context, view, active)})"
    queues = tuple(
        ClusterQueue(
            uri=uri,
            num_in_flight_contexts=0,
            is_assigned=True,
            is_primary_available=active is not None,
            id=queue_id,
            sub_ids=tuple(sorted(ids.get(uri, ()), key=lambda each: (each.sub_id, each.app_id))),
            partition_id=NO_PARTITION,
            primary_node_description=upstream,
            key=context.node.queues[uri].key.hex().upper(),
            is_created=True,
        )
        for uri, queue_id in view.queue_ids
    )
    return QueueHelperResult(
        cluster_name=view.name,
        locality="remote",
        num_queues=len(queues),
        num_queue_keys=0,
        num_pending_reopen_queue_requests=0,
        domains=domains,
        queues=queues,
    )


def execute(context: CommandContext, command: Command, encoding: Encoding) -> Result:
    """Carry out a command and return its result, or a `Problem`.

    The encoding matters only to statistics, which are a table or JSON within the result.
    """
    try:
        return _execute(context, command, encoding)
    except Failed as failed:
        return Problem(str(failed))


def _execute(context: CommandContext, command: Command, encoding: Encoding) -> Result:
    if context.node.role.is_proxy:
        result = execute_at_proxy(context, command)
        if result is not None:
            return result
    match command:
        case Help(plumbing):
            return HelpResult(tuple(CommandSpec(row.words, row.help) for row in TABLE), plumbing)
        case BrokerConfigDump():
            return BrokerConfig(dumped(context.environment.broker_config, pretty=True))
        case Clusters():
            return cluster_list(context)
        case StatShow():
            return show(context, encoding)
        case StatSet(name):
            return set_interval(name)
        case StatGet(name):
            return get_interval(name)
        case StatList():
            return list_intervals()
        case ClearResolverCache(domain) | ClearConfigCache(domain):
            return clear_cache(context, domain)
        case DomainPurge() | DomainInfos() | QueuePurge() | QueueInternals() | QueueList() | QueueMessage():
            return _on_domain(context, command)
        case DomainReconfigure(domain):
            return reconfigure(context, domain)
        case DomainRemove(domain, finalize):
            return remove(context, domain, finalize=finalize)
        case _:
            check_cluster(context, command.cluster)
            return _on_cluster(context, command)


def _on_domain(
    context: CommandContext, command: DomainPurge | DomainInfos | QueuePurge | QueueInternals | QueueList | QueueMessage
) -> Result:
    match command:
        case DomainPurge(domain):
            return purge_domain(context, domain)
        case DomainInfos(domain):
            return domain_infos(context, domain)
        case QueuePurge(domain, queue, app_id):
            return purge_queue(context, domain, queue, app_id)
        case QueueInternals(domain, queue):
            return internals(context, domain, queue)
        case QueueList():
            return list_messages(context, command)
        case QueueMessage():
            return show_message(context, command)


_ClusterCommand = (
    ClusterStatus
    | ClusterHealth
    | ClusterQueueHelper
    | ForceGcQueues
    | StorageSummary
    | PartitionAvailability
    | PartitionSummary
    | PartitionRollover
    | StorageQueueStatus
    | ReplicationSet
    | ReplicationGet
    | ReplicationList
    | ElectorSet
    | ElectorGet
    | ElectorList
)


def _on_cluster(context: CommandContext, command: _ClusterCommand) -> Result:
    match command:
        case ClusterStatus():
            return cluster_status(context)
        case ClusterHealth():
            view = cluster_health(context)
            return ClusterHealthResult(not view.problems, view.problems, view)
        case ClusterQueueHelper():
            return queue_helper(context)
        case ForceGcQueues():
            return force_gc(context)
        case StorageSummary():
            return storage_summary(context)
        case PartitionSummary(partition_id=partition_id):
            return storage_summary(context, partition_id)
        case PartitionAvailability(partition_id=partition_id, available=available):
            return set_available(context, partition_id, available=available)
        case PartitionRollover(partition_id=partition_id):
            return roll_over(context, partition_id)
        case StorageQueueStatus(domain=domain):
            return domain_storages(context, domain)
        case _:
            return _on_quorum(context, command)


_QuorumCommand = ReplicationSet | ReplicationGet | ReplicationList | ElectorSet | ElectorGet | ElectorList


def _elector_quorum(context: CommandContext) -> int:
    view = context.node.role.cluster_view()
    return context.elector_quorum if view is None else view.quorum


def _replication_quorum(context: CommandContext) -> int:
    view = context.node.role.cluster_view()
    return context.replication_quorum if view is None else view.copies_wanted


def _on_quorum(context: CommandContext, command: _QuorumCommand) -> Result:
    """Answer a command about the quorum of the elector or of replication, the only parameter of each."""
    is_elector = isinstance(command, ElectorSet | ElectorGet | ElectorList)
    quorum = _elector_quorum(context) if is_elector else _replication_quorum(context)
    purpose = "to have consensus" if is_elector else "to persist each message"
    match command:
        case ReplicationList() | ElectorList():
            description = f"non-negative integer count of the number of peers required {purpose}"
            return Tunables((Tunable("QUORUM", quorum, description),))
        case ReplicationGet(name=name) | ElectorGet(name=name):
            if name.upper() != "QUORUM":
                raise Failed(
                    f"Unsupported tunable '{name}': Issue the LIST_TUNABLES command for the list of supported tunables."
                )
            return Tunable("Quorum", quorum)
        case ReplicationSet(name=name, value=value) | ElectorSet(name=name, value=value):
            if name.upper() != "QUORUM":
                raise Failed(f"Unknown tunable name '{name}'")
            return _set_quorum(context, value, is_elector=is_elector)


def _set_quorum(context: CommandContext, value: Value, *, is_elector: bool) -> Result:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Failed(
            f"The QUORUM tunable must be a non-negative integer, but instead the following was specified: {value}"
        )
    if is_elector:
        # A leader does not ask again; the number counts from the next election on, and a cluster of one has none.
        old, context.elector_quorum = _elector_quorum(context), value
        context.node.role.set_elector_quorum(value)
    else:
        if context.node.role.cluster_view() is None and value > 1:
            raise Failed(f"The QUORUM of one node cannot be {value}: no message would ever be acknowledged")
        old, context.replication_quorum = _replication_quorum(context), value
        context.node.role.set_replication_quorum(value)
    return TunableConfirmation("Quorum", old, value)


def _may_read_all(uri: str) -> bool:
    """Permit every queue, as for the control pipe."""
    return True


class Admin:
    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def run(self, line: str, source: str, may_read: Callable[[str], bool] = _may_read_all) -> tuple[int, str]:
        """Carry out the command in `line` from `source`; return a status, 0 for success, and the answer.

        `may_read` returns True for a queue that the source may read: a command may show its contents.
        """
        shown = line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}..."
        log.info("Received command '%s' [source: %s]", shown, source)
        try:
            command, encoding = parse(line)
        except AdminCommandError as error:
            return NOT_A_COMMAND, f"Unable to decode command (rc: -1, error: '{error}')"
        result = _unreadable(command, may_read) or execute(self._context, command, encoding)
        status = FAILED if isinstance(result, Problem) else OK
        if encoding is Encoding.TEXT:
            return status, to_text(result)
        return status, to_json(result, pretty=encoding is Encoding.JSON_PRETTY)


def _unreadable(command: Command, may_read: Callable[[str], bool]) -> Problem | None:
    """Refuse to show a message of a queue that the source may not read."""
    if not isinstance(command, QueueMessage):
        return None
    uri = f"bmq://{command.domain}/{command.queue}"
    return None if may_read(uri) else Problem(f"Not authorized to read from queue '{uri}'")
