"""`bmqctl domain`: the domains in the files of BlazingMQ's brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.cli.administer.admin import credentials_of, endpoint_of
from bmqctl.cli.administer.changing import Changing, FieldSetting
from bmqctl.cli.administer.defining import alter, delete, show
from bmqctl.cli.families import expanded
from bmqctl.cli.securing import AuthnData, AuthnMechanism, TlsAuthority
from bmqctl.common.later import Later
from bmqctl.common.render import Column, Output, OutputFormat, print_rows, refuse, until_reader_leaves
from bmqctl.systems.administration import DefinitionHolder
from bmqctl.systems.definitions.model import Action, Change

if TYPE_CHECKING:
    from bmqctl.systems import domains
else:
    domains = Later("bmqctl.systems.domains")

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

KIND = "domains"
TTL_S = 10 * 365 * 24 * 3600


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


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the domain.", show_default=False)]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        "-b",
        metavar="tcp://HOST:PORT",
        help="A node that runs: it and the nodes that it names are sent what makes the change count at once.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Files:
    """The options that name the files of domains, and the nodes that serve them."""

    place: Place = Path("bmq-data")
    broker: Broker = None
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")] = 30
    tls_authority: TlsAuthority = None
    authn_mechanism: AuthnMechanism = None
    authn_data: AuthnData = ""

    def places(self, command: str, kinds: Sequence[str]) -> list[DefinitionHolder]:
        try:
            return domains.holders_in(self.place)
        except domains.BadDomain as fault:
            refuse(command, str(fault))

    def begin(self, command: str, changes: Sequence[Change]) -> None:
        with self._nodes(command, "the files are as before") as nodes:
            for name in _names(changes, Action.DELETE):
                nodes.tell(f"DOMAINS REMOVE {name}")

    def end(self, command: str, changes: Sequence[Change]) -> None:
        with self._nodes(command, "the files are changed") as nodes:
            for name in _names(changes, Action.DELETE):
                nodes.finish_removal(name)
            for name in _names(changes, Action.CHANGE):
                nodes.tell(f"DOMAINS RECONFIGURE {name}")

    @contextmanager
    def _nodes(self, command: str, state: str) -> Iterator[domains.Nodes]:
        """Exit with code 2 and one line with the `state` of the files, if a node refuses."""
        place = None if self.broker is None else endpoint_of(command, self.broker)
        credentials = credentials_of(self.authn_mechanism, self.authn_data)
        try:
            yield domains.Nodes(place, self.timeout, self.tls_authority, credentials)
        except domains.BadDomain as fault:
            refuse(command, f"{fault}; {state}")


def _names(changes: Sequence[Change], action: Action) -> list[str]:
    return sorted({each.name for each in changes if each.action is action})


@app.callback()
def root() -> None:
    """List, show, create, alter and delete domains of BlazingMQ: the kinds of its queues, in its brokers' files."""


@app.command()
def create(
    name: Name,
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
        files = domains.create_domain(
            place, name, mode.value, apps or (), stored=not in_memory, message_ttl_s=ttl, replace=replace
        )
    except domains.BadDomain as fault:
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
        found = domains.domains_in(place)
    except domains.BadDomain as fault:
        refuse("domain list", str(fault))
    with until_reader_leaves():
        print_rows(
            (each._asdict() for each in found),
            [Column(name, name) for name in domains.Domain._fields],
            output or OutputFormat.TABLE,
        )


@app.command("show")
def show_domain(name: Name, place: Place = Path("bmq-data"), output: Output = None) -> None:
    """Show a domain as the files of each node have it.

    Examples:

        bmqctl domain show my.domain

        bmqctl domain show my.domain --in bmq-cluster --output json

    Exit codes: 0; 2 there is no such file, or it has a fault.
    """
    show(KIND, name, Files(place), output)


@app.command("alter")
@expanded
def alter_domain(name: Name, *, setting: FieldSetting, files: Files) -> None:
    """Change fields of a domain in the files of each node; what no option names stays as it is.

    With --broker the nodes apply the change to queues that are in use. The mode of a domain, and whether its messages
    are stored, are fixed.

    Examples:

        bmqctl domain alter my.domain --set definition.parameters.messageTtl=3600

        bmqctl domain alter my.domain --set definition.parameters.maxConsumers=2 --broker tcp://localhost:30114

    Exit codes: 0; 2 there is no such file, a value is invalid, or a node refuses or does not answer.
    """
    command = "domain alter"
    alter(KIND, name, setting.changing(), files, setting.fields(command, {}, is_nested=True))


@app.command("delete")
@expanded
def delete_domain(name: Name, *, changing: Changing, files: Files) -> None:
    """Delete a domain from the files of each node.

    With --broker the nodes first remove its queues with their messages, and refuse that while a queue is open. Without
    it messages that are stored stay there, and come again with a domain of the same name.

    Examples:

        bmqctl domain delete my.domain --dry-run

        bmqctl domain delete my.domain --in bmq-cluster --broker tcp://localhost:30114 --yes

    Exit codes: 0; 2 there is no such file, a node refuses or does not answer, or you do not say yes.
    """
    delete(KIND, name, changing, files)
