"""`bmqctl spark-report`: report the outcomes of a store's messages, in the terminal and as a page."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.cli.families import expanded
from bmqctl.cli.spark.spark_common import (
    AsJson,
    Spark,
    end_with_account,
    refusing,
    run,
)
from bmqctl.common.render import Output, OutputFormat, print_values, refuse, until_reader_leaves, wanted_format
from bmqctl.stores.blazingmq.read.account import Account

if TYPE_CHECKING:
    from bmqctl.common.tables import ResultTable
    from bmqctl.pipeline.report.log_report import LogReport
    from bmqctl.pipeline.report.report_model import Latency, Report

__all__ = ["app"]

COMMAND = "spark-report"
SMALL_RECORDS = 200_000
WIDTH_MIN = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

EXAMPLES = """
Examples:

`bmqctl spark-report /var/bmq/storage`

`bmqctl spark-report node*/storage --html report.html`

`bmqctl spark-report --export /data/bmq --json | jq '.apps[0]'`

Exit codes: 0 done; 1 done, but a part of the store is damaged or missing, or Spark failed; 2 invalid request (no
messages, no store).
"""


@app.command(COMMAND, epilog=EXAMPLES)
@expanded
def spark_report(
    storage: Annotated[
        list[str] | None,
        typer.Argument(
            help="Directories with bmq_*.bmq_journal files, or RocketMQ's stores, or patterns.", show_default=False
        ),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", help="Report on an export instead, with its tables messages and confirms.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write the report to this HTML file.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of queues and apps to show.")] = 10,
    output: Output = None,
    as_json: AsJson = False,
    *,
    spark: Spark,
) -> None:
    """Report the outcomes of the messages of a store: latency, backlog, throughput, expired and rejected messages.

    Of RocketMQ's stores: hottest topics and keys, lag of groups over time, retries and dead letters.

    Messages are joined with the confirms of each app; percentiles are exact, to the second that the files record. The
    HTML page contains its plots: it can be sent by mail, and opened without a network.

    With --output json the report is one JSON value; with jsonl or csv each queue, or topic, is a line.
    """
    spark.check(COMMAND)
    wanted = wanted_format(output, as_json)
    if bool(storage) == (export is not None):
        refuse(COMMAND, "name either directories of a store, or --export DIRECTORY")
    if html is not None and not html.absolute().parent.is_dir():
        refuse(COMMAND, f"--html {html}: no such directory")
    with refusing(COMMAND):
        from bmqctl.pipeline.export.manifest import need_manifest
        from bmqctl.pipeline.export.output import open_output
        from bmqctl.pipeline.report.log_report import LogReportRequest, is_of_logs
        from bmqctl.pipeline.report.report import NothingToReport, ReportRequest

        if html is not None:
            from bmqctl.pipeline.report.report_page import (
                report_page,  # needs a library for plots
            )
        if export is not None:
            need_manifest(open_output(export))  # before Spark starts, which takes seconds
        request = ReportRequest((export,) if export is not None else tuple(storage or ()), export is not None, top)
        place = spark.where(quick=_is_small(storage))
        try:
            if is_of_logs(request):
                logs = run(LogReportRequest(request), place)
                _report_logs(logs, top, html, wanted)
                end_with_account(COMMAND, request.sources[0], Account(**logs.account))
                return
            report = run(request, place)
        except NothingToReport as fault:
            refuse(COMMAND, str(fault))
        if html is not None:
            html.write_text(report_page(report), encoding="utf-8")
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            _print(report, top)
        else:
            _print_values(report, wanted)
    if html is not None:
        typer.echo(f"bmqctl {COMMAND}: {html} written", err=True)
    end_with_account(COMMAND, request.sources[0], Account(**report.account))


def _is_small(storage: list[str] | None) -> bool:
    """Return True if few records are to be read. Raises StoreError if the store cannot be read."""
    if not storage:
        return False
    from bmqctl.pipeline.export.export import table_options
    from bmqctl.pipeline.reading import tables_of

    extents = tables_of(storage).extents(table_options(storage, "records"))
    return sum(part.record_count for part in extents) < SMALL_RECORDS


def _moment(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"


def _seconds(latency: Latency | None, *names: str) -> list[str]:
    return [f"{getattr(latency, name):,} s" if latency is not None else "" for name in names]


def _table(title: str, *columns: str) -> ResultTable:
    from bmqctl.common.tables import ResultTable

    first, *others = columns
    table = ResultTable(title=title, box=None, pad_edge=False, title_justify="left", title_style="bold")
    table.add_column(first, overflow="fold")
    for column in others:
        table.add_column(column, justify="right")
    return table


def _print_values(report: Report | LogReport, wanted: OutputFormat) -> None:
    from bmqctl.pipeline.report.log_report import LogReport, TopicTraffic
    from bmqctl.pipeline.report.report_model import QueueReport

    if wanted is OutputFormat.JSON:
        print(json.dumps(report.as_json(), indent=2))
        return
    is_of_logs = isinstance(report, LogReport)
    rows = report.as_json()["topics" if is_of_logs else "queues"]
    print_values(rows, [field.name for field in fields(TopicTraffic if is_of_logs else QueueReport)], wanted)


def _report_logs(report: LogReport, top: int, html: Path | None, wanted: OutputFormat) -> None:
    if html is not None:
        from bmqctl.pipeline.report.log_report_page import log_report_page  # needs a library for plots

        html.write_text(log_report_page(report), encoding="utf-8")
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            _print_logs(report, top)
        else:
            _print_values(report, wanted)
    if html is not None:
        typer.echo(f"bmqctl {COMMAND}: {html} written", err=True)


def _print_logs(report: LogReport, top: int) -> None:
    from bmqctl.common.tables import ResultConsole

    console = ResultConsole()
    console.width = max(console.width, WIDTH_MIN)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.kinds.items())
    console.print(f"{_moment(report.from_s)} to {_moment(report.to_s)} UTC: {report.messages:,} messages ({kinds})")
    console.print()
    topics = _table("Hottest topics", "topic", "kind", "messages", "body bytes", "log bytes", "peak per s")
    topics.columns[1].justify = "left"
    for topic in report.topics[:top]:
        numbers = (topic.messages, topic.body_bytes, topic.log_bytes)
        peak = f"{topic.peak_per_s:,.1f}"
        topics.add_row(topic.topic, topic.kind, *(f"{number:,}" for number in numbers), peak)
    keys = _table("Hottest keys", "key", "topic", "messages")
    keys.columns[1].justify = "left"
    for key in report.keys[:top]:
        keys.add_row(key.key, key.topic, f"{key.messages:,}")
    groups = _table("Groups with most lag", "group", "topic", "queues", "lag", "oldest waits")
    groups.columns[1].justify = "left"
    for group in report.groups[:top]:
        oldest = "" if group.oldest_s is None else f"{group.oldest_s:,} s"
        groups.add_row(group.group, group.topic, f"{group.queues:,}", f"{group.lag:,}", oldest)
    retries = _table("Retries and dead letters", "group", "sent back", "by times", "dead letters")
    for each in report.retries[:top]:
        by_times = ", ".join(f"{times}: {count:,}" for times, count in each.by_times.items())
        retries.add_row(each.group, f"{each.retried:,}", by_times, f"{each.dead:,}")
    for table in (topics, keys, groups, retries):
        if table.row_count:
            console.print(table)
            console.print()
    for note in report.notes:
        console.print(note, style="dim", soft_wrap=True)


def _print(report: Report, top: int) -> None:
    from bmqctl.common.tables import ResultConsole

    console = ResultConsole()
    console.width = max(console.width, WIDTH_MIN)
    outcomes = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.outcomes.items())
    console.print(f"{_moment(report.from_s)} to {_moment(report.to_s)} UTC: {report.messages:,} messages ({outcomes})")
    console.print()
    queues = _table(
        "Hottest queues", "queue", "messages", "payload bytes", "peak per s", "backlog", "most", "oldest waits"
    )
    for queue in report.queues[:top]:
        oldest = "" if queue.oldest_pending_s is None else f"{queue.oldest_pending_s:,} s"
        numbers = [f"{queue.messages:,}", f"{queue.payload_bytes:,}", f"{queue.peak_per_s:,.1f}"]
        queues.add_row(queue.queue, *numbers, f"{queue.backlog:,}", f"{queue.backlog_max:,}", oldest)
    console.print(queues)
    console.print()
    apps = _table(
        "Slowest apps", "app", "queue", "confirmed", "rejected", "pending", "50 %", "90 %", "99 %", "99.9 %", "most"
    )
    apps.columns[1].justify = "left"
    for each in report.apps[:top]:
        counts = [f"{each.confirmed:,}", f"{each.rejected:,}", f"{each.pending:,}"]
        percentiles = _seconds(each.latency, "p50_s", "p90_s", "p99_s", "p999_s", "max_s")
        apps.add_row(each.app, each.queue, *counts, *percentiles)
    console.print(apps)
    console.print()
    sizes = _table("Compression", "queue", "algorithm", "messages", "posted bytes", "stored bytes", "saved")
    for use in report.compression[:top]:
        saved = f"{100 - 100 * use.stored_bytes / use.posted_bytes:.1f} %" if use.posted_bytes else ""
        numbers = [f"{use.messages:,}", f"{use.posted_bytes:,}", f"{use.stored_bytes:,}", saved]
        sizes.add_row(use.queue, use.algorithm, *numbers)
    console.print(sizes)
    console.print()
    for note in report.notes:
        console.print(note, style="dim", soft_wrap=True)
