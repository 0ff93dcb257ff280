"""`bmqctl spark-export`: a store as Parquet tables."""

from __future__ import annotations

import json
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table

from bmqctl.render import ResultConsole, refuse

if TYPE_CHECKING:
    from bmqctl.pipeline.export import Plan, Summary

__all__ = ["app"]

COMMAND = "spark-export"
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
WIDTH_MIN = 120  # what the table needs; on a narrower terminal its lines wrap

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")

EXAMPLES = """
Examples:

`bmqctl spark-export /var/bmq/storage --out /tmp/export`

`bmqctl spark-export storage --out export --overwrite --json | jq .messages`

`pyspark> spark.read.parquet("export/messages").where("outcome = 'outstanding'").groupBy("queue_uri").count()`
"""


@app.command(COMMAND, epilog=EXAMPLES)
def spark_export(
    storage: Annotated[
        Path, typer.Argument(help="The directory with the store's bmq_*.bmq_journal files.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Directory for the tables; made if need be.", show_default=False)],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the tables of an earlier export.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores to use; all if not given.", show_default=False)
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory for Spark: 512m, 4g.")] = "2g",
    records_per_task: Annotated[int, typer.Option(min=1, help="Journal records that one task reads.")] = 250_000,
) -> None:
    """Write the journals and messages of a store to Parquet, with PySpark.

    OUT/records has one row per journal record; OUT/messages one per message: queue, GUID, arrival, sizes, and what
    became of it (outstanding, partially_confirmed, confirmed, expired, no_quorum, purged). Runs on this machine's
    cores; needs no installed Java. Of several file sets of a partition, it reads the one that a broker would recover.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        what = "the single binary has no PySpark" if getattr(sys, "frozen", False) else "needs PySpark and PyArrow"
        refuse(COMMAND, f"{what}: pip install 'bmqctl[spark]'")
    if not re.fullmatch(r"[1-9]\d*[kmgtKMGT]", memory):
        refuse(COMMAND, f"--memory {memory}: expected a number and k, m, g or t")
    from bmqctl.pipeline.export import OutputExists, plan_export
    from bmqctl.pipeline.java import NoFitJava
    from bmqctl.pipeline.stores import StoreError

    started = monotonic()
    try:
        plan = plan_export(storage.absolute(), out.absolute(), overwrite=overwrite)
        summary = _run(plan, cores, memory, records_per_task)
    except (StoreError, NoFitJava) as fault:
        refuse(COMMAND, str(fault))
    except OutputExists as fault:
        refuse(COMMAND, f"{fault} exists; --overwrite replaces it, or choose another --out")
    except OSError as fault:
        refuse(COMMAND, f"{fault.filename or out}: {fault.strerror}")
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        print(json.dumps(_as_json(plan, summary, monotonic() - started), indent=2))
    else:
        _print_tables(plan, summary)
    if summary.invalid:
        typer.echo(
            f"bmqctl {COMMAND}: {summary.invalid} records are damaged (type INVALID); "
            f"`bmqctl journal validate {storage}` shows why",
            err=True,
        )


def _run(plan: Plan, cores: int | None, memory: str, records_per_task: int) -> Summary:
    from bmqctl.pipeline.export import SparkFailed, run_export

    console = Console(stderr=True)
    live: AbstractContextManager[Status | None] = (
        console.status("starting Spark") if console.is_terminal else nullcontext()
    )
    with live as status:

        def show(step: str) -> None:
            if status is not None:
                status.update(step)

        try:
            return run_export(plan, cores=cores, memory=memory, records_per_partition=records_per_task, on_step=show)
        except SparkFailed as fault:
            typer.echo(f"bmqctl {COMMAND}: Spark failed: {fault}", err=True)
            raise typer.Exit(EXIT_FAILED) from None


def _as_json(plan: Plan, summary: Summary, elapsed_s: float) -> dict[str, object]:
    outcomes: dict[str, int] = {}
    for queue in summary.queues:
        for outcome, count in queue.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return {
        "storage": str(plan.store),
        "tables": [str(table) for table in plan.tables],
        "journals": [str(partition.journal) for partition in plan.partitions],
        "records": summary.records,
        "messages": outcomes,
        "queues": [
            {"uri": queue.uri, "messages": queue.outcomes, "payload_bytes": queue.payload_bytes}
            for queue in summary.queues
        ],
        "elapsed_s": round(elapsed_s, 3),
    }


def _print_tables(plan: Plan, summary: Summary) -> None:
    from bmqctl.pipeline.lifecycle import Outcome

    seen = [outcome for outcome in Outcome if any(outcome in queue.outcomes for queue in summary.queues)]
    table = Table(box=None, pad_edge=False)
    table.add_column("queue", overflow="fold")
    for title in ("messages", *(outcome.replace("_", " ") for outcome in seen), "payload bytes"):
        table.add_column(title, justify="right")
    for queue in summary.queues:
        counts = [queue.messages, *(queue.outcomes.get(outcome, 0) for outcome in seen), queue.payload_bytes]
        table.add_row(queue.uri, *(f"{count:,}" for count in counts))
    console = ResultConsole()
    console.width = max(console.width, WIDTH_MIN)
    console.print(table)
    records, messages = plan.tables
    by_type = ", ".join(f"{count:,} {kind}" for kind, count in summary.records.items())
    console.print(f"\n{records}: {sum(summary.records.values()):,} rows ({by_type})", soft_wrap=True)
    console.print(f"{messages}: {sum(queue.messages for queue in summary.queues):,} rows", soft_wrap=True)
