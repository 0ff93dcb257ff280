"""Rows of a dump as Arrow record batches, to an IPC stream or a Parquet file.

Times are timestamps, numbers 64-bit integers, all else strings; absent values are null. pyarrow is an extra: import
this module only for these outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.chunks import Chunk, Part
from bmqctl.stores.blazingmq.read.columns import Column, Columns, Constant, Derived, Kind, Row, column_order

__all__ = ["BatchWriter", "batch_of_chunk", "batch_of_columns", "batch_of_rows", "schema_of"]

PARQUET_GROUP_ROWS = 1 << 17
UNSIGNED = {"elector_term", "sequence_number", "start_sequence_number", "sync_point_sequence_number", "timestamp"}
_TIME = pa.timestamp("s", tz="UTC")
_TIME_MAX_S = 253_402_300_799  # the end of year 9999


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _type(column)) for column in columns])


def _type(column: Column) -> pa.DataType:
    if column.kind is Kind.NUMBER:
        # A damaged or foreign file may use all bits of these columns.
        return pa.uint64() if column.name in UNSIGNED else pa.int64()
    return _TIME if column.kind is Kind.TIME else pa.string()


class BatchWriter:
    """Writes record batches of one schema to `stream`; Parquet gathers several into a row group."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, *, parquet: bool) -> None:
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._schema = schema
        # Each writes when constructed, so only the wanted one is.
        self._stream: Any = None if parquet else pa.ipc.new_stream(stream, schema)
        self._parquet: Any = pq.ParquetWriter(stream, schema, compression="zstd") if parquet else None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._stream is not None:
            self._stream.write_batch(batch)
            return
        self._pending.append(batch)
        self._rows += batch.num_rows
        if self._rows >= PARQUET_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            return
        self._flush()
        self._parquet.close()

    def _flush(self) -> None:
        if self._pending:
            self._parquet.write_table(pa.Table.from_batches(self._pending, self._schema))
        self._pending, self._rows = [], 0


def batch_of_rows(rows: list[Row], columns: Iterable[Column]) -> pa.RecordBatch:
    """Rows of names and values, with times as seconds in `timestamp`."""
    arrays = []
    for column in columns:
        values = [row.get(column.name) for row in rows]
        if column.kind is Kind.JSON:
            values = [None if value is None else json.dumps(value) for value in values]
        if column.kind is Kind.TIME:
            values = [None if row.get("time") is None else row["timestamp"] for row in rows]
        arrays.append(pa.array(values, _type(column)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def batch_of_columns(values: Mapping[str, Sequence[Any]], count: int, columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = [
        pa.array(values[column.name], _type(column)) if column.name in values else pa.nulls(count, _type(column))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def batch_of_chunk(chunk: Chunk, columns: Mapping[int, tuple[Columns, ...]]) -> pa.RecordBatch:
    order = column_order(columns)
    drafts = {column.name: _Draft(column, len(chunk)) for column in order}
    for part in chunk.parts():
        for group in columns[part.kind]:
            _put(drafts, group, part)
    return pa.RecordBatch.from_arrays([drafts[column.name].array() for column in order], schema=schema_of(order))


class _Draft:
    """A column of nulls, into which each kind of record puts its values.

    Numbers and hex digits lie in an array; shared values are kept once.
    """

    def __init__(self, column: Column, count: int) -> None:
        self.column = column
        self._count = count
        self._values: NDArray[Any] | None = None
        self._pool: list[Any] = []
        self._null = np.ones(count, np.bool_)

    def put(self, rows: NDArray[Any], values: NDArray[Any]) -> None:
        if self._values is None:
            self._values = np.zeros(self._count, values.dtype)
        self._values[rows] = values
        self._null[rows] = False

    def put_shared(self, rows: NDArray[Any], values: list[Any], which: NDArray[np.int64]) -> None:
        """Set each of `rows` to one of `values`, which may be None."""
        self.put(rows, which + len(self._pool))
        if self.column.kind is Kind.JSON:
            values = [None if value is None else json.dumps(value) for value in values]
        elif self.column.kind is Kind.TEXT:
            values = [value if value is None or isinstance(value, str) else str(value) for value in values]
        self._pool += values

    def array(self) -> pa.Array:
        kind = _type(self.column)
        if self._values is None:
            return pa.nulls(self._count, kind)
        if self._pool:
            return pa.array(self._pool, kind).take(pa.array(self._values, mask=self._null))
        if self._values.dtype.kind == "S":
            return _hex_strings(self._values, self._null)
        if kind == _TIME:
            null = self._null | (self._values > _TIME_MAX_S)
            return pa.array(np.where(null, 0, self._values).astype(np.int64), pa.int64(), mask=null).cast(_TIME)
        return pa.array(self._values, mask=self._null).cast(kind)


def _put(drafts: dict[str, _Draft], group: Columns, part: Part) -> None:
    rows = part.rows
    if isinstance(group, Constant):
        drafts[group.name].put_shared(rows, [group.value], np.zeros(len(rows), np.int64))
    elif not isinstance(group, Derived):
        drafts[group.name].put(rows, group.read(part))
    elif any(column.kind is Kind.TIME for column in group.columns):
        for column in group.columns:
            drafts[column.name].put(rows, part.column("timestamp"))
    else:
        keys = group.keys(part)
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))} if group.shared else {}
        which = np.fromiter(map(places.__getitem__, keys), np.int64, len(keys)) if places else np.arange(len(keys))
        found = [group.values(key) for key in places or keys]
        for column, values in zip(group.columns, zip(*found, strict=True), strict=True):
            drafts[column.name].put_shared(rows, list(values), which)


def _hex_strings(values: NDArray[Any], null: NDArray[np.bool_]) -> pa.Array:
    """ASCII of one width; bytes under nulls do not matter."""
    text = values.tobytes()
    offsets = np.arange(0, len(text) + 1, values.dtype.itemsize, dtype=np.int32)
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(text), valid)
