"""`bmqctl client`: the clients of RocketMQ's brokers."""

from __future__ import annotations

import typer

from bmqctl.cli.administer.changing import Masters, refusing
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.common.render import Column, Output, OutputFormat, print_rows, until_reader_leaves

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

_COLUMNS = [Column(name, name) for name in ("client", "role", "group", "address", "language", "version", "broker")]


@app.callback()
def root() -> None:
    """List the clients of RocketMQ's brokers."""


@app.command("list", cls=DialingCommand)
@expanded
def list_clients(*, masters: Masters, output: Output = None) -> None:
    """List the producers and consumers that are connected to the brokers, by group.

    A client in several groups, or of several brokers, has a row for each.

    Examples:

        bmqctl client list

        bmqctl client list --nameserver 10.0.0.1:9876 --output json

    Exit codes: 0; 2 a broker does not answer.
    """
    command = "client list"
    with refusing(command):
        found = masters.administration(command).clients()
    with until_reader_leaves():
        print_rows((each._asdict() for each in found), _COLUMNS, output or OutputFormat.TABLE)
