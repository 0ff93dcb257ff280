"""`bmqctl dead-letters`: the messages that RocketMQ's groups have given up."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.carrying.messages.framing import Frame, Framer
from bmqctl.carrying.messages.received import Form, Received, UnreadableMessage, of_topic, text_form
from bmqctl.carrying.options import LetterTarget
from bmqctl.cli.administer.asking import ask
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.cli.messages.message_formats import LETTER_PLACE, AsLines, Raw, choose_format, frame_of
from bmqctl.cli.messages.message_options import Decoding, run
from bmqctl.cli.securing import Keys
from bmqctl.common.refusal import say
from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    Output,
    OutputFormat,
    print_rows,
    print_values,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from formats.rocketmq.hosts import split_address

if TYPE_CHECKING:
    from bmqctl.carrying.dead_letters.cluster import Group, Letters, Resent
    from bmqctl.carrying.dead_letters.letters import Letter, Mark

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

_COLUMNS: Final = [
    Column("group", "group", 40),
    Column("letters", "letters", right=True),
    Column("sent_again", "sent again", right=True),
    Column("oldest_at", "oldest"),
]

T = TypeVar("T")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)]
Nameserver = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="A nameserver of the cluster.", show_default=False)
]
Ids = Annotated[
    list[str] | None, typer.Option("--id", help="Only the letter with this message id.", show_default=False)
]


@app.callback()
def root() -> None:
    """List, show and send again the messages that consumer groups of RocketMQ have given up."""


@app.command("list", cls=DialingCommand)
@expanded
def list_groups(
    nameserver: Nameserver = None,
    output: Output = None,
    *,
    security: Keys,
) -> None:
    """List the groups with dead letters: how many, how many of these were sent again, and since when the oldest is one.

    Examples:

        bmqctl dead-letters list --nameserver 127.0.0.1:9876

        bmqctl dead-letters list --nameserver 127.0.0.1:9876 --output json

    Exit codes: 0; 2 nobody answers.
    """
    command = "dead-letters list"

    async def work(letters: Letters) -> list[Group]:
        return await letters.groups()

    groups = _run(command, nameserver, security.reach(command), work)
    with until_reader_leaves():
        if groups or output not in (None, OutputFormat.TABLE):
            print_rows((each._asdict() for each in groups), _COLUMNS, output or OutputFormat.TABLE)
        else:
            print("No group has dead letters.")


@app.command(cls=DialingCommand)
@expanded
def show(
    context: typer.Context,
    group: GroupName,
    ids: Ids = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Letters to show, from the oldest on.")] = 20,
    output: Output = None,
    as_lines: AsLines = False,
    raw: Raw = False,
    *,
    decoding: Decoding,
    nameserver: Nameserver = None,
    security: Keys,
) -> None:
    """Show dead letters of a group: where each is, its original topic, whether it was sent again, and the message.

    Examples:

        bmqctl dead-letters show billing --nameserver 127.0.0.1:9876

        bmqctl dead-letters show billing --id 7F0000012EA82B4DEEA980BBA6F80001 --output jsonl --decode json

    With --output jsonl or csv each letter is a line, with json an element of a list.

    Exit codes: 0; 1 a letter could not be decoded, or there is none with that id; 2 nobody answers, or the group has
    no dead letters.
    """
    command = "dead-letters show"
    wanted = choose_format(command, context, as_lines=as_lines, raw=raw, decode=decoding.decode)
    decoder = decoding.decoder(command)
    frame = frame_of(wanted, _line_form(text_form(decoder)), LETTER_PLACE, decoder)
    shown = _Shown(frame, frozenset(ids or ()), count, command)
    with until_reader_leaves():
        _run(command, nameserver, security.reach(command), lambda letters: shown.show(letters, group))
    for each in sorted(shown.missing):
        say(command, f"group {group} has no dead letter with the id {each}")
    if shown.is_cut:
        say(command, "there are more: --count shows them")
    if shown.unreadable or shown.missing:
        raise typer.Exit(EXIT_FAULTS)


@app.command(cls=DialingCommand)
@expanded
def resend(
    group: GroupName,
    to: Annotated[
        LetterTarget,
        typer.Option(
            help="topic: the topic that a letter was posted to, whose groups all get it. retry: the retry topic of its "
            "group, which only this group gets, if its consumers pull.",
            show_default=False,
        ),
    ],
    ids: Ids = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Maximum number of letters.", show_default=False)
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(help="The topic, for letters that do not name theirs.", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also send letters that were sent again before.")] = False,
    # Not called dry_run: commands with an option of that name connect to nobody, and take no cluster from a context.
    only_list: Annotated[bool, typer.Option("--dry-run", help="Only report what would be sent.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json: the account.")] = False,
    nameserver: Nameserver = None,
    *,
    security: Keys,
) -> None:
    """Send dead letters of a group again, with the payload, properties and id that they had.

    The letters stay where they are. For each that was sent, a mark goes to the topic bmqctl-sent-again; a further run
    leaves out letters with a mark, and reports their number. If the command is killed between a
    letter and its mark, that letter is sent twice.

    Examples:

        bmqctl dead-letters resend billing --to topic --nameserver 127.0.0.1:9876 --dry-run

        bmqctl dead-letters resend billing --to retry --id 7F0000012EA82B4DEEA980BBA6F80001 --yes

    Exit codes: 0 all were sent; 1 some could not be; 2 nobody answers, the group has no dead letters, or you do not
    say yes.
    """
    from bmqctl.carrying.dead_letters.cluster import WantedLetters

    command = "dead-letters resend"
    reach = security.reach(command)
    wanted = WantedLetters(frozenset(ids or ()), count, again)
    told: dict[str, int] = {}

    def note(topic: str) -> None:
        told[topic] = told.get(topic, 0) + 1

    def work(is_dry: bool) -> Resent:
        told.clear()
        return _run(
            command,
            nameserver,
            reach,
            lambda letters: letters.resend(group, wanted, to, to_topic, note, is_dry=is_dry),
        )

    if not (yes or only_list):
        found = work(is_dry=True)
        if found.sent:
            ask(command, f"Send {_counted(told)}?", "nothing is sent")
    _show_resent(command, group, work(is_dry=only_list), told, is_dry=only_list, wanted=wanted_format(output, as_json))


def _run(command: str, nameserver: str | None, reach: Reach, work: Callable[[Letters], Awaitable[T]]) -> T:
    """Run work with a cluster's letters; exit with code 2 if it cannot be reached."""
    from bmqctl.carrying.dead_letters.cluster import open_letters

    if nameserver is None:
        refuse(command, "name a nameserver of the cluster, --nameserver HOST:PORT, or use a context")
    place = split_address(nameserver)
    if place is None:
        refuse(command, f"--nameserver {nameserver}: expected HOST:PORT")

    async def connected() -> T:
        async with open_letters(*place, reach) as letters:
            return await work(letters)

    return run(command, connected)


