"""The map of a cluster, ready for JSON: its nodes, its shards with their copies, and its problems. Pure.

A shard is a partition of BlazingMQ, or the brokers of one name of RocketMQ. Each copy is in one of the map's columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bmqctl.systems.blazingmq.status.asking import problems_of, records_behind
from bmqctl.systems.blazingmq.status.rows import best_view, newest_view
from bmqctl.systems.rocketmq.status.problems import problems_of as rocketmq_problems_of
from bmqctl.systems.rocketmq.status.view import Broker, Name, View

__all__ = ["blazingmq_map", "rocketmq_map"]

_UNREACHABLE: Final = "UNREACHABLE"


def blazingmq_map(views: Sequence[dict[str, Any]]) -> dict[str, Any]:
    known = [each["view"] for each in views if "view" in each]
    newest = newest_view(known)
    by_node = {view["nodeId"]: view for view in known}
    numbers = sorted(int(each["nodeId"]) for each in newest["nodes"])
    problems = [
        {"text": text, "remedy": "", "by": [f"node {number}" for number in seen_by]}
        for text, seen_by in problems_of(list(views)).items()
    ]
    return {
        "name": newest["name"],
        "facts": [
            {"name": "Leader", "value": f"node {newest['leaderNodeId']}" if "leaderNodeId" in newest else "none"},
            {"name": "Term", "value": str(newest["term"])},
            {"name": "Quorum", "value": f"{newest['quorum']} of {len(numbers)}"},
        ],
        "nodes": list(_nodes(views, newest, by_node)),
        "shard_word": "Partition",
        "unit": "records",
        "columns": [f"node {number}" for number in numbers],
        "shards": [
            _shard(known, by_node, numbers, number)
            for number in sorted({each["partitionId"] for view in known for each in view["partitions"]})
        ],
        "problems": problems,
    }


def _nodes(
    views: Sequence[dict[str, Any]], newest: dict[str, Any], by_node: dict[int, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    places = {each["nodeId"]: each for each in newest["nodes"]}
    errors = {each["nodeId"]: each["error"] for each in views if "error" in each}
    for number in sorted(places):
        view = by_node.get(number)
        is_leader = number == newest.get("leaderNodeId")
        yield {
            "name": f"node {number}",
            "address": str(places[number]["endpoint"]),
            "role": "leader" if is_leader else "" if view is None else "follower",
            "state": _UNREACHABLE if view is None else str(view["status"]),
            "is_well": view is not None and view["status"] == "AVAILABLE",
            "text": str(errors.get(number, "")),
        }


def _shard(
    known: Sequence[dict[str, Any]], by_node: dict[int, dict[str, Any]], numbers: Sequence[int], number: int
) -> dict[str, Any]:
    best = best_view(known, number)
    primary = best.get("primaryNodeId")
    return {
        "name": str(number),
        "primary": None if primary is None else f"node {primary}",
        "is_well": primary is not None and bool(best["isActive"]),
        "text": f"{'active' if best['isActive'] else 'not active'}, lease {best['primaryLeaseId']}"
        + ("" if not best.get("waiting") else f", {best['waiting']:,} messages without enough copies"),
        "copies": [_copy(best, by_node.get(node), node == primary, number) for node in numbers],
    }


def _copy(best: dict[str, Any], view: dict[str, Any] | None, is_primary: bool, number: int) -> dict[str, Any]:
    own = None if view is None else next((each for each in view["partitions"] if each["partitionId"] == number), None)
    behind = None if own is None or is_primary else records_behind(best, own)
    if own is None:
        role, state = "gone", "does not answer"
    elif is_primary:
        role, state = "primary", "active" if best["isActive"] else "not active yet"
    elif behind is None:
        role, state = "replica", "not at the primary's lease"
    else:
        role, state = "replica", "in sync" if behind == 0 else f"{behind:,} record{'' if behind == 1 else 's'} behind"
    return {
        "role": role,
        "state": state,
        "behind": behind,
        "is_well": own is not None and (bool(best["isActive"]) if is_primary else behind is not None),
    }


def rocketmq_map(view: View) -> dict[str, Any]:
    slaves_max = max((len(each.brokers) - (each.master is not None) for each in view.names), default=0)
    clusters = sorted({each.cluster for each in view.names if each.cluster})
    brokers = sum(len(each.brokers) for each in view.names)
    facts = [("Nameservers", str(len(view.nameservers))), ("Brokers", str(brokers))]
    if view.controllers:
        facts.append(("Leading controller", view.leader or "none"))
    return {
        "name": ", ".join(clusters),
        "facts": [{"name": name, "value": value} for name, value in facts],
        "nodes": list(_rocketmq_nodes(view)),
        "shard_word": "Broker name",
        "unit": "bytes",
        "columns": ["master", *(f"slave {number}" for number in range(1, slaves_max + 1))],
        "shards": [_rocketmq_shard(each, slaves_max) for each in view.names],
        "problems": [{"text": each.text, "remedy": each.remedy, "by": []} for each in rocketmq_problems_of(view)],
    }


def _rocketmq_nodes(view: View) -> Iterator[dict[str, Any]]:
    for server in view.nameservers:
        yield _node("nameserver", server.address, "nameserver", server.error)
    for controller in view.controllers:
        role = "leading controller" if controller.is_leader else "controller"
        yield _node("controller", controller.address, role, controller.error)
    for name in view.names:
        for broker in name.brokers:
            yield _node(name.name, broker.address, "master" if broker.is_master else "slave", broker.error)


def _node(name: str, address: str, role: str, error: str | None) -> dict[str, Any]:
    state = "AVAILABLE" if error is None else _UNREACHABLE
    return {
        "name": name,
        "address": address,
        "role": role,
        "state": state,
        "is_well": error is None,
        "text": error or "",
    }


def _rocketmq_shard(name: Name, slaves_max: int) -> dict[str, Any]:
    master = name.master
    slaves = [each for each in name.brokers if not each.is_master]
    copies = [_rocketmq_copy(each) for each in (master, *slaves)]
    copies += [_rocketmq_copy(None)] * (slaves_max - len(slaves))
    if master is None:
        copies[0] = {"role": "gone", "state": "there is none", "behind": None, "is_well": False}
    return {
        "name": name.name,
        "primary": None if master is None else master.address,
        "is_well": master is not None and master.error is None,
        "text": "no master" if master is None else "active" if master.error is None else "does not answer",
        "copies": copies,
    }


def _rocketmq_copy(broker: Broker | None) -> dict[str, Any]:
    if broker is None:
        return {"role": "", "state": "", "behind": None, "is_well": True}
    if broker.error is not None or broker.is_alive is False:
        return {"role": "gone", "state": f"{broker.address} does not answer", "behind": None, "is_well": False}
    if broker.is_master:
        return {"role": "primary", "state": broker.address, "behind": None, "is_well": True}
    behind = broker.behind
    lag = "lag unknown" if behind is None else "in sync" if behind == 0 else f"{behind:,} bytes behind"
    return {"role": "replica", "state": f"{broker.address}, {lag}", "behind": behind, "is_well": behind is not None}
