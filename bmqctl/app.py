"""The command line's root: which commands there are, and how each is loaded.

A command's module is imported when the command runs, not before: `bmqctl journal dump` must start without trio,
pydantic or Spark.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["COMMANDS", "app", "main"]


class Entry(NamedTuple):
    """Where a command is: `attribute` of `module` is a `typer.Typer` or a function with Typer's annotations."""

    module: str
    attribute: str
    summary: str


# To add a command: write bmqctl/commands/<name>.py, exposing a typer.Typer (sub-commands) or one function (options
# and arguments), and enter it here. `summary` is its line in `bmqctl --help`, which imports no command.
COMMANDS: dict[str, Entry] = {
    "bench": Entry("bmqctl.commands.bench", "bench", "Measure a broker: throughput, latency, losses."),
    "journal": Entry("bmqctl.commands.journal", "app", "Read and check the files of a store."),
    "spark-export": Entry("bmqctl.commands.spark_export", "app", "Write a store to Parquet tables, with PySpark."),
    "start": Entry("bmqctl.commands.start", "app", "Start a broker."),
}


def _load(name: str) -> Any:
    entry = COMMANDS[name]
    found = getattr(import_module(entry.module), entry.attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        found = single
    command = get_command(found)
    command.name = name
    return command


class Commands(TyperGroup):
    """The entries of `COMMANDS`, as stand-ins that know their summary until one of them is to run."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, entry in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=entry.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else found, rest


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bmqctl {version('bmqctl')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """BlazingMQ in Python: broker, proxy and toolkit."""


def main() -> None:
    """The console script."""
    app(prog_name="bmqctl")
