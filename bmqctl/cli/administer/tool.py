"""`bmqctl tool`: a client for people and scripts, with the options, commands and output of the reference's bmqtool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bmqctl.cli.tool.grammar import CommandError, camel, decode
from bmqctl.cli.tool.parameters import ParameterError, Parameters, default_broker, dump_profile, load_profile
from bmqctl.common.refusal import refuse

__all__ = ["tool"]

_POSTING = "Posting"
_CONSUMING = "Consuming"
_OUTPUT = "Output"
_SESSION = "Session"


def _print_help(context: typer.Context, wanted: bool) -> None:
    if wanted:
        typer.echo(context.get_help())
        raise typer.Exit


def tool(
    context: typer.Context,
    mode: Annotated[str, typer.Option(help="cli, auto, storage or syschk.")] = "cli",
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="Address of the broker.", show_default="tcp://localhost:$BMQ_PORT")
    ] = "",
    queue_uri: Annotated[str, typer.Option("--queueuri", "-q", help="The queue, for auto and syschk.")] = "",
    queue_flags: Annotated[
        str,
        typer.Option(
            "--queueflags", "-f", help="Flags to open it with, for auto: read, write, ack; separated by commas."
        ),
    ] = "",
    latency: Annotated[
        str, typer.Option("--latency", "-l", help="Clock for latencies: none, hires or epoch.")
    ] = "none",
    latency_report: Annotated[str, typer.Option("--latency-report", help="File for a JSON report of latencies.")] = "",
    dump_msg: Annotated[bool, typer.Option("--dumpmsg", "-d", help="Print received messages and acks.")] = False,
    confirm_msg: Annotated[bool, typer.Option("--confirmmsg", "-c", help="Confirm received messages.")] = False,
    event_size: Annotated[
        int, typer.Option("--eventsize", "-e", help="Messages per event.", rich_help_panel=_POSTING)
    ] = 1,
    msg_size: Annotated[
        int, typer.Option("--msgsize", "-m", help="Payload size in bytes.", rich_help_panel=_POSTING)
    ] = 1024,
    post_rate: Annotated[
        int, typer.Option("--postrate", "-r", help="Events per interval.", rich_help_panel=_POSTING)
    ] = 1,
    events_count: Annotated[
        str,
        typer.Option(
            "--eventscount",
            help="Total number of events, or seconds, such as 30s; 0: unlimited.",
            rich_help_panel=_POSTING,
        ),
    ] = "0",
    post_interval: Annotated[
        int, typer.Option("--postinterval", "-i", help="Milliseconds between posts.", rich_help_panel=_POSTING)
    ] = 1000,
    message_pattern: Annotated[
        str,
        typer.Option("--messagepattern", help="Start of each payload, followed by a number.", rich_help_panel=_POSTING),
    ] = "",
    message_properties: Annotated[
        str,
        typer.Option(
            "--messageProperties",
            help='JSON list: [{"name": "x", "value": "1", "type": "E_INT"}]',
            rich_help_panel=_POSTING,
        ),
    ] = "",
    max_unconfirmed: Annotated[
        str,
        typer.Option(
            "--maxunconfirmed", "-u", help="Maximum unconfirmed messages and bytes.", rich_help_panel=_CONSUMING
        ),
    ] = "1024:33554432",
    subscriptions: Annotated[
        str,
        typer.Option(
            "--subscriptions",
            help='JSON list: [{"expression": "x > 1", "correlationId": 1}]',
            rich_help_panel=_CONSUMING,
        ),
    ] = "",
    auto_pub_sub_modulo: Annotated[
        int,
        typer.Option(
            "--autoPubSubModulo",
            help="Post with a number modulo this, or consume with a subscription for each.",
            rich_help_panel=_CONSUMING,
        ),
    ] = 0,
    verbosity: Annotated[
        str,
        typer.Option(
            "--verbosity",
            "-v",
            help="silent, trace, debug, info, warning, error or fatal.",
            rich_help_panel=_OUTPUT,
        ),
    ] = "info",
    log_format: Annotated[
        str, typer.Option("--logFormat", help="Format of log records.", rich_help_panel=_OUTPUT)
    ] = r"%d (%t) %s %F:%l %m\n",
    log: Annotated[str, typer.Option("--log", help="File for all events and messages.", rich_help_panel=_OUTPUT)] = "",
    timeout_sec: Annotated[
        int, typer.Option("--timeout", help="Timeout of a request, in seconds.", rich_help_panel=_SESSION)
    ] = 300,
    shutdown_grace: Annotated[
        int,
        typer.Option(
            "--shutdownGrace", help="Seconds without a message after which auto ends.", rich_help_panel=_SESSION
        ),
    ] = 0,
    tls_authority: Annotated[
        str,
        typer.Option(
            "--tlsAuthority",
            help="Connect with TLS; trust the CA certificates in this PEM file.",
            rich_help_panel=_SESSION,
        ),
    ] = "",
    authn_mechanism: Annotated[
        str,
        typer.Option(
            "--authnMechanism",
            help="Authentication mechanism, such as BASIC; by default none.",
            rich_help_panel=_SESSION,
        ),
    ] = "",
    authn_data: Annotated[
        str, typer.Option("--authnData", help="Credentials, such as user:password.", rich_help_panel=_SESSION)
    ] = "",
    storage: Annotated[str, typer.Option("--storage", "-s", help="Files to open, for storage.")] = "",
    profile: Annotated[
        Path | None, typer.Option(help="JSON file with options; those on the command line take precedence.")
    ] = None,
    dumpprofile: Annotated[bool, typer.Option("--dumpprofile", help="Print the options as a profile.")] = False,
    threads: Annotated[
        int, typer.Option("--threads", "-t", help="Accepted for compatibility and ignored.", rich_help_panel=_SESSION)
    ] = 1,
    memory_debug: Annotated[
        bool,
        typer.Option("--memorydebug", "-D", help="Accepted for compatibility and ignored.", rich_help_panel=_SESSION),
    ] = False,
    no_session_event_handler: Annotated[
        bool,
        typer.Option(
            "--nosessioneventhandler", help="Accepted for compatibility and ignored.", rich_help_panel=_SESSION
        ),
    ] = False,
    short_help: Annotated[bool, typer.Option("-h", is_eager=True, hidden=True, callback=_print_help)] = False,
) -> None:
    """Post, consume and inspect messages, interactively or from a script.

    Without `--mode` the tool reads commands from standard input; `help` lists them. In mode `auto` it posts or consumes
    until it is done or interrupted; `syschk` checks that a session and a queue can be opened; `storage` inspects the
    files of a store.

    Exits with 0 on success, 1 if it could not start, 2 if the options are invalid; in mode `syschk` with the low byte
    of the result.

    Examples:

    - `bmqctl tool -b tcp://localhost:30114 -d`

    - `echo 'help' | bmqctl tool`

    - `bmqctl tool --mode auto -q bmq://bmq.test.mem.priority/q -f write,ack --eventscount 1000 -i 10`

    - `bmqctl tool --mode auto -q bmq://bmq.test.mem.priority/q -f read -c`
    """
    given = {name: value for name, value in context.params.items() if not _is_default(context, name)}
    try:
        parameters = load_profile(profile.read_text()) if profile is not None else Parameters(broker=default_broker())
        _override(parameters, given)
        parameters.check()
    except OSError as fault:
        _refuse(f"cannot read the profile: {fault}")
    except (ParameterError, CommandError) as fault:
        _refuse(str(fault))
    if dumpprofile:
        typer.echo(dump_profile(parameters))
        return
    from bmqctl.cli.tool.run import run_tool
    from bmqctl.client.address import BadAddress

    try:
        raise typer.Exit(run_tool(parameters))
    except (OSError, BadAddress) as fault:
        _refuse(str(fault))


def _refuse(reason: str) -> NoReturn:
    refuse("tool", reason)


def _is_default(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is None or source.name == "DEFAULT"


def _override(parameters: Parameters, given: dict[str, Any]) -> None:
    for name, value in given.items():
        match name:
            case "profile" | "dumpprofile" | "short_help":
                pass
            case "message_pattern":
                parameters.sequential_message_pattern = value
            case "message_properties":
                parameters.message_properties = _listed(name, value).message_properties
            case "subscriptions":
                parameters.subscriptions = _listed(name, value).subscriptions
            case _:
                setattr(parameters, name, value)
    if "message_pattern" in given and "msg_size" in given:
        raise ParameterError("--msgsize and --messagepattern exclude each other")


def _listed(name: str, text: str) -> Parameters:
    """Parse the list in `text` into the field of its name."""
    try:
        return decode(Parameters, {camel(name): json.loads(text)})
    except json.JSONDecodeError as fault:
        raise ParameterError(f"--{camel(name)} is not JSON: {fault}") from None
