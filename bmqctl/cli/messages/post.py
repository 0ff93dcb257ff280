"""`bmqctl post`: messages from the command line, standard input or a file to a queue or a topic."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.carrying.messages.content import DELAY_S_MAX, PRIORITY_MAX, BadInput, Outgoing, property_of
from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.options import DEFAULT_GROUP, PostOptions
from bmqctl.cli.families import expanded
from bmqctl.cli.messages.message_options import EXIT_INTERRUPTED, Broker, Uri, run
from bmqctl.cli.securing import Security
from bmqctl.common.refusal import say
from bmqctl.common.render import (
    EXIT_FAULTS,
    LateProgress,
    Output,
    OutputFormat,
    print_values,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from bmqctl.systems.opening import open_end
from formats.bmq.wire.properties import Property

if TYPE_CHECKING:
    from bmqctl.carrying.messages.posting import Account
    from bmqctl.carrying.messages.sources import Input

__all__ = ["post"]

COMMAND = "post"
STANDARD_INPUT = 0
# The name of the standard input, as in other commands.
HYPHEN = "-"
FAILURES_SHOWN = 10
_USUAL = PostOptions()


@expanded
def post(
    uri: Uri,
    payload: Annotated[
        bytes | None,
        typer.Argument(
            parser=os.fsencode,
            metavar="[PAYLOAD]",
            help="The payload; without it, or as a hyphen, --file or the standard input has it.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read this file, not the standard input.", show_default=False)
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Post each line of the input as a payload, not all of it as one.")
    ] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Each line of the input is a message in JSON, as tail --json prints it.")
    ] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME=TEXT|NAME:=JSON",
            help="A property of all messages: a text, or after := a whole number, true or false.",
            show_default=False,
        ),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="The tag of all messages, for a topic.", show_default=False)] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--key", help="A key of all messages, for a topic.", show_default=False)
    ] = None,
    sharding_key: Annotated[
        str | None,
        typer.Option(help="Messages of a topic with the same key go to one queue, in order.", show_default=False),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            min=0, max=DELAY_S_MAX, help="Seconds until consumers of a topic get the messages.", show_default=False
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=PRIORITY_MAX,
            help="The priority of all messages, for a topic of the type PRIORITY.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Post one payload this many times, or this many of the lines.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Maximum number of messages posted per second.", show_default=False)
    ] = None,
    compress: Annotated[bool, typer.Option("--compress", help="Compress payloads with zlib, for a queue.")] = False,
    window: Annotated[int, typer.Option(min=1, help="Maximum number of unacknowledged messages.")] = _USUAL.window,
    patience: Annotated[
        float, typer.Option(min=0.1, help="Give up when no acknowledgment has come for this many seconds.")
    ] = _USUAL.patience_s,
    broker: Broker = "tcp://localhost:30114",
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json: the account.")] = False,
    *,
    security: Security,
) -> None:
    """Post messages to a queue of BlazingMQ or a topic of RocketMQ, and await their acknowledgments.

    Without a payload, all of the standard input, or of --file, is one. With --lines each line is one, and with --jsonl
    each line is a message: an object with `payload` (a text) or `payload_base64`, and, where wanted, `properties`; for
    a topic `tag`, `keys`, `sharding_key`, `delay_s` and `priority`.

    Messages of a topic go to its queues in turn; with `?key=PROPERTY` after it, messages with the same value of that
    property go to the same queue.

    Examples:

        bmqctl post bmq://my.domain/orders 'order 1' -p customer=Ada -p amount:=12

        bmqctl post rocketmq://127.0.0.1:9876/orders 'order 1' --tag paid --key o-1

        bmqctl post rocketmq://127.0.0.1:9876/reminders 'call Ada' --delay 3600

        journalctl -f -o cat | bmqctl post bmq://my.domain/logs --lines

        bmqctl post bmq://my.domain/orders --jsonl --file orders.jsonl --rate 100

    The run ends at the first message that is none, or that is not acknowledged. Messages that are on their way then
    are awaited, and the numbers of the failed ones are printed: their lines are to be posted again.

    Exit codes: 0 all messages were acknowledged; 1 some were not; 2 it cannot begin: an invalid option, no broker, or
    a broker that refuses the queue or the topic; 130 it was interrupted before the end of the input.
    """
    from bmqctl.carrying.messages.posting import post as post_all
    from bmqctl.carrying.messages.sources import make_source

    started = time.monotonic()
    usual = Outgoing(b"", _properties(properties or []), tag, tuple(keys or ()), sharding_key, delay, priority)
    given = _input(payload, file, lines, jsonl)
    options = PostOptions(rate, window, compress, patience)
    reach = security.reach(COMMAND)
    try:
        end = open_end(uri, broker, DEFAULT_GROUP)
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))
    with LateProgress("posting messages") as progress:
        shown = (lambda done: progress(done, count)) if count is not None else (lambda done: None)
        account = run(
            COMMAND, partial(post_all, end.open_sink(reach, options), options, make_source(given, usual, count), shown)
        )
    _tell(account, time.monotonic() - started, wanted_format(output, as_json))


def _properties(texts: list[str]) -> list[Property]:
    found: dict[str, Property] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not (name and equals):
            refuse(COMMAND, f"--property {text}: expected NAME=TEXT or NAME:=JSON")
        if name in found:
            refuse(COMMAND, f"--property {text}: {name} comes twice")
        try:
            found[name] = property_of(name, json.loads(value) if is_json else value)
        except BadInput as fault:
            refuse(COMMAND, f"--{fault}")
        except (ValueError, RecursionError):
            refuse(COMMAND, f"--property {name}: expected a whole number, true or false after :=")
    return list(found.values())


def _input(payload: bytes | None, file: Path | None, lines: bool, jsonl: bool) -> Input:
    from bmqctl.carrying.messages.sources import Form, Input

    if lines and jsonl:
        refuse(COMMAND, "--lines or --jsonl, not both")
    if payload == os.fsencode(HYPHEN):
        payload = None
    if file == Path(HYPHEN):
        file = None
    if payload is not None:
        if file is not None or lines or jsonl:
            refuse(COMMAND, "a payload on the command line, or an input by --file, --lines or --jsonl, not both")
        return Input(Form.PAYLOAD, payload)
    descriptor = STANDARD_INPUT if file is None else _opened(file)
    if file is None and os.isatty(descriptor):
        say(COMMAND, "reading the standard input, up to Ctrl-D")
    return Input(Form.JSON if jsonl else Form.LINES if lines else Form.PAYLOAD, None, descriptor)


def _opened(file: Path) -> int:
    """Open a file to read; it stays open to the end of the process."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as fault:
        refuse(COMMAND, f"{file}: {fault.strerror}")
    if file.is_dir():
        refuse(COMMAND, f"{file}: is a directory")
    return descriptor


