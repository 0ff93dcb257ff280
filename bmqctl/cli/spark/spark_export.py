"""`bmqctl spark-export`: a store as tables, all of it or what is new."""

from __future__ import annotations

import json
from enum import StrEnum
from time import monotonic
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

if TYPE_CHECKING:
    from bmqctl.pipeline.export.export import ExportPlan, Summary

__all__ = ["app"]

COMMAND = "spark-export"
_TABLE_KEYS = ("table", "path", "rows", "added", "files", "bytes", "checksum")
WIDTH_MIN = 120  # the table's width; on a narrower terminal its lines wrap


class Format(StrEnum):
    """The same as `bmqctl.pipeline.export.table_files.FileFormat`, without an import of PyArrow for the help."""

    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    CSV = "csv"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

EXAMPLES = """
Examples:

`bmqctl spark-export /var/bmq/storage --out /tmp/export`

`bmqctl spark-export node*/storage --out /data/bmq --since-last --format delta`

`bmqctl spark-export storage --out s3://bucket/bmq --master spark://host:7077`

`bmqctl spark-export storage --out export --overwrite --yes --json | jq .messages`

`bmqctl spark-export storage --out export --overwrite --dry-run`

`pyspark> spark.read.parquet("export/messages").where("outcome = 'outstanding'").groupBy("queue_uri").count()`

Exit codes: 0 done; 1 done, but a part of the store is damaged or missing, or Spark failed; 2 invalid request, or you
do not say yes.
"""


