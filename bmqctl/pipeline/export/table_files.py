"""A table's files, written and read with pyarrow by the tasks of an export.

Spark's own writers convert Arrow's columns to rows and back, more than ten times the work. Spark distributes the tasks
and repeats failed ones; a file counts only when its task has reported it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from bmqctl.pipeline.export.output import Output

__all__ = ["NO_VALUE", "FileFormat", "HashedFile", "TableFile", "directory_of", "partition_values", "read_table"]

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The value of a null partition column in a directory's name, as in Hive and Spark."""

_ROWS_PER_GROUP = 1 << 17
_ROWS_PER_READ = 1 << 16

# A dictionary pays for these columns, whose values repeat; pyarrow would try one for GUIDs too.
_REPEATING = frozenset(
    {
        "type",
        "queue_key",
        "queue_uri",
        "app_key",
        "app_id",
        "compression",
        "confirm_reason",
        "deletion_flag",
        "queue_op_type",
        "journal_op_type",
        "sync_point_type",
        "outcome",
        "reason",
        "broker",
        "topic",
        "queue_id",
        "kind",
        "tags",
        "properties.key_value.key",
        "transaction",
        "born_host",
        "store_host",
        "size",
        "body_size",
        "reconsume_times",
        "prepared_transaction_offset",
        "flag",
        "system_flags",
        "epoch",
        "partition_id",
        "primary_lease_id",
        "timestamp",
        "arrival_time",
        "removal_time",
        "confirm_time",
        "payload_size",
        "properties_size",
        "stored_size",
        "crc32c",
        "ref_count",
    }
)


class FileFormat(StrEnum):
    """The format of a table's files. A Delta table is Parquet files and a log of the current ones."""

    PARQUET = "parquet"
    DELTA = "delta"
    JSON = "json"
    CSV = "csv"

    @property
    def extension(self) -> str:
        return "parquet" if self is FileFormat.DELTA else self.value


