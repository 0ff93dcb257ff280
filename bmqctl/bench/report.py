"""A run's outcome for people and for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bmqctl.bench.coordinator import Outcome
from bmqctl.bench.histogram import Histogram

__all__ = ["as_json", "as_tables", "flattened"]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The report as `bmqctl bench --json` prints it.

    | key | what it holds |
    | --- | --- |
    | `plan` | the options of the run; `rate` 0 is as fast as possible |
    | `machine` | `python`, `cpus`, `client` (library and version) |
    | `counts` | messages `posted`, `acked`, `nacked`, `unanswered`, `delivered`, `confirmed`, `lost`, `duplicated`, \
`reordered`, `foreign` |
    | `nacks` | nacked messages by status |
    | `throughput_per_s` | `posted`, `acked`, `delivered`, `confirmed` messages/s, from the first message's time to \
the last of its kind |
    | `latency_us` | `end_to_end` (due to delivered) and `ack` (due to acked), each `count`, `min`, `mean`, `p50`, \
`p90`, `p99`, `p99_9`, `max` in microseconds |
    | `faults` | what broke, one clause each |
    | `interrupted` | true after Ctrl-C |
    | `clean` | true if nothing was lost, nacked, left unanswered or broke |
    """
    account = outcome.account
    return {
        "plan": outcome.plan.as_json(),
        "machine": {"python": platform.python_version(), "cpus": os.cpu_count(), "client": outcome.client},
        "counts": {name: getattr(account, name) for name in _COUNTS},
        "nacks": account.nacks,
        "throughput_per_s": {name: round(rate, 1) for name, rate in _rates(outcome).items()},
        "latency_us": {"end_to_end": account.latency.summary_us(), "ack": account.ack_latency.summary_us()},
        "faults": list(outcome.faults),
        "interrupted": outcome.interrupted,
        "clean": outcome.clean,
    }


def flattened(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report as one row; its keys are the paths of the JSON report, with dots."""
    return dict(_flattened("", report))


def _flattened(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    # The statuses of nacks differ from run to run, and are one column.
    if isinstance(value, dict) and path != "nacks.":
        for name, each in value.items():
            yield from _flattened(f"{path}{name}.", each)
    else:
        yield path[:-1], value


_COUNTS = (
    "posted",
    "acked",
    "nacked",
    "unanswered",
    "delivered",
    "confirmed",
    "lost",
    "duplicated",
    "reordered",
    "foreign",
)
_BAD = frozenset({"nacked", "unanswered", "lost"})
_WORTH_A_LOOK = frozenset({"duplicated", "reordered", "foreign"})


def _rates(outcome: Outcome) -> dict[str, float]:
    account = outcome.account
    return {
        "posted": outcome.rate(account.posted, account.last_post_ns),
        "acked": outcome.rate(account.acked, account.last_ack_ns),
        "delivered": outcome.rate(account.delivered, account.last_delivery_ns),
        "confirmed": outcome.rate(account.confirmed, account.last_delivery_ns),
    }


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def as_tables(outcome: Outcome) -> RenderableType:
    account, plan = outcome.account, outcome.plan
    pace = f"{plan.rate:,.0f} msg/s, open loop" if plan.rate else "as fast as possible"
    heading = (
        f"{plan.queue}\n{_plural(plan.all_producers, 'producer')}, {_plural(plan.all_consumers, 'consumer')}, "
        f"{plan.size:,} bytes, batch {plan.batch}, {pace}, {outcome.client}"
    )
    counts = Table()
    counts.add_column("messages")
    counts.add_column("count", justify="right")
    counts.add_column("per second", justify="right")
    rates = _rates(outcome)
    for name in _COUNTS:
        count = getattr(account, name)
        style = "red" if name in _BAD and count else "yellow" if name in _WORTH_A_LOOK and count else ""
        counts.add_row(name, f"{count:,}", f"{rates[name]:,.0f}" if name in rates else "", style=style)
    for status, count in account.nacks.items():
        counts.add_row(f"  {status}", f"{count:,}", "", style="red")
    parts: list[RenderableType] = [Text(heading), counts]
    histograms = {"end to end": account.latency, "ack": account.ack_latency}
    if any(len(histogram) for histogram in histograms.values()):
        parts.append(_latencies(histograms))
    parts += [Text(fault, style="red") for fault in outcome.faults]
    if outcome.interrupted:
        parts.append(Text("interrupted", style="yellow"))
    return Group(*parts)


def _latencies(histograms: dict[str, Histogram]) -> Table:
    table = Table()
    table.add_column("latency, ms")
    names = ("p50", "p90", "p99", "p99_9", "max")
    for name in names:
        table.add_column(name.replace("_", "."), justify="right")
    for label, histogram in histograms.items():
        if len(histogram):
            summary = histogram.summary_us()
            table.add_row(label, *(f"{summary[name] / 1e3:,.3f}" for name in names))
    return table
