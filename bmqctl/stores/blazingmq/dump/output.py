"""Outputs of a dump: a table, text in several styles, Parquet, Arrow.

A `Sink` receives a journal (`begin`), then its chunks (`write`), and is closed at the end.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from textwrap import indent
from typing import IO, Any, Generic, NamedTuple, Protocol, TypeVar

from bmqctl.common import render
from bmqctl.common.harmless import csv_text
from bmqctl.common.pretty import pretty
from bmqctl.common.tables import TablePrinter
from bmqctl.stores.blazingmq.dump.formats import DumpFormat, load_arrow
from bmqctl.stores.blazingmq.dump.reference import FOOTERS, not_found, reference_columns
from bmqctl.stores.blazingmq.dump.text import CsvStyle, JsonLineStyle, PrettyStyle, TextWriter
from bmqctl.stores.blazingmq.read.chunks import Chunk
from bmqctl.stores.blazingmq.read.columns import Column, Columns, Kind, Row, column_order, journal_columns, rows_of
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.payload import PayloadReader
from bmqctl.stores.blazingmq.read.wanted import Wanted
from formats.bmq.disk.journal import RecordType
from formats.errors import FormatError

__all__ = [
    "ArrowSink",
    "LineSink",
    "PrettySink",
    "Sink",
    "Source",
    "TableSink",
    "write_document",
    "write_rows",
]

ROWS_PER_BATCH = 1 << 12

T = TypeVar("T")


class Source(NamedTuple):
    """A journal's names and, if wanted, its payloads."""

    names: QueueNames
    payloads: PayloadReader | None = None

    def columns(self, with_partition: bool) -> dict[int, tuple[Columns, ...]]:
        more = () if self.payloads is None else (self.payloads.columns(),)
        return journal_columns(self.names, with_partition, more)


class Sink(Protocol):
    """Takes the records of one journal after another."""

    def begin(self, source: Source) -> None:
        """Begin the chunks of this journal."""

    def write(self, chunk: Chunk) -> None:
        """Print the chunk's rows."""

    def close(self, unseen: Collection[Wanted] = ()) -> None:
        """Print the end of the output; `unseen` was requested and not found."""


class LineSink:
    """A line for each record: CSV after a header line, or JSON objects; each may begin with its partition."""

    def __init__(self, stream: IO[bytes], with_partition: bool, *, as_csv: bool) -> None:
        self._stream = stream
        self._with_partition = with_partition
        self._as_csv = as_csv
        self._begun = False

    def begin(self, source: Source) -> None:
        columns = source.columns(self._with_partition)
        style = CsvStyle(columns) if self._as_csv else JsonLineStyle()
        if not self._begun:
            self._stream.write(style.header)
            self._begun = True
        self._writer = TextWriter(style, columns, source.names)

    def write(self, chunk: Chunk) -> None:
        self._stream.write(self._writer.text(chunk))

    def close(self, unseen: Collection[Wanted] = ()) -> None:
        self._stream.flush()


class PrettySink:
    """The reference tool's JSON document; `counted` are the kinds that it counts after the records.

    The caller reports faults.
    """

    def __init__(self, stream: IO[bytes], counted: Collection[RecordType]) -> None:
        self._stream = stream
        self._counted = counted
        self._counts: Counter[int] = Counter()
        self._separator = b""
        stream.write(b'{\n  "Records": [\n')

    def begin(self, source: Source) -> None:
        payload = None if source.payloads is None else source.payloads.hex_column("Payload")
        self._writer = TextWriter(PrettyStyle(), reference_columns(source.names, payload), source.names)

    def write(self, chunk: Chunk) -> None:
        records = chunk.without_faults()
        if not len(records):
            return
        for part in records.parts():
            self._counts[part.kind] += len(part.rows)
        self._stream.write(self._separator + self._writer.text(records).removesuffix(b",\n"))
        self._separator = b",\n"

    def close(self, unseen: Collection[Wanted] = ()) -> None:
        counts = {name: str(self._counts[kind]) for kind, name in FOOTERS.items() if kind in self._counted}
        _end_document(self._stream, {**counts, **not_found(unseen)}, bool(self._separator))


