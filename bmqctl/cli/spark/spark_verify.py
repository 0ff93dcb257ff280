"""`bmqctl spark-verify`: an export against its manifest and its store."""

from __future__ import annotations

import json
from dataclasses import asdict
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
from bmqctl.common.render import (
    EXIT_FAULTS,
    Output,
    OutputFormat,
    print_values,
    refuse,
    until_reader_leaves,
    wanted_format,
)

if TYPE_CHECKING:
    from bmqctl.pipeline.export.verify import Verdict

__all__ = ["app"]

COMMAND = "spark-verify"
WIDTH_MIN = 120

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

EXAMPLES = """
Examples:

`bmqctl spark-verify /tmp/export`

`bmqctl spark-verify s3://bucket/bmq --store /var/bmq/storage --json`

`bmqctl spark-verify /tmp/export --no-store`

Exit codes: 0 everything is equal; 1 something differs, or a part of the store is damaged or missing, or Spark failed; 2
invalid request.
"""


@app.command(COMMAND, epilog=EXAMPLES)
@expanded
def spark_verify(
    export: Annotated[str, typer.Argument(help="The directory (or URI) of an export.", show_default=False)],
    store: Annotated[
        list[str] | None,
        typer.Option("--store", help="The store's current directory, if it has moved; repeatable.", show_default=False),
    ] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Check the export only, without the store.")] = False,
    output: Output = None,
    as_json: AsJson = False,
    *,
    spark: Spark,
) -> None:
    """Compare an export with its manifest, and with the store that it was made of.

    Every file must have the bytes (SHA-256) and the rows that were written, and Spark must read as many rows. The
    store, up to the last exported record, must have the same rows: each missing, added or different row is printed.
    Records that a rollover has since removed from the store are counted, but are not a difference.

    With --output json the result is one JSON value; with jsonl or csv each difference is a line.
    """
    spark.check(COMMAND)
    if store and no_store:
        refuse(COMMAND, "--store and --no-store contradict each other")
    wanted = wanted_format(output, as_json)
    with refusing(COMMAND):
        from bmqctl.pipeline.export.manifest import need_manifest
        from bmqctl.pipeline.export.output import open_output
        from bmqctl.pipeline.export.verify import VerifyRequest

        manifest = need_manifest(open_output(export))  # before Spark starts, which takes seconds
        verdict = run(
            VerifyRequest(export, tuple(store or ()), not no_store),
            spark.where(quick=True),
        )
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            _print(verdict, export)
        elif wanted is OutputFormat.JSON:
            print(json.dumps(_as_json(verdict), indent=2))
        else:
            print_values(map(asdict, verdict.differences), ("table", "where", "what"), wanted)
    if verdict.differences:
        raise typer.Exit(EXIT_FAULTS)
    end_with_account(COMMAND, (store or manifest.stores)[0], verdict.store)


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {"same": not verdict.differences, **asdict(verdict), "store": verdict.store.as_json()}


def _print(verdict: Verdict, export: str) -> None:
    from bmqctl.common.tables import ResultConsole, ResultTable

    console = ResultConsole()
    console.width = max(console.width, WIDTH_MIN)
    table = ResultTable(box=None, pad_edge=False)
    table.add_column("table")
    for title in ("files", "bytes", "rows", "rows in the store", "left the store", "different"):
        table.add_column(title, justify="right")
    for name, check in verdict.tables.items():
        in_store = "not checked" if check.in_store is None else f"{check.in_store:,}"
        counts = (f"{number:,}" for number in (check.files, check.bytes, check.rows))
        table.add_row(name, *counts, in_store, f"{check.left:,}", f"{check.different:,}")
    console.print(table)
    console.print()
    for difference in verdict.differences:
        where_ = f"{difference.table}: " if difference.table and difference.where != difference.table else ""
        console.print(f"{where_}{difference.where} {difference.what}", soft_wrap=True)
    if verdict.gone_on:
        console.print(
            f"The store has newer records in {', '.join(verdict.newer_in)}: --since-last exports them.", soft_wrap=True
        )
    if verdict.differences:
        console.print(f"{len(verdict.differences)} differences")
    elif verdict.store.is_sound:
        console.print(f"{export} is unchanged since it was written, and equals the store", soft_wrap=True)
    else:
        console.print(
            f"{export} is unchanged since it was written, and equals what is left of the store", soft_wrap=True
        )
