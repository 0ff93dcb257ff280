"""`bmqctl group`: the consumer groups of RocketMQ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import typer

from bmqctl.cli.administer.asking import ask
from bmqctl.cli.administer.changing import Changing, FieldSetting, Masters, refusing
from bmqctl.cli.administer.defining import Name, alter, create, delete, show
from bmqctl.cli.administer.listing import list_groups
from bmqctl.cli.arguments import parse_moment
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.common.refusal import refuse
from bmqctl.common.render import Column, Output, OutputFormat, print_rows, until_reader_leaves
from bmqctl.systems.administration import Move, Seek, Shift

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

KIND = "groups"
_SEEK_COLUMNS = [
    Column("broker", "broker"),
    *(Column(name, name, right=True) for name in ("queue", "before", "after", "again", "skipped")),
]
_MEMBER_COLUMNS = [
    Column(name, name) for name in ("client", "address", "language", "version", "broker", "subscriptions")
]

Retries = Annotated[
    int | None,
    typer.Option(min=-1, help="How often a message is delivered again before it is a dead letter.", show_default=False),
]
Ordered = Annotated[
    bool | None,
    typer.Option(
        "--ordered/--unordered", help="Whether each queue goes to one consumer, in order.", show_default=False
    ),
]


@app.callback()
def root() -> None:
    """List, show, create, alter and delete the consumer groups of RocketMQ, and have one continue elsewhere."""


app.command("list", cls=DialingCommand)(list_groups)


@app.command("show", cls=DialingCommand)
@expanded
def show_group(name: Name, *, masters: Masters, output: Output = None) -> None:
    """Show the settings of a group as each broker has them.

    Examples:

        bmqctl group show billing

        bmqctl group show billing --nameserver 10.0.0.1:9876 --output json

    Exit codes: 0; 2 there is no such group, or a broker does not answer.
    """
    show(KIND, name, masters, output)


@app.command("create", cls=DialingCommand)
@expanded
def create_group(
    name: Name,
    *,
    retries: Retries = None,
    ordered: Ordered = None,
    setting: FieldSetting,
    masters: Masters,
) -> None:
    """Create a group on all brokers.

    Examples:

        bmqctl group create billing

        bmqctl group create billing --retries 3 --ordered

        bmqctl group create audit --set consumeBroadcastEnable=false --dry-run

    Exit codes: 0; 2 there is such a group, or a broker refuses or does not answer.
    """
    fields = {"retryMaxTimes": retries, "consumeMessageOrderly": ordered}
    create(KIND, name, setting.changing(), masters, setting.fields("group create", fields))


@app.command("alter", cls=DialingCommand)
@expanded
def alter_group(
    name: Name,
    *,
    retries: Retries = None,
    ordered: Ordered = None,
    setting: FieldSetting,
    masters: Masters,
) -> None:
    """Change a group on all brokers that have it; what no option names stays as it is.

    Examples:

        bmqctl group alter billing --retries 3

        bmqctl group alter billing --set consumeEnable=false

    Exit codes: 0; 2 there is no such group, or a broker refuses or does not answer.
    """
    fields = {"retryMaxTimes": retries, "consumeMessageOrderly": ordered}
    alter(KIND, name, setting.changing(), masters, setting.fields("group alter", fields))


@app.command("delete", cls=DialingCommand)
@expanded
def delete_group(name: Name, *, changing: Changing, masters: Masters) -> None:
    """Delete the settings of a group on all brokers. Its offsets stay: a group of this name continues there.

    Examples:

        bmqctl group delete billing --dry-run

        bmqctl group delete billing --yes

    Exit codes: 0; 2 there is no such group, a broker refuses or does not answer, or you do not say yes.
    """
    delete(KIND, name, changing, masters)


@app.command("members", cls=DialingCommand)
@expanded
def list_members(name: Name, *, masters: Masters, output: Output = None) -> None:
    """List the connected consumers of a group, with their subscriptions.

    Examples:

        bmqctl group members billing

        bmqctl group members billing --output json | jq -r '.[].client'

    Exit codes: 0, also if no consumer is connected; 2 a broker does not answer.
    """
    command = "group members"
    with refusing(command):
        found = masters.administration(command).members(name)
    with until_reader_leaves():
        print_rows((each._asdict() for each in found), _MEMBER_COLUMNS, output or OutputFormat.TABLE)


@app.command("seek", cls=DialingCommand)
@expanded
def seek_group(
    name: Name,
    *,
    topic: Annotated[str, typer.Option(help="The topic.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="begin; end; a time, as 2026-11-25T12:00:00Z (by default UTC); an offset, as 120; or a number of "
            "messages forward or back in each queue, as +100 or -100.",
            show_default=False,
        ),
    ],
    changing: Changing,
    masters: Masters,
) -> None:
    """Have a group continue elsewhere in a topic. The offsets that it has now are lost.

    The command first lists, for each queue, the offset before and after, and how many messages come again or are
    skipped. Connected consumers continue there, too. An offset before the first or after the last message of a queue
    is that of the first or the next one.

    Examples:

        bmqctl group seek billing --topic orders --to begin --dry-run

        bmqctl group seek billing --topic orders --to 2026-11-25T12:00:00Z

        bmqctl group seek billing --topic orders --to -100 --yes

    Exit codes: 0; 2 there is no such topic or group, a broker refuses or does not answer, or you do not say yes.
    """
    command = "group seek"
    wanted = Seek(topic, name, _place(command, to))
    if masters.broker_name:
        refuse(command, "--broker-name: a group seeks on all brokers of the topic")
    administration = masters.administration(command)
    with refusing(command):
        moves = administration.plan_seek(wanted)
    _print_moves(moves, changing.output)
    if changing.only_list:
        return
    if not changing.yes:
        again, skipped = sum(each.again for each in moves), sum(each.skipped for each in moves)
        ask(command, f"Continue there? {again:,} come again, {skipped:,} are skipped.", "nothing is changed")
    with refusing(command):
        administration.seek(wanted)


def _place(command: str, text: str) -> str | datetime | int:
    if text in ("begin", "end"):
        return text
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text, re.ASCII):
        return int(text) if text[0].isdigit() else Shift(text)
    try:
        return parse_moment(text)
    except typer.BadParameter:
        refuse(command, f"--to {text}: expected begin, end, a time, an offset, or +N or -N messages")


def _print_moves(moves: Iterable[Move], wanted: OutputFormat | None) -> None:
    rows = [
        {
            "broker": each.broker,
            "queue": each.queue_id,
            "before": each.before,
            "after": each.after,
            "again": each.again,
            "skipped": each.skipped,
        }
        for each in moves
    ]
    with until_reader_leaves():
        print_rows(rows, _SEEK_COLUMNS, wanted or OutputFormat.TABLE)
