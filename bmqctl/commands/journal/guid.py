"""`bmqctl journal guid`: what a message's GUID is made of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from bmqctl.render import refuse
from formats.bmq.guid import GUID, GUID_VERSION, parse_guid, timer_tick_ns
from formats.errors import FormatError

__all__ = ["guid"]


def guid(
    text: Annotated[str, typer.Argument(metavar="GUID", help="32 hexadecimal digits.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    started: Annotated[
        datetime | None,
        typer.Option(help="Start of the producer (UTC), to compute the time of the GUID.", show_default=False),
    ] = None,
) -> None:
    """Decode a GUID: its producer, its time and its number.

    Messages with the same client id got their GUIDs from the same producer, or from its broker if the producer makes
    none. Their ticks, in nanoseconds since the producer's start, give their order.

    Examples:

        bmqctl journal guid 40000000000000CDB805BF1837EE82B1

        bmqctl journal guid --started 2026-11-21T05:11:00 40000000000000CDB805BF1837EE82B1

    Exit codes: 0; 2 if it is not a GUID.
    """
    try:
        fields = GUID.unpack(parse_guid(text.strip().upper()))
    except FormatError as error:
        refuse("journal guid", f"{text}: {error.reason}")
    tick_ns = timer_tick_ns(fields)
    found = {
        "guid": text.strip().upper(),
        "version": fields.version,
        "counter": fields.counter,
        "timer_tick_ns": tick_ns,
        "client_id": fields.client_id.hex().upper(),
    }
    if started is not None:
        made = started.replace(tzinfo=started.tzinfo or UTC) + timedelta(microseconds=tick_ns // 1000)
        found["time"] = made.isoformat()
    if as_json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        shown = f"{value} ({timedelta(microseconds=tick_ns // 1000)} after start)" if key == "timer_tick_ns" else value
        typer.echo(f"{key + ':':15}{shown}")
    if fields.version != GUID_VERSION:
        typer.echo(f"Version {fields.version} is unknown: the other fields may mean something else.", err=True)
