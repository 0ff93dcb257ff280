"""The figures by which a release is judged, taken in one run on a node started for it.

Throughput and latency stand beside those of a bare relay with the same messages on the same machine in the same run:
only the ratio of the two compares between machines.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bmqctl.bench.coordinator import Outcome, run_bench
from bmqctl.bench.plan import CannotStart, Plan
from bmqctl.bench.relay import serve
from bmqctl.systems.node_process import NodeFailed, NodeProcess
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import ANY_RECORD, RecordType, scan

__all__ = ["Figure", "main", "measure", "records_in"]

SIZE = 1024
OPEN_LOOP_RATE = 5000.0
OWN_BATCH = 64
TABLE_WIDTH = 110
READY_TIMEOUT_S = 60.0
# The sample domain's capacity in one queue and in all, less a margin.
MESSAGES_OUTSTANDING = 90_000
QUEUES_OUTSTANDING = 2


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value; `target` is the bound set by issue 2, `relay` the value of the bare relay."""

    name: str
    unit: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    relay: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.relay if self.relay else None

    @property
    def reached(self) -> bool | None:
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.value <= self.at_most if self.at_most is not None else None


def _plan(port: int, **changes: Any) -> Plan:
    plan = Plan(
        run=secrets.randbits(32),
        host="127.0.0.1",
        port=port,
        queue=f"bmq://bmq.test.persistent.priority/figures-{secrets.token_hex(4)}",
        client="official",
        producers=1,
        consumers=1,
        size=SIZE,
        batch=1,
        count=None,
        duration_s=None,
        rate=0.0,
        window=4096,
        max_unconfirmed_messages=4096,
        max_unconfirmed_bytes=64 << 20,
        connect_timeout_s=10.0,
        quiet_s=10.0,
    )
    return replace(plan, **changes)


class Unclean(Exception):
    """A run with losses; its figures mean nothing."""


def _run(plan: Plan) -> Outcome:
    outcome = run_bench(plan)
    if not outcome.clean:
        account = outcome.account
        raise Unclean(
            f"{plan.client}: {account.lost} lost, {account.nacked} nacked, {account.unanswered} unanswered; "
            + "; ".join(outcome.faults)
        )
    return outcome


def _delivered_per_s(outcome: Outcome) -> float:
    return outcome.rate(outcome.account.delivered, outcome.account.last_delivery_ns)


