"""A node's view of its cluster (source: mqbblp::ClusterCatalog, mqbblp::Cluster, mqbblp::ClusterQueueHelper)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from broker.bmq.admin.answers.results import (
    ClusterDomain,
    ClusterList,
    ClusterNodeInfo,
    ClusterQueue,
    ClusterStatusResult,
    ElectorInfo,
    LeaderMessageSequence,
    NodeStatuses,
    PartitionInfo,
    PartitionsInfo,
    QueueHelperResult,
    StorageContent,
    StorageQueueInfo,
    SubId,
    Success,
)
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.admin.storage import storage_summary
from broker.bmq.core.alarms import printable
from broker.bmq.core.cluster_view import ClusterView, NodeView, PartitionView
from broker.bmq.core.messages import Full
from broker.bmq.node.changes import collect_idle_queues
from formats.bmq.control.messages import QueueInfo
from formats.bmq.uri import parse_uri

__all__ = ["check_cluster", "cluster_health", "cluster_list", "cluster_status", "force_gc", "queue_helper", "sub_ids"]

# bmqp::QueueId's number for a queue at its primary; the reference writes it as a word.
PRIMARY_QUEUE_ID = 0xFFFF_FFFE
UNASSIGNED_QUEUE_ID = 0xFFFF_FFFF

# mqbnet::ElectorState, by the roles other than follower.
_ELECTOR_STATES = {"leader": "LEADER", "candidate": "CANDIDATE", "dormant": "DORMANT"}


def check_cluster(context: CommandContext, name: str) -> None:
    """Raise `Failed` unless this node is in a cluster of that name."""
    if name != context.cluster_name:
        raise Failed(f"cluster '{name}' not found !")


def cluster_list(context: CommandContext) -> ClusterList:
    return ClusterList(tuple(context.environment.clusters))


def cluster_status(context: CommandContext) -> ClusterStatusResult:
    view = cluster_health(context)
    descriptions = {node.node_id: context.describe(node.node_id) for node in view.nodes}
    me = context.node_description
    state = context.node.ledger.state
    primaries = {each.partition_id: each.primary_node_id for each in view.partitions}
    nodes = tuple(
        ClusterNodeInfo(
            descriptions[node.node_id],
            None if node.is_self else node.is_connected,
            f"E_{node.status}",
            tuple(partition_id for partition_id, primary in primaries.items() if primary == node.node_id),
        )
        for node in view.nodes
    )
    mapped = Counter(info.partition_id for info in state.queues.values())
    active = Counter(
        state.queues[uri].partition_id
        for uri, queue in context.node.queues.items()
        if queue.upkeep.was_opened and uri in state.queues
    )
    partitions = tuple(
        PartitionInfo(
            mapped[each.partition_id],
            active[each.partition_id],
            None if each.primary_node_id is None else descriptions[each.primary_node_id],
            each.primary_lease_id,
            "ACTIVE" if each.is_active else "PASSIVE",
        )
        for each in view.partitions
    )
    leader = view.leader_node_id
    return ClusterStatusResult(
        name=context.cluster_name,
        description=f"Cluster ({context.cluster_name})",
        self_node_description=me,
        is_healthy=not view.problems,
        node_statuses=NodeStatuses(nodes),
        elector_info=ElectorInfo(
            _ELECTOR_STATES.get(view.role, "FOLLOWER"),
            "[ ** NA **, -1]" if leader is None else descriptions[leader],
            LeaderMessageSequence(view.ledger_term, view.ledger_sequence_number),
            "UNDEFINED" if leader is None else "ACTIVE" if view.is_healed else "PASSIVE",
        ),
        partitions_info=PartitionsInfo(partitions),
        queues_info=StorageContent(tuple(_queue_info(context, info) for info in _assigned(context))),
        cluster_storage_summary=storage_summary(context),
    )


def cluster_health(context: CommandContext) -> ClusterView:
    """Return a member's view. A single node leads, is primary of every partition, and is healthy if it answers."""
    node = context.node
    view = node.role.cluster_view()
    if view is not None:
        return view
    own_id, ledger = node.identity.node_id, node.ledger
    partitions = tuple(
        PartitionView(
            partition_id=partition_id,
            primary_node_id=own_id,
            primary_lease_id=partition.primary_lease_id,
            is_active=True,
            state="PRIMARY_HEALED",
            lease_id=partition.primary_lease_id,
            sequence_number=partition.sequence_number,
            waiting=0,
            replicas=(),
        )
        for partition_id, partition in sorted(node.partitions.items())
    )
    return ClusterView(
        name=context.cluster_name,
        node_id=own_id,
        status="AVAILABLE",
        role="leader",
        leader_node_id=own_id,
        term=ledger.state.term,
        quorum=1,
        copies_wanted=1,
        state="leading",
        is_healed=True,
        ledger_term=ledger.state.term,
        ledger_sequence_number=ledger.sequence_number,
        nodes=(NodeView(own_id, "", True, True, "AVAILABLE", ""),),
        partitions=partitions,
    )


