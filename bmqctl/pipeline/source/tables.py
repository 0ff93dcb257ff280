"""The columns of every table, as Arrow schemas.

Times have a precision of a second, as in the files. Sizes and offsets are in bytes.
"""

from __future__ import annotations

import pyarrow as pa

from bmqctl.pipeline.source.arrays import TIMESTAMP
from bmqctl.pipeline.source.decoding.decode import payload_fields
from bmqctl.pipeline.source.options import BadOption, ReadOptions, Table
from bmqctl.pipeline.source.rows.properties import PROPERTIES_TYPE

__all__ = ["chosen_columns", "schema_of", "table_schema"]

NAMES = pa.list_(pa.string())


_PARTITION = pa.field("partition_id", pa.int32(), nullable=False)
_QUEUE = [_PARTITION, pa.field("queue_uri", pa.string()), pa.field("queue_key", pa.string(), nullable=False)]
_SIZES = [(name, pa.int64()) for name in ("stored_size", "properties_size", "payload_size")]

_SCHEMAS = {
    Table.RECORDS: pa.schema(
        [
            pa.field("partition_id", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),  # bytes, in the journal file
            pa.field("type", pa.string(), nullable=False),
            ("primary_lease_id", pa.int64()),
            ("sequence_number", pa.int64()),
            ("timestamp", TIMESTAMP),
            ("queue_key", pa.string()),
            ("queue_uri", pa.string()),
            ("app_key", pa.string()),
            ("app_id", pa.string()),
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
    ),
    Table.MESSAGES: pa.schema(
        [
            *_QUEUE,
            ("guid", pa.string()),
            ("arrival_time", TIMESTAMP),
            *_SIZES,
            ("compression", pa.string()),
            ("crc32c", pa.int64()),
            ("primary_lease_id", pa.int64()),
            ("sequence_number", pa.int64()),
            ("journal_offset", pa.int64()),
            ("message_offset", pa.int64()),
            ("ref_count", pa.int32()),
            ("outcome", pa.string()),
            ("removal_time", TIMESTAMP),
            ("removal_primary_lease_id", pa.int64()),
            ("removal_sequence_number", pa.int64()),
            ("confirmed_apps", NAMES),
            ("rejected_apps", NAMES),
            ("auto_confirmed_apps", NAMES),
            ("purged_apps", NAMES),
            ("pending_apps", NAMES),
        ]
    ),
    Table.CONFIRMS: pa.schema(
        [
            *_QUEUE,
            ("app_id", pa.string()),
            ("app_key", pa.string()),
            ("guid", pa.string()),
            ("confirm_time", TIMESTAMP),
            ("confirm_reason", pa.string()),
            pa.field("implied", pa.bool_(), nullable=False),  # by the message's deletion
            ("arrival_time", TIMESTAMP),
            ("latency_s", pa.int64()),
            ("primary_lease_id", pa.int64()),
            ("sequence_number", pa.int64()),
            ("offset", pa.int64()),
            ("message_journal_offset", pa.int64()),
        ]
    ),
    Table.QUEUES: pa.schema(
        [
            *_QUEUE,
            ("domain", pa.string()),
            ("queue", pa.string()),
            ("app_ids", NAMES),  # at the end
            ("removed_app_ids", NAMES),
            ("created_time", TIMESTAMP),
            ("deleted_time", TIMESTAMP),
        ]
    ),
    Table.LEDGER: pa.schema(
        [
            pa.field("file", pa.string(), nullable=False),
            ("offset", pa.int64()),
            ("type", pa.string()),
            ("elector_term", pa.int64()),
            ("sequence_number", pa.int64()),
            ("timestamp", TIMESTAMP),
            ("crc32c", pa.int64()),
            ("message", pa.string()),  # JSON
        ]
    ),
    Table.PAYLOADS: pa.schema(
        [
            *_QUEUE,
            ("guid", pa.string()),
            ("arrival_time", TIMESTAMP),
            ("compression", pa.string()),
            ("schema_id", pa.int32()),
            ("properties", PROPERTIES_TYPE),
            ("payload_size", pa.int64()),
            ("payload", pa.binary()),
            ("fault", pa.string()),  # reason for a missing payload
            ("primary_lease_id", pa.int64()),
            ("sequence_number", pa.int64()),
            ("journal_offset", pa.int64()),
        ]
    ),
    Table.FAULTS: pa.schema(
        [
            pa.field("store", pa.string(), nullable=False),
            ("file", pa.string()),
            ("partition_id", pa.int32()),
            ("offset", pa.int64()),
            ("code", pa.string()),
            ("severity", pa.string()),
            ("reason", pa.string()),
            ("advice", pa.string()),
        ]
    ),
}


def table_schema(table: Table) -> pa.Schema:
    """All columns of a table. Raises BadOption if BlazingMQ's stores have no such table."""
    if table not in _SCHEMAS:
        raise BadOption(f"table: BlazingMQ stores have no table {table}: they have {', '.join(_SCHEMAS)}")
    return _SCHEMAS[table]


def schema_of(options: ReadOptions) -> pa.Schema:
    """The requested columns of a table of BlazingMQ stores. Raises BadOption for an unknown name."""
    return chosen_columns(options, table_schema(options.table))


def chosen_columns(options: ReadOptions, schema: pa.Schema) -> pa.Schema:
    """The requested columns of a table, and those of decoding. Raises BadOption for an unknown name."""
    if options.payload_format:
        if options.table is not Table.PAYLOADS:
            raise BadOption(f"payloadFormat: payloads are decoded in the table payloads, not in {options.table}")
        schema = pa.schema([*schema, *payload_fields(options)])
    if not options.columns:
        return schema
    unknown = [name for name in options.columns if name not in schema.names]
    if unknown:
        raise BadOption(f"columns: {options.table} has no {unknown[0]}: it has {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in dict.fromkeys(options.columns)])
