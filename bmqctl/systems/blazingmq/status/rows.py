"""A cluster as rows for programs: one for each partition at each node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bmqctl.systems.blazingmq.status.asking import records_behind

__all__ = ["ROW_KEYS", "best_view", "cluster_rows", "newest_view"]

ROW_KEYS: Final = (
    *("cluster", "node", "endpoint", "status", "leader", "partition", "role"),
    *("active", "lease", "sequence_number", "behind"),
)


def cluster_rows(views: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows, ordered by node and partition; a silent node has one without a partition."""
    known = [each["view"] for each in views if "view" in each]
    newest = newest_view(known)
    places = {node["nodeId"]: node["endpoint"] for node in newest["nodes"]}
    for each in views:
        number, view = each["nodeId"], each.get("view")
        common = {
            "cluster": newest["name"],
            "node": number,
            "endpoint": places.get(number, ""),
            "status": "UNREACHABLE" if view is None else view["status"],
            "leader": number == newest.get("leaderNodeId"),
        }
        if view is None:
            yield {**dict.fromkeys(ROW_KEYS), **common}
            continue
        for own in view["partitions"]:
            best = best_view(known, own["partitionId"])
            is_primary = best.get("primaryNodeId") == number
            yield {
                **common,
                "partition": own["partitionId"],
                "role": "primary" if is_primary else "replica",
                "active": own["isActive"],
                "lease": own["leaseId"],
                "sequence_number": own["sequenceNumber"],
                "behind": records_behind(best, own),
            }


def newest_view(known: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The view of the latest term, if possible of a node that knows its leader."""
    found: dict[str, Any] = max(known, key=lambda view: (view["term"], "leaderNodeId" in view))
    return found


def best_view(known: Sequence[dict[str, Any]], partition: int) -> dict[str, Any]:
    """A partition as the primary of its newest lease sees it: only the primary knows its replicas."""
    seen = [(view["nodeId"], each) for view in known for each in view["partitions"] if each["partitionId"] == partition]
    found: dict[str, Any] = max(
        seen, key=lambda item: (item[1]["primaryLeaseId"], item[0] == item[1].get("primaryNodeId"))
    )[1]
    return found