def _assigned(context: CommandContext) -> list[QueueInfo]:
    known = context.node.ledger.state.queues
    return [known[uri] for uri in sorted(known)]


def _was_opened(context: CommandContext, info: QueueInfo) -> bool:
    queue = context.node.queues.get(info.uri)
    return queue is not None and queue.upkeep.was_opened


def _queue_id(context: CommandContext, info: QueueInfo) -> int:
    return PRIMARY_QUEUE_ID if _was_opened(context, info) else UNASSIGNED_QUEUE_ID


def _queue_info(context: CommandContext, info: QueueInfo) -> StorageQueueInfo:
    queue = context.node.queues.get(info.uri)
    return StorageQueueInfo(
        queue_uri=info.uri,
        queue_key=info.key.hex().upper(),
        partition_id=info.partition_id,
        num_messages=len(queue.messages) if queue else 0,
        num_bytes=queue.bytes if queue else 0,
        is_persistent=queue.config.persistent if queue else False,
        internal_queue_id=_queue_id(context, info),
    )


def queue_helper(context: CommandContext) -> QueueHelperResult:
    node = context.node
    assigned = _assigned(context)
    by_domain = Counter(parse_uri(info.uri).qualified_domain for info in assigned)
    names = sorted({*by_domain, *(domain.config.name for domain in node.domains.values())})
    domains = tuple(ClusterDomain(name, by_domain[name], name in node.domains) for name in names)
    ids = sub_ids(context)
    queues = tuple(_cluster_queue(context, info, ids.get(info.uri, ())) for info in assigned)
    return QueueHelperResult(
        cluster_name=context.cluster_name,
        locality="local",
        num_queues=len(queues),
        num_queue_keys=len({info.key for info in assigned}),
        num_pending_reopen_queue_requests=0,
        domains=domains,
        queues=queues,
    )


def sub_ids(context: CommandContext) -> dict[str, set[SubId]]:
    found: dict[str, set[SubId]] = {}
    for session in context.node.sessions.values():
        for handle in session.handles.values():
            for stream in handle.streams.values():
                sub_id = SubId(stream.sub_queue_id, printable(stream.app.app_id))
                found.setdefault(handle.queue.uri, set()).add(sub_id)
    return found


def _cluster_queue(context: CommandContext, info: QueueInfo, sub_ids: Iterable[SubId]) -> ClusterQueue:
    return ClusterQueue(
        uri=info.uri,
        num_in_flight_contexts=0,
        is_assigned=True,
        is_primary_available=True,
        id=_queue_id(context, info),
        sub_ids=tuple(sorted(sub_ids, key=lambda each: (each.sub_id, each.app_id))),
        partition_id=info.partition_id,
        primary_node_description=f" (primary: {context.node_description})",
        key=info.key.hex().upper(),
        is_created=_was_opened(context, info),
    )


def force_gc(context: CommandContext) -> Success:
    """Delete empty queues without clients. Refuses if no partition has its primary, as the reference does."""
    view = cluster_health(context)
    if not any(each.is_active and each.primary_node_id == view.node_id for each in view.partitions):
        raise Failed("Failed to execute command (rc: -2)")
    try:
        collect_idle_queues(context.node, 0)
    except Full as full:
        raise Failed(f"Failed to execute command ({full})") from None
    return Success()
