"""`bmqctl journal dump`: every record of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

from bmqctl.journal.files import FileKind, NotAStoreFile, find_files, identify
from bmqctl.journal.rows import JournalRows, Row, data_rows, ledger_rows, qlist_rows
from bmqctl.render import (
    EXIT_FAULTS,
    Column,
    LateProgress,
    OutputFormat,
    choose_format,
    print_json_lines,
    print_table,
    refuse,
    until_reader_leaves,
)
from formats.disk.journal import RecordType
from formats.disk.ledger import LedgerRecordType
from formats.errors import FormatError

__all__ = ["dump"]

PROGRESS_ROWS = 1000

T = TypeVar("T", RecordType, LedgerRecordType)

_HEAD = [
    Column("index", "index", 8, right=True),
    Column("offset", "offset", 12, right=True),
    Column("type", "type", 10),
]
_NUMBERS = [
    Column("primary_lease_id", "lease", 5, right=True),
    Column("sequence_number", "sequence", 10, right=True),
    Column("time", "time", 20),
]
_COLUMNS = {
    FileKind.JOURNAL: [*_HEAD, *_NUMBERS, Column("rest", "details")],
    FileKind.LEDGER: [
        *_HEAD,
        Column("elector_term", "term", 6, right=True),
        *_NUMBERS[1:],
        Column("message", "message"),
    ],
    FileKind.DATA: [
        *_HEAD[:2],
        Column("size", "size", 10, right=True),
        Column("app_data_size", "app data", 10, right=True),
        Column("options_size", "options", 8, right=True),
        Column("flags", "flags", 5, right=True),
        Column("schema_id", "schema", 6, right=True),
        Column("crc32c", "crc32c", 10, right=True),
    ],
    FileKind.QLIST: [
        *_HEAD[:2],
        Column("queue_key", "key", 10),
        Column("queue_uri", "queue", 48),
        Column("apps", "apps"),
    ],
}


def dump(
    file: Annotated[Path, typer.Argument(help="A JOURNAL, DATA, QLIST or ledger (.bmq_csl) file.", show_default=False)],
    output: Annotated[
        OutputFormat | None,
        typer.Option(help="How to print; a table on a terminal, else one JSON object per line.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Print this many records at most.", show_default=False)
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Only records of this type; may be given again. "
            "Journals: message, confirm, deletion, queue-op, journal-op. Ledgers: snapshot, update, commit, ack.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print every record of a file: one of ours or of the reference broker, also while a broker writes it.

    Examples:

        bmqctl journal dump store/bmq_0.20261121_051104.bmq_journal

        bmqctl journal dump --type confirm --limit 10 store/bmq_0.20261121_051104.bmq_journal

        bmqctl journal dump --output json-line store/bmq_0.20261121_051104.bmq_journal | jq -r .guid

    A journal's queue URIs and app ids come from the QLIST file beside it, if it is there. Places that hold no record
    are printed with a `fault`.

    Exit codes: 0; 1 if records are damaged; 2 if the file is none of a store.
    """
    try:
        kind = identify(file)
    except NotAStoreFile as error:
        _refuse_file(file, error)
    rows = _rows(file, kind, types or [])
    if limit is not None:
        rows = islice(rows, limit)
    if not sys.stdout.isatty():
        rows = _with_progress(rows, file.stat().st_size)
    try:
        with until_reader_leaves():
            if choose_format(output) is OutputFormat.JSON_LINE:
                print_json_lines(rows)
            else:
                print_table(_for_table(rows, kind), _COLUMNS[kind])
    except FormatError as error:
        typer.echo(f"bmqctl journal dump: {file}: {error}", err=True)
        raise typer.Exit(EXIT_FAULTS) from None


def _rows(file: Path, kind: FileKind, types: list[str]) -> Iterator[Row]:
    if kind is FileKind.JOURNAL:
        return _journal_rows(file, _types(RecordType, kind, types))
    if kind is FileKind.LEDGER:
        return ledger_rows(file, _types(LedgerRecordType, kind, types))
    if types:
        refuse("journal dump", f"--type: the records of a {kind} are all of one type")
    return data_rows(file) if kind is FileKind.DATA else qlist_rows(file)


def _with_progress(rows: Iterable[Row], size: int) -> Iterator[Row]:
    """The same rows, with a bar for the part of the file that they have come to."""
    with LateProgress("reading records") as on_progress:
        for count, row in enumerate(rows):
            if count % PROGRESS_ROWS == 0:
                on_progress(row["offset"], size)
            yield row


def _journal_rows(file: Path, types: list[RecordType]) -> Iterator[Row]:
    journal = JournalRows(file)
    yield from journal.rows(types)
    if journal.damaged:
        raise typer.Exit(EXIT_FAULTS)


def _types(kinds: type[T], kind: FileKind, names: list[str]) -> list[T]:
    known = {member.name.lower().replace("_", "-"): member for member in kinds if member}
    for name in names:
        if name.lower() not in known:
            refuse("journal dump", f"--type {name}: a {kind} has {', '.join(known)}")
    return [known[name.lower()] for name in names]


def _for_table(rows: Iterable[Row], kind: FileKind) -> Iterator[Row]:
    """The rows with what has no column of its own gathered in one cell."""
    for row in rows:
        if "fault" in row:
            yield {**row, "type": "?", "rest": row["fault"]}
        elif kind is FileKind.JOURNAL:
            yield {**row, "rest": " ".join(f"{name}={value}" for name, value in row.items() if name not in _SHOWN)}
        elif kind is FileKind.LEDGER:
            yield {**row, "message": json.dumps(row["message"])}
        elif kind is FileKind.QLIST:
            yield {**row, "apps": ", ".join(f"{app['app_id']} {app['app_key']}" for app in row["apps"])}
        else:
            yield row


_SHOWN = {"index", "offset", "type", "primary_lease_id", "sequence_number", "timestamp", "time"}


def _refuse_file(file: Path, error: NotAStoreFile) -> NoReturn:
    reason = str(error)
    if file.is_dir():
        try:
            found = find_files(file)
        except NotAStoreFile as nothing:
            refuse("journal dump", str(nothing))
        names = [files.journal for files in found.sets if files.journal] + found.ledgers
        reason += f"; dump one of its files, as {file / names[-1]}" if names else ""
        reason += f", or check them all: bmqctl journal validate {file}"
    refuse("journal dump", reason)
