"""Common parts of the benchmarks: runs of bench at a node, and figures.

Slowness is not a failure: targets are printed beside measured figures.
"""

from __future__ import annotations

import os
import secrets
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bmqctl.bench.coordinator import Outcome, run_bench
from bmqctl.bench.plan import Plan
from bmqctl.systems.node_process import HOST
from scripts.judges.reference_process import Running

__all__ = ["MIB", "Figure", "fresh_queue", "measure_cases", "parse_cases", "plan_for", "print_figures", "run"]

MIB = 1 << 20


def fresh_queue(domain: str) -> str:
    return f"bmq://{domain}/bench-{secrets.token_hex(4)}"


def plan_for(node: Running, queue: str, **changes: Any) -> Plan:
    """Plan a run of one producer and one consumer at a node, with our own client and no rate, except for `changes`."""
    plan = Plan(
        run=secrets.randbits(32),
        host=HOST,
        port=node.port,
        queue=queue,
        client="own",
        producers=1,
        consumers=1,
        size=1024,
        batch=64,
        count=None,
        duration_s=None,
        rate=0.0,
        window=4096,
        max_unconfirmed_messages=4096,
        max_unconfirmed_bytes=64 * MIB,
        connect_timeout_s=60.0,
        quiet_s=30.0,
    )
    return replace(plan, **changes)


def run(plan: Plan) -> Outcome:
    """Carry out a plan. Raises SystemExit if it lost a message."""
    outcome = run_bench(plan)
    if not outcome.clean:
        account = outcome.account
        what = f"{account.lost} lost, {account.nacked} nacked, {account.unanswered} unanswered"
        raise SystemExit(f"{Path(sys.argv[0]).stem}: {what}; {'; '.join(outcome.faults)}")
    return outcome


class Figure(NamedTuple):
    """A measured value; `wanted` is the target, if any, and `reached` is True if it was met."""

    name: str
    value: float
    unit: str
    wanted: str = ""
    reached: bool | None = None


def parse_cases(parser: ArgumentParser, cases: Collection[str]) -> Namespace:
    """Parse the command line; its `cases` are the names of those to measure, or empty for all."""
    names = ", ".join(cases)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"what to measure (all): {names}")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.cases if name not in cases]:
        parser.error(f"no such case: {', '.join(unknown)}; there are {names}")
    return arguments


def measure_cases(names: Iterable[str], case: Callable[[str], list[Figure]]) -> None:
    for name in names:
        before = os.getloadavg()[0]
        print_figures(name, case(name), before)


def print_figures(case: str, figures: list[Figure], load_before: float) -> None:
    """Print a row for each figure, and the machine's load above them."""
    table = Table(box=None, pad_edge=False, title_justify="left")
    load = f"load {load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    table.title = f"{case}; {os.cpu_count()} processors, {load}"
    table.add_column(justify="right")
    for title in ("", "figure", "wanted", "reached"):
        table.add_column(title)
    for figure in figures:
        value = f"{figure.value:,.0f}" if figure.value >= 100 or not figure.unit else f"{figure.value:,.2f}"
        reached = {True: "yes", False: "no", None: ""}[figure.reached]
        table.add_row(value, figure.unit, figure.name, figure.wanted, reached)
    Console(width=120).print(table, "")
