"""The reports of `bmqctl bench`: its output, and the files beside it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from bmqctl.bench.schedule import SECOND_NS
from bmqctl.common.installed import installing
from bmqctl.common.refusal import refuse
from bmqctl.common.render import Column, OutputFormat, print_rows, print_values, until_reader_leaves

if TYPE_CHECKING:
    from bmqctl.bench.coordinator import Outcome
    from bmqctl.bench.hdr import Interval
    from bmqctl.bench.histogram import Histogram
    from bmqctl.bench.plots import Curve
    from bmqctl.bench.scenarios import Scenario
    from bmqctl.bench.series import Run

__all__ = ["Files", "check_files", "print_report", "print_scenarios", "refuse_bench"]

SERIES_WIDTH = 100
KINDS = ("end-to-end", "ack")
SCENARIO_COLUMNS = [
    Column("name", "scenario", 30),
    Column("load", "load", 18),
    Column("domain", "domain", 26),
    Column("published_rate", "published messages/s", right=True),
]


class Files(NamedTuple):
    """Wanted beside the report: a folder of histograms, a plot in the terminal, and a picture."""

    histograms: Path | None
    plot: bool
    plot_out: Path | None


def refuse_bench(reason: str) -> NoReturn:
    refuse("bench", reason)


def check_files(files: Files) -> None:
    """Check, before any run, that the files can be made. Raises `typer.Exit`."""
    from bmqctl.bench.plots import PICTURE_SUFFIXES

    for wanted, option, package in (
        (files.plot, "--plot", "plotext"),
        (files.plot_out is not None, "--plot-out", "matplotlib"),
    ):
        try:
            if wanted:
                import_module(package)
        except ImportError:
            refuse_bench(f"{option} needs {package}, of the extra `plots`: {installing('plots')}")
    if files.plot_out is not None and files.plot_out.suffix not in PICTURE_SUFFIXES:
        refuse_bench(f"--plot-out {files.plot_out}: the name must end with {' or '.join(PICTURE_SUFFIXES)}")
    if files.plot_out is not None and not files.plot_out.parent.is_dir():
        refuse_bench(f"--plot-out {files.plot_out}: there is no folder {files.plot_out.parent}")
    if files.histograms is not None:
        try:
            files.histograms.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            refuse_bench(f"--histograms {files.histograms}: {fault.strerror or fault}")


def print_scenarios(scenarios: Iterable[Scenario], wanted: OutputFormat) -> None:
    rows = [
        {
            "name": scenario.name,
            "load": scenario.notation,
            "domain": scenario.domain,
            "published_rate": scenario.published_rate,
        }
        for scenario in scenarios
    ]
    with until_reader_leaves():
        print_rows(rows, SCENARIO_COLUMNS, wanted)


def print_report(runs: Sequence[Run], wanted: OutputFormat, files: Files, *, is_series: bool) -> None:
    from bmqctl.bench.report import as_json, as_tables, flattened
    from bmqctl.bench.series import run_json, series_json, series_tables
    from bmqctl.common.tables import ResultConsole

    if files.histograms is not None:
        _write_histograms(runs, files.histograms)
    with until_reader_leaves():
        match wanted:
            case OutputFormat.TABLE:
                console = ResultConsole()
                # A row on two lines is hard to read, and a pipe has no width.
                console.width = max(console.width, SERIES_WIDTH if is_series else 0)
                console.print(series_tables(runs) if is_series else as_tables(runs[0].outcome))
            case OutputFormat.JSON:
                print(json.dumps(series_json(runs) if is_series else as_json(runs[0].outcome), indent=2))
            case _:
                rows = [flattened(run_json(run) if is_series else as_json(run.outcome)) for run in runs]
                print_values(rows, rows[0], wanted)
        if files.plot:
            _draw(runs)
    if files.plot_out is not None:
        _save(runs, files.plot_out)


def _name(run: Run) -> str:
    """Return a name of a run, unique in its series, that can be a file's."""
    return "-".join(part for part in (run.scenario or "bench", run.broker, str(run.round)) if part)


