"""The options of `bmqctl journal dump`, and their conversion to filters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmqctl.stores.blazingmq.dump.output import DumpFormat
from bmqctl.stores.blazingmq.read.filters import BadFilter, Filters, parse_number, parse_time
from bmqctl.stores.blazingmq.read.payload import PayloadForm
from formats.bmq.disk.journal import RecordType
from formats.bmq.guid import GUID_SIZE, parse_guid
from formats.bmq.stores.outcomes import MessageOutcome
from formats.errors import FormatError

OFFSET_MAX = 1 << 62

Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        help="Only records of this type; repeatable. Journals: message, confirm, deletion, queue-op, "
        "journal-op. Ledgers: snapshot, update, commit, ack.",
        show_default=False,
    ),
]
LedgerTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        help="Only records of this type: snapshot, update, commit, ack; repeatable.",
        show_default=False,
    ),
]
LedgerQueues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", help="Only records that refer to this queue, by URI or key; repeatable.", show_default=False
    ),
]
TermGt = Annotated[
    str | None, typer.Option(help="Only records after this number, TERM-SEQUENCE: 1-500.", show_default=False)
]
TermLt = Annotated[str | None, typer.Option(help="Only records before this number.", show_default=False)]
Terms = Annotated[
    list[str] | None,
    typer.Option("--seqnum", help="The record with this number; repeatable.", show_default=False),
]
Guids = Annotated[
    list[str] | None,
    typer.Option("--guid", help="Only this message, its confirms and its deletion; repeatable.", show_default=False),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", help="Only this queue, by URI or key; repeatable.", show_default=False),
]
Apps = Annotated[
    list[str] | None,
    typer.Option(
        "--app",
        help="Only confirms and queue operations of this app, by id or key; with --outstanding, messages that it has "
        "yet to confirm. Repeatable.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help="Only records from this time on: ISO 8601 (UTC), or seconds since 1970.", show_default=False),
]
Until = Annotated[str | None, typer.Option(help="Only records before this time.", show_default=False)]
SeqnumGt = Annotated[
    str | None, typer.Option(help="Only records after this number, LEASE-SEQUENCE: 1-500.", show_default=False)
]
SeqnumLt = Annotated[str | None, typer.Option(help="Only records before this number.", show_default=False)]
OffsetGt = Annotated[
    int | None,
    typer.Option(min=0, max=OFFSET_MAX, help="Only records after this offset, in bytes.", show_default=False),
]
OffsetLt = Annotated[
    int | None, typer.Option(min=0, max=OFFSET_MAX, help="Only records before this offset.", show_default=False)
]
Seqnums = Annotated[
    list[str] | None,
    typer.Option("--seqnum", help="The record with this number; repeatable.", show_default=False),
]
Offsets = Annotated[
    list[int] | None,
    typer.Option("--offset", min=0, max=OFFSET_MAX, help="The record at this offset; repeatable.", show_default=False),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="RocketMQ: only messages of this topic; repeatable.", show_default=False),
]
QueueIds = Annotated[
    list[int] | None,
    typer.Option("--queue-id", min=0, help="RocketMQ: only messages of this queue; repeatable.", show_default=False),
]
MessageIds = Annotated[
    list[str] | None,
    typer.Option(
        "--id", help="RocketMQ: only the message with this unique id or offset id; repeatable.", show_default=False
    ),
]
MessageKeys = Annotated[
    list[str] | None,
    typer.Option("--key", help="RocketMQ: only messages with this key; repeatable.", show_default=False),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="RocketMQ: only messages with this tag; repeatable.", show_default=False),
]
Outstanding = Annotated[bool, typer.Option("--outstanding", help="Only outstanding messages, with their confirms.")]
Confirmed = Annotated[
    bool,
    typer.Option("--confirmed", help="Only messages that all their apps have confirmed, with confirms and deletions."),
]
PartiallyConfirmed = Annotated[
    bool,
    typer.Option("--partially-confirmed", help="Only messages that some of their apps, but not all, have confirmed."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Print records as they are written, from now on or from --since, --seqnum-gt or --offset-gt; across "
        "rollovers, until SIGINT.",
    ),
]
Output = Annotated[
    DumpFormat | None,
    typer.Option(
        help="Output format; by default that of the name of --out, a table on a terminal, else json-line.",
        show_default=False,
    ),
]
Out = Annotated[Path | None, typer.Option(help="Write to this file, which must not exist yet.", show_default=False)]
Limit = Annotated[int | None, typer.Option(min=0, help="Print at most this many records.", show_default=False)]
Partition = Annotated[int | None, typer.Option(min=0, help="Only this partition of the store.", show_default=False)]
Payload = Annotated[
    PayloadForm | None,
    typer.Option(
        help="Print the messages' payloads, decompressed; of BlazingMQ also their properties, from the DATA file. "
        "RocketMQ: stored prints them as they are in the log.",
        show_default=False,
    ),
]
PayloadLimit = Annotated[int, typer.Option(min=0, help="Print at most this many bytes of each payload; 0: all.")]
DataFile = Annotated[
    Path | None, typer.Option(help="The DATA file, if it is not in the journal's directory.", show_default=False)
]
CslFile = Annotated[
    Path | None,
    typer.Option(help="Ledger with the names that QLIST lacks.", show_default=False),
]


def one_status(outstanding: bool, confirmed: bool, partially_confirmed: bool) -> MessageOutcome | None:
    """The requested status. Raises BadFilter if there is more than one."""
    given = [
        status
        for status, is_given in (
            (MessageOutcome.OUTSTANDING, outstanding),
            (MessageOutcome.CONFIRMED, confirmed),
            (MessageOutcome.PARTIALLY_CONFIRMED, partially_confirmed),
        )
        if is_given
    ]
    if len(given) > 1:
        raise BadFilter(" and ".join(f"--{status.word}" for status in given) + ": give exactly one of them")
    return given[0] if given else None


def build_filters(
    status: MessageOutcome | None,
    types: list[str] | None,
    guids: list[str] | None,
    queues: list[str] | None,
    apps: list[str] | None,
    since: str | None,
    until: str | None,
    seqnum_gt: str | None,
    seqnum_lt: str | None,
    offset_gt: int | None,
    offset_lt: int | None,
    seqnums: list[str] | None,
    offsets: list[int] | None,
) -> Filters:
    """Build filters from the options. Raises BadFilter if one cannot be read, or two contradict each other."""
    return Filters(
        status=status,
        types=frozenset(map(_record_type, types or [])),
        guids=frozenset(map(_guid, guids or [])),
        queues=tuple(queues or []),
        apps=tuple(apps or []),
        since=None if since is None else parse_time(since),
        until=None if until is None else parse_time(until),
        seqnum_gt=None if seqnum_gt is None else parse_number(seqnum_gt),
        seqnum_lt=None if seqnum_lt is None else parse_number(seqnum_lt),
        offset_gt=offset_gt,
        offset_lt=offset_lt,
        seqnums=frozenset(map(parse_number, seqnums or [])),
        offsets=frozenset(offsets or []),
    )


_TYPES = {kind.name.lower().replace("_", "-"): kind for kind in RecordType if kind}


def _record_type(name: str) -> RecordType:
    if name.lower() not in _TYPES:
        raise BadFilter(f"--type {name}: a JOURNAL file has {', '.join(_TYPES)}")
    return _TYPES[name.lower()]


def _guid(text: str) -> bytes:
    try:
        return parse_guid(text.upper())
    except FormatError:
        raise BadFilter(f"--guid {text}: a GUID has {2 * GUID_SIZE} hexadecimal digits") from None
