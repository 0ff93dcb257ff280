"""The rows of the lifecycle tables, the pairs of a fault and a state, and the branches that worlds reach.

`scripts/simulate --coverage` plays worlds and prints what they have never reached. `unreached.toml` says why something
cannot be reached. `rare.toml`, which `--record` writes, has the weight of each trait of a world: the more of what few
worlds reach is reached by worlds with the trait, the greater. `leaning` chooses seeds by it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from broker.bmq.consensus import cluster_table, election_table
from broker.bmq.consensus.election_table import ElectionRole
from broker.bmq.proxy import active_node
from broker.bmq.relay import upstream
from broker.bmq.replication import partition_table
from broker.bmq.session import session_table
from broker.rocketmq.raft.raft import Role
from broker.rocketmq.replication import lifecycles
from tests.broker.fakes import Crash
from tests.simulator.controllers.controllers import Controller
from tests.simulator.controllers.machines import Machine
from tests.simulator.judges.invariants import Violation
from tests.simulator.machines.hosts import Host
from tests.simulator.mutants.planted import ROOT
from tests.simulator.play import play
from tests.simulator.worlds.features import shape_of
from tests.simulator.worlds.proxies import ProxyHost
from tests.simulator.worlds.recipes import KINDS, Recipe

__all__ = [
    "DECIDING",
    "RARE",
    "TABLES",
    "UNREACHED",
    "Reached",
    "Watched",
    "all_pairs",
    "all_rows",
    "cover",
    "leaning",
    "read_unreached",
    "reason_of",
    "traits",
]

UNREACHED = Path(__file__).with_name("unreached.toml")
RARE = Path(__file__).with_name("rare.toml")
# The packages that decide what becomes of messages, of a lead and of copies.
DECIDING = tuple(
    f"broker/{name}"
    for name in (
        *(f"bmq/{each}" for each in ("consensus", "core", "member", "partition", "proxy", "queue", "relay")),
        *(f"bmq/{each}" for each in ("replication", "session", "store")),
        *(f"rocketmq/{each}" for each in ("administration", "broker", "consuming", "controller", "delays", "raft")),
        *(f"rocketmq/{each}" for each in ("replication", "sending", "store", "tables")),
    )
)
TABLES: dict[str, dict[tuple[Any, Any], Any]] = {
    "session": session_table.TRANSITIONS,
    "upstream": upstream.TRANSITIONS,
    "active": active_node.TRANSITIONS,
    "election": election_table.TRANSITIONS,
    "cluster": cluster_table.TRANSITIONS,
    "partition": partition_table.TABLE,
    "copy": lifecycles.COPY_TRANSITIONS,
    "epoch copy": lifecycles.EPOCH_COPY_TRANSITIONS,
    "slave": lifecycles.SLAVE_TRANSITIONS,
    "member": lifecycles.MEMBER_TRANSITIONS,
}
_STATES: dict[str, type[Enum]] = {
    "election": ElectionRole,
    "cluster": cluster_table.State,
    "partition": partition_table.State,
    "active": active_node.ActiveState,
    "member": lifecycles.MemberState,
    "slave": lifecycles.SlaveState,
    "raft": Role,
}
# The faults of a machine, by the lifecycles that it may have.
_FAULTS: tuple[tuple[type[Any], tuple[str, ...], tuple[str, ...]], ...] = (
    (Host, ("die", "pause", "retire", "fill_disk", "rot_running"), ("election", "cluster", "partition")),
    (ProxyHost, (), ("active",)),
    (Machine, ("kill", "stop", "lose_power", "lose_disk", "fill_disk"), ("member", "slave")),
    (Controller, ("kill", "lose_disk"), ("raft",)),
)
# A thing is rare if fewer worlds of a hundred reach it.
RARE_PERCENT = 5
WORLDS_EACH = 20
SHOWN = 40


@dataclass
class Reached:
    """All that some worlds have reached: by row and by pair the number of worlds, by file its branches."""

    worlds: int = 0
    failed: list[str] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    arcs: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    # The traits of each world, and what it has reached.
    each: list[tuple[tuple[str, ...], frozenset[str]]] = field(default_factory=list)

    def add(self, other: Reached) -> None:
        """Add what other worlds have reached."""
        self.worlds += other.worlds
        self.failed += other.failed
        self.rows += other.rows
        self.pairs += other.pairs
        self.each += other.each
        for name, arcs in other.arcs.items():
            self.arcs.setdefault(name, set()).update(arcs)

    def weights(self) -> dict[str, float]:
        """The weight of each trait: how much of what is rare its worlds reach, where the mean of all worlds is 1."""
        counts = Counter(name for _, names in self.each for name in names)
        rare = {name for name, count in counts.items() if count * 100 < self.worlds * RARE_PERCENT}
        scores = [(marks, sum(1 / counts[name] for name in names & rare)) for marks, names in self.each]
        mean = sum(score for _, score in scores) / max(len(scores), 1) or 1.0
        by_trait: dict[str, list[float]] = {}
        for marks, score in scores:
            for mark in marks:
                by_trait.setdefault(mark, []).append(score)
        return {mark: round(sum(found) / len(found) / mean, 2) for mark, found in sorted(by_trait.items())}


class Watched(dict[tuple[Any, Any], Any]):
    """A table that notes which of its rows are taken."""

    def __init__(self, name: str, rows: Mapping[tuple[Any, Any], Any], note: Callable[[str], None]) -> None:
        super().__init__(rows)
        self._name = name
        self._note = note

    def __getitem__(self, key: tuple[Any, Any]) -> Any:
        row = super().__getitem__(key)
        self._note(_row(self._name, key))
        return row

    def get(self, key: tuple[Any, Any], default: Any = None) -> Any:
        row = super().get(key, default)
        if key in self:
            self._note(_row(self._name, key))
        return row


def _row(table: str, key: tuple[Any, Any]) -> str:
    return f"{table}: {key[0].name} {key[1].name}"


def all_rows() -> list[str]:
    """List all rows of all tables."""
    return [_row(name, key) for name, table in TABLES.items() for key in table]


def all_pairs() -> list[str]:
    """List all pairs of a fault and a state in which it may strike."""
    return [
        f"{cls.__name__} {fault}: {name} {state.name}"
        for cls, faults, names in _FAULTS
        for fault in (faults or _FAULTS[0][1])
        for name in names
        for state in _STATES[name]
        if (cls, fault) != (ProxyHost, "rot_running")
    ]


class _Watch:
    """Notes what the worlds of this process reach."""

    def __init__(self) -> None:
        self._rows: set[str] = set()
        self._pairs: set[str] = set()

    def install(self) -> None:
        """Replace the tables in all modules that use them, and the faults of machines."""
        by_id = {id(table): Watched(name, table, self._rows.add) for name, table in TABLES.items()}
        for module in [each for name, each in sys.modules.items() if name.startswith("broker.")]:
            for name, value in list(vars(module).items()):
                if id(value) in by_id:
                    setattr(module, name, by_id[id(value)])
        for cls, faults, _ in _FAULTS:
            for fault in faults:
                setattr(cls, fault, self._striking(fault, getattr(cls, fault)))

    def _striking(self, fault: str, strike: Callable[..., Any]) -> Callable[..., Any]:
        def strikes(machine: Any, *words: Any, **named: Any) -> Any:
            self._pairs.update(f"{type(machine).__name__} {fault}: {state}" for state in _states(machine))
            return strike(machine, *words, **named)

        return strikes

    def play(self, recipe: Recipe, into: Reached) -> None:
        """Play a world."""
        self._rows.clear()
        self._pairs.clear()
        into.worlds += 1
        try:
            play(recipe.seed, recipe.make, recipe.steps, None)
        except (Violation, Crash) as failure:
            into.failed.append(f"{recipe.command}: {failure!r}")
        into.rows.update(self._rows)
        into.pairs.update(self._pairs)
        into.each.append((traits(recipe.kind, recipe.seed), frozenset(self._rows | self._pairs)))


def _states(machine: Host | Machine | Controller) -> Iterator[str]:
    """Yield the states of all lifecycles of a machine's process."""
    if isinstance(machine, Controller):
        if machine.service is not None:
            yield f"raft {machine.service.raft.role.name}"
    elif isinstance(machine, Machine):
        if machine.process is not None:
            yield f"member {machine.process.membership.state.name}"
            controlled: Any = machine.process.group.controlled
            if controlled._slave is not None:
                yield f"slave {controlled._slave._slave.state.name}"
    elif isinstance(machine, ProxyHost):
        if machine.proxy is not None and machine.node is not None:
            yield from {f"active {cluster.active.state.name}" for cluster in machine.proxy.clusters.values()}
    elif machine.member is not None and machine.node is not None:
        yield f"election {machine.member.election.role.name}"
        yield f"cluster {machine.member.metadata.fsm_state.name}"
        yield from {f"partition {each.state.name}" for each in machine.member.partitions.values()}


