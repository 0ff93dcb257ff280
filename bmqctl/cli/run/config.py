"""`bmqctl config`: check and show the configurations of brokers, without starting one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmqctl.cli.administer.changing import Changing, Masters, OnlyList
from bmqctl.cli.administer.defining import alter
from bmqctl.cli.arguments import parse_host
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.cli.run.host_options import HostDataCenter, HostName, HostTags, InstanceId, Port
from bmqctl.common.harmless import one_line
from bmqctl.common.later import Later
from bmqctl.common.render import EXIT_FAULTS, Column, Output, OutputFormat, print_rows, refuse, until_reader_leaves

if TYPE_CHECKING:
    from bmqctl.systems import config_reading
else:
    config_reading = Later("bmqctl.systems.config_reading")

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

_FINDINGS = [
    Column("kind", "kind"),
    Column("file", "file"),
    Column("place", "place"),
    Column("problem", "problem"),
    Column("remedy", "remedy"),
]
_SETTINGS = [Column("file", "file"), Column("name", "setting"), Column("value", "value"), Column("source", "source")]


def _user_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise typer.BadParameter("give a name of up to 64 letters, digits, dots, dashes and underscores")
    return text


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
    """Write, check and show the configuration of a broker, without starting it; set a property of one that runs."""


@app.command()
def validate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="CONFIG...",
            help="Folders of BlazingMQ brokers, with bmqbrkrcfg.json, clusters.json and domains/; folders of such "
            "folders, one for each node; or files with properties of RocketMQ brokers.",
            show_default=False,
        ),
    ],
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="Check BlazingMQ's files for each node of the cluster.")
    ] = False,
    instance_id: InstanceId = None,
    host_name: HostName = None,
    host_tags: HostTags = None,
    host_data_center: HostDataCenter = None,
    port: Port = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for notes, too.")] = False,
    output: Output = None,
) -> None:
    """Check configurations as a broker reads them on this host, and each of their domains.

    A fault keeps the broker from starting, or a domain from being used. A note names a setting that has no effect, such
    as a misspelt one, or a default that loses messages with a node. By default each is a line of text.

    `-h`, `-i`, `-t`, `-d` and `-p` are those of `bmqctl start node`: with them the files of another host are checked.
    Nodes of one cluster whose files are checked together must agree.

    Examples:

        bmqctl config validate /etc/bmq

        bmqctl config validate -h gallifrey -d WHO docker/cluster/config

        bmqctl config validate --all-nodes docker/cluster/config

        bmqctl config validate bmq-cluster

        bmqctl config validate --strict --output json broker.conf

    Exit codes: 0 the configurations can be used; 1 one has a fault; 2 there is none at this place.
    """
    changes = config_reading.Changes(
        instance_id=instance_id,
        host_name=host_name,
        host_tags=host_tags,
        host_data_center=host_data_center,
        port=port,
    )
    if all_nodes and (host_name is not None or port is not None):
        refuse("config validate", "--all-nodes has a name and a port for each node; leave out --host-name and --port")
    for path in paths:
        _refuse_absent("config validate", path)
        if path.is_file() and any(value is not None for value in changes.values()):
            refuse("config validate", f"{path}: the options of a host are for BlazingMQ's files")
    try:
        targets = [each for path in paths for each in config_reading.targets_in(path, changes, all_nodes=all_nodes)]
    except config_reading.BadConfig as fault:
        refuse("config validate", str(fault))
    _print_findings(targets, output, strict=strict)


def _print_findings(targets: list[config_reading.Target], output: OutputFormat | None, *, strict: bool) -> None:
    """Print what is wrong with configurations, each finding once, and exit with 1 if there are faults."""
    from bmqctl.common.tables import ResultConsole

    checked = [(target, config_reading.findings_in(target.path, target.changes)) for target in targets]
    found = dict.fromkeys(finding for _, findings in checked for finding in findings)
    found.update(dict.fromkeys(config_reading.disagreements(targets) if len(targets) > 1 else ()))
    with until_reader_leaves():
        if output is not None:
            rows = ({"kind": "fault" if each.is_fault else "note", **each._asdict()} for each in found)
            keys = [column.key for column in _FINDINGS]
            print_rows(({key: row[key] for key in keys} for row in rows), _FINDINGS, output)
        else:
            console = ResultConsole(soft_wrap=True)
            for each in found:
                console.print(one_line(each.line))
            for target, findings in checked:
                if not any(each.is_fault for each in findings):
                    console.print(
                        one_line(f"{target.name}: valid: {config_reading.summary_of(target.path, target.changes)}")
                    )
    if any(each.is_fault for each in found) or (strict and found):
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
        found = config_reading.settings_of(path)
    except config_reading.BadConfig as fault:
        refuse("config show", str(fault))
    chosen = output or OutputFormat.TABLE
    rows = (each._asdict() for each in found if not changed or each.source == "file")
    if chosen is OutputFormat.TABLE:
        rows = ({**row, "value": _shown(row["value"])} for row in rows)
    with until_reader_leaves():
        print_rows(rows, _SETTINGS, chosen)


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.", show_default=False)],
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=7, help="Number of nodes.")] = 1,
    host: Annotated[
        str, typer.Option(parser=parse_host, metavar="ADDRESS", help="Address that the nodes listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=1, max=65535, help="Port of the first node; the others have those after.")
    ] = 30114,
    tls: Annotated[
        bool, typer.Option("--tls", help="Have the nodes speak TLS, with certificates of a new test authority.")
    ] = False,
    user: Annotated[
        str | None,
        typer.Option(parser=_user_name, metavar="NAME", help="Refuse peers that do not authenticate; add this user."),
    ] = None,
) -> None:
    """Write the configuration of a BlazingMQ cluster on this host: a folder for each node, to start from and to edit.

    It has the sample domains; `bmqctl domain create` adds others. `bmqctl config show` lists all settings, and
    `bmqctl config validate` checks what you have edited. Existing folders are left as they are; with `--tls` or
    `--user` they are refused.

    With `--tls` the folder has the authority's certificate, `ca.pem`, and its key, which signs those of others. With
    `--user` it has NAME.credentials, with a random password.

    The output is the commands that start the nodes, and with `--tls` or `--user` one that makes a context of them.

    Examples:

        bmqctl config init bmq-node

        bmqctl config init bmq-cluster --nodes 3 --port 31000

        bmqctl config init bmq-cluster --nodes 3 --tls --user ada

    Exit codes: 0 the folders are there; 2 they have another cluster, or cannot be written.
    """
    try:
        written = config_reading.write_cluster(directory, nodes, host, port, uses_tls=tls, user=user)
    except config_reading.BadConfig as fault:
        refuse("config init", str(fault))
    for folder in written.folders:
        # With --data-dir a node's control pipe is there, too, and not in the current folder, where only one can be.
        typer.echo(shlex.join(["bmqctl", "start", "node", str(folder), "--data-dir", str(folder / "storage")]))
    words = ["bmqctl", "context", "add", directory.name or "local", written.address, "--use"]
    if written.authority is not None:
        words += ["--tls-authority", str(written.authority)]
    if written.credentials is not None:
        words += ["--authn-mechanism", "BASIC", "--authn-data-file", str(written.credentials)]
    if tls or user is not None:
        typer.echo(shlex.join(words))


@app.command("set", cls=DialingCommand)
@expanded
def set_setting(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The property, such as maxMessageSize.", show_default=False)
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", show_default=False)],
    *,
    only_list: OnlyList = False,
    output: Output = None,
    masters: Masters,
) -> None:
    """Set a property of RocketMQ's masters while they run. Each also writes it into its configuration file.

    A property that needs a restart is refused by name; Apache's broker takes it, and uses it from the next start on.

    Examples:

        bmqctl config set maxMessageSize 8388608 --nameserver 10.0.0.1:9876

        bmqctl config set brokerPermission 4 --broker-name broker-a --dry-run

    Exit codes: 0; 2 there is no such property, or a broker refuses or does not answer.
    """
    alter("settings", name, Changing(only_list, True, output), masters, {"value": value})


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def _refuse_absent(command: str, path: Path) -> None:
    if not path.exists():
        refuse(command, f"{path}: no such file or folder")