def _tell(account: Account, elapsed_s: float, wanted: OutputFormat) -> None:
    """Print the account, and exit with the code for it."""
    for failure in account.failures[:FAILURES_SHOWN]:
        say(COMMAND, f"{failure.unit} {failure.number}: {failure.reason}")
    if len(account.failures) > FAILURES_SHOWN:
        say(COMMAND, f"and {len(account.failures) - FAILURES_SHOWN} more: --json prints all")
    if account.ended_by and not account.failures:
        say(COMMAND, account.ended_by)
    with until_reader_leaves():
        if wanted is OutputFormat.JSON:
            print(json.dumps(_facts(account, elapsed_s), indent=2))
        elif wanted is not OutputFormat.TABLE:
            facts = _facts(account, elapsed_s)
            print_values([facts], facts, wanted)
        elif account.posted or not account.ended_by:
            size = f"{account.payload_bytes:,} byte" + ("" if account.payload_bytes == 1 else "s") + " of payload"
            print(f"{account.acknowledged:,} of {account.posted:,} messages acknowledged, {size}, in {elapsed_s:.1f} s")
    if account.ended_by or account.failures or account.acknowledged < account.posted:
        raise typer.Exit(EXIT_FAULTS)
    if account.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _facts(account: Account, elapsed_s: float) -> dict[str, object]:
    return {
        "posted": account.posted,
        "acknowledged": account.acknowledged,
        "refused": account.refused,
        "unanswered": account.unanswered,
        "payload_bytes": account.payload_bytes,
        "failures": [
            {"number": each.number, "reason": each.reason, "uncertain": each.is_uncertain} for each in account.failures
        ],
        "ended_by": account.ended_by or None,
        "interrupted": account.is_interrupted,
        "elapsed_s": round(elapsed_s, 3),
    }
