"""`bmqctl context`: named brokers and clusters for the commands that connect to one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bmqctl.cli.administer.asking import ask
from bmqctl.cli.contexts.command import VARIABLE
from bmqctl.cli.contexts.completing import context_names
from bmqctl.cli.contexts.file import contexts_path, read_contexts, write_contexts
from bmqctl.cli.contexts.model import BadContext, Context, Contexts, SecretSource
from bmqctl.common.render import Column, Output, OutputFormat, print_rows, refuse, until_reader_leaves

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

_COLUMNS = [
    Column("current", ""),
    Column("name", "name"),
    Column("system", "system"),
    Column("address", "address"),
    Column("credentials", "credentials"),
]
_FIELDS = [Column("field", "field"), Column("value", "value")]

Name = Annotated[str, typer.Argument(help="Name of the context.", show_default=False, autocompletion=context_names)]
Credential = Annotated[
    str | None,
    typer.Option(help="Keep these credentials, such as user:password, in the file itself.", show_default=False),
]
CredentialFile = Annotated[
    Path | None, typer.Option(help="Read credentials from the line of this file, each time.", show_default=False)
]
CredentialVariable = Annotated[
    str | None, typer.Option(help="Read credentials from this environment variable, each time.", show_default=False)
]


@app.callback()
def root() -> None:
    """Name brokers and clusters, and choose one for other commands.

    Contexts are kept in `bmqctl/contexts.json` below `$XDG_CONFIG_HOME`, which is `~/.config` by default. Commands
    that connect to a broker take from a context what their options and environment variables leave open. The context
    is that of `--context`, that of `BMQCTL_CONTEXT`, or the one chosen by `bmqctl context use`. If an option names the
    broker, only a context given by `--context` is used, so that credentials reach no other broker by accident.
    """


@app.command()
def add(
    name: Name,
    address: Annotated[
        str,
        typer.Argument(
            help="A broker of BlazingMQ as tcp://HOST:PORT, or nameservers of RocketMQ as "
            "rocketmq://HOST:PORT[;HOST:PORT].",
            show_default=False,
        ),
    ],
    controllers: Annotated[
        list[str] | None,
        typer.Option("--controller", metavar="HOST:PORT", help="A controller of RocketMQ.", show_default=False),
    ] = None,
    tls_authority: Annotated[
        Path | None,
        typer.Option(help="Connect with TLS; trust the CA certificates in this PEM file.", show_default=False),
    ] = None,
    authn_mechanism: Annotated[
        str | None, typer.Option(help="Authentication mechanism of BlazingMQ, such as BASIC.", show_default=False)
    ] = None,
    authn_data_file: CredentialFile = None,
    authn_data_env: CredentialVariable = None,
    authn_data: Credential = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="|".join(OutputFormat), help="Format of the output of commands.", show_default=False),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current context.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a context of this name.")] = False,
) -> None:
    """Add a context.

    Prefer `--authn-data-file` or `--authn-data-env`: then the file of contexts holds no secret. It is readable by its
    owner only in any case.

    Examples:

        bmqctl context add local tcp://localhost:30114 --use

        bmqctl context add prod tcp://10.0.0.5:30114 --authn-mechanism BASIC --authn-data-file prod.secret

        bmqctl context add orders "rocketmq://10.0.0.5:9876;10.0.0.6:9876" --authn-data-env ORDERS_SECRET

    Exit codes: 0 if it was added; 2 if it is not valid, or a context has its name already.
    """
    secrets = {
        SecretSource.FILE: None if authn_data_file is None else str(authn_data_file.absolute()),
        SecretSource.ENVIRONMENT: authn_data_env,
        SecretSource.HERE: authn_data,
    }
    given = [source for source, text in secrets.items() if text is not None]
    if len(given) > 1:
        _refuse("add", "give one of --authn-data-file, --authn-data-env and --authn-data")
    for option, path in (("--tls-authority", tls_authority), ("--authn-data-file", authn_data_file)):
        if path is not None and not path.is_file():
            _refuse("add", f"{option} {path}: no such file")
    context = Context(
        address,
        tuple(controllers or ()),
        None if tls_authority is None else str(tls_authority.absolute()),
        authn_mechanism,
        given[0] if given else None,
        secrets[given[0]] if given else None,
        output,
    )

    def change(contexts: Contexts) -> Contexts:
        if name in contexts.contexts and not replace:
            raise BadContext(f"there is a context {name} already: give --replace, or another name")
        found = contexts.with_context(name, context)
        return found.using(name) if use else found

    _change("add", change)


@app.command("use")
def use_(
    name: Annotated[
        str | None, typer.Argument(help="Name of the context.", show_default=False, autocompletion=context_names)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Let no context be current.")] = False,
) -> None:
    """Make a context the current one.

    Examples:

        bmqctl context use prod

        bmqctl context use --none
    """
    if none == (name is not None):
        _refuse("use", "expected NAME, or --none")
    _change("use", lambda contexts: contexts.using(name))


@app.command("list")
def list_(output: Output = None) -> None:
    """List all contexts, with a star before the one that is used; a table by default.

    Examples:

        bmqctl context list

        bmqctl context list --output json
    """
    contexts, used = _read("list")
    if not contexts.contexts:
        typer.echo("bmqctl context list: there is none: `bmqctl context add NAME ADDRESS` adds one", err=True)
    rows = (_row(name, context, name == used) for name, context in sorted(contexts.contexts.items()))
    chosen = output or OutputFormat.TABLE
    with until_reader_leaves():
        if chosen is OutputFormat.TABLE:
            rows = ({**row, "current": "*" if row["current"] else ""} for row in rows)
        print_rows(rows, _COLUMNS, chosen)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the context; by default the one that is used.",
            show_default=False,
            autocompletion=context_names,
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Show a context, without its secrets; a table by default.

    Examples:

        bmqctl context show

        bmqctl context show prod --output json
    """
    contexts, used = _read("show")
    try:
        if (chosen := name or used) is None:
            raise BadContext("no context is current: give a name, or choose one by `bmqctl context use`")
        context = contexts.named(chosen)
    except BadContext as fault:
        _refuse("show", str(fault))
    fields = {"name": chosen, "system": context.system.value, **context.as_json()}
    if context.secret_source is SecretSource.HERE:
        fields[SecretSource.HERE.value] = "(not shown)"
    wanted = output or OutputFormat.TABLE
    with until_reader_leaves():
        if wanted in (OutputFormat.TABLE, OutputFormat.CSV):
            rows = [{"field": field, "value": _shown(value)} for field, value in fields.items()]
            print_rows(rows, _FIELDS, wanted)
        else:
            print_rows([fields], [], wanted)


