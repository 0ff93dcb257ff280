"""`bmqctl tail`: the messages of a queue or a topic as they come."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.messages.received import text_form
from bmqctl.cli.families import expanded
from bmqctl.cli.messages.message_formats import AsLines, ByTemplate, Raw, choose_format, frame_of
from bmqctl.cli.messages.message_options import EXIT_INTERRUPTED, Broker, Decoding, Since, Uri, run
from bmqctl.cli.securing import Security
from bmqctl.common.refusal import say
from bmqctl.common.render import EXIT_FAULTS, EXIT_READER_LEFT, Output, refuse
from bmqctl.systems.opening import open_end

if TYPE_CHECKING:
    from bmqctl.carrying.messages.tailing import Outcome

__all__ = ["tail"]

COMMAND = "tail"
STANDARD_OUTPUT = 1


@expanded
def tail(
    context: typer.Context,
    uri: Uri,
    expression: Annotated[
        str | None,
        typer.Option(
            "--expression",
            "-e",
            help="Show messages whose properties match this: a subscription expression of BlazingMQ, SQL of RocketMQ.",
            show_default=False,
        ),
    ] = None,
    tags: Annotated[
        str | None,
        typer.Option(help="Show messages with these tags, such as 'A || B', for a topic.", show_default=False),
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start", help="Begin at the first message of a topic, if the group has no offsets, not at its end."
        ),
    ] = False,
    since: Since = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after this many messages.", show_default=False)
    ] = None,
    until_idle: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="End when no message has come for this time; by default never.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    as_lines: AsLines = False,
    raw: Raw = False,
    template: ByTemplate = None,
    *,
    decoding: Decoding,
    broker: Broker = "tcp://localhost:30114",
    security: Security,
) -> None:
    """Follow a queue of BlazingMQ or a topic of RocketMQ: print messages as they come, until SIGINT or SIGTERM.

    A message of a queue is confirmed when it is printed: it is taken from the queue, or from the app of `?id=APP`, and
    shared with other consumers as usual. With `?group=GROUP` after a topic the command is a member of that group, and
    commits what it prints. Without a group it prints all messages of the topic, and nothing is committed.
    --since and --from-start are for topics, and for groups that have no offsets: a queue hands out the messages that it
    holds, the oldest first.

    Examples:

        bmqctl tail bmq://my.domain/orders

        bmqctl tail 'bmq://my.domain/orders?id=audit' -e 'amount > 100' --output jsonl

        bmqctl tail rocketmq://127.0.0.1:9876/orders --tags 'paid || free'

        bmqctl tail 'rocketmq://127.0.0.1:9876/orders?group=billing' --count 10 --until-idle 5

        bmqctl tail rocketmq://127.0.0.1:9876/orders --since 2026-11-25T12:00:00 --format '{key} {payload}'

        bmqctl tail bmq://my.domain/orders --decode avro --schema order.avsc

        bmqctl tail bmq://my.domain/orders --until-idle 5 --output csv

    With --output jsonl or csv each message is a line, with json an element of a list, all written as they come; lines
    of jsonl are input of post --jsonl. Without it they are lines for people.

    Messages that were received and not printed stay in the queue. One that cannot be decoded is reported on standard
    error and not confirmed; nor is one whose payload is not what --decode says.

    Exit codes: 0 it was stopped, idle, or --count messages were printed; 1 a message could not be decoded, the session
    ended, or fewer than --count messages came; 2 it cannot begin; 130 it was stopped before --count messages.
    """
    from bmqctl.carrying.messages.tailing import TailOptions
    from bmqctl.carrying.messages.tailing import tail as tail_all
    from bmqctl.carrying.messages.writing import Writer

    wanted = choose_format(COMMAND, context, as_lines=as_lines, raw=raw, decode=decoding.decode, template=template)
    decoder = decoding.decoder(COMMAND)
    reach = security.reach(COMMAND)
    try:
        end = open_end(uri, broker, "")
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))
    frame = frame_of(wanted, text_form(decoder), end.columns, decoder, template)
    options = TailOptions(frame, expression, tags, from_start, count, until_idle, since)
    writer = Writer(STANDARD_OUTPUT)
    _end(run(COMMAND, partial(tail_all, end.open_feed(reach, options), options, writer, partial(say, COMMAND))), count)


def _end(outcome: Outcome, count: int | None) -> None:
    """Exit with the code for the outcome."""
    if outcome.has_reader_left:
        raise typer.Exit(EXIT_READER_LEFT)
    if outcome.ended_by:
        say(COMMAND, outcome.ended_by)
    if outcome.ended_by or outcome.unreadable:
        raise typer.Exit(EXIT_FAULTS)
    if count is not None and outcome.shown < count:
        if outcome.is_interrupted:
            raise typer.Exit(EXIT_INTERRUPTED)
        say(COMMAND, f"{outcome.shown} of {count} messages came")
        raise typer.Exit(EXIT_FAULTS)