class _Shown:
    """The printing of letters."""

    def __init__(self, frame: Frame, ids: frozenset[str], count: int, command: str) -> None:
        self.missing = set(ids)
        self.unreadable = 0
        self.is_cut = False
        self._form = frame.form
        self._framer = Framer(frame)
        self._ids = ids
        self._count = count
        self._command = command

    async def show(self, letters: Letters, group: str) -> None:
        """Print the letters of a group. Raises `CannotBegin`, with the output complete so far."""
        try:
            await self._show_all(letters, group)
        except CannotBegin:
            sys.stdout.buffer.write(self._framer.cut())
            raise
        sys.stdout.buffer.write(self._framer.end())
        sys.stdout.buffer.flush()

    async def _show_all(self, letters: Letters, group: str) -> None:
        marks = await letters.marks()
        shown = 0
        async with aclosing(letters.letters(group)) as found:
            async for letter in found:
                if self._ids and letter.message_id not in self._ids:
                    continue
                self.missing.discard(letter.message_id)
                if shown >= self._count:
                    self.is_cut = True
                    break
                shown += 1
                self._show(letter, marks.get(letter.key, []))

    def _show(self, letter: Letter, marks: list[Mark]) -> None:
        try:
            line = self._form(_received(letter, marks))
        except UnreadableMessage as fault:
            self.unreadable += 1
            say(self._command, str(fault))
        else:
            sys.stdout.buffer.write(self._framer.join([line]))


def _received(letter: Letter, marks: list[Mark]) -> Received:
    """Decode a letter. Raises `UnreadableMessage`."""
    from bmqctl.carrying.dead_letters.letters import DEAD_LETTER_PREFIX
    from bmqctl.client.rocketmq import Content

    found = of_topic(Content(letter.record, DEAD_LETTER_PREFIX + letter.group, letter.broker))
    sent = [{"to": mark.to, "at": mark.at} for mark in marks]
    more = {"original_topic": letter.original_topic, "dead_since": letter.stored_at, "sent_again": sent}
    return found._replace(place={**found.place, **more})


def _line_form(form: Form) -> Form:
    def line(message: Received) -> bytes:
        place = message.place
        sent: Any = place["sent_again"]
        state = f"sent again {sent[-1]['at']}" if sent else "not sent again"
        text = f"{place['broker']}/{place['queue']} {place['offset']}  {place['original_topic'] or '?'}  {state}  "
        return ascii(text)[1:-1].encode() + form(message)

    return line


def _counted(told: dict[str, int]) -> str:
    if not told:
        return "no letters"
    return ", ".join(f"{count:,} {'letter' if count == 1 else 'letters'} to {topic}" for topic, count in told.items())


def _show_resent(
    command: str, group: str, done: Resent, told: dict[str, int], *, is_dry: bool, wanted: OutputFormat
) -> None:
    for each in done.missing:
        say(command, f"group {group} has no dead letter with the id {each}")
    for failure in done.failures:
        say(command, failure)
    if done.ended_by:
        say(command, done.ended_by)
    with until_reader_leaves():
        if wanted is not OutputFormat.TABLE:
            facts = {
                "group": group,
                "dry_run": is_dry,
                "sent": done.sent,
                "to": told,
                "sent_before": done.skipped,
                "failures": done.failures,
                "missing": done.missing,
                "ended_by": done.ended_by or None,
            }
            if wanted is OutputFormat.JSON:
                print(json.dumps(facts, indent=2))
            else:
                print_values([facts], facts, wanted)
        else:
            print(f"{_counted(told)}{' would be sent' if is_dry else ' sent'}")
            if done.skipped:
                print(f"    {done.skipped:,} left out, which were sent again before: --again sends them, too")
    if done.failures or done.missing or done.ended_by:
        raise typer.Exit(EXIT_FAULTS)