def _write_histograms(runs: Sequence[Run], folder: Path) -> None:
    from bmqctl.bench.hdr import log_lines, percentile_lines

    for run in runs:
        account = run.outcome.account
        totals = dict(zip(KINDS, (account.latency, account.ack_latency), strict=True))
        files = {f"{_name(run)}.hlog": log_lines(_intervals(run.outcome), *_log_head(run))}
        files |= {f"{_name(run)}.{kind}.hgrm": percentile_lines(totals[kind]) for kind in KINDS}
        for name, lines in files.items():
            try:
                (folder / name).write_text("".join(f"{line}\n" for line in lines))
            except OSError as fault:
                refuse_bench(f"--histograms {folder / name}: {fault.strerror or fault}")


def _log_head(run: Run) -> tuple[float, str]:
    """Return when a run began, in seconds since 1970, and the comment of its log."""
    began_s = time.time() - (time.monotonic_ns() - run.outcome.start_ns) / SECOND_NS
    return began_s, f"bmqctl bench, {_name(run)}: latencies in nanoseconds"


def _intervals(outcome: Outcome) -> Iterator[Interval]:
    from bmqctl.bench.hdr import Interval

    account = outcome.account
    parts = [
        Interval(max(start, 0.0), start + 1 - max(start, 0.0), kind, histogram)
        for kind, intervals in zip(KINDS, (account.intervals, account.ack_intervals), strict=True)
        for start, histogram in intervals.since(outcome.start_ns)
    ]
    # Readers expect the intervals in the order of time.
    yield from sorted(parts, key=lambda part: (part.start_s, part.tag))


def _draw(runs: Sequence[Run]) -> None:
    from bmqctl.bench.plots import draw_plot
    from bmqctl.common.tables import ResultConsole

    if curves := _curves(runs):
        console = ResultConsole()
        colours = console.is_terminal and not console.no_color
        sys.stdout.write(draw_plot(curves, console.width, colours=colours) + "\n")


def _save(runs: Sequence[Run], path: Path) -> None:
    from bmqctl.bench.plots import save_plot

    if not (curves := _curves(runs)):
        refuse_bench(f"--plot-out {path}: there are no latencies to plot")
    try:
        save_plot(curves, path, "bmqctl bench")
    except OSError as fault:
        refuse_bench(f"--plot-out {path}: {fault.strerror or fault}")


def _curves(runs: Sequence[Run]) -> list[Curve]:
    """Return the latencies of each scenario and broker, from end to end and of the acks; rounds are added up."""
    from bmqctl.bench.plots import Curve

    names = len({_series(run) for run in runs}) > 1
    curves = []
    for (scenario, broker), rounds in groupby(sorted(runs, key=_series), key=_series):
        accounts = [(run.outcome.account, run.outcome.start_ns) for run in rounds]
        words = [word for word in (scenario, broker) if word]
        of = f"{', '.join(words)}: " if names else ""
        kinds = {
            "end to end": [(account.latency, account.intervals.since(start)) for account, start in accounts],
            "ack": [(account.ack_latency, account.ack_intervals.since(start)) for account, start in accounts],
        }
        for kind, parts in kinds.items():
            curves.append(Curve(f"{of}{kind}", *_added(parts)))
    return [curve for curve in curves if len(curve.latency)]


def _series(run: Run) -> tuple[str, str]:
    return run.scenario, run.broker


def _added(
    parts: Sequence[tuple[Histogram, list[tuple[float, Histogram]]]],
) -> tuple[Histogram, list[tuple[float, Histogram]]]:
    """Add up the histograms of several runs, and those of each second after their starts."""
    from bmqctl.bench.histogram import Histogram

    total = Histogram()
    seconds: dict[int, Histogram] = {}
    for histogram, intervals in parts:
        total.merge(histogram)
        for start, each in intervals:
            seconds.setdefault(max(round(start), 0), Histogram()).merge(each)
    return total, [(float(second), histogram) for second, histogram in sorted(seconds.items())]
