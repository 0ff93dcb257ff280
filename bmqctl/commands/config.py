"""`bmqctl config`: check and show the configurations of brokers, without starting one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bmqctl.commands.config_reading import BadConfig, findings_in, settings_of, summary_of
from bmqctl.harmless import one_line
from bmqctl.render import (
    EXIT_FAULTS,
    Column,
    Output,
    OutputFormat,
    ResultConsole,
    print_rows,
    refuse,
    until_reader_leaves,
)

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

_FINDINGS = [
    Column("kind", "kind"),
    Column("file", "file"),
    Column("place", "place"),
    Column("problem", "problem"),
    Column("remedy", "remedy"),
]
_SETTINGS = [Column("file", "file"), Column("name", "setting"), Column("value", "value"), Column("source", "source")]

ConfigPath = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="The folder of a BlazingMQ broker, with bmqbrkrcfg.json, clusters.json and domains/; or a file with "
        "properties of a RocketMQ broker.",
        show_default=False,
    ),
]


@app.callback()
def root() -> None:
    """Check and show the configuration of a broker of either system, without starting it."""


@app.command()
def validate(
    path: ConfigPath,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for notes, too.")] = False,
    output: Output = None,
) -> None:
    """Check a configuration as the broker reads it on this host, and each of its domains.

    A fault keeps the broker from starting, or a domain from being used. A note names a setting that has no effect, such
    as a misspelt one. By default each is a line of text.

    Examples:

        bmqctl config validate /etc/bmq

        bmqctl config validate --strict --output json broker.conf

    Exit codes: 0 the configuration can be used; 1 it has a fault; 2 there is none at this place.
    """
    _refuse_absent("config validate", path)
    found = findings_in(path)
    has_faults = any(each.is_fault for each in found)
    with until_reader_leaves():
        if output is not None:
            rows = ({"kind": "fault" if each.is_fault else "note", **each._asdict()} for each in found)
            keys = [column.key for column in _FINDINGS]
            print_rows(({key: row[key] for key in keys} for row in rows), _FINDINGS, output)
        else:
            console = ResultConsole(soft_wrap=True)
            for each in found:
                console.print(one_line(each.line))
            if not has_faults:
                console.print(f"{path}: valid: {summary_of(path)}")
    if has_faults or (strict and found):
        raise typer.Exit(EXIT_FAULTS)


@app.command()
def show(
    path: ConfigPath,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that the files have.")] = False,
    output: Output = None,
) -> None:
    """Show the settings in force with a configuration: those of its files, and the defaults of the others.

    Secrets are not shown. By default the output is a table.

    Examples:

        bmqctl config show /etc/bmq --changed

        bmqctl config show broker.conf --output csv

    Exit codes: 0; 2 if there is no configuration at this place, or it has a fault.
    """
    _refuse_absent("config show", path)
    try:
        found = settings_of(path)
    except BadConfig as fault:
        refuse("config show", str(fault))
    chosen = output or OutputFormat.TABLE
    rows = (each._asdict() for each in found if not changed or each.source == "file")
    if chosen is OutputFormat.TABLE:
        rows = ({**row, "value": _shown(row["value"])} for row in rows)
    with until_reader_leaves():
        print_rows(rows, _SETTINGS, chosen)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def _refuse_absent(command: str, path: Path) -> None:
    if not path.exists():
        refuse(command, f"{path}: no such file or folder")
