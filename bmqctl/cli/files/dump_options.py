"""The options of `bmqctl journal dump`, and their conversion to filters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.stores.blazingmq.dump.formats import DumpFormat
from bmqctl.stores.blazingmq.read.wanted import BadFilter, PayloadForm, parse_number, parse_time
from formats.bmq.disk.journal import RecordType
from formats.bmq.guid import GUID_SIZE, parse_guid
from formats.bmq.stores.outcomes import MessageOutcome
from formats.errors import FormatError

if TYPE_CHECKING:
    from bmqctl.stores.blazingmq.read.filters import Filters

OFFSET_MAX = 1 << 62

Since = Annotated[
    str | None,
    typer.Option(help="Only records from this time on: ISO 8601 (UTC), or seconds since 1970.", show_default=False),
]
Until = Annotated[str | None, typer.Option(help="Only records before this time.", show_default=False)]
OffsetGt = Annotated[
    int | None,
    typer.Option(min=0, max=OFFSET_MAX, help="Only records after this offset, in bytes.", show_default=False),
]
OffsetLt = Annotated[
    int | None, typer.Option(min=0, max=OFFSET_MAX, help="Only records before this offset.", show_default=False)
]
Offsets = Annotated[
    list[int] | None,
    typer.Option("--offset", min=0, max=OFFSET_MAX, help="The record at this offset; repeatable.", show_default=False),
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


@dataclass(frozen=True)
class DumpOptions:
    """The options; the command decides which of them go with a store or a file."""

    output: Output = None
    out: Out = None
    limit: Limit = None
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Only records of this type; repeatable. Journals: message, confirm, deletion, queue-op, "
            "journal-op. Ledgers: snapshot, update, commit, ack.",
            show_default=False,
        ),
    ] = None
    guids: Annotated[
        list[str] | None,
        typer.Option(
            "--guid", help="Only this message, its confirms and its deletion; repeatable.", show_default=False
        ),
    ] = None
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Only this queue, by URI or key; repeatable.", show_default=False),
    ] = None
    apps: Annotated[
        list[str] | None,
        typer.Option(
            "--app",
            help="Only confirms and queue operations of this app, by id or key; with --outstanding, messages that it "
            "has yet to confirm. Repeatable.",
            show_default=False,
        ),
    ] = None
    since: Since = None
    until: Until = None
    seqnum_gt: Annotated[
        str | None, typer.Option(help="Only records after this number, LEASE-SEQUENCE: 1-500.", show_default=False)
    ] = None
    seqnum_lt: Annotated[str | None, typer.Option(help="Only records before this number.", show_default=False)] = None
    offset_gt: OffsetGt = None
    offset_lt: OffsetLt = None
    seqnums: Annotated[
        list[str] | None,
        typer.Option("--seqnum", help="The record with this number; repeatable.", show_default=False),
    ] = None
    offsets: Offsets = None
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="RocketMQ: only messages of this topic; repeatable.", show_default=False),
    ] = None
    queue_ids: Annotated[
        list[int] | None,
        typer.Option(
            "--queue-id", min=0, help="RocketMQ: only messages of this queue; repeatable.", show_default=False
        ),
    ] = None
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", help="RocketMQ: only the message with this unique id or offset id; repeatable.", show_default=False
        ),
    ] = None
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="RocketMQ: only messages with this key; repeatable.", show_default=False),
    ] = None
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="RocketMQ: only messages with this tag; repeatable.", show_default=False),
    ] = None
    outstanding: Annotated[
        bool, typer.Option("--outstanding", help="Only outstanding messages, with their confirms.")
    ] = False
    confirmed: Annotated[
        bool,
        typer.Option(
            "--confirmed", help="Only messages that all their apps have confirmed, with confirms and deletions."
        ),
    ] = False
    partially_confirmed: Annotated[
        bool,
        typer.Option(
            "--partially-confirmed", help="Only messages that some of their apps, but not all, have confirmed."
        ),
    ] = False
    payload: Annotated[
        PayloadForm | None,
        typer.Option(
            help="Print the messages' payloads, decompressed; of BlazingMQ also their properties, from the DATA file. "
            "RocketMQ: stored prints them as they are in the log.",
            show_default=False,
        ),
    ] = None
    payload_limit: Annotated[
        int, typer.Option(min=0, help="Print at most this many bytes of each payload; 0: all.")
    ] = 1024
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Print records as they are written, from now on or from --since, --seqnum-gt or --offset-gt; across "
            "rollovers, until SIGINT.",
        ),
    ] = False
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only this partition of the store.", show_default=False)
    ] = None
    data_file: Annotated[
        Path | None, typer.Option(help="The DATA file, if it is not in the journal's directory.", show_default=False)
    ] = None
    csl_file: Annotated[
        Path | None,
        typer.Option(help="Ledger with the names that QLIST lacks.", show_default=False),
    ] = None

    @property
    def status(self) -> MessageOutcome | None:
        """The requested status. Raises BadFilter if there are several."""
        given = [
            status
            for status, is_given in (
                (MessageOutcome.OUTSTANDING, self.outstanding),
                (MessageOutcome.CONFIRMED, self.confirmed),
                (MessageOutcome.PARTIALLY_CONFIRMED, self.partially_confirmed),
            )
            if is_given
        ]
        if len(given) > 1:
            raise BadFilter(" and ".join(f"--{status.word}" for status in given) + ": give exactly one of them")
        return given[0] if given else None

    def filters(self) -> Filters:
        """Build filters of a journal. Raises BadFilter if one cannot be read, or two contradict each other."""
        from bmqctl.stores.blazingmq.read.filters import Filters

        return Filters(
            status=self.status,
            types=frozenset(map(_record_type, self.types or [])),
            guids=frozenset(map(_guid, self.guids or [])),
            queues=tuple(self.queues or []),
            apps=tuple(self.apps or []),
            since=None if self.since is None else parse_time(self.since),
            until=None if self.until is None else parse_time(self.until),
            seqnum_gt=None if self.seqnum_gt is None else parse_number(self.seqnum_gt),
            seqnum_lt=None if self.seqnum_lt is None else parse_number(self.seqnum_lt),
            offset_gt=self.offset_gt,
            offset_lt=self.offset_lt,
            seqnums=frozenset(map(parse_number, self.seqnums or [])),
            offsets=frozenset(self.offsets or []),
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