@app.command()
def remove(
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, also where credentials would be lost.")] = False,
) -> None:
    """Remove a context. If it is the current one, none is current afterwards.

    Asks first if the file of contexts has the only copy of its credentials.

    Examples:

        bmqctl context remove prod

        bmqctl context remove prod --yes

    Exit codes: 0; 2 if there is no such context, or you do not say yes.
    """
    contexts, _ = _read("remove")
    try:
        removed = contexts.named(name)
    except BadContext as fault:
        _refuse("remove", str(fault))
    keeps_secret = removed.secret_source is SecretSource.HERE
    if dry_run:
        loss = ", with the credentials that it keeps" if keeps_secret else ""
        print(f"would remove context {name} ({removed.address}){loss}")
        return
    if keeps_secret and not yes:
        question = f"Remove {name} with its credentials, which are kept nowhere else?"
        ask("context remove", question, "nothing is removed")
    _change("remove", lambda contexts: contexts.without(name))


def _change(command: str, change: Callable[[Contexts], Contexts]) -> None:
    path = contexts_path()
    try:
        write_contexts(path, change(read_contexts(path)))
    except BadContext as fault:
        _refuse(command, str(fault))


def _read(command: str) -> tuple[Contexts, str | None]:
    """Return all contexts, and the name of the one in use."""
    try:
        contexts = read_contexts(contexts_path())
    except BadContext as fault:
        _refuse(command, str(fault))
    return contexts, os.environ.get(VARIABLE) or contexts.current


def _row(name: str, context: Context, is_used: bool) -> Mapping[str, Any]:
    places = {
        None: "",
        SecretSource.HERE: "in the file of contexts",
        SecretSource.FILE: f"in {context.secret}",
        SecretSource.ENVIRONMENT: f"in ${context.secret}",
    }
    return {
        "current": is_used,
        "name": name,
        "system": context.system.value,
        "address": context.address,
        "credentials": places[context.secret_source],
    }


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _refuse(command: str, reason: str) -> NoReturn:
    refuse(f"context {command}", reason)