class TableSink:
    """A table for people; the last column has the fields of one kind of record."""

    def __init__(self, with_partition: bool) -> None:
        self._with_partition = with_partition
        head = [render.Column("partition_id", "partition", 9, right=True)] if with_partition else []
        self._shown = {"partition_id", "timestamp"} | {column.key for column in _JOURNAL_TABLE}
        self._table = TablePrinter([*head, *_JOURNAL_TABLE])

    def begin(self, source: Source) -> None:
        self._columns = source.columns(self._with_partition)

    def write(self, chunk: Chunk) -> None:
        self._table.print(map(self._with_details, rows_of(chunk, self._columns)))

    def _with_details(self, row: Row) -> Row:
        if "fault" in row:
            return {**row, "type": "?", "details": row["fault"]}
        details = (
            f"{name}={json.dumps(value) if isinstance(value, (dict, list)) else value}"
            for name, value in row.items()
            if name not in self._shown
        )
        return {**row, "details": " ".join(details)}

    def close(self, unseen: Collection[Wanted] = ()) -> None:
        sys.stdout.flush()


_JOURNAL_TABLE = [
    render.Column("index", "index", 8, right=True),
    render.Column("offset", "offset", 12, right=True),
    render.Column("type", "type", 10),
    render.Column("primary_lease_id", "lease", 5, right=True),
    render.Column("sequence_number", "sequence", 10, right=True),
    render.Column("time", "time", 20),
    render.Column("details", "details"),
]


class ArrowSink:
    """An Arrow IPC stream, or a Parquet file."""

    def __init__(self, stream: IO[bytes], with_partition: bool, *, parquet: bool) -> None:
        self._arrow = load_arrow()
        self._stream = stream
        self._with_partition = with_partition
        self._parquet = parquet
        self._writer: Any = None

    def begin(self, source: Source) -> None:
        self._columns = source.columns(self._with_partition)
        if self._writer is None:
            schema = self._arrow.schema_of(column_order(self._columns))
            self._writer = self._arrow.BatchWriter(self._stream, schema, parquet=self._parquet)

    def write(self, chunk: Chunk) -> None:
        self._writer.write(self._arrow.batch_of_chunk(chunk, self._columns))

    def close(self, unseen: Collection[Wanted] = ()) -> None:
        self._writer.close()
        self._stream.flush()


class _UntilFault(Generic[T]):
    """The items before a damaged one, which let a page, batch or document end before the fault is raised."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = items
        self._fault: FormatError | None = None

    def __iter__(self) -> Iterator[T]:
        try:
            yield from self._items
        except FormatError as fault:
            self._fault = fault

    def check(self) -> None:
        if self._fault is not None:
            raise self._fault


def write_document(
    records: Iterable[Mapping[str, Any]], footer: Callable[[], Mapping[str, Any]], stream: IO[bytes]
) -> None:
    """Write the reference tool's JSON document of these records; `footer` is computed after the last one.

    A FormatError from `records` is raised when the document is complete.
    """
    sound = _UntilFault(records)
    stream.write(b'{\n  "Records": [\n')
    separator = b""
    for record in sound:
        stream.write(separator + _indented(pretty(record, 2), 4))
        separator = b",\n"
    _end_document(stream, footer(), bool(separator))
    sound.check()


def _indented(text: str, by: int) -> bytes:
    return indent(text, " " * by).encode()


def _end_document(stream: IO[bytes], footer: Mapping[str, Any], has_records: bool) -> None:
    end = json.dumps(footer, indent=2).removeprefix("{\n").encode() if footer else b"}"
    stream.write((b"\n" if has_records else b"") + b"  ]" + (b",\n" if footer else b"\n") + end + b"\n")
    stream.flush()


def write_rows(
    rows: Iterable[Row], columns: Sequence[Column], output: DumpFormat, stream: IO[bytes], table: list[render.Column]
) -> None:
    """Write rows of a file other than a journal, in any format but the reference's; `table` has the columns for people.

    A FormatError from `rows` is raised when the rows before it are printed.
    """
    sound = _UntilFault(rows)
    if output is DumpFormat.TABLE:
        render.print_table(sound, table)
    elif output is DumpFormat.JSON_LINE:
        for row in sound:
            stream.write(json.dumps(row).encode() + b"\n")
    elif output is DumpFormat.CSV:
        _write_csv(sound, columns, stream)
    else:
        arrow = load_arrow()
        writer = arrow.BatchWriter(stream, arrow.schema_of(columns), parquet=output is DumpFormat.PARQUET)
        remaining = iter(sound)
        while batch := list(islice(remaining, ROWS_PER_BATCH)):
            writer.write(arrow.batch_of_rows(batch, columns))
        writer.close()
    stream.flush()
    sound.check()


def _write_csv(rows: Iterable[Row], columns: Sequence[Column], stream: IO[bytes]) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        for row in rows:
            writer.writerow(
                [
                    json.dumps(value)
                    if column.kind is Kind.JSON and value is not None
                    else csv_text(value)
                    if isinstance(value, str)
                    else value
                    for column, value in ((column, row.get(column.name)) for column in columns)
                ]
            )
    finally:
        text.detach()
