"""`bmqctl definitions`: domains, topics and groups as a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bmqctl.cli.administer.changing import Changing, Masters, make_changes, print_changes
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.cli.watch.cluster_options import IsRocketmq
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
from bmqctl.systems.administration import DefinitionHolder
from bmqctl.systems.definitions.model import (
    BLAZINGMQ,
    KINDS,
    ROCKETMQ,
    BadDefinitions,
    Definitions,
    changes_between,
    one_of,
    parse_definitions,
)
from bmqctl.systems.opening import checked_definitions, open_folder

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
_DEFINITION_COLUMNS = [Column("kind", "kind"), Column("name", "name"), Column("definition", "definition")]


@app.callback()
def root() -> None:
    """Keep the domains of BlazingMQ, or the topics and groups of RocketMQ, as a file: export, compare, apply.

    The file is JSON: {"system": "RocketMQ", "topics": {NAME: FIELDS}, "groups": {NAME: FIELDS}}, or {"system":
    "BlazingMQ", "domains": {NAME: CONTENTS OF ITS FILE}}. Fields have the names that the brokers' own files have.
    """


@app.command(cls=DialingCommand)
@expanded
def export(
    config_dir: Config = None,
    rocketmq: IsRocketmq = False,
    *,
    masters: Masters,
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
) -> None:
    """Print what there is, as a file of definitions.

    Examples:

        bmqctl definitions export --config /etc/bmq > domains.json

        bmqctl definitions export --nameserver 127.0.0.1:9876 --file topics.json

        bmqctl definitions export --nameserver 127.0.0.1:9876 --output csv

    Without --output it is the file that `diff` and `apply` read. The other formats have a row for each definition.

    Exit codes: 0; 2 if brokers do not answer, or differ.
    """
    if file is not None and form is not OutputFormat.JSON:
        refuse("definitions export", f"--output {form}: the file of --file is JSON")
    places = _places("export", config_dir, masters)
    try:
        found = one_of([(each.name, each.definitions) for each in places])
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
@expanded
def diff(
    file: File,
    config_dir: Config = None,
    rocketmq: IsRocketmq = False,
    *,
    masters: Masters,
    output: Output = None,
) -> None:
    """List what differs from a file: what would be created, changed, or deleted with --prune.

    A field that the file leaves out is wanted as its default, and a kind that it leaves out is not compared.

    Examples:

        bmqctl definitions diff domains.json --config /etc/bmq

        bmqctl definitions diff topics.json --nameserver 127.0.0.1:9876 --output json

    Exit codes: 0 nothing differs; 1 something does; 2 the file is not valid, or brokers do not answer.
    """
    wanted = _wanted("diff", file, config_dir)
    places = _places("diff", config_dir, masters)
    found = [(each, list(changes_between(each.definitions, wanted))) for each in places]
    print_changes(found, output)
    if any(changes for _, changes in found):
        raise typer.Exit(EXIT_FAULTS)


@app.command(cls=DialingCommand)
@expanded
def apply(
    file: File,
    config_dir: Config = None,
    rocketmq: IsRocketmq = False,
    *,
    masters: Masters,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Also delete topics and groups that the file does not have, with their messages."),
    ] = False,
    changing: Changing,
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
    places = _places("apply", config_dir, masters)
    make_changes("definitions apply", places, lambda _: wanted, changing, masters, prune=prune)


def _definition_rows(found: Definitions, form: OutputFormat) -> Iterator[dict[str, Any]]:
    for kind, table in found.tables.items():
        for name, definition in sorted(table.items()):
            shown = json.dumps(definition, sort_keys=True) if form is OutputFormat.TABLE else definition
            yield {"kind": kind, "name": name, "definition": shown}


def _wanted(command: str, file: Path, config: Path | None) -> Definitions:
    """Read and check a file; exit with code 2 if it is invalid, or of the other system."""
    try:
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1) if str(file) == "-" else _read(file)
        if len(data) > FILE_BYTES_MAX:
            raise BadDefinitions(f"has more than {FILE_BYTES_MAX:,} bytes")
        wanted = parse_definitions(data.decode("utf-8"))
        if wanted.system == BLAZINGMQ and config is None:
            raise BadDefinitions("is of BlazingMQ: name the folder of the broker's configuration with --config")
        if wanted.system != BLAZINGMQ and config is not None:
            raise BadDefinitions("is of RocketMQ, and --config names a configuration of BlazingMQ")
        return checked_definitions(wanted)
    except BadDefinitions as fault:
        refuse(f"definitions {command}", f"{file}: {fault}")
    except UnicodeDecodeError as fault:
        refuse(f"definitions {command}", f"{file}: byte {fault.start:,} is not UTF-8")
    except OSError as fault:
        refuse(f"definitions {command}", f"{file}: {fault.strerror}")


def _read(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(FILE_BYTES_MAX + 1)


def _places(command: str, config: Path | None, masters: Masters) -> list[DefinitionHolder]:
    if config is None:
        return masters.places(f"definitions {command}", KINDS[ROCKETMQ])
    try:
        return [open_folder(config)]
    except BadDefinitions as fault:
        refuse(f"definitions {command}", str(fault))
