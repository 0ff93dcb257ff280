"""A cluster of BlazingMQ, as commands query it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.client.admin import AdminLost
from bmqctl.common.render import aligned
from bmqctl.systems.blazingmq.status.asking import (
    NotReported,
    Refused,
    ask_all,
    asking_of,
    problems_of,
    records_behind,
)
from bmqctl.systems.blazingmq.status.rows import ROW_KEYS, best_view, cluster_rows, newest_view
from bmqctl.systems.system import ClusterOptions, Unanswered, Views

if TYPE_CHECKING:
    from bmqctl.systems.bundling.archive import Archive
    from bmqctl.systems.checking.verdict import Measured
    from bmqctl.systems.watching.watcher import Watcher

__all__ = ["BlazingMQCluster"]

DEFAULT_BROKER: Final = "tcp://localhost:30114"


class BlazingMQCluster:
    """A cluster, by one of its nodes. Raises `CannotBegin` for an invalid address."""

    def __init__(self, options: ClusterOptions) -> None:
        self.place = options.broker or DEFAULT_BROKER
        try:
            self._node = parse_address(self.place)
        except BadAddress:
            raise CannotBegin(f"--broker {self.place}: expected tcp://HOST:PORT") from None
        self._asking = asking_of(options.reach)

    def status(self) -> Views:
        views = self._views()
        return Views(_lines(views), {"nodes": views}, cluster_rows(views), ROW_KEYS, len(problems_of(views)))

    def problems(self) -> Views:
        views = self._views()
        found = problems_of(views)
        asked = len([view for view in views if "view" in view])
        lines = [f"{problem} [seen by {_listed(witnesses)}]" for problem, witnesses in found.items()]
        rows = [{"problem": problem, "seen_by": witnesses} for problem, witnesses in found.items()]
        none = f"No problems, according to {asked} of {len(views)} nodes."
        return Views(lines or [none], None, rows, ("problem", "seen_by"), len(found))

    def _views(self) -> list[dict[str, Any]]:
        try:
            return ask_all(*self._node, self._asking)
        except AdminLost as lost:
            raise Unanswered(str(lost)) from None

    def measure(self) -> Measured:
        """Measure the cluster. Raises `NotReported` if a node has no command that reports its state."""
        from bmqctl.systems.checking.blazingmq import measure_cluster

        try:
            return measure_cluster(ask_all(*self._node, self._asking))
        except NotReported:
            raise
        except AdminLost as lost:
            raise Unanswered(str(lost)) from None

    def watcher(self) -> Watcher:
        from bmqctl.systems.watching.blazingmq import purge, take_sample
        from bmqctl.systems.watching.watcher import Watcher

        faults = (AdminLost, Refused)
        return Watcher(
            partial(take_sample, *self._node, self._asking), faults, partial(purge, *self._node, self._asking)
        )

    def bundle(self, archive: Archive) -> None:
        from bmqctl.systems.bundling.blazingmq import add_cluster

        add_cluster(archive, *self._node, self._asking)


def _lines(views: list[dict[str, Any]]) -> Iterable[str]:
    known = [each["view"] for each in views if "view" in each]
    newest = newest_view(known)
    leader = newest.get("leaderNodeId")
    yield f"Cluster   {newest['name']}"
    yield f"Leader    {'none' if leader is None else f'node {leader}'}, term {newest['term']}"
    yield f"Healthy   {'no: see `bmqctl cluster explain`' if problems_of(views) else 'yes'}"
    yield ""
    yield from aligned(("NODE", "AT", "STATUS", "ROLE", "LEDGER"), _nodes(views, newest))
    yield ""
    yield from aligned(
        ("PARTITION", "PRIMARY", "LEASE", "ACTIVE", "AT", "REPLICAS (RECORDS BEHIND)"), _partitions(known)
    )


def _nodes(views: list[dict[str, Any]], newest: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    places = {node["nodeId"]: node["endpoint"] for node in newest["nodes"]}
    for each in views:
        place, view = places[each["nodeId"]], each.get("view")
        if view is None:
            yield (str(each["nodeId"]), place, "UNREACHABLE", "", "")
        else:
            ledger = f"({view['ledgerTerm']}, {view['ledgerSequenceNumber']})"
            yield (str(each["nodeId"]), place, view["status"], view["role"], ledger)


def _partitions(known: list[dict[str, Any]]) -> Iterable[tuple[str, ...]]:
    for number in range(len(known[0]["partitions"])):
        seen = {view["nodeId"]: view["partitions"][number] for view in known}
        best = best_view(known, known[0]["partitions"][number]["partitionId"])
        primary = best.get("primaryNodeId")
        others = sorted({node["nodeId"] for view in known for node in view["nodes"]} - {primary})
        replicas = ", ".join(f"node {number} ({_behind(best, seen.get(number))})" for number in others)
        yield (
            str(best["partitionId"]),
            "none" if primary is None else f"node {primary}",
            str(best["primaryLeaseId"]),
            "yes" if best["isActive"] else "no",
            f"({best['leaseId']}, {best['sequenceNumber']})",
            replicas,
        )


def _behind(primary: dict[str, Any], own: dict[str, Any] | None) -> str:
    if own is None:
        return "unreachable"
    records = records_behind(primary, own)
    return f"at lease {own['leaseId']}" if records is None else str(records)


def _listed(witnesses: list[int]) -> str:
    return ", ".join(f"node {number}" for number in witnesses) if witnesses else "this command"
