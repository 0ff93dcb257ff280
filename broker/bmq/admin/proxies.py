"""Commands at a proxy: it shows its own state, and refers to the nodes for the rest (mqbblp::ClusterProxy)."""

from __future__ import annotations

from collections import Counter

from broker.bmq.admin.answers.results import (
    ClusterDomain,
    ClusterNodeInfo,
    ClusterProxyStatusResult,
    ClusterQueue,
    NodeStatuses,
    QueueHelperResult,
    Result,
    StorageContent,
    Success,
)
from broker.bmq.admin.clusters import sub_ids
from broker.bmq.admin.commands import (
    ClusterHealth,
    ClusterQueueHelper,
    Clusters,
    ClusterStatus,
    Command,
    DomainPurge,
    DomainReconfigure,
    DomainRemove,
    ForceGcQueues,
    QueuePurge,
)
from broker.bmq.admin.domains import find_domain
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.admin.storage import NO_PARTITION, queue_storage
from broker.bmq.core.cluster_view import ProxyView
from formats.bmq.uri import parse_uri

__all__ = ["execute_at_proxy"]


def execute_at_proxy(context: CommandContext, command: Command) -> Result | None:
    """Return the result of a command that differs at a proxy; None for a command that does not."""
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