@contextmanager
def _relay() -> Iterator[int]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(SIZE, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def _throughput(node: NodeProcess, duration_s: float) -> list[Figure]:
    cpu_s = node.cpu_s()
    outcome = _run(_plan(node.port, duration_s=duration_s))
    cpu_s = node.cpu_s() - cpu_s
    with _relay() as port:
        relay = _run(_plan(port, client="relay", duration_s=duration_s))
    own = _run(_plan(node.port, client="own", duration_s=duration_s, batch=OWN_BATCH))
    return [
        Figure(
            "end to end, official client",
            "messages/s",
            _delivered_per_s(outcome),
            at_least=20_000,
            relay=_delivered_per_s(relay),
        ),
        Figure("broker CPU, official client", "us/message", cpu_s * 1e6 / outcome.account.delivered, at_most=20),
        Figure("end to end, own client", "messages/s", _delivered_per_s(own), relay=_delivered_per_s(relay)),
    ]


def _latency(node: NodeProcess, duration_s: float) -> list[Figure]:
    cpu_s = node.cpu_s()
    outcome = _run(_plan(node.port, rate=OPEN_LOOP_RATE, duration_s=duration_s))
    cpu_s = node.cpu_s() - cpu_s
    with _relay() as port:
        relay = _run(_plan(port, client="relay", rate=OPEN_LOOP_RATE, duration_s=duration_s))
    ours, theirs = outcome.account.latency, relay.account.latency
    figures = [
        Figure(
            f"latency p{percent:g} at {OPEN_LOOP_RATE:,.0f}/s",
            "ms",
            ours.percentile(percent) / 1e6,
            at_most=0.6 if percent == 50 else None,
            relay=theirs.percentile(percent) / 1e6,
        )
        for percent in (50, 90, 99, 99.9)
    ]
    per_message_us = cpu_s * 1e6 / outcome.account.delivered
    return [*figures, Figure(f"broker CPU at {OPEN_LOOP_RATE:,.0f}/s", "us/message", per_message_us)]


def records_in(data_dir: Path) -> int:
    """Count the records in all journals under `data_dir`, even as a killed node left them."""
    records = 0
    for path in data_dir.rglob("*.bmq_journal"):
        content = path.read_bytes()
        start = open_file(content, FileType.JOURNAL).first_record_offset
        written = scan(content, start, (len(content) - start) // JOURNAL_RECORD_SIZE)
        records += int((ANY_RECORD.column(written, "type") != RecordType.UNDEFINED).sum())
    return records


def _store(directory: Path, records: int) -> list[Figure]:
    """Fill a store, kill its node, and time the next one: up to 180,000 outstanding, the rest confirmed."""
    outstanding = min(records // 5, QUEUES_OUTSTANDING * MESSAGES_OUTSTANDING)
    small = {"client": "own", "size": 64, "batch": 64}
    with NodeProcess(directory, timeout_s=READY_TIMEOUT_S) as node:
        for _ in range(QUEUES_OUTSTANDING):
            _run(_plan(node.port, **small, count=outstanding // QUEUES_OUTSTANDING, consumers=0))
        # A message confirmed by its only app takes two records: the message and its deletion.
        _run(_plan(node.port, **small, count=(records - outstanding) // 2 + 1))
        node.kill()
    count = records_in(directory)
    with NodeProcess(directory, timeout_s=READY_TIMEOUT_S) as node:
        return [Figure(f"open a store of {count:,} records", "s", node.ready_s, at_most=5)]


def measure(directory: Path, duration_s: float, records: int) -> list[Figure]:
    """Measure all figures, with stores below `directory`, filled unless `records` is 0."""
    with NodeProcess(directory / "store", timeout_s=READY_TIMEOUT_S) as node:
        figures = [Figure("start to ready", "s", node.ready_s, at_most=1)]
        figures += _throughput(node, duration_s)
        figures += _latency(node, duration_s)
    if records:
        figures += _store(directory / "large", records)
    return figures


def _table(figures: list[Figure]) -> Table:
    table = Table()
    for heading in ("figure", "value", "unit", "bare relay", "ratio", "target", "reached"):
        table.add_column(heading, justify="left" if heading in ("figure", "unit") else "right")
    for figure in figures:
        target = f">= {figure.at_least:,g}" if figure.at_least else f"<= {figure.at_most:g}" if figure.at_most else ""
        table.add_row(
            figure.name,
            _number(figure.value),
            figure.unit,
            _number(figure.relay),
            _number(figure.ratio),
            target,
            {True: "yes", False: "no", None: ""}[figure.reached],
            style="red" if figure.reached is False else "",
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> int:
    """Measure and print. Returns 0 even if a target is missed: figures depend on the machine."""
    parser = argparse.ArgumentParser(description="Take bmqctl's figures on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--duration", type=float, default=10.0, metavar="S", help="seconds per run (default 10)")
    parser.add_argument(
        "--records", type=int, default=1_000_000, metavar="N", help="records of the store to open; 0: no store"
    )
    arguments = parser.parse_args()
    machine = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        # Other work on the machine.
        "load": round(os.getloadavg()[0], 2),
    }
    with tempfile.TemporaryDirectory(prefix="bmqctl-figures-") as directory:
        try:
            figures = measure(Path(directory), arguments.duration, arguments.records)
        except (NodeFailed, CannotStart, Unclean, OSError) as fault:
            print(f"benchmark: {fault}", file=sys.stderr)
            return 1
    if arguments.json:
        rows = [asdict(figure) | {"ratio": figure.ratio, "reached": figure.reached} for figure in figures]
        print(json.dumps({"machine": machine, "figures": rows}, indent=2))
    else:
        # The table is wider than the 80 columns assumed for a pipe.
        console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
        console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
        console.print(_table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
