"""`bmqctl journal ledger dump`: the records of a cluster-state ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmqctl.cli.files import dump_options as options
from bmqctl.cli.files.printing import choose_output, stopped_by
from bmqctl.stores.blazingmq.read.files import FileKind, NotAStoreFile, identify
from bmqctl.stores.blazingmq.read.wanted import parse_number, parse_time

__all__ = ["app"]

COMMAND = "journal ledger dump"

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def ledger() -> None:
    """Read the cluster-state ledger: who leads which partition, and which queues there are."""


@app.command()
def dump(
    path: Annotated[
        Path,
        typer.Argument(
            help="A ledger (.bmq_csl) file, or the directory of a store, for its newest ledger.", show_default=False
        ),
    ],
    from_begin: Annotated[
        bool, typer.Option("--from-begin", help="Print all records, not only those from the last snapshot on.")
    ] = False,
    output: options.Output = None,
    out: options.Out = None,
    limit: options.Limit = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Only records of this type: snapshot, update, commit, ack; repeatable.",
            show_default=False,
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="Only records that refer to this queue, by URI or key; repeatable.", show_default=False
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    seqnum_gt: Annotated[
        str | None, typer.Option(help="Only records after this number, TERM-SEQUENCE: 1-500.", show_default=False)
    ] = None,
    seqnum_lt: Annotated[str | None, typer.Option(help="Only records before this number.", show_default=False)] = None,
    offset_gt: options.OffsetGt = None,
    offset_lt: options.OffsetLt = None,
    seqnums: Annotated[
        list[str] | None,
        typer.Option("--seqnum", help="The record with this number; repeatable.", show_default=False),
    ] = None,
    offsets: options.Offsets = None,
) -> None:
    """Print the records of a cluster-state ledger with their messages: from the last snapshot on, or all.

    Examples:

        bmqctl journal ledger dump store/

        bmqctl journal ledger dump --from-begin --type update --queue bmq://my.domain/orders store/

        bmqctl journal ledger dump --output json-line store/bmq_csl_20261121_051104_EF2DB7CB99.bmq_csl | jq .message

    Exit codes: 0; 1 if a record is damaged, or a record selected by number or offset does not exist; 2 if there is no
    ledger, or the options contradict each other.
    """
    from bmqctl.cli.files.ledger_printing import dump_ledger, ledger_types
    from bmqctl.stores.blazingmq.dump.ledger import LedgerFilters

    with stopped_by(COMMAND, path):
        file = _ledger_at(path)
        filters = LedgerFilters(
            since=None if since is None else parse_time(since),
            until=None if until is None else parse_time(until),
            seqnum_gt=None if seqnum_gt is None else parse_number(seqnum_gt),
            seqnum_lt=None if seqnum_lt is None else parse_number(seqnum_lt),
            offset_gt=offset_gt,
            offset_lt=offset_lt,
            seqnums=frozenset(map(parse_number, seqnums or [])),
            offsets=frozenset(offsets or []),
            types=ledger_types(types),
            queues=tuple(queues or []),
            from_begin=from_begin,
        )
        dump_ledger(COMMAND, file, filters, choose_output(COMMAND, output, out), out, limit)


def _ledger_at(path: Path) -> Path:
    from bmqctl.stores.blazingmq.dump.ledger import newest_ledger

    if path.is_dir():
        found = newest_ledger(path)
        if found is None:
            raise NotAStoreFile(f"{path} holds no cluster-state ledger (bmq_csl_*.bmq_csl)")
        return found
    kind = identify(path)
    if kind is not FileKind.LEDGER:
        raise NotAStoreFile(f"{path} is a {kind}, not a {FileKind.LEDGER}: run bmqctl journal dump {path}")
    return path
