"""A table of three nodes of ours beside three of the reference's: same machine, configuration, and client, in turns."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from scripts.bench.figures import MIB, fresh_queue, plan_for, run
from scripts.judges.cluster_load import STRONG, Stream
from scripts.judges.reference_process import Running
from scripts.mixtures.cluster import MixedCluster
from scripts.mixtures.config import EVENTUAL

__all__ = ["print_table"]

COUNT = 3
RUN_S = 5.0
WINDOW = 1024
SIZE = 1024
WIDTH = 120
FAIL_OVER_RATE = 500.0
BEFORE_S = 2.0
AFTER_S = 6.0
SIZES = {"maxDataFileSize": 1 << 30, "maxJournalFileSize": 256 << 20, "maxQlistFileSize": 8 << 20}
PROGRAMS: dict[str, list[int]] = {"ours": [], "theirs": list(range(1, COUNT + 1))}

Values = dict[str, float]


@contextmanager
def _cluster(executable: Path, foreign: list[int]) -> Iterator[MixedCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="bmqctl-table-") as name,
        MixedCluster(Path(name), executable, foreign, count=COUNT, sizes=SIZES, partitions=4) as cluster,
    ):
        cluster.wait_healed()
        yield cluster


def _cpu_s(cluster: MixedCluster) -> float:
    return sum(cluster.nodes[number].cpu_s() for number in cluster.running)


def _replicas(cluster: MixedCluster) -> list[Running]:
    leader = cluster.wait_leader()
    return [node for number, node in cluster.nodes.items() if number != leader]


def throughput(cluster: MixedCluster) -> Values:
    """Measure unlimited throughput, with the clients at the primary and at a replica."""
    found: Values = {}
    primary = cluster.nodes[cluster.wait_leader()]
    for where, node in {"primary": primary, "replica": _replicas(cluster)[0]}.items():
        plan = plan_for(node, fresh_queue(STRONG), client="official", batch=1, duration_s=RUN_S, window=WINDOW)
        before = _cpu_s(cluster)
        outcome = run(plan)
        delivered = outcome.account.delivered
        found[f"messages/s, clients at the {where}"] = outcome.rate(delivered, outcome.account.last_delivery_ns)
        found[f"  processor time of all nodes, us/message, {where}"] = (_cpu_s(cluster) - before) / delivered * 1e6
    return found


def fail_over(cluster: MixedCluster) -> Values:
    """Measure the longest time without an ack when the leader is killed, with clients at the two others."""
    leader = cluster.wait_leader()
    one, other = _replicas(cluster)
    stream = Stream(0, secrets.randbits(32), fresh_queue(STRONG), one.uri, other.uri, rate=FAIL_OVER_RATE, size=SIZE)
    with stream:
        time.sleep(BEFORE_S)
        cluster.kill(leader)
        time.sleep(AFTER_S)
        stream.finish()
        stream.drain()
    cluster.start(leader)
    cluster.wait_healed()
    if stream.account().lost:
        raise SystemExit(f"mixed: {stream.account().lost} messages are lost")
    return {f"fail-over at {FAIL_OVER_RATE:,.0f}/s, s without an ack": stream.longest_gap_s()}


def healing(cluster: MixedCluster, missing_mib: int) -> Values:
    """Measure the time from the start of a replica that missed much to its healing."""
    leader = cluster.wait_leader()
    down = next(number for number in cluster.nodes if number != leader)
    cluster.kill(down)
    plan = plan_for(
        cluster.nodes[leader], fresh_queue(EVENTUAL), consumers=0, size=SIZE, count=missing_mib * MIB // SIZE
    )
    run(plan)
    started = time.monotonic()
    cluster.start(down)
    ready = time.monotonic()
    cluster.wait_healed()
    return {
        f"healing of {missing_mib} MiB, s from the start": time.monotonic() - started,
        "  of which the process's start, s": ready - started,
    }


def print_table(executable: Path, rounds: int, healing_mib: int, say: Callable[[str], None]) -> None:
    """Measure the clusters of both programs in turns, and print medians with the least and the greatest."""
    found: dict[str, dict[str, list[float]]] = {}
    before = os.getloadavg()[0]
    for number in range(1, rounds + 1):
        for program, foreign in PROGRAMS.items():
            say(f"round {number} of {rounds}: {program}; load {os.getloadavg()[0]:.1f}")
            with _cluster(executable, foreign) as cluster:
                values = throughput(cluster) | fail_over(cluster) | healing(cluster, healing_mib)
            for name, value in values.items():
                found.setdefault(name, {}).setdefault(program, []).append(value)
    table = Table(box=None, pad_edge=False, title_justify="left")
    load = f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after"
    table.title = f"three nodes each, median of {rounds} (least to greatest); {os.cpu_count()} processors, {load}"
    for title in ("", *PROGRAMS, "theirs / ours"):
        table.add_column(title)
    for name, by_program in found.items():
        parts = [_shown(by_program[program]) for program in PROGRAMS]
        ratio = median(by_program["theirs"]) / median(by_program["ours"])
        table.add_row(name, *parts, f"{ratio:.2f}")
    Console(width=WIDTH).print(table)


def _shown(values: list[float]) -> str:
    low, middle, high = min(values), median(values), max(values)
    digits = 0 if high >= 100 else 2
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