@app.command(COMMAND, epilog=EXAMPLES)
@expanded
def spark_export(
    storage: Annotated[
        list[str],
        typer.Argument(
            help="Directories with bmq_*.bmq_journal files, or RocketMQ's stores, or patterns; replicas are merged.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str, typer.Option(help="Directory for the tables, or its URI (s3, gs, abfs, hdfs).", show_default=False)
    ],
    file_format: Annotated[Format, typer.Option("--format", help="Format of the tables.")] = Format.PARQUET,
    tables: Annotated[
        str | None,
        typer.Option(
            help="Tables to export, of records, messages, confirms; by default the first two. "
            "Of RocketMQ's stores messages, which is the default, and payloads.",
            show_default=False,
        ),
    ] = None,
    since_last: Annotated[
        bool, typer.Option("--since-last", help="Add the records since the previous export; the first exports all.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the tables of an earlier export.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be written and replaced.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before tables are replaced.")] = False,
    output: Output = None,
    as_json: AsJson = False,
    *,
    spark: Spark,
    records_per_task: Annotated[int, typer.Option(min=1, help="Journal records that one task reads.")] = 250_000,
) -> None:
    """Write the records and messages of a store to tables, with PySpark; of RocketMQ's stores messages and payloads.

    OUT/records has one row per journal record; OUT/messages one per message: queue, GUID, arrival, sizes and outcome
    (outstanding, partially_confirmed, confirmed, expired, no_quorum, purged); OUT/confirms one per confirm of an app,
    with its latency. They are partitioned by date and domain, RocketMQ's by date. OUT/_bmqctl/manifest.json records
    the position in the store up to which it was read, and the rows and checksum of each file, for
    `bmqctl spark-verify`.

    With --since-last, new records are added, and messages that changed replace their rows; a message that left the
    store between two exports is `removed`. A run that is killed is undone or finished by the next one. Java need not be
    installed.

    With --overwrite the command asks before it deletes tables that are there. With --output json the account is one
    JSON value; with jsonl or csv each table is a line.
    """
    from bmqctl.cli.spark.spark_plan import ask_to_replace, show_plan

    spark.check(COMMAND)
    wanted = tuple(name.strip() for name in tables.split(",")) if tables is not None else ()
    chosen = wanted_format(output, as_json)
    if overwrite and since_last:
        refuse(COMMAND, "--overwrite and --since-last contradict each other")
    from bmqctl.pipeline.export.export import ExportRequest, OtherExport, OutputExists, plan_export
    from bmqctl.pipeline.export.table_files import FileFormat

    started = monotonic()
    with refusing(COMMAND):
        request = ExportRequest(
            stores=tuple(_absolute(path) for path in storage),
            out=out,
            format=FileFormat(file_format.value),
            tables=tuple(dict.fromkeys(wanted)),
            overwrite=overwrite,
            since_last=since_last,
            records_per_task=records_per_task,
        )
        try:
            plan = plan_export(request)
            if dry_run:
                show_plan(plan, chosen)
                return
            if not yes:
                ask_to_replace(COMMAND, plan)
            summary = run(plan, spark.where(quick=True))
        except OutputExists as fault:
            refuse(COMMAND, f"{fault} exists; --overwrite replaces it, or choose another --out")
        except OtherExport as fault:
            refuse(COMMAND, str(fault))
    with until_reader_leaves():
        if chosen is OutputFormat.TABLE:
            _print_tables(plan, summary)
        elif chosen is OutputFormat.JSON:
            print(json.dumps(_as_json(plan, summary, monotonic() - started), indent=2))
        else:
            rows = [{"table": name, **facts} for name, facts in _table_facts(plan, summary).items()]
            print_values(rows, _TABLE_KEYS, chosen)
    if summary.run.missed:
        what = "bytes of logs" if summary.manifest.brokers else "records"
        typer.echo(
            f"bmqctl {COMMAND}: {summary.run.missed:,} {what} since the last export are no longer in the store "
            f"({'deleted' if summary.manifest.brokers else 'rolled over'}), or cannot be read",
            err=True,
        )
    end_with_account(COMMAND, storage[0], summary.account)


def _absolute(path: str) -> str:
    """Return the path of a store for the manifest, valid from any folder."""
    from pathlib import Path

    return path if "://" in path else str(Path(path).absolute())


def _as_json(plan: ExportPlan, summary: Summary, elapsed_s: float) -> dict[str, object]:
    outcomes: dict[str, int] = {}
    for queue in summary.queues:
        for outcome, count in queue.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return {
        "storage": list(plan.request.stores),
        "format": summary.manifest.format,
        "run": summary.run.number,
        "journals": list(plan.journals.values()),
        "tables": _table_facts(plan, summary),
        "records": summary.records,
        "messages": outcomes,
        "replaced": summary.run.replaced,
        "missed": summary.run.missed,
        "damaged": summary.account.damaged,
        "account": summary.account.as_json(),
        "queues": [
            {"uri": queue.uri, "messages": queue.outcomes, "payload_bytes": queue.payload_bytes}
            for queue in summary.queues
        ],
        "elapsed_s": round(elapsed_s, 3),
    }


def _table_facts(plan: ExportPlan, summary: Summary) -> dict[str, dict[str, object]]:
    return {
        name: {
            "path": plan.output.url(name),
            "rows": table.rows,
            "added": summary.run.added[name],
            "files": len(table.files),
            "bytes": table.bytes,
            "checksum": f"{table.checksum:016x}",
        }
        for name, table in summary.manifest.tables.items()
    }


def _print_tables(plan: ExportPlan, summary: Summary) -> None:
    from bmqctl.common.tables import ResultConsole, ResultTable
    from formats.bmq.stores.outcomes import MessageOutcome

    console = ResultConsole()
    console.width = max(console.width, WIDTH_MIN)
    seen = [outcome for outcome in MessageOutcome if any(outcome in queue.outcomes for queue in summary.queues)]
    if summary.queues:
        table = ResultTable(box=None, pad_edge=False)
        table.add_column("queue", overflow="fold")
        for title in ("messages", *(outcome.replace("_", " ") for outcome in seen), "payload bytes"):
            table.add_column(title, justify="right")
        for queue in summary.queues:
            counts = [queue.messages, *(queue.outcomes.get(outcome, 0) for outcome in seen), queue.payload_bytes]
            table.add_row(queue.uri, *(f"{count:,}" for count in counts))
        console.print(table)
        console.print()
    for name, written in summary.manifest.tables.items():
        by_type = ", ".join(f"{count:,} {kind}" for kind, count in summary.records.items()) if name == "records" else ""
        text = f"{plan.output.url(name)}: {written.rows:,} rows in {len(written.files)} files"
        if plan.request.since_last:
            text += f", {summary.run.added[name]:,} of them new"
            if name == "messages" and summary.run.replaced:
                text += f", {summary.run.replaced:,} changed"
        console.print(text + (f" ({by_type})" if by_type else ""), soft_wrap=True)
