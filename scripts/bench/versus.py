"""The runner of scripts/benchmark --versus: our node and another broker's executable, in turn.

Both have the same configuration files, clients and machine, one at a time; a round is a run of each, and the two begin
rounds in turn. The ratio of a figure is taken in each round. On a machine that is busy with other work nothing is
compared: that would measure the scheduler.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bmqctl.bench.coordinator import Outcome
from bmqctl.bench.plan import CannotStart, Plan
from bmqctl.systems.node_process import NodeFailed
from scripts.bench.figures import fresh_queue, plan_for, run
from scripts.judges.cluster_load import STRONG
from scripts.mixtures.cluster import MixedCluster
from scripts.mixtures.config import EVENTUAL

__all__ = ["Comparison", "busy_percent", "compare", "main"]

OURS, OTHER = "ours", "other"
NODE_RATE: Final = 5_000.0
CLUSTER_RATE: Final = 3_000.0
WINDOW: Final = 4_096
CLUSTER_WINDOW: Final = 1_024
SIZES: Final = {"maxDataFileSize": 1 << 30, "maxJournalFileSize": 256 << 20, "maxQlistFileSize": 8 << 20}
CALM_S: Final = 2.0
BUSY_PERCENT_MAX: Final = 10.0
WIDTH: Final = 120
EXIT_BUSY: Final = 3

MESSAGES, CPU, MS = "messages/s", "us of CPU/message", "ms"

Values = dict[str, float]
Measure = Callable[[MixedCluster, float], Values]


class Comparison(NamedTuple):
    """One figure of both brokers, a value for each round."""

    name: str
    ours: Sequence[float]
    other: Sequence[float]

    @property
    def is_better_when_high(self) -> bool:
        return self.name.endswith(MESSAGES)

    @property
    def ratios(self) -> list[float]:
        """Ours divided by the other's, in each round; above 1 ours was better."""
        pairs = zip(self.ours, self.other, strict=True)
        return [mine / its if self.is_better_when_high else its / mine for mine, its in pairs]


class Busy(Exception):
    """The processors are used by other work."""


# -- the machine


def busy_percent(before: str, after: str) -> float:
    """Return the share of all processors' time that was used between two readings of /proc/stat."""
    ticks = [[int(word) for word in text.splitlines()[0].split()[1:9]] for text in (before, after)]
    spent = [late - early for early, late in zip(*ticks, strict=True)]
    # In the fourth and fifth columns a processor was idle, or waited for a disk.
    total = sum(spent)
    return 100 * (total - spent[3] - spent[4]) / total if total else 0.0


def check_calm(limit_percent: float) -> None:
    """Raise `Busy` if other processes use more of the processors than the limit."""
    stat = Path("/proc/stat")
    before = stat.read_text()
    time.sleep(CALM_S)
    used = busy_percent(before, stat.read_text())
    if used > limit_percent:
        raise Busy(
            f"the processors are {used:.0f} % busy with other work, and {limit_percent:.0f} % is the limit: end what "
            "else runs, or say --busy PERCENT and compare nothing with the figures"
        )


# -- the cases


def _cpu_s(cluster: MixedCluster) -> float:
    return sum(cluster.nodes[number].cpu_s() for number in cluster.running)


def _timed(cluster: MixedCluster, plan: Plan) -> tuple[Outcome, float]:
    """Carry out a plan; return its outcome and the nodes' processor time per message, in microseconds."""
    before = _cpu_s(cluster)
    outcome = run(plan)
    return outcome, (_cpu_s(cluster) - before) * 1e6 / outcome.account.delivered


def _primary_plan(cluster: MixedCluster, domain: str, **changes: Any) -> Plan:
    # A single node reports no leader.
    number = cluster.wait_leader() if len(cluster.nodes) > 1 else 1
    return plan_for(cluster.nodes[number], fresh_queue(domain), **changes)


def _official(domain: str, window: int, cluster: MixedCluster, duration_s: float) -> Values:
    plan = _primary_plan(cluster, domain, client="official", batch=1, duration_s=duration_s, window=window)
    outcome, cpu_us = _timed(cluster, plan)
    delivered = outcome.rate(outcome.account.delivered, outcome.account.last_delivery_ns)
    return {f"official client, one by one: {MESSAGES}": delivered, f"official client, one by one: {CPU}": cpu_us}


def _batches(batch: int, cluster: MixedCluster, duration_s: float) -> Values:
    plan = _primary_plan(cluster, EVENTUAL, batch=batch, duration_s=duration_s, window=WINDOW)
    outcome, cpu_us = _timed(cluster, plan)
    account = outcome.account
    return {
        f"batches of {batch}, consumed: {MESSAGES}": outcome.rate(account.delivered, account.last_delivery_ns),
        f"batches of {batch}: {CPU}": cpu_us,
    }


