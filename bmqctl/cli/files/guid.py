"""`bmqctl journal guid`: what a message's GUID or id is made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from bmqctl.common.render import Output, OutputFormat, print_report, refuse, wanted_format
from bmqctl.stores.rocketmq.read.ids import has_offset, is_unique_id, offset_id_parts, unique_id_parts, version_1_parts
from formats.bmq.guid import GUID, GUID_VERSION, parse_guid, timer_tick_ns
from formats.errors import FormatError

__all__ = ["guid"]

COMMAND = "journal guid"
_VERSION_1_DIGITS = 34
_V6_DIGITS = 56


class IdKind(StrEnum):
    """The kinds of ids of equal length."""

    BLAZINGMQ = "blazingmq"
    UNIQUE = "unique"
    OFFSET = "offset"


def guid(
    text: Annotated[
        str,
        typer.Argument(
            metavar="GUID", help="32 hexadecimal digits; an id of RocketMQ also 34 or 56.", show_default=False
        ),
    ],
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json: one object.")] = False,
    started: Annotated[
        datetime | None,
        typer.Option(
            help="Start of the producer (UTC), to compute the time of the GUID; of a unique id any time in its month.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        IdKind | None,
        typer.Option(
            help="The kind of an id: a GUID of BlazingMQ, a unique id or an offset id of RocketMQ; by default the one "
            "that it looks like.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Decode a GUID of BlazingMQ, or a unique id or offset id of RocketMQ: where it was made, its time and number.

    Messages with the same client id got their GUIDs from the same producer, or from its broker if the producer makes
    none. Their ticks, in nanoseconds since the producer's start, give their order.

    A unique id of RocketMQ has the client's address and process, the time since its month began, in the client's time
    zone, and a counter; one of 34 digits has a network address, the time and a counter. An offset id has the broker's
    address, and the place of the message in its commit log.

    Examples:

        bmqctl journal guid 40000000000000CDB805BF1837EE82B1

        bmqctl journal guid --started 2026-11-21T05:11:00 40000000000000CDB805BF1837EE82B1

        bmqctl journal guid 7F000001000051AF0000000000000122

        bmqctl journal guid --kind unique --started 2026-11-01 7F0000010AB118B4AAC20000000004D2

    Exit codes: 0; 2 if it is none of these.
    """
    digits = text.strip().upper()
    month = None if started is None else started.replace(tzinfo=started.tzinfo or UTC)
    try:
        found = _parts(digits, kind, month)
    except FormatError as error:
        refuse(COMMAND, f"{text}: {error.reason}")
    wanted = wanted_format(output, as_json)
    if wanted is OutputFormat.TABLE:
        _print(found)
    else:
        print_report(found, [found], found, wanted)


def _parts(digits: str, kind: IdKind | None, month: datetime | None) -> dict[str, Any]:
    """The parts of an id by name. Raises `FormatError` if it is not of the kind."""
    if len(digits) == _VERSION_1_DIGITS:
        return version_1_parts(digits)
    kind = kind or _kind_of(digits)
    if kind is IdKind.OFFSET:
        return offset_id_parts(digits)
    return unique_id_parts(digits, month) if kind is IdKind.UNIQUE else _guid_parts(digits, month)


def _kind_of(digits: str) -> IdKind:
    """The likely kind of an id. A GUID's counter and an address begin alike: of these, GUIDs are likelier."""
    if has_offset(digits):
        return IdKind.OFFSET
    if len(digits) == _V6_DIGITS:
        return IdKind.UNIQUE
    data = parse_guid(digits)
    is_guid = GUID.unpack(data).version == GUID_VERSION and data[0] != _LOOPBACK
    return IdKind.UNIQUE if is_unique_id(digits) and not is_guid else IdKind.BLAZINGMQ


_LOOPBACK = 127


def _guid_parts(digits: str, started: datetime | None) -> dict[str, Any]:
    fields = GUID.unpack(parse_guid(digits))
    tick_ns = timer_tick_ns(fields)
    found: dict[str, Any] = {
        "guid": digits,
        "version": fields.version,
        "counter": fields.counter,
        "timer_tick_ns": tick_ns,
        "client_id": fields.client_id.hex().upper(),
    }
    if started is not None:
        found["time"] = (started + timedelta(microseconds=tick_ns // 1000)).isoformat()
    return found


def _print(found: dict[str, Any]) -> None:
    for key, value in found.items():
        shown = value
        if key == "timer_tick_ns":
            shown = f"{value} ({timedelta(microseconds=value // 1000)} after start)"
        elif key == "month_ms":
            shown = f"{value} ({timedelta(milliseconds=value)} after the month began)"
        typer.echo(f"{key + ':':15}{shown}")
    if "guid" in found and found["version"] != GUID_VERSION:
        typer.echo(f"Version {found['version']} is unknown: the other fields may mean something else.", err=True)
