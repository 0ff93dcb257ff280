"""Several runs in a series: scenarios, and two brokers alternately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table

from bmqctl.bench.coordinator import Outcome
from bmqctl.bench.report import as_json

__all__ = ["Comparison", "Run", "comparisons", "series_json", "series_tables", "turns"]

ONLY, FIRST, SECOND = "", "first", "versus"


class Run(NamedTuple):
    """One run of a series. `scenario` is its name, or empty; `broker` is `first`, `versus`, or, for one, empty."""

    scenario: str
    round: int
    broker: str
    outcome: Outcome


class SeriesFigure(NamedTuple):
    """A figure of a run: its path in the JSON report, its name for people, its unit, and its better end."""

    path: tuple[str, ...]
    name: str
    scale: float
    is_better_when_high: bool


FIGURES = (
    SeriesFigure(("throughput_per_s", "acked"), "acked, messages/s", 1, True),
    SeriesFigure(("throughput_per_s", "delivered"), "delivered, messages/s", 1, True),
    SeriesFigure(("latency_us", "end_to_end", "p50"), "end to end p50, ms", 1e-3, False),
    SeriesFigure(("latency_us", "end_to_end", "p90"), "end to end p90, ms", 1e-3, False),
    SeriesFigure(("latency_us", "end_to_end", "p99"), "end to end p99, ms", 1e-3, False),
    SeriesFigure(("latency_us", "end_to_end", "max"), "end to end max, ms", 1e-3, False),
    SeriesFigure(("latency_us", "ack", "p50"), "ack p50, ms", 1e-3, False),
    SeriesFigure(("latency_us", "ack", "p99"), "ack p99, ms", 1e-3, False),
)


class Comparison(NamedTuple):
    """A figure of both brokers in one scenario, with a value for each round."""

    scenario: str
    figure: SeriesFigure
    first: Sequence[float]
    versus: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """The factor by which the first broker was better in each round; below 1 the other one was better.

        Omits rounds without a figure, such as a latency without messages.
        """
        pairs = [pair for pair in zip(self.first, self.versus, strict=True) if all(pair)]
        return [one / two if self.figure.is_better_when_high else two / one for one, two in pairs]


def turns(rounds: int, brokers: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the runs of a series, round by round; the brokers take turns to begin."""
    for number in range(1, rounds + 1):
        for broker in brokers if number % 2 else reversed(brokers):
            yield number, broker


def _value(run: Run, figure: SeriesFigure) -> float:
    found: Any = as_json(run.outcome)
    for key in figure.path:
        found = found[key]
    return float(found) * figure.scale


def comparisons(runs: Sequence[Run]) -> list[Comparison]:
    found = []
    for scenario in dict.fromkeys(run.scenario for run in runs):
        by_round = {(run.round, run.broker): run for run in runs if run.scenario == scenario}
        pairs = [
            (one, two)
            for (number, broker), one in sorted(by_round.items(), key=lambda item: item[0])
            if broker == FIRST and (two := by_round.get((number, SECOND))) is not None
        ]
        for figure in FIGURES if pairs else ():
            values = [tuple(_value(run, figure) for run in pair) for pair in pairs]
            found.append(Comparison(scenario, figure, [each[0] for each in values], [each[1] for each in values]))
    return found


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": median(values), "min": min(values), "max": max(values)}


def series_json(runs: Sequence[Run]) -> dict[str, Any]:
    """The report of a series as JSON.

    | key | meaning |
    | --- | --- |
    | `runs` | a report for each run, as that of a single one, with `scenario`, `round` and `broker` |
    | `comparisons` | for each scenario and figure the values of both brokers by round, and `ratio`: the factor by \
which the first was better, as median, min and max over the rounds |
    """
    return {
        "runs": [run_json(run) for run in runs],
        "comparisons": [
            {
                "scenario": each.scenario,
                "figure": ".".join(each.figure.path),
                "first": [value / each.figure.scale for value in each.first],
                "versus": [value / each.figure.scale for value in each.versus],
                "ratio": _spread(each.ratios),
            }
            for each in comparisons(runs)
        ],
    }


def run_json(run: Run) -> dict[str, Any]:
    return {"scenario": run.scenario, "round": run.round, "broker": run.broker, **as_json(run.outcome)}


def series_tables(runs: Sequence[Run]) -> RenderableType:
    """The report of a series as rich tables: a row for each run and, for two brokers, their ratios."""
    parts: list[RenderableType] = [_runs_table(runs)]
    for scenario, found in groupby(comparisons(runs), lambda each: each.scenario):
        parts.append(_ratio_table(scenario, list(found)))
    return Group(*parts)


def _runs_table(runs: Sequence[Run]) -> Table:
    table = Table(box=None, pad_edge=False)
    is_versus = any(run.broker == SECOND for run in runs)
    shown = FIGURES[:5]
    for heading in ("scenario", "round", *(["broker"] if is_versus else [])):
        table.add_column(heading, no_wrap=True)
    for figure in shown:
        table.add_column(figure.name.replace(", ", "\n").replace("end to end ", ""), justify="right")
    table.add_column("lost", justify="right")
    for run in runs:
        account = run.outcome.account
        cells = [run.scenario, str(run.round), *([run.broker] if is_versus else [])]
        cells += [_number(_value(run, figure)) for figure in shown]
        faults = "; ".join(run.outcome.faults)
        cells.append(f"{account.lost:,}{'; ' if faults else ''}{faults}")
        table.add_row(*cells, style="" if run.outcome.clean else "red")
    return table


def _ratio_table(scenario: str, found: Sequence[Comparison]) -> Table:
    title = f"\n{scenario + ', ' if scenario else ''}median of the rounds (min to max)"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for heading in ("", FIRST, SECOND, "times as good"):
        table.add_column(heading, justify="right" if heading else "left")
    for each in found:
        ratios = _shown(each.ratios) if each.ratios else ""
        table.add_row(each.figure.name, _shown(each.first), _shown(each.versus), ratios)
    return table


def _shown(values: Sequence[float]) -> str:
    return f"{_number(median(values))} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
