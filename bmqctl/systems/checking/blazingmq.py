"""Measuring of BlazingMQ's queues and clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from bmqctl.client.admin import AdminClient
from bmqctl.systems.blazingmq.status.asking import Asking, Refused, ask_for, endpoint_parts, problems_of, records_behind
from bmqctl.systems.blazingmq.status.queues import primary_of, stored_messages
from bmqctl.systems.blazingmq.status.rows import newest_view
from bmqctl.systems.checking.verdict import Measured, Measurement
from formats.bmq.uri import QueueUri

__all__ = ["CLUSTER_VALUES", "QUEUE_VALUES", "measure_cluster", "measure_queue"]

QUEUE_VALUES = ("messages", "oldest")
CLUSTER_VALUES = ("problems", "quorum", "without_primary", "in_sync", "behind")


def measure_queue(host: str, port: int, asking: Asking, queue: QueueUri) -> Measured:
    """Measure the messages of a queue or of one of its apps at its primary.

    Raises `AdminLost` if a broker is unreachable, and `Refused` if there is no such queue.
    """
    with asking.client(host, port) as client:
        primary = primary_of(client, f"{host}:{port}", queue)
        if primary is None:
            return _measured(client, queue)
    host, port = endpoint_parts(primary)
    with asking.client(host, port) as client:
        return _measured(client, queue)


def _measured(client: AdminClient, queue: QueueUri) -> Measured:
    prefix = f"DOMAINS DOMAIN {queue.qualified_domain} "
    app = f"{queue.app_id} " if queue.app_id else ""
    try:
        found = ask_for(client, f"{prefix}QUEUE {queue.queue} LIST {app}0 1", "queueContents")
    except Refused as refusal:
        if "was not found on domain" not in str(refusal):
            raise
        return _unopened(ask_for(client, f"{prefix}INFOS", "domainInfo"), queue)
    total = int(found["totalQueueMessages"])
    messages = found.get("messages", [])
    oldest_s = 0.0
    if messages:
        arrived = datetime.fromisoformat(messages[0]["arrivalTimestamp"])
        oldest_s = max(0.0, (datetime.now(UTC) - arrived).total_seconds())
    summary = f"{queue}: {total:,} messages" + (f", the oldest {oldest_s:,.0f} s old" if total else "")
    return Measured(summary, [Measurement("messages", total), Measurement("oldest", round(oldest_s, 3), "s")])


def _unopened(info: dict[str, Any], queue: QueueUri) -> Measured:
    """Measure a queue that nobody has opened since the broker started, whose messages cannot be listed."""
    total = stored_messages(info, queue)
    # The broker has not counted those of its apps yet.
    messages = None if total and queue.app_id else total
    summary = f"{queue}: {total:,} messages of the queue, which nobody has opened since the broker started"
    return Measured(summary, [Measurement("messages", messages), Measurement("oldest", None if total else 0, "s")])


def measure_cluster(views: Sequence[dict[str, Any]]) -> Measured:
    """Measure a cluster by its nodes' answers; silent nodes have an `error`."""
    known = [each["view"] for each in views if "view" in each]
    newest = newest_view(known)
    has_quorum = "leaderNodeId" in newest and len(known) >= newest["quorum"]
    partitions = [_partition(known, number) for number in range(len(known[0]["partitions"]))]
    without = [each for each in partitions if not each[0]]
    behind = [each[2] for each in partitions if each[2] is not None]
    problems = problems_of(list(views))
    least = min((each[1] for each in partitions), default=0)
    summary = (
        f"cluster {newest['name']}: {len(known)} of {len(views)} nodes answer, "
        f"{'a leader' if has_quorum else 'no leader with a quorum'}, {len(problems)} problems"
    )
    values = [
        Measurement("problems", len(problems)),
        Measurement("quorum", int(has_quorum)),
        Measurement("without_primary", len(without)),
        Measurement("in_sync", least),
        Measurement("behind", max(behind, default=0)),
    ]
    return Measured(summary, values, list(problems))


def _partition(known: Sequence[dict[str, Any]], number: int) -> tuple[bool, int, int | None]:
    """Return whether a partition is served, how many nodes have a healed copy, and the lag of the last one."""
    seen = {view["nodeId"]: view["partitions"][number] for view in known if number < len(view["partitions"])}
    # The newest lease decides, and for it the primary's own answer.
    best = max(seen.items(), key=lambda item: (item[1]["primaryLeaseId"], item[0] == item[1].get("primaryNodeId")))[1]
    healed = [each for each in seen.values() if str(each["state"]).endswith("_HEALED")]
    behind = list(_behind(best, healed))
    is_served = best.get("primaryNodeId") is not None and bool(best["isActive"])
    return is_served, len(behind), max(behind, default=None)


def _behind(best: dict[str, Any], healed: Sequence[dict[str, Any]]) -> Iterator[int]:
    for each in healed:
        records = records_behind(best, each)
        if records is not None:
            yield records