def _paced(domain: str, rate: float, cluster: MixedCluster, duration_s: float) -> Values:
    plan = _primary_plan(cluster, domain, client="official", batch=1, duration_s=duration_s, rate=rate)
    latency = run(plan).account.latency
    return {f"latency p{percent} at {rate:,.0f}/s, {MS}": latency.percentile(percent) / 1e6 for percent in (50, 99)}


NODE: Final[tuple[Measure, ...]] = (
    partial(_official, EVENTUAL, WINDOW),
    partial(_batches, 10),
    partial(_batches, 64),
    partial(_paced, EVENTUAL, NODE_RATE),
)
CLUSTER: Final[tuple[Measure, ...]] = (
    partial(_official, STRONG, CLUSTER_WINDOW),
    partial(_paced, STRONG, CLUSTER_RATE),
)
SETTINGS: Final[Mapping[str, tuple[int, tuple[Measure, ...]]]] = {
    "one node": (1, NODE),
    "three nodes, strong consistency": (3, CLUSTER),
}


@contextmanager
def _started(program: Path, name: str, count: int) -> Iterator[MixedCluster]:
    foreign = range(1, count + 1) if name == OTHER else ()
    with (
        tempfile.TemporaryDirectory(prefix="bmqctl-versus-") as folder,
        MixedCluster(Path(folder), program, list(foreign), count=count, sizes=SIZES, partitions=4) as cluster,
    ):
        cluster.wait_healed()
        yield cluster


def compare(
    program: Path, setting: str, rounds: int, duration_s: float, busy_percent_max: float, say: Callable[[str], None]
) -> list[Comparison]:
    """Measure both programs in turn. Raises `Busy`, `NodeFailed` and `CannotStart`."""
    count, measures = SETTINGS[setting]
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(1, rounds + 1):
        for name in (OURS, OTHER) if number % 2 else (OTHER, OURS):
            check_calm(busy_percent_max)
            say(f"{setting}, round {number} of {rounds}: {name}")
            with _started(program, name, count) as cluster:
                for measure in measures:
                    for figure, value in measure(cluster, duration_s).items():
                        found.setdefault(figure, {}).setdefault(name, []).append(value)
    return [Comparison(figure, values[OURS], values[OTHER]) for figure, values in found.items()]


# -- what is printed


def _shown(values: Sequence[float]) -> str:
    low, middle, high = min(values), median(values), max(values)
    digits = 0 if high >= 100 else 2
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _table(title: str, comparisons: Sequence[Comparison]) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for heading in ("", OURS, OTHER, "times as good"):
        table.add_column(heading)
    for each in comparisons:
        table.add_row(each.name, _shown(each.ours), _shown(each.other), _shown(each.ratios))
    return table


def main() -> int:
    """Compare and print. Exit codes: 0 for any completed comparison, 3 on a busy machine, 1 if a broker fails."""
    parser = argparse.ArgumentParser(
        prog="scripts/benchmark", description="Measure our node and another broker's executable alternately."
    )
    parser.add_argument(
        "--versus", type=Path, required=True, metavar="PROGRAM", help="takes a folder with bmqbrkrcfg.json, as bmqbrkr"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each (default 5)")
    parser.add_argument("--duration", type=float, default=5.0, metavar="S", help="seconds of each case (default 5)")
    parser.add_argument("--setting", choices=SETTINGS, action="append", help="one of them only (default: both)")
    parser.add_argument(
        "--busy",
        type=float,
        default=BUSY_PERCENT_MAX,
        metavar="PERCENT",
        help=f"how much of the processors other work may use (default {BUSY_PERCENT_MAX:.0f})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    if not os.access(options.versus, os.X_OK) or options.versus.is_dir():
        parser.error(f"--versus: {options.versus} is not an executable file")
    if options.rounds < 1 or options.duration <= 0:
        parser.error("--rounds and --duration have to be above 0")
    machine = {"processors": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    found: dict[str, list[Comparison]] = {}
    try:
        for setting in options.setting or SETTINGS:
            found[setting] = compare(
                options.versus.absolute(), setting, options.rounds, options.duration, options.busy, _say
            )
    except Busy as fault:
        print(f"benchmark: {fault}", file=sys.stderr)
        return EXIT_BUSY
    except (NodeFailed, CannotStart, TimeoutError, OSError) as fault:
        print(f"benchmark: {fault}", file=sys.stderr)
        return 1
    if options.json:
        rows = {name: [each._asdict() | {"ratios": each.ratios} for each in each_of] for name, each_of in found.items()}
        print(json.dumps({"machine": machine, "settings": rows}, indent=2))
        return 0
    console = Console(width=WIDTH)
    for setting, comparisons in found.items():
        shown = f"{setting}: median of {options.rounds} rounds (least to greatest); {machine['processors']} processors"
        console.print(_table(shown, comparisons), "")
    return 0


def _say(text: str) -> None:
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
