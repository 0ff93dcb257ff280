"""`bmqctl browse`: the messages that a queue or a topic holds, without consuming them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.messages.received import text_form
from bmqctl.cli.families import expanded
from bmqctl.cli.messages.message_formats import AsLines, ByTemplate, choose_format, frame_of
from bmqctl.cli.messages.message_options import Broker, Decoding, Uri, run
from bmqctl.cli.messages.showing import Showing
from bmqctl.cli.securing import Security
from bmqctl.common.refusal import say
from bmqctl.common.render import (
    EXIT_FAULTS,
    EXIT_READER_LEFT,
    Output,
    refuse,
)
from bmqctl.systems.opening import open_end

__all__ = ["browse"]

COMMAND = "browse"
STANDARD_OUTPUT = 1
OFFSET_MAX = 1 << 62


@expanded
def browse(
    context: typer.Context,
    uri: Uri,
    offset: Annotated[
        int | None,
        typer.Option(
            min=-OFFSET_MAX,
            max=OFFSET_MAX,
            help="Begin at this message of a queue, or at this offset of each queue of a topic; a negative number "
            "counts from the end. By default the oldest.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1 << 30, help="Messages to show, of each queue of a topic.")
    ] = 20,
    output: Output = None,
    as_lines: AsLines = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print payloads only, as they are, and a line feed after each.")
    ] = False,
    template: ByTemplate = None,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Show the payload and properties of messages of a queue, as of those of a topic."),
    ] = False,
    *,
    decoding: Decoding,
    broker: Broker = "tcp://localhost:30114",
    security: Security,
) -> None:
    """Look at the messages that a queue of BlazingMQ or a topic of RocketMQ holds. None is consumed or committed.

    Messages of a queue are listed: GUID, size and time. With --whole, --raw or --decode they are shown with what they
    contain; the C++ broker gives that to consumers only, and refuses. With `?id=APP` they are the messages that the app
    has yet to confirm.

    Messages of a topic are shown whole, by queue and offset. With `?queue=NUMBER` they are those of the queues with
    this number. The dead letters of a group are the topic %DLQ%GROUP, whose % is %25 in a URI.

    Examples:

        bmqctl browse bmq://my.domain/orders

        bmqctl browse 'bmq://my.domain/orders?id=audit' --offset -10 --output csv

        bmqctl browse bmq://my.domain/orders --whole --count 3

        bmqctl browse 'rocketmq://127.0.0.1:9876/orders?queue=2' --offset 1000 --count 50

        bmqctl browse rocketmq://127.0.0.1:9876/%25DLQ%25billing --output jsonl

        bmqctl browse rocketmq://127.0.0.1:9876/orders --decode protobuf --descriptor shop.desc --message shop.Order

    With --output jsonl or csv each message is a line, with json an element of a list; lines of jsonl of whole
    messages are input of post --jsonl.

    Exit codes: 0; 1 a message, or its payload, could not be decoded; 2 there is no broker, no such queue or topic, or
    an option is invalid.
    """
    from bmqctl.carrying.messages.browsing import BrowseOptions

    reach = security.reach(COMMAND)
    wanted = choose_format(COMMAND, context, as_lines=as_lines, raw=raw, decode=decoding.decode, template=template)
    decoder = decoding.decoder(COMMAND)
    options = BrowseOptions(offset, count, whole or wanted is None or decoder is not None)
    try:
        end = open_end(uri, broker, "")
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))
    frame = frame_of(wanted, text_form(decoder, is_placed=True), end.columns, decoder, template)
    shown = Showing(COMMAND, frame, wanted)
    try:
        browsed = run(COMMAND, partial(end.browse, reach, options, shown))
    except BrokenPipeError:
        raise typer.Exit(EXIT_READER_LEFT) from None
    _tell_rest(browsed.shown + browsed.unreadable, browsed.held)
    if browsed.unreadable or shown.undecoded:
        raise typer.Exit(EXIT_FAULTS)


def _tell_rest(shown: int, held: int) -> None:
    if shown < held:
        say(COMMAND, f"{shown:,} of {held:,} messages: --offset and --count choose others")
