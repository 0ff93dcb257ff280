"""The scenarios of BlazingMQ's published benchmarks, by name, and their domains.

The published figures are for messages of 1 KiB, without compression, from producers that post at a rate: see "BlazingMQ
Performance" of its documentation. They do not include fan-out to 30 apps and eventual consistency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from bmqctl.bench.plan import Plan, Shape

__all__ = ["SCENARIOS", "Scenario", "UnknownScenario", "domain_files", "matching"]

Mode = Literal["priority", "fanout", "broadcast"]
Consistency = Literal["strong", "eventual"]
Route = Literal["direct", "proxy"]

SIZE = 1024


class UnknownScenario(Exception):
    """A name or pattern that matches no scenario."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named run. `consumers` are those of each queue: in fan-out, apps with one consumer each.

    `published_rate` is the total of messages/s posted in the published run, None if there is none.
    """

    mode: Mode
    queues: int
    consumers: int
    consistency: Consistency
    route: Route
    published_rate: int | None

    @property
    def name(self) -> str:
        load = f"{self.queues}q" if self.mode == "priority" else f"{self.consumers}c"
        parts = [self.mode, load, self.consistency, self.route]
        if self.mode == "broadcast":
            # Broadcast stores nothing, so it has no consistency.
            parts.remove(self.consistency)
        return "-".join(parts)

    @property
    def notation(self) -> str:
        """The queues, producers and consumers in the notation of the published tables."""
        return f"{self.queues}Q, {self.queues}P, {self.queues * self.consumers}C"

    @property
    def domain(self) -> str:
        if self.mode == "broadcast":
            return "bench.broadcast"
        apps = str(self.consumers) if self.mode == "fanout" else ""
        return f"bench.{self.mode}{apps}.{self.consistency}"

    def plan(self, plan: Plan, queue: str, processes: int) -> Plan:
        """`plan` with this scenario's queues and workers; `queue` is the last part of their names."""
        apps = tuple(_apps(self.consumers)) if self.mode == "fanout" else ()
        shape = Shape(self.queues, apps, self.mode == "broadcast", processes)
        consumers = self.consumers if self.mode == "broadcast" else 1
        return replace(plan, queue=f"bmq://{self.domain}/{queue}", producers=1, consumers=consumers, shape=shape)


def _apps(count: int) -> list[str]:
    return [f"app{number}" for number in range(1, count + 1)]


# Queues, consumers of each, and the published rate, which does not depend on the consistency or the route.
_LOADS: tuple[tuple[Mode, int, int, int | None], ...] = (
    ("priority", 1, 1, 60_000),
    ("priority", 10, 1, 120_000),
    ("priority", 50, 1, 100_000),
    ("priority", 100, 1, 100_000),
    ("fanout", 1, 5, 20_000),
    ("fanout", 1, 30, None),
    ("broadcast", 1, 1, 160_000),
    ("broadcast", 1, 5, 110_000),
    ("broadcast", 1, 10, 20_000),
)
_LEVELS: tuple[Consistency, ...] = ("strong", "eventual")
_ROUTES: tuple[Route, ...] = ("direct", "proxy")

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for mode, queues, consumers, rate in _LOADS
    for level in (("eventual",) if mode == "broadcast" else _LEVELS)
    for route in _ROUTES
    for scenario in (Scenario(mode, queues, consumers, level, route, rate),)
}


def matching(patterns: Iterable[str]) -> list[Scenario]:
    """The scenarios whose names match a pattern, each once, in the order of the table.

    A pattern is a name, a name without its last parts, or has `*` in it. Raises `UnknownScenario`.
    """
    wanted: set[str] = set()
    for pattern in patterns:
        found = {name for name in SCENARIOS if fnmatchcase(name, pattern) or name.startswith(f"{pattern}-")}
        if not found:
            raise UnknownScenario(pattern)
        wanted |= found
    return [scenario for name, scenario in SCENARIOS.items() if name in wanted]


_MODES: dict[Mode, dict[str, Any]] = {
    "priority": {"priority": {}},
    "broadcast": {"broadcast": {}},
}
_MIB = 1 << 20
# Room for messages ahead of their consumers in an open loop; messages without consumers are deleted.
_LIMITS = {"bytes": 512 * _MIB, "messages": 1_000_000}
_TTL_S = 3600


def domain_files(cluster: str) -> dict[str, dict[str, Any]]:
    return {f"{name}.json": definition for name, definition in _definitions(cluster).items()}


def _definitions(cluster: str) -> dict[str, dict[str, Any]]:
    definitions: dict[str, dict[str, Any]] = {}
    for scenario in SCENARIOS.values():
        is_broadcast = scenario.mode == "broadcast"
        mode = _MODES.get(scenario.mode) or {"fanout": {"appIDs": _apps(scenario.consumers)}}
        parameters = {
            "name": scenario.domain,
            "mode": mode,
            "storage": {
                "config": {"inMemory" if is_broadcast else "fileBacked": {}},
                "domainLimits": _LIMITS,
                "queueLimits": _LIMITS,
            },
            "messageTtl": _TTL_S,
            "consistency": {scenario.consistency: {}},
        }
        definitions[scenario.domain] = {"definition": {"location": cluster, "parameters": parameters}}
    return definitions