class HashedFile(io.RawIOBase):
    """Passes on written bytes; has their size and SHA-256 when it is closed."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self._hash = hashlib.sha256()
        self.bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.bytes

    def write(self, content: Any) -> int:
        self._hash.update(content)
        self._stream.write(content)
        size = memoryview(content).nbytes
        self.bytes += size
        return size

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class _Encoder(Protocol):
    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _JsonLines:
    """JSON lines, an object for each row; null columns are left out, as by Spark."""

    def __init__(self, sink: HashedFile) -> None:
        self._sink = sink
        self._encode = json.JSONEncoder(separators=(",", ":")).encode

    def write_table(self, table: pa.Table) -> None:
        lines = [
            self._encode({name: value for name, value in row.items() if value is not None})
            for row in _plain(table).to_pylist(maps_as_pydicts="strict")
        ]
        self._sink.write("\n".join([*lines, ""]).encode())

    def close(self) -> None:
        """Do nothing: there is no buffer."""


class _Csv:
    """CSV with a header; lists and maps are JSON, null is empty."""

    def __init__(self, sink: HashedFile, schema: pa.Schema) -> None:
        self._writer = pyarrow.csv.CSVWriter(sink, _flat_schema(schema))

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(_flat(_plain(table)))

    def close(self) -> None:
        self._writer.close()


def _encoder(file_format: FileFormat, sink: HashedFile, schema: pa.Schema) -> _Encoder:
    if file_format is FileFormat.JSON:
        return _JsonLines(sink)
    if file_format is FileFormat.CSV:
        return _Csv(sink, schema)
    repeating = [field.name for field in schema if field.name in _REPEATING]
    writer: _Encoder = pq.ParquetWriter(sink, schema, compression="snappy", use_dictionary=repeating, version="2.6")
    return writer


class TableFile:
    """A file being written: rows are buffered until they make a row group."""

    def __init__(self, output: Output, name: str, file_format: FileFormat, schema: pa.Schema) -> None:
        if output.is_local:
            output.files.create_dir(output.path(name).rpartition("/")[0], recursive=True)
        self.name = name
        self.rows = 0
        self._sink = HashedFile(output.files.open_output_stream(output.path(name)))
        self._encoder = _encoder(file_format, self._sink, schema)
        self._schema = schema
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._gathered_rows >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> tuple[int, str]:
        """Close the file; return its size in bytes and its SHA-256."""
        self._flush()
        self._encoder.close()
        self._sink.close()
        return self._sink.bytes, self._sink.sha256

    def _flush(self) -> None:
        if self._gathered:
            self._encoder.write_table(pa.Table.from_batches(self._gathered, self._schema))
        self._gathered, self._gathered_rows = [], 0


def read_table(
    output: Output, name: str, file_format: FileFormat, schema: pa.Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that `TableFile` wrote with `schema`. Raises OSError or ArrowInvalid if damaged."""
    wanted = schema if columns is None else pa.schema([schema.field(column) for column in columns])
    with output.files.open_input_file(output.path(name)) as source:
        if file_format in (FileFormat.PARQUET, FileFormat.DELTA):
            yield from pq.ParquetFile(source).iter_batches(_ROWS_PER_READ, columns=wanted.names)
        elif file_format is FileFormat.CSV:
            flat = {field.name: field.type for field in _flat_schema(schema)}
            reading = pyarrow.csv.ConvertOptions(
                column_types=flat,
                include_columns=wanted.names,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            for batch in pyarrow.csv.open_csv(source, convert_options=reading):
                yield from _typed(pa.Table.from_batches([batch]), wanted).to_batches()
        else:
            for batch in _json_batches(source, _plain_schema(wanted)):
                yield from _typed(pa.Table.from_batches([batch]), wanted).to_batches()


def _json_batches(source: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    lines: list[dict[str, Any]] = []
    for line in io.BufferedReader(source):
        row = json.loads(line)
        lines.append({name: _items(value) for name, value in row.items()})
        if len(lines) == _ROWS_PER_READ:
            yield pa.RecordBatch.from_pylist(lines, schema)
            lines = []
    if lines:
        yield pa.RecordBatch.from_pylist(lines, schema)


# These have milliseconds, which the times of BlazingMQ's stores lack.
_MILLISECONDS = frozenset({"born_time", "store_time"})


def _items(value: Any) -> Any:
    """Convert a JSON value for Arrow, which takes maps as lists of items."""
    return list(value.items()) if isinstance(value, dict) else value


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _plain_type(field.type), field.nullable) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Map types that JSON lacks, such as times, to text."""
    if _is_time(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _plain_type(child.type)) for child in kind])
    return kind


def _plain(table: pa.Table) -> pa.Table:
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if _is_time(field.type):
            unit = "ms" if field.name in _MILLISECONDS else "s"
            column = pc.strftime(column.cast(pa.timestamp(unit, "UTC")), "%Y-%m-%dT%H:%M:%SZ")
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.schema.names)


def _flat_schema(schema: pa.Schema) -> pa.Schema:
    flat = [pa.string() if pa.types.is_nested(field.type) or _is_time(field.type) else field.type for field in schema]
    return pa.schema(list(zip(schema.names, flat, strict=True)))


def _flat(table: pa.Table) -> pa.Table:
    columns = []
    for column in table.columns:
        if pa.types.is_nested(column.type):
            values = column.to_pylist(maps_as_pydicts="strict")
            column = pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.schema.names)


def _typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Undo `_plain` and `_flat`."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if field.name in _MILLISECONDS:
            column = column.cast(field.type)
        elif _is_time(field.type):
            parsed = pc.strptime(column, "%Y-%m-%dT%H:%M:%SZ", "us")
            column = pc.assume_timezone(parsed, "UTC")
        elif pa.types.is_nested(field.type) and pa.types.is_string(column.type):
            values = [None if text is None else json.loads(text) for text in column.to_pylist()]
            column = pa.array([_items(value) for value in values], field.type)
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def directory_of(values: Sequence[tuple[str, str | None]]) -> str:
    """The directories of a file by the values of its partition columns, each with a slash at its end."""
    return "".join(f"{name}={NO_VALUE if value is None else quote(value, safe=' ')}/" for name, value in values)


def partition_values(path: str) -> dict[str, str | None]:
    pairs = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {name: None if value == NO_VALUE else unquote(value) for name, _, value in pairs}
