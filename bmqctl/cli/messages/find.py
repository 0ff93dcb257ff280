"""`bmqctl find`: messages that a queue or a topic holds, by id, key, time or expression."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.messages.received import text_form
from bmqctl.cli.arguments import parse_moment
from bmqctl.cli.families import expanded
from bmqctl.cli.messages.message_formats import AsLines, ByTemplate, Raw, choose_format, frame_of
from bmqctl.cli.messages.message_options import Broker, Decoding, Since, Uri, run
from bmqctl.cli.messages.showing import Showing
from bmqctl.cli.securing import Security
from bmqctl.common.render import EXIT_FAULTS, EXIT_READER_LEFT, Output, refuse
from bmqctl.systems.opening import open_end

__all__ = ["find"]

COMMAND = "find"


@expanded
def find(
    context: typer.Context,
    uri: Uri,
    message_id: Annotated[
        str | None,
        typer.Option("--id", help="The GUID of a message of a queue, or the id of one of a topic.", show_default=False),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="A key of messages of a topic.", show_default=False)] = None,
    since: Since = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            parser=parse_moment, metavar="TIME", help="Only messages that were stored before.", show_default=False
        ),
    ] = None,
    expression: Annotated[
        str | None,
        typer.Option(
            "--expression",
            "-e",
            help="Messages whose properties match this: a subscription expression of BlazingMQ, SQL of RocketMQ.",
            show_default=False,
        ),
    ] = None,
    tags: Annotated[
        str | None, typer.Option(help="Messages with these tags, such as 'A || B', of a topic.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1 << 30, help="End after this many messages.")] = 20,
    output: Output = None,
    as_lines: AsLines = False,
    raw: Raw = False,
    template: ByTemplate = None,
    *,
    decoding: Decoding,
    broker: Broker = "tcp://localhost:30114",
    security: Security,
) -> None:
    """Look for messages that a queue of BlazingMQ or a topic of RocketMQ holds. None is consumed or committed.

    The brokers of a topic look up --id and --key in their index, and select by --tags and --expression; --since and
    --until say where in the queues they begin and end. The messages of a queue are read at its primary one by one,
    which the C++ broker refuses; what consumers confirm meanwhile may be missed, and so may what comes after it.

    Examples:

        bmqctl find rocketmq://127.0.0.1:9876/orders --key o-1

        bmqctl find rocketmq://127.0.0.1:9876/orders --since 2026-11-25T12:00:00 --expression 'amount > 100'

        bmqctl find bmq://my.domain/orders --expression 'customer == "Ada"' --output jsonl

        bmqctl find bmq://my.domain/orders --id 40000000000000CDB805BF1837EE82B1 --format '{payload}'

    Exit codes: 0 there is such a message; 1 there is none, or one, or its payload, could not be decoded; 2 there is no
    broker, no such queue or topic, or an option is invalid.
    """
    from bmqctl.carrying.messages.browsing import FindOptions

    reach = security.reach(COMMAND)
    wanted = choose_format(COMMAND, context, as_lines=as_lines, raw=raw, decode=decoding.decode, template=template)
    decoder = decoding.decoder(COMMAND)
    options = FindOptions(count, message_id, key, since, until, expression, tags)
    try:
        end = open_end(uri, broker, "")
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))
    frame = frame_of(wanted, text_form(decoder, is_placed=True), end.columns, decoder, template)
    shown = Showing(COMMAND, frame, wanted)
    try:
        found = run(COMMAND, partial(end.find, reach, options, shown))
    except BrokenPipeError:
        raise typer.Exit(EXIT_READER_LEFT) from None
    if not found.shown or found.unreadable or shown.undecoded:
        raise typer.Exit(EXIT_FAULTS)
