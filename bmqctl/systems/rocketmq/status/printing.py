"""The view of a RocketMQ cluster as tables for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bmqctl.common.render import aligned
from bmqctl.systems.rocketmq.status.problems import Problem
from bmqctl.systems.rocketmq.status.view import Broker, Name, View

__all__ = ["BROKER_KEYS", "broker_rows", "explanation_lines", "json_value", "status_lines"]

UNREACHABLE = "UNREACHABLE"
AVAILABLE = "AVAILABLE"
BROKER_KEYS = (
    *("cluster", "name", "id", "address", "role", "status", "in_sync"),
    *("epoch", "log_end", "behind", "heard_ms"),
)


def status_lines(view: View, problems: Sequence[Problem], wall_ms: int) -> Iterator[str]:
    yield f"Cluster      {', '.join(sorted({name.cluster for name in view.names if name.cluster})) or 'unknown'}"
    nameservers = [each.address + (f" ({UNREACHABLE})" if each.error else "") for each in view.nameservers]
    yield f"Nameservers  {', '.join(nameservers) or 'not asked'}"
    yield f"Healthy      {'no: see `bmqctl cluster explain`' if problems else 'yes'}"
    if view.controllers:
        yield ""
        yield from aligned(("CONTROLLER", "GROUP", "STATUS", "ROLE"), _controllers(view))
    for name in view.names:
        yield ""
        yield from _heading(name)
        heads = ("ID", "AT", "ROLE", "STATUS", "IN SYNC", "EPOCH", "LOG END", "BEHIND", "HEARD OF THE MASTER")
        yield from aligned(heads, (_broker(each, name, wall_ms) for each in name.brokers))


def broker_rows(view: View) -> Iterator[dict[str, Any]]:
    for name in view.names:
        for each in name.brokers:
            yield {
                "cluster": name.cluster,
                "name": name.name,
                "id": each.broker_id,
                "address": each.address,
                "role": "master" if each.is_master else "slave",
                "status": _status(each),
                "in_sync": each.is_in_sync,
                "epoch": each.epoch,
                "log_end": each.end,
                "behind": each.behind,
                "heard_ms": each.heard_ms,
            }


def _status(broker: Broker) -> str:
    return "GONE" if broker.is_alive is False else AVAILABLE if broker.error is None else UNREACHABLE


def _controllers(view: View) -> Iterator[tuple[str, ...]]:
    for each in view.controllers:
        if each.error is not None:
            yield (each.address, "", UNREACHABLE, "")
        else:
            role = "leader" if each.is_leader else f"follows {each.leader}" if each.leader else "knows no leader"
            yield (each.address, each.group or "", AVAILABLE, role)


def _heading(name: Name) -> Iterator[str]:
    master = name.master
    yield f"Brokers      {name.name}"
    yield f"Master       {'none' if master is None else master.address}" + (
        f", epoch {name.master_epoch}" if name.has_controller else ", by configuration"
    )
    if name.has_controller:
        in_sync = [each for each in name.brokers if each.is_in_sync]
        yield f"In sync      {len(in_sync)} of {len(name.brokers)}, set {name.members_epoch}, {name.least} needed"


def _broker(broker: Broker, name: Name, wall_ms: int) -> tuple[str, ...]:
    return (
        "" if broker.broker_id is None else str(broker.broker_id),
        broker.address,
        "master" if broker.is_master else "slave",
        _status(broker),
        {True: "yes", False: "no", None: ""}[broker.is_in_sync],
        "" if broker.epoch is None else str(broker.epoch),
        "" if broker.end is None else f"{broker.end:,}",
        "" if broker.behind is None else f"{broker.behind:,} bytes",
        _heard(broker, wall_ms),
    )


def _heard(broker: Broker, wall_ms: int) -> str:
    if broker.heard_ms is None:
        return ""
    return f"{max(0, wall_ms - broker.heard_ms) / 1000:.1f} s ago"


def explanation_lines(view: View, problems: Iterable[Problem]) -> Iterator[str]:
    there = False
    for problem in problems:
        there = True
        yield problem.text
        yield f"    {problem.remedy}"
    if not there:
        brokers = sum(len(name.brokers) for name in view.names)
        yield (
            f"No problems, according to {_counted(len(view.nameservers), 'nameserver')}, "
            f"{_counted(len(view.controllers), 'controller')} and {_counted(brokers, 'broker')}."
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def json_value(view: View, problems: Sequence[Problem]) -> dict[str, Any]:
    value: dict[str, Any] = _json(view)
    return {"isHealthy": not problems, "leader": view.leader, **value, "problems": [_json(each) for each in problems]}


def _json(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        found = {_camel(name): _json(each) for name, each in value._asdict().items()}
        if isinstance(value, Name):
            found["masterAddress"] = None if value.master is None else value.master.address
        return found
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
