"""`bmqctl definitions`: domains, topics and groups as a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.cli.administer.admin import AuthnData
from bmqctl.cli.administer.asking import ask
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.watch.cluster_options import IsRocketmq, Nameserver
from bmqctl.common.refusal import refuse
from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    Output,
    OutputFormat,
    parse_format,
    print_rows,
    until_reader_leaves,
)
from bmqctl.systems.definitions import blazingmq
from bmqctl.systems.definitions.model import (
    Action,
    BadDefinitions,
    Change,
    Definitions,
    changes_between,
    parse_definitions,
    whole_changes,
)
from bmqctl.systems.definitions.rocketmq import Master, apply_changes, masters_of, one_of
from bmqctl.systems.definitions.rocketmq import checked as checked_rocketmq
from bmqctl.systems.rocketmq.cluster import places_of, secret_of
from bmqctl.systems.rocketmq.status.asker import NobodyAnswers
from bmqctl.systems.rocketmq.status.asking import Secret

__all__ = ["app"]

FILE_BYTES_MAX = 64 << 20

app = typer.Typer(add_completion=False, no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="The file of definitions; - is standard input.", show_default=False)]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", help="The configuration of a BlazingMQ broker, whose domains these are.", show_default=False
    ),
]
BrokerName = Annotated[
    list[str] | None,
    typer.Option("--broker-name", help="Only RocketMQ brokers of this name; by default all.", show_default=False),
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")]

_COLUMNS = [
    Column("place", "place"),
    Column("action", "action"),
    Column("kind", "kind"),
    Column("name", "name"),
    Column("field", "field"),
    Column("found", "found"),
    Column("wanted", "wanted"),
]


_DEFINITION_COLUMNS = [Column("kind", "kind"), Column("name", "name"), Column("definition", "definition")]


class _Place(NamedTuple):
    """A holder of definitions: a folder of BlazingMQ's configuration, or a master of RocketMQ's."""

    name: str
    definitions: Definitions
    master: Master | None


@app.callback()
def root() -> None:
    """Keep the domains of BlazingMQ, or the topics and groups of RocketMQ, as a file: export, compare, apply.

    The file is JSON: {"system": "RocketMQ", "topics": {NAME: FIELDS}, "groups": {NAME: FIELDS}}, or {"system":
    "BlazingMQ", "domains": {NAME: CONTENTS OF ITS FILE}}. Fields have the names that the brokers' own files have.
    """


@app.command(cls=DialingCommand)
def export(
    config_dir: Config = None,
    rocketmq: IsRocketmq = False,
    nameserver: Nameserver = None,
    broker_name: BrokerName = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Write to this new file instead.", show_default=False)
    ] = None,
    form: Annotated[
        OutputFormat,
        typer.Option(
            "--output",
            parser=parse_format,
            metavar="|".join(OutputFormat),
            help="json is the file. Neither a context nor the environment changes it.",
        ),
    ] = OutputFormat.JSON,
    timeout: Timeout = 5,
    authn_data: AuthnData = "",
) -> None:
    """Print what there is, as a file of definitions.

    Examples:

        bmqctl definitions export --config /etc/bmq > domains.json

        bmqctl definitions export --nameserver 127.0.0.1:9876 --file topics.json

        bmqctl definitions export --nameserver 127.0.0.1:9876 --output csv

    Without --output it is the file that `diff` and `apply` read. The other formats have a row for each definition.

    Exit codes: 0; 2 if brokers do not answer, or have not the same.
    """
    if file is not None and form is not OutputFormat.JSON:
        refuse("definitions export", f"--output {form}: the file of --file is JSON")
    places = _places("export", config_dir, nameserver, broker_name, timeout, _secret(authn_data))
    masters = [each.master for each in places if each.master is not None]
    try:
        found = one_of(masters) if masters else places[0].definitions
    except BadDefinitions as fault:
        refuse("definitions export", str(fault))
    if file is None:
        with until_reader_leaves():
            if form is OutputFormat.JSON:
                print(found.to_text(), end="")
            else:
                print_rows(_definition_rows(found, form), _DEFINITION_COLUMNS, form)
        return
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(found.to_text())
    except OSError as fault:
        refuse("definitions export", f"{file}: {fault.strerror}")


@app.command(cls=DialingCommand)
def diff(
    file: File,
    config_dir: Config = None,
    rocketmq: IsRocketmq = False,
    nameserver: Nameserver = None,
    broker_name: BrokerName = None,
    timeout: Timeout = 5,
    output: Output = None,
    authn_data: AuthnData = "",
) -> None:
    """List what differs from a file: what would be created, changed, or deleted with --prune.

    A field that the file leaves out is wanted as its default, and a kind that it leaves out is not compared.

    Examples:

        bmqctl definitions diff domains.json --config /etc/bmq

        bmqctl definitions diff topics.json --nameserver 127.0.0.1:9876 --output json

    Exit codes: 0 nothing differs; 1 something does; 2 the file is not valid, or brokers do not answer.
    """
    wanted = _wanted("diff", file, config_dir)
    places = _places("diff", config_dir, nameserver, broker_name, timeout, _secret(authn_data))
    found = [(each, list(changes_between(each.definitions, wanted))) for each in places]
    _print(found, output)
    if any(changes for _, changes in found):
        raise typer.Exit(EXIT_FAULTS)


@app.command(cls=DialingCommand)
def apply(
    file: File,
    config_dir: Config = None,
    rocketmq: IsRocketmq = False,
    nameserver: Nameserver = None,
    broker_name: BrokerName = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Also delete topics and groups that the file does not have, with their messages."),
    ] = False,
    # Not called dry_run: commands with an option of that name connect to nobody, and take no broker from a context.
    only_list: Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: Timeout = 5,
    output: Output = None,
    authn_data: AuthnData = "",
) -> None:
    """Create and change what differs from a file.

    The file is checked as a whole before anything is changed. Domains of BlazingMQ are written into the files of the
    configuration; then send `DOMAINS RECONFIGURE DOMAIN` to each node. They are deleted by `DOMAINS REMOVE` only.

    Examples:

        bmqctl definitions apply topics.json --nameserver 127.0.0.1:9876 --dry-run

        bmqctl definitions apply domains.json --config /etc/bmq --yes

    Exit codes: 0; 2 if the file is not valid, a broker refuses or does not answer, or you do not say yes.
    """
    wanted = _wanted("apply", file, config_dir)
    if prune and config_dir is not None:
        refuse("definitions apply", "--prune: a domain is removed by `bmqctl admin DOMAINS REMOVE`, then its file")
    secret = _secret(authn_data)
    places = _places("apply", config_dir, nameserver, broker_name, timeout, secret)
    found = [(each, _to_do(whole_changes(each.definitions, wanted), prune)) for each in places]
    _print([(each, _to_do(changes_between(each.definitions, wanted), prune)) for each in places], output)
    if only_list or not any(changes for _, changes in found):
        return
    if not yes:
        count = sum(len(changes) for _, changes in found)
        ask(
            "definitions apply",
            f"Make {'this change' if count == 1 else f'these {count} changes'}?",
            "nothing is changed",
        )
    for place, changes in found:
        try:
            if place.master is None:
                assert config_dir is not None
                blazingmq.write_domains(config_dir, changes)
            else:
                apply_changes(place.master, changes, timeout, secret)
        except NobodyAnswers as fault:
            refuse("definitions apply", f"{place.name}: {fault}; what is listed before it is done")
        except OSError as fault:
            refuse("definitions apply", f"{fault.filename}: {fault.strerror}")


def _definition_rows(found: Definitions, form: OutputFormat) -> Iterator[dict[str, Any]]:
    for kind, table in found.tables.items():
        for name, definition in sorted(table.items()):
            shown = json.dumps(definition, sort_keys=True) if form is OutputFormat.TABLE else definition
            yield {"kind": kind, "name": name, "definition": shown}


def _to_do(changes: Iterable[Change], prune: bool) -> list[Change]:
    return [each for each in changes if prune or each.action is not Action.DELETE]


def _secret(data: str) -> Secret | None:
    try:
        return secret_of(data)
    except CannotBegin as fault:
        refuse("definitions", str(fault))


def _wanted(command: str, file: Path, config: Path | None) -> Definitions:
    """Read and check a file; exit with code 2 for one that is not valid, or of the other system."""
    try:
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1) if str(file) == "-" else _read(file)
        if len(data) > FILE_BYTES_MAX:
            raise BadDefinitions(f"has more than {FILE_BYTES_MAX:,} bytes")
        wanted = parse_definitions(data.decode("utf-8"))
        if wanted.system == blazingmq.SYSTEM:
            if config is None:
                raise BadDefinitions("is of BlazingMQ: name the folder of the broker's configuration with --config")
            return blazingmq.checked(wanted)
        if config is not None:
            raise BadDefinitions("is of RocketMQ, and --config names a configuration of BlazingMQ")
        return checked_rocketmq(wanted)
    except BadDefinitions as fault:
        refuse(f"definitions {command}", f"{file}: {fault}")
    except UnicodeDecodeError as fault:
        refuse(f"definitions {command}", f"{file}: byte {fault.start:,} is not UTF-8")
    except OSError as fault:
        refuse(f"definitions {command}", f"{file}: {fault.strerror}")


def _read(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(FILE_BYTES_MAX + 1)


def _places(
    command: str,
    config: Path | None,
    nameserver: list[str] | None,
    names: list[str] | None,
    timeout: float,
    secret: Secret | None,
) -> list[_Place]:
    try:
        if config is not None:
            return [_Place(str(config), blazingmq.read_domains(config), None)]
        masters = masters_of(places_of(None, nameserver), timeout, secret)
    except (BadDefinitions, CannotBegin, NobodyAnswers) as fault:
        refuse(f"definitions {command}", str(fault))
    known = {each.name for each in masters}
    for name in names or ():
        if name not in known:
            refuse(f"definitions {command}", f"--broker-name {name}: there are {', '.join(sorted(known))}")
    return [_Place(each.name, each.definitions, each) for each in masters if not names or each.name in names]


def _print(found: list[tuple[_Place, list[Change]]], output: OutputFormat | None) -> None:
    rows = [{"place": place.name, **each._asdict()} for place, changes in found for each in changes]
    with until_reader_leaves():
        if rows or output not in (None, OutputFormat.TABLE):
            print_rows(rows, _COLUMNS, output or OutputFormat.TABLE)
        else:
            print("Nothing differs.")