def traits(kind: str, seed: int) -> tuple[str, ...]:
    """The traits of a world that its seed alone decides."""
    if kind != "bmq":
        return (kind,)
    shape = shape_of(seed)
    names = sorted(feature.name.lower() for feature in shape.features)
    return (f"nodes-{shape.nodes}", *(("proxies",) if shape.has_proxies else ()), *names)


def leaning(seeds: Sequence[int], count: int) -> list[int]:
    """Choose seeds of BlazingMQ's worlds: the first ones, and as many whose traits reach what is rare."""
    weights: dict[str, float] = tomllib.loads(RARE.read_text())["bmq"]
    first, others = seeds[: count // 2], seeds[count // 2 :]

    def weight(seed: int) -> float:
        marks = traits("bmq", seed)
        return sum(weights.get(mark, 1.0) for mark in marks) - len(marks)

    return sorted([*first, *sorted(others, key=weight, reverse=True)[: count - len(first)]])


def _play_some(recipes: Sequence[Recipe], *, has_branches: bool) -> Reached:
    """Play some worlds in a process of its own."""
    reached = Reached()
    watch = _Watch()
    watch.install()
    if not has_branches:
        for recipe in recipes:
            watch.play(recipe, reached)
        return reached
    from coverage import Coverage

    tracer = Coverage(data_file=None, branch=True, include=[f"{ROOT}/{name}/*" for name in DECIDING])
    with tracer.collect():
        for recipe in recipes:
            watch.play(recipe, reached)
    data = tracer.get_data()
    reached.arcs = {name: set(data.arcs(name) or ()) for name in data.measured_files()}
    return reached


class _Module(NamedTuple):
    """The branches of a module: all, the ones never taken, and the lines of these."""

    name: str
    branches: int
    missed: int
    lines: str


def _modules(arcs: Mapping[str, Collection[tuple[int, int]]]) -> list[_Module]:
    """The modules of the deciding packages, with the branches that were never taken."""
    from coverage import Coverage

    tracer = Coverage(data_file=None, branch=True, source=[f"{ROOT}/{name}" for name in DECIDING])
    tracer.start()
    tracer.stop()
    tracer.get_data().add_arcs(arcs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "branches.json"
        tracer.json_report(outfile=str(path))
        files = json.loads(path.read_text())["files"]
    found = []
    for name, report in files.items():
        summary = report["summary"]
        lines = ", ".join(f"{first}->{last}" for first, last in report["missing_branches"])
        module = str(Path(name)).removesuffix(".py").replace("/", ".")
        found.append(_Module(module, summary["num_branches"], summary["missing_branches"], lines))
    return sorted(found, key=lambda module: -module.missed)


def read_unreached() -> dict[str, str]:
    """The reason why a row, a pair or a module's rest is never reached, by its name; `*` is any part of a name."""
    table: dict[str, dict[str, str]] = tomllib.loads(UNREACHED.read_text())
    return {name: reason for names in table.values() for name, reason in names.items()}


def reason_of(name: str, reasons: Mapping[str, str]) -> str:
    """The reason why something is never reached; empty without one."""
    for known, reason in reasons.items():
        if fnmatchcase(name, known):
            return reason
    return ""


def cover(recipes: Sequence[Recipe], jobs: int, to_json: Path | None, *, has_branches: bool, is_recorded: bool) -> int:
    """Play worlds, print what they never reach, and write it; 1 if a world fails."""
    reached = Reached()
    parts = [recipes[at : at + WORLDS_EACH] for at in range(0, len(recipes), WORLDS_EACH)]
    # A process for each part: what is replaced in it is not there for another one.
    with get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        for part in pool.imap_unordered(partial(_play_some, has_branches=has_branches), parts):
            reached.add(part)
    _print(reached, has_branches=has_branches, to_json=to_json)
    if is_recorded:
        weights = "".join(f"{name} = {weight}\n" for name, weight in reached.weights().items() if name not in KINDS)
        head = "# The weights of traits, of which the mean is 1: written by `scripts/simulate --coverage --record`.\n"
        RARE.write_text(f"{head}[bmq]\n{weights}")
    return 1 if reached.failed else 0


def _print(reached: Reached, *, has_branches: bool, to_json: Path | None) -> None:
    reasons = read_unreached()
    console = Console(highlight=False)
    summary = Table("", "all", "reached", "explained", "never reached", title=f"{reached.worlds} worlds")
    missing: dict[str, list[str]] = {}
    for what, names, found in (("rows", all_rows(), reached.rows), ("pairs", all_pairs(), reached.pairs)):
        for group in dict.fromkeys(name.partition(":")[0] for name in names):
            these = [name for name in names if name.partition(":")[0] == group]
            never = [name for name in these if name not in found]
            missing[f"{what} of {group}"] = left = [name for name in never if not reason_of(name, reasons)]
            counts = len(these), len(these) - len(never), len(never) - len(left), len(left)
            summary.add_row(f"{what} of {group}", *map(str, counts))
    console.print(summary)
    for name in [name for names in missing.values() for name in names]:
        console.print(f"never reached: {name}")
    for name in sorted(name for name in [*reached.rows, *reached.pairs] if reason_of(name, reasons)):
        console.print(f"reached, though {UNREACHED.name} has a reason against it: {name}")
    modules = _modules(reached.arcs) if has_branches else []
    if modules:
        _print_modules(console, modules, reasons)
    for failure in reached.failed:
        console.print(f"FAILED {failure}")
    if to_json is not None:
        answer = {
            "worlds": reached.worlds,
            "failed": reached.failed,
            "rows": {name: reached.rows[name] for name in all_rows()},
            "pairs": {name: reached.pairs[name] for name in all_pairs()},
            "branches": [module._asdict() for module in modules],
            "weights": reached.weights(),
        }
        to_json.write_text(json.dumps(answer, indent=1) + "\n")


def _print_modules(console: Console, modules: Sequence[_Module], reasons: Mapping[str, str]) -> None:
    total, missed = sum(module.branches for module in modules), sum(module.missed for module in modules)
    left = [module for module in modules if module.missed and not reason_of(module.name, reasons)]
    title = f"{total - missed} of {total} branches of the deciding packages are reached; the modules with most others"
    table = Table("module", "branches", "never reached", "from line -> to line", title=title)
    for module in left[:SHOWN]:
        table.add_row(module.name, str(module.branches), str(module.missed), module.lines)
    console.print(table)
