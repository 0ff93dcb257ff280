"""The formats in which the commands for messages print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from bmqctl.carrying.messages.framing import Frame
from bmqctl.carrying.messages.received import (
    QUEUE_PLACE,
    TOPIC_PLACE,
    Form,
    Received,
    decoded,
    json_form,
    row_of,
    to_raw,
)
from bmqctl.carrying.messages.template import BadTemplate, Template
from bmqctl.cli.arguments import given_options
from bmqctl.common.decoding.decoder import Decode
from bmqctl.common.render import OutputFormat, csv_line, refuse

__all__ = ["LETTER_PLACE", "AsLines", "ByTemplate", "Raw", "choose_format", "frame_of"]

# The first columns of CSV for dead letters.
LETTER_PLACE: Final = (*TOPIC_PLACE, "original_topic", "dead_since", "sent_again")

_OF_TOPICS: Final = ("tag", "keys", "sharding_key", "priority")

AsLines = Annotated[bool, typer.Option("--json", help="The same as --output jsonl.")]


def _template(text: str) -> Template:
    try:
        return Template(text)
    except BadTemplate as fault:
        raise typer.BadParameter(str(fault)) from None


ByTemplate = Annotated[
    Template | None,
    typer.Option(
        "--format",
        parser=_template,
        metavar="TEMPLATE",
        help="Print a line by this template, such as '{key} {payload}': names are the keys of --output json, and "
        "properties.NAME.",
        show_default=False,
    ),
]
Raw = Annotated[bool, typer.Option("--raw", help="Print payloads only, as they are, each followed by a line feed.")]


def choose_format(
    command: str,
    context: typer.Context,
    *,
    as_lines: bool,
    raw: bool,
    decode: object,
    template: Template | None = None,
) -> OutputFormat | None:
    """The format of messages, None for payloads as they are or a template; exit with code 2 for contradicting options.

    A format that is not on the command line, but in the environment or in a context, is no contradiction of `--raw`.
    """
    output: OutputFormat | None = context.params["output"]
    if template is not None:
        for option in given_options(context, ("as_lines", "output", "raw")):
            refuse(command, f"{option} or --format, not both")
        return None
    if not raw:
        if as_lines and output is not OutputFormat.JSONL:
            for option in given_options(context, ("output",)):
                refuse(command, f"--json or {option} {output}, not both")
        return OutputFormat.JSONL if as_lines else output or OutputFormat.TABLE
    for option in given_options(context, ("as_lines", "output")):
        refuse(command, f"{option} or --raw, not both")
    if decode is not None:
        refuse(command, "--raw prints payloads as they are: leave out --decode")
    return None


def frame_of(
    wanted: OutputFormat | None,
    line: Form,
    place: Sequence[str],
    decode: Decode | None,
    template: Template | None = None,
) -> Frame:
    """Make the frame of a format; `line` makes the lines of a table, `place` names the first columns of CSV."""
    match wanted:
        case None:
            return Frame(to_raw if template is None else template.form(decode))
        case OutputFormat.TABLE:
            return Frame(line)
        case OutputFormat.JSONL:
            return Frame(json_form(decode))
        case OutputFormat.JSON:
            return Frame(json_form(decode), b"[", b",", b"\n]\n")
        case OutputFormat.CSV:
            return _csv_frame(place, decode)


def _csv_frame(place: Sequence[str], decode: Decode | None) -> Frame:
    of_decoded = () if decode is None else ("decoded",)
    of_topics = () if place is QUEUE_PLACE else _OF_TOPICS
    keys = (*place, "payload", "payload_base64", *of_decoded, "properties", *of_topics)

    def form(message: Received) -> bytes:
        row = row_of(message, {} if decode is None else {"decoded": decoded(message, decode)})
        return _encoded(csv_line(row.get(key) for key in keys))

    return Frame(form, _encoded(csv_line(keys)))


def _encoded(line: str) -> bytes:
    # Names and tags may have halves of surrogate pairs, which are no text.
    return line.encode(errors="backslashreplace")
