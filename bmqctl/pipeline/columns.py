"""Scanned journal records as Arrow columns: one row per record of any kind, null where a kind lacks the field."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bmqctl.pipeline.sizes import measure
from formats.codes import CompressionAlgorithm
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import (
    ANY_RECORD,
    LAYOUTS,
    RECORD_MAGIC,
    ConfirmReason,
    DeletionRecordFlag,
    JournalOpType,
    QueueOpType,
    RecordType,
    SyncPointType,
)
from formats.disk.keys import NULL_KEY
from formats.padding import DWORD, WORD
from formats.schema import Buffer

__all__ = ["INVALID", "RECORD_SCHEMA", "record_batch"]

INVALID = "INVALID"
"""The `type` of a record that is none: a wrong magic or an unknown type. Its other columns are null."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_MAX_S = 253_402_300_799  # the end of year 9999: what Spark can hold

RECORD_SCHEMA = pa.schema(
    [
        pa.field("partition_id", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),  # bytes, in the journal file
        pa.field("type", pa.string(), nullable=False),
        ("primary_lease_id", pa.int64()),
        ("sequence_number", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("queue_key", pa.string()),
        ("app_key", pa.string()),
        ("guid", pa.string()),
        # MESSAGE
        ("ref_count", pa.int32()),
        ("compression", pa.string()),
        ("crc32c", pa.int64()),
        ("message_offset", pa.int64()),  # bytes, in the DATA file
        ("stored_size", pa.int64()),
        ("properties_size", pa.int64()),
        ("payload_size", pa.int64()),
        # CONFIRM, DELETION
        ("confirm_reason", pa.string()),
        ("deletion_flag", pa.string()),
        # QUEUE_OP
        ("queue_op_type", pa.string()),
        ("queue_uri_record_offset", pa.int64()),  # bytes, in the QLIST file
        ("start_primary_lease_id", pa.int64()),
        ("start_sequence_number", pa.int64()),
        # JOURNAL_OP
        ("journal_op_type", pa.string()),
        ("sync_point_type", pa.string()),
        ("sync_point_primary_lease_id", pa.int64()),
        ("sync_point_sequence_number", pa.int64()),
        ("primary_node_id", pa.int32()),
        ("data_file_offset", pa.int64()),  # bytes
        ("qlist_file_offset", pa.int64()),  # bytes
    ]
)


class _Columns:
    """Columns of `count` rows that begin as nulls; values are put in at some rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done: dict[str, pa.Array] = {}
        self.values: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {}

    def put(self, name: str, rows: NDArray[Any], values: NDArray[Any]) -> None:
        """Integers or raw bytes; those put later under the same name join those put before."""
        if name not in self.values:
            dtype = values.dtype if values.dtype.kind == "V" else np.dtype(np.int64)
            self.values[name] = np.zeros(self.count, dtype), np.ones(self.count, np.bool_)
        column, null = self.values[name]
        column[rows] = values
        null[rows] = False

    def put_names(self, name: str, rows: NDArray[Any], codes: NDArray[Any], kind: type[IntEnum | IntFlag]) -> None:
        """Codes by their names; a code without a name is shown as a number."""
        unique, inverse = np.unique(codes, return_inverse=True)
        index = np.zeros(self.count, np.int64)
        null = np.ones(self.count, np.bool_)
        index[rows] = inverse
        null[rows] = False
        labels = pa.array([_label(kind, int(code)) for code in unique], pa.string())
        self.done[name] = labels.take(pa.array(index, mask=null))

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._array(field) for field in RECORD_SCHEMA], schema=RECORD_SCHEMA)

    def _array(self, field: pa.Field) -> pa.Array:
        if field.name in self.done:
            return self.done[field.name]
        if field.name not in self.values:
            return pa.nulls(self.count, field.type)
        values, null = self.values[field.name]
        if values.dtype.kind == "V":
            return _hex_strings(values, null)
        if field.type == TIMESTAMP:
            null = null | (values < 0) | (values > TIMESTAMP_MAX_S)
            values = np.where(null, 0, values) * 1_000_000
            return pa.array(values, pa.int64(), mask=null).cast(TIMESTAMP)
        return pa.array(values, pa.int64(), mask=null).cast(field.type)


def _label(kind: type[IntEnum | IntFlag], code: int) -> str:
    try:
        return kind(code).name or str(code)
    except ValueError:
        return str(code)


def _hex_strings(values: NDArray[Any], null: NDArray[np.bool_]) -> pa.Array:
    """Raw bytes of one width as upper-case hex."""
    width = 2 * values.dtype.itemsize
    text = pa.py_buffer(values.tobytes().hex().upper().encode())
    offsets = pa.py_buffer(np.arange(0, (len(values) + 1) * width, width, dtype=np.int32))
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.StringArray.from_buffers(len(values), offsets, text, valid)


# (column, field of the record, bytes per unit); keys and enumerations are put by hand.
_FIELDS: dict[RecordType, tuple[tuple[str, str, int], ...]] = {
    RecordType.MESSAGE: (("crc32c", "crc32c", 1), ("message_offset", "message_offset_dwords", DWORD)),
    RecordType.QUEUE_OP: (
        ("queue_uri_record_offset", "queue_uri_record_offset_words", WORD),
        ("start_primary_lease_id", "start_primary_lease_id", 1),
        ("start_sequence_number", "start_sequence_number", 1),
    ),
    RecordType.JOURNAL_OP: (
        ("sync_point_primary_lease_id", "sync_point_primary_lease_id", 1),
        ("sync_point_sequence_number", "sync_point_sequence_number", 1),
        ("primary_node_id", "primary_node_id", 1),
        ("data_file_offset", "data_file_offset_dwords", DWORD),
        ("qlist_file_offset", "qlist_file_offset_words", WORD),
    ),
}
_TYPES = pa.array([INVALID, *(kind.name for kind in map(RecordType, sorted(LAYOUTS)))])
_KEYS = ("queue_key", "app_key", "guid")
_NAMES: dict[RecordType, tuple[tuple[str, str, type[IntEnum | IntFlag]], ...]] = {
    RecordType.MESSAGE: (("compression", "compression", CompressionAlgorithm),),
    RecordType.CONFIRM: (("confirm_reason", "reason", ConfirmReason),),
    RecordType.DELETION: (("deletion_flag", "deletion_flag", DeletionRecordFlag),),
    RecordType.QUEUE_OP: (("queue_op_type", "queue_op_type", QueueOpType),),
    RecordType.JOURNAL_OP: (
        ("journal_op_type", "journal_op_type", JournalOpType),
        ("sync_point_type", "sync_point_type", SyncPointType),
    ),
}


def record_batch(records: NDArray[Any], first_offset: int, partition_id: int, data: Buffer) -> pa.RecordBatch:
    """`RECORD_SCHEMA` rows of `records` (shape (n,), `ANY_RECORD.dtype`), the first at journal offset `first_offset`.

    `data` is the partition's DATA file, where the sizes of messages are looked up.
    """
    count = len(records)
    columns = _Columns(count)
    every = np.arange(count)
    columns.put("partition_id", every, np.full(count, partition_id))
    columns.put("offset", every, first_offset + every * JOURNAL_RECORD_SIZE)
    kinds = ANY_RECORD.column(records, "type").astype(np.int64)
    kinds[(records["magic"] != RECORD_MAGIC) | (kinds > RecordType.JOURNAL_OP)] = RecordType.UNDEFINED
    columns.done["type"] = _TYPES.take(pa.array(kinds))
    valid = np.flatnonzero(kinds)
    for name in ("primary_lease_id", "sequence_number", "timestamp"):
        columns.put(name, valid, ANY_RECORD.column(records[valid], name).astype(np.int64))
    for kind in LAYOUTS:
        rows = np.flatnonzero(kinds == kind)
        if len(rows):
            _put_kind(columns, RecordType(kind), rows, records[rows].view(LAYOUTS[kind].dtype), data)
    return columns.batch()


def _put_kind(columns: _Columns, kind: RecordType, rows: NDArray[Any], records: NDArray[Any], data: Buffer) -> None:
    layout = LAYOUTS[kind]
    for name in _KEYS:
        if name in layout.bit:
            values = layout.column(records, name)
            # The null key stands for no app: a record about a whole queue.
            some = np.flatnonzero(values != np.void(NULL_KEY)) if name == "app_key" else slice(None)
            columns.put(name, rows[some], values[some])
    for name, field, unit in _FIELDS.get(kind, ()):
        columns.put(name, rows, layout.column(records, field).astype(np.int64) * unit)
    for name, field, enumeration in _NAMES[kind]:
        columns.put_names(name, rows, layout.column(records, field), enumeration)
    if kind is RecordType.MESSAGE:
        high, low = (layout.column(records, f"ref_count_{part}").astype(np.int64) for part in ("high", "low"))
        columns.put("ref_count", rows, high << 12 | low)
        _put_sizes(columns, rows, records, data)


def _put_sizes(columns: _Columns, rows: NDArray[Any], records: NDArray[Any], data: Buffer) -> None:
    layout = LAYOUTS[RecordType.MESSAGE]
    offsets = (layout.column(records, "message_offset_dwords").astype(np.int64) * DWORD).tolist()
    compressions = layout.column(records, "compression").tolist()
    measured = [measure(data, *where) for where in zip(offsets, compressions, strict=True)]
    for name, sizes in zip(
        ("stored_size", "properties_size", "payload_size"), zip(*measured, strict=True), strict=True
    ):
        known = np.array([size is not None for size in sizes])
        columns.put(name, rows[known], np.array([size for size in sizes if size is not None], np.int64))
