"""Printing of a cluster-state ledger, for `bmqctl journal ledger dump` and `bmqctl journal dump`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import typer

from bmqctl.cli.files.printing import missing, open_stream, with_progress
from bmqctl.common.refusal import say
from bmqctl.common.render import EXIT_FAULTS, LateProgress
from bmqctl.stores.blazingmq.dump.formats import DumpFormat
from bmqctl.stores.blazingmq.dump.ledger import (
    LEDGER_COLUMNS,
    LEDGER_TABLE,
    Entry,
    Ledger,
    LedgerFilters,
    reference_counts,
    reference_of,
    row_of,
)
from bmqctl.stores.blazingmq.dump.output import write_document, write_rows
from bmqctl.stores.blazingmq.dump.reference import not_found
from bmqctl.stores.blazingmq.read.columns import Row
from bmqctl.stores.blazingmq.read.wanted import BadFilter
from formats.bmq.disk.ledger import LedgerRecordType

__all__ = ["dump_ledger", "ledger_types"]

_TYPES = {kind.name.lower(): kind for kind in LedgerRecordType if kind}


def ledger_types(names: list[str] | None) -> frozenset[LedgerRecordType]:
    """Parse the values of `--type`. Raises BadFilter for a type that no ledger has."""
    for name in names or []:
        if name.lower() not in _TYPES:
            raise BadFilter(f"--type {name}: a cluster-state ledger has {', '.join(_TYPES)}")
    return frozenset(_TYPES[name.lower()] for name in names or [])


def dump_ledger(
    command: str, path: Path, filters: LedgerFilters, chosen: DumpFormat, out: Path | None, limit: int | None
) -> None:
    """Print the wanted records; exit with code 1 if one requested by number or offset is missing."""
    ledger = Ledger(path, filters)
    entries = islice(ledger.entries(), limit)
    with open_stream(command, out) as stream, LateProgress("reading records") as on_progress:
        if chosen is DumpFormat.JSON_PRETTY:
            counts: Counter[str] = Counter()
            records = (reference_of(ledger, entry) for entry in _counted(entries, counts))
            write_document(records, lambda: {**reference_counts(counts), **not_found(ledger.unseen)}, stream)
        else:
            rows = map(row_of, entries)
            if chosen is DumpFormat.TABLE:
                rows = map(_with_message_text, rows)
            write_rows(with_progress(rows, ledger.size, on_progress), LEDGER_COLUMNS, chosen, stream, LEDGER_TABLE)
    if ledger.earlier:
        say(command, f"{ledger.earlier} records before the last snapshot skipped: --from-begin prints them as well")
    if ledger.unseen and limit is None:
        for each in sorted(ledger.unseen, key=str):
            say(command, missing(each))
        raise typer.Exit(EXIT_FAULTS)


def _counted(entries: Iterator[Entry], counts: Counter[str]) -> Iterator[Entry]:
    for entry in entries:
        counts[LedgerRecordType(entry.record.header.record_type).name] += 1
        yield entry


def _with_message_text(row: Row) -> Row:
    return {**row, "message": json.dumps(row["message"])}
