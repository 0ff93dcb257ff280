"""The runs of `bmqctl bench`: brokers are started for them, and each run is shown while it goes on."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from bmqctl.bench.brokers import TARGETS, RunAddress, own_node, scenario_broker
from bmqctl.bench.coordinator import Outcome, Progress, run_bench
from bmqctl.bench.plan import CannotStart, Plan
from bmqctl.bench.scenarios import Scenario
from bmqctl.bench.series import FIRST, ONLY, SECOND, Run, turns
from bmqctl.cli.run.bench_report import refuse_bench
from bmqctl.systems.node_process import NodeFailed

__all__ = ["EXIT_INTERRUPTED", "Bench", "run_series"]

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Bench:
    """A series of runs: `rounds` of each scenario, or of the plan as it is, at one broker or at two in turns.

    `broker` is None for scenarios that have a cluster of `nodes` started for them.
    """

    scenarios: list[Scenario]
    broker: RunAddress | None
    own_node: bool
    versus: RunAddress | None
    rounds: int
    nodes: int
    published_rate: bool


def run_series(bench: Bench, plan: Plan) -> list[Run]:
    """Carry out all runs; return the finished ones if interrupted. Raises `typer.Exit` if one cannot begin."""
    runs: list[Run] = []
    scenarios: Sequence[Scenario | None] = bench.scenarios or [None]
    for scenario in scenarios:
        with _brokers(bench, plan, scenario) as addresses:
            for number, broker in turns(bench.rounds, list(addresses)):
                address = addresses[broker]
                planned = replace(_planned(plan, scenario, bench), host=address.host, port=address.port)
                name = scenario.name if scenario else ""
                runs.append(Run(name, number, broker, _run(planned, _label(bench, name, number, broker))))
                if runs[-1].outcome.interrupted:
                    return runs
    return runs


def _planned(plan: Plan, scenario: Scenario | None, bench: Bench) -> Plan:
    """Make the plan of one run, each of which has queues of its own."""
    if scenario is None:
        return replace(plan, run=secrets.randbits(32))
    processes = max((os.cpu_count() or 2) // 2, 1)
    rate = float(scenario.published_rate or plan.rate) if bench.published_rate else plan.rate
    planned = replace(plan, run=secrets.randbits(32), rate=rate)
    return scenario.plan(planned, f"bench-{secrets.token_hex(4)}", processes)


def _label(bench: Bench, scenario: str, number: int, broker: str) -> str:
    words = [scenario] if scenario else []
    if bench.rounds > 1:
        words.append(f"round {number} of {bench.rounds}")
    if bench.versus:
        words.append(broker)
    return ", ".join(words)


@contextmanager
def _brokers(bench: Bench, plan: Plan, scenario: Scenario | None) -> Iterator[dict[str, RunAddress]]:
    """Start the brokers of a scenario, or the node of --own-node; return the addresses by broker."""
    given = RunAddress(plan.host, plan.port)
    try:
        with _first(bench, plan, scenario, given) as first:
            if bench.versus is None:
                yield {ONLY: first}
            elif scenario is None:
                yield {FIRST: first, SECOND: bench.versus}
            else:
                with scenario_broker(scenario, bench.versus, bench.nodes) as second:
                    yield {FIRST: first, SECOND: second}
    except NodeFailed as fault:
        refuse_bench(f"no node: {fault}")


def _first(
    bench: Bench, plan: Plan, scenario: Scenario | None, given: RunAddress
) -> AbstractContextManager[RunAddress]:
    if scenario is not None:
        return scenario_broker(scenario, bench.broker, bench.nodes)
    return own_node(TARGETS[plan.client]) if bench.own_node else nullcontext(given)


def _run(plan: Plan, label: str) -> Outcome:
    console = Console(stderr=True)
    live: AbstractContextManager[Status | None] = (
        console.status(escape(f"{label}: starting the workers") if label else "starting the workers")
        if sys.stderr.isatty()
        else nullcontext()
    )
    try:
        with live as status:

            def show(progress: Progress) -> None:
                if status is not None:
                    status.update(escape(f"{label}  {_line(progress)}") if label else _line(progress))

            return run_bench(plan, show)
    except OSError as fault:
        refuse_bench(f"no {TARGETS[plan.client].peer} at {plan.host}:{plan.port}: {fault.strerror or fault}")
    except CannotStart as fault:
        refuse_bench(f"{label}: {fault}" if label else str(fault))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _line(progress: Progress) -> str:
    return (
        f"{progress.elapsed_s:6.1f} s   posted {progress.posted:,}   answered {progress.answered:,}   "
        f"delivered {progress.delivered:,}   confirmed {progress.confirmed:,}"
    )
