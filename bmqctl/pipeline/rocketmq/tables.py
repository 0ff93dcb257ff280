"""The columns of the tables of RocketMQ stores, as Arrow schemas. Times have millisecond precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from bmqctl.pipeline.source.arrays import TIMESTAMP
from bmqctl.pipeline.source.options import BadOption, Table

__all__ = ["STRING_MAP", "batch_of_rows", "log_table_schema"]

STRING_MAP = pa.map_(pa.string(), pa.string())

_BROKER = pa.field("broker", pa.string(), nullable=False)
_TOPIC = pa.field("topic", pa.string(), nullable=False)
_QUEUE_ID = pa.field("queue_id", pa.int32(), nullable=False)
_OFFSET = pa.field("offset", pa.int64(), nullable=False)  # bytes, in the commit log
_IDENTITY = [
    _BROKER,
    _TOPIC,
    _QUEUE_ID,
    pa.field("queue_offset", pa.int64(), nullable=False),
    _OFFSET,
    pa.field("id", pa.string(), nullable=False),  # the producer's, or else the offset id
    ("keys", pa.list_(pa.string())),
    ("tags", pa.string()),
]
_EXTENT = [("messages", pa.int64()), ("bytes", pa.int64()), ("first_time", TIMESTAMP), ("last_time", TIMESTAMP)]
_MESSAGES = pa.schema(
    [
        *_IDENTITY,
        ("properties", STRING_MAP),
        ("kind", pa.string()),  # of the topic
        ("size", pa.int64()),  # of the record
        ("body_size", pa.int64()),  # as stored
        ("compression", pa.string()),
        ("body_crc", pa.int64()),
        ("born_time", TIMESTAMP),
        ("store_time", TIMESTAMP),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("transaction", pa.string()),
        ("prepared_transaction_offset", pa.int64()),
        ("flag", pa.int32()),
        ("system_flags", pa.int32()),
        ("offset_id", pa.string()),
        ("epoch", pa.int64()),
    ]
)

_SCHEMAS = {
    # In a commit log every record is a message.
    Table.RECORDS: _MESSAGES,
    Table.MESSAGES: _MESSAGES,
    Table.PAYLOADS: pa.schema(
        [
            *_IDENTITY,
            ("properties", STRING_MAP),
            ("compression", pa.string()),
            ("store_time", TIMESTAMP),
            ("payload_size", pa.int64()),
            ("payload", pa.binary()),
            ("fault", pa.string()),  # reason for a missing payload
        ]
    ),
    Table.GROUPS: pa.schema(
        [
            _BROKER,
            pa.field("group", pa.string(), nullable=False),
            _TOPIC,
            _QUEUE_ID,
            ("min_offset", pa.int64()),
            ("max_offset", pa.int64()),
            ("offset", pa.int64()),  # of the next message that the group takes
            pa.field("lag", pa.int64(), nullable=False),
            ("waiting_since", TIMESTAMP),  # when the oldest message that waits was stored
        ]
    ),
    Table.TOPICS: pa.schema(
        [
            _BROKER,
            _TOPIC,
            ("kind", pa.string()),
            ("read_queues", pa.int32()),
            ("write_queues", pa.int32()),
            ("permission", pa.int32()),
            *_EXTENT,
            ("tags", pa.map_(pa.string(), pa.int64())),
        ]
    ),
    Table.FAULTS: pa.schema(
        [
            _BROKER,
            pa.field("store", pa.string(), nullable=False),
            ("file", pa.string()),
            ("offset", pa.int64()),
            ("code", pa.string()),
            ("severity", pa.string()),
            ("reason", pa.string()),
            ("advice", pa.string()),
        ]
    ),
    Table.QUEUES: pa.schema(
        [_BROKER, _TOPIC, _QUEUE_ID, ("min_offset", pa.int64()), ("max_offset", pa.int64()), *_EXTENT]
    ),
}


def log_table_schema(table: Table) -> pa.Schema:
    """All columns of a table of RocketMQ stores. Raises BadOption for an unknown table."""
    if table not in _SCHEMAS:
        raise BadOption(f"table: RocketMQ stores have no table {table}: they have {', '.join(list(_SCHEMAS)[1:])}")
    return _SCHEMAS[table]


def batch_of_rows(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch with the columns of `schema`; each row has all columns of its table."""
    wanted = [{name: _storable(row[name]) for name in schema.names} for row in rows]
    return pa.RecordBatch.from_pylist(wanted, schema=schema)


def _storable(value: Any) -> Any:
    """The value, text as valid UTF-8: names of files may not be."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
