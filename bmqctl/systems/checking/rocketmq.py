"""Measuring of RocketMQ's consumer groups and clusters."""

from __future__ import annotations

from collections.abc import Sequence

from bmqctl.systems.checking.verdict import Measured, Measurement
from bmqctl.systems.rocketmq.status.group import QueueLag
from bmqctl.systems.rocketmq.status.problems import Problem
from bmqctl.systems.rocketmq.status.view import Name, View

__all__ = ["GROUP_VALUES", "measure_group", "measure_view"]

GROUP_VALUES = ("lag", "oldest")


def measure_group(topic: str, group: str, queues: Sequence[QueueLag]) -> Measured:
    lag = sum(each.messages for each in queues)
    oldest_s = max(each.oldest_ms for each in queues) / 1000
    where = f"{len(queues)} queue" + ("" if len(queues) == 1 else "s")
    summary = f"group {group} of topic {topic}: {lag:,} messages behind in {where}"
    if lag:
        summary += f", the oldest {oldest_s:,.0f} s old"
    details = [f"{each.broker_name}/{each.queue_id}: {each.messages:,} messages" for each in queues if each.messages]
    return Measured(summary, [Measurement("lag", lag), Measurement("oldest", oldest_s, "s")], details)


def measure_view(view: View, problems: Sequence[Problem]) -> Measured:
    """Measure a cluster; without controllers there is no quorum, and nothing replaces a master."""
    values = [Measurement("problems", len(problems))]
    if view.controllers:
        values.append(Measurement("quorum", int(view.leader is not None)))
    served = [each for each in view.names if _is_served(each)]
    in_sync = [_in_sync(each) for each in view.names]
    behind = [each.behind for name in view.names for each in name.brokers if each.behind is not None]
    values += [
        Measurement("without_primary", len(view.names) - len(served)),
        Measurement("in_sync", None if not in_sync or None in in_sync else min(each or 0 for each in in_sync)),
        Measurement("behind", max(behind, default=0), "B"),
    ]
    clusters = ", ".join(sorted({name.cluster for name in view.names if name.cluster})) or "unknown"
    summary = f"cluster {clusters}: {len(served)} of {len(view.names)} names of brokers have a master"
    if view.controllers:
        summary += ", a controller leads" if view.leader is not None else ", no controller leads"
    return Measured(f"{summary}, {len(problems)} problems", values, [each.text for each in problems])


def _is_served(name: Name) -> bool:
    master = name.master
    return master is not None and master.error is None and master.is_alive is not False


def _in_sync(name: Name) -> int | None:
    """The number of a name's brokers that have all messages; None if nobody says so."""
    if name.has_controller:
        return sum(each.is_in_sync is True and each.error is None for each in name.brokers)
    return None if name.slaves_in_sync is None else 1 + name.slaves_in_sync
