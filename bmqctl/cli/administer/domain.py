"""`bmqctl domain`: the domains in the files of BlazingMQ's brokers."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from bmqctl.common.render import Column, Output, OutputFormat, print_rows, refuse, until_reader_leaves
from bmqctl.systems.domains import BadDomain, Domain, create_domain, domains_in

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

TTL_S = 10 * 365 * 24 * 3600
_COLUMNS = [Column(name, name) for name in Domain._fields]


class Mode(Enum):
    """The modes of a domain's queues."""

    PRIORITY = "priority"
    FANOUT = "fanout"
    BROADCAST = "broadcast"


Place = Annotated[
    Path,
    typer.Option(
        "--in",
        metavar="FOLDER",
        help="The folder of a broker's configuration, a folder of such folders, or the store of a node that was "
        "started without a configuration.",
    ),
]


@app.callback()
def root() -> None:
    """List and create domains of BlazingMQ: the kinds of its queues, in the files of its brokers."""


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the domain.", show_default=False)],
    place: Place = Path("bmq-data"),
    mode: Annotated[
        Mode, typer.Option(help="priority: a message goes to one consumer; fanout: to each app; broadcast: to all.")
    ] = Mode.PRIORITY,
    apps: Annotated[
        list[str] | None, typer.Option("--app", help="An app of a fan-out; repeatable.", show_default=False)
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Keep messages in memory alone.")] = False,
    ttl: Annotated[int, typer.Option(min=1, help="Seconds after which unconfirmed messages are removed.")] = TTL_S,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a domain of this name.")] = False,
) -> None:
    """Create a domain. A running broker needs no restart: it reads the file when a queue of the domain is opened.

    With several nodes, messages that are stored are strongly consistent.

    Examples:

        bmqctl domain create my.domain

        bmqctl domain create news.prices --mode fanout --app billing --app audit

        bmqctl domain create my.domain --in bmq-cluster

    Exit codes: 0 it was created; 2 the name or the folder is not valid, or there is such a domain.
    """
    try:
        files = create_domain(
            place, name, mode.value, apps or (), stored=not in_memory, message_ttl_s=ttl, replace=replace
        )
    except BadDomain as fault:
        refuse("domain create", str(fault))
    for file in files:
        typer.echo(f"{file}: written; queues are bmq://{name}/QUEUE")


@app.command("list")
def list_(place: Place = Path("bmq-data"), output: Output = None) -> None:
    """List the domains of a broker's files; one without a file is a built-in sample.

    Examples:

        bmqctl domain list

        bmqctl domain list --in /etc/bmq --output json

    Exit codes: 0; 2 there is no configuration in the folder, or it has a fault.
    """
    try:
        found = domains_in(place)
    except BadDomain as fault:
        refuse("domain list", str(fault))
    with until_reader_leaves():
        print_rows((each._asdict() for each in found), _COLUMNS, output or OutputFormat.TABLE)
