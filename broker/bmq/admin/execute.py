"""Execution of commands: each is a decision on the state of the node, with a result (source: mqba::Application)."""

from __future__ import annotations

from broker.bmq.admin.answers.json_form import dumped
from broker.bmq.admin.answers.results import (
    BrokerConfig,
    ClusterHealthResult,
    CommandSpec,
    HelpResult,
    Problem,
    Result,
    Tunable,
    TunableConfirmation,
    Tunables,
)
from broker.bmq.admin.clusters import (
    check_cluster,
    cluster_health,
    cluster_list,
    cluster_status,
    force_gc,
    queue_helper,
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
    internals,
    list_messages,
    purge_domain,
    purge_queue,
    reconfigure,
    remove,
    show_message,
)
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.admin.proxies import execute_at_proxy
from broker.bmq.admin.statistics import get_interval, list_intervals, set_interval, show
from broker.bmq.admin.storage import domain_storages, roll_over, set_available, storage_summary
from broker.bmq.admin.table import TABLE

__all__ = ["execute"]


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
