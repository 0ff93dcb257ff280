"""Statistics as lines of JSON, one for each queue, app and cluster (source: mqbstat::FlatJsonPrinter).

All values are texts, as in the reference. Zeros of queues are left out, and values that this node does not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from broker.bmq.admin.queue_metrics import shows_apps
from broker.bmq.admin.readiness import lacks_as_member
from broker.bmq.admin.statistics import app_values, queue_values
from broker.bmq.node.node import Node
from broker.bmq.queue.queue import Queue
from formats.bmq.uri import parse_uri

__all__ = ["statistics_lines"]

PRIMARY, REPLICA, PROXY = 1, 2, 3
MEMBER = 1
FOLLOWER, LEADER = 0, 1
PARTITION_REPLICA, PARTITION_PRIMARY = 1, 2
HEALTHY, UNHEALTHY = 1, 2


def statistics_lines(node: Node, number: int) -> Iterator[str]:
    """Yield the lines of one snapshot; `number` counts the snapshots."""
    now = datetime.fromtimestamp(node.now.wall_s, UTC)
    # Only this number is not a text.
    prefix = f'{{"ts":"{now.strftime("%d%b%Y_%H:%M:%S.000000").upper()}","stat_id":{number},'
    for queue in list(node.queues.values()):
        for values in _of_queue(node, queue):
            yield prefix + _members(values)
    if not node.role.is_proxy:
        for of_cluster in _of_cluster(node):
            yield prefix + _members(of_cluster)


def _members(values: Mapping[str, str | int]) -> str:
    texts = {name: str(value) for name, value in values.items()}
    return json.dumps(texts, separators=(",", ":"))[1:] + "\n"


def _of_queue(node: Node, queue: Queue) -> Iterator[dict[str, str | int]]:
    uri = parse_uri(queue.uri)
    named: dict[str, str | int] = {"domain": uri.qualified_domain, "queue": uri.queue}
    role = PRIMARY if queue.is_root else PROXY if node.role.is_proxy else REPLICA
    yield {"stat": "queue", **named, **_not_zero(queue_values(queue) | {"queue_role": role})}
    if node.role.is_proxy or not shows_apps(queue.config):
        return
    for app in queue.apps.values():
        yield {"stat": "queue_app", **named, "app": app.app_id, **_not_zero(app_values(app))}


def _not_zero(values: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in values.items() if value}


def _of_cluster(node: Node) -> Iterator[dict[str, str | int]]:
    view, name = node.role.cluster_view(), node.identity.cluster_name
    limits = next(iter(node.partitions.values())).room.limits
    leads = view is None or view.leader_node_id == view.node_id
    yield {
        "stat": "cluster",
        "cluster": name,
        "cluster_status": HEALTHY if lacks_as_member(view) is None else UNHEALTHY,
        "cluster_role": MEMBER,
        "cluster_leader_status": LEADER if leads else FOLLOWER,
        "cluster_csl_offset_bytes": node.ledger.end,
        "cluster_csl_cfg_bytes": node.ledger.size_max,
        "cluster_partition_cfg_data_bytes": limits.data,
        "cluster_partition_cfg_journal_bytes": limits.journal,
    }
    for partition in node.partitions.values():
        yield {
            "stat": "cluster_partition",
            "cluster": name,
            "partition": f"partition{partition.partition_id}",
            "partition_primary_status": PARTITION_PRIMARY if partition.active else PARTITION_REPLICA,
            "partition_data_offset_bytes": partition.files.data_end,
            "partition_journal_offset_bytes": partition.files.journal_end,
            "partition_sequence_number": partition.sequence_number,
        }
