"""Formats of the reference's storage inspector: a line for each field, with aligned colons.

Source: `mqbs::FileStoreProtocolPrinter`, `bmqu::AlignedPrinter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Any

from bmqctl.cli.tool.printing import ascii_dump, hex_dump
from bmqctl.cli.tool.store_files import Cursor, DataCursor, JournalCursor, QlistCursor
from bmqctl.stores.blazingmq.dump.reference import reference_time
from formats.bmq.disk.data import DataHeaderFlags, DataRecord
from formats.bmq.disk.files import DataFileHeader, JournalFileHeader
from formats.bmq.disk.journal import (
    ConfirmRecord,
    DeletionRecord,
    DeletionRecordFlag,
    JournalOpRecord,
    JournalOpType,
    MessageRecord,
    QueueOpRecord,
    QueueOpType,
    Record,
    RecordType,
    SyncPointType,
)
from formats.bmq.disk.keys import hex_of
from formats.bmq.disk.qlist import QueueRecord
from formats.bmq.wire.options import sub_queue_infos
from formats.bmq.wire.properties import Property, PropertyType, decode_properties, properties_size
from formats.errors import FormatError

__all__ = ["aligned", "kind_of", "print_data", "print_headers", "print_journal", "print_queue", "print_record"]

PAYLOAD_MAX = 1024
STRING_MAX = 128
NOT_THERE = "** NA **"
_INDENT = 4
_GAP = 4

Fields = Sequence[tuple[str, Any]]


def aligned(fields: Fields, indent: int = _INDENT) -> str:
    """Format names and values in lines with aligned values."""
    width = max(len(name) for name, _ in fields) + _GAP
    return "".join(f"{'':{indent}}{name}{': ':>{width - len(name)}}{value}\n" for name, value in fields)


def kind_of(record: Record) -> str:
    return RecordType(record.type).name


def print_record(record: Record) -> str:
    common: list[tuple[str, Any]] = [
        ("PrimaryLeaseId", record.primary_lease_id),
        ("SequenceNumber", record.sequence_number),
        ("Timestamp", reference_time(record.timestamp)),
        ("Epoch", record.timestamp),
    ]
    return aligned([*common, *_own_fields(record)]) + "\n"


def _own_fields(record: Record) -> Fields:
    match record:
        case MessageRecord():
            return [
                ("FileKey", hex_of(record.file_key)),
                ("QueueKey", hex_of(record.queue_key)),
                ("RefCount", record.ref_count),
                ("MsgOffsetDwords", record.message_offset_dwords),
                ("GUID", hex_of(record.guid)),
                ("Crc32c", record.crc32c),
            ]
        case ConfirmRecord():
            return [
                ("QueueKey", hex_of(record.queue_key)),
                ("AppKey", _app_key(record.app_key)),
                ("GUID", hex_of(record.guid)),
            ]
        case DeletionRecord():
            return [
                ("QueueKey", hex_of(record.queue_key)),
                ("DeletionFlag", _name(DeletionRecordFlag, record.deletion_flag)),
                ("GUID", hex_of(record.guid)),
            ]
        case QueueOpRecord():
            in_qlist = record.queue_op_type in (QueueOpType.CREATION, QueueOpType.ADDITION)
            offset = [("QLIST OffsetWords", record.queue_uri_record_offset_words)] if in_qlist else []
            return [
                ("QueueKey", hex_of(record.queue_key)),
                ("AppKey", _app_key(record.app_key)),
                ("QueueOpType", _name(QueueOpType, record.queue_op_type)),
                *offset,
                ("StartPrimaryLeaseId", record.start_primary_lease_id),
                ("StartSequenceNumber", record.start_sequence_number),
            ]
        case JournalOpRecord():
            return [
                ("JournalOpType", _name(JournalOpType, record.journal_op_type)),
                ("SyncPointType", _name(SyncPointType, record.sync_point_type)),
                ("SyncPtPrimaryLeaseId", record.sync_point_primary_lease_id),
                ("SyncPtSequenceNumber", record.sync_point_sequence_number),
                ("PrimaryNodeId", record.primary_node_id),
                ("DataFileOffsetDwords", record.data_file_offset_dwords),
            ]


def print_journal(cursor: JournalCursor) -> str:
    """Format the journal's current record, with its position."""
    record = cursor.record()
    return f"\nRecord index: {cursor.index}, offset: {cursor.offset}\n{kind_of(record)} Record:\n{print_record(record)}"


def print_queue(cursor: QlistCursor) -> str:
    record: QueueRecord = cursor.record()
    text = aligned([("Queue URI", record.uri), ("QueueKey", hex_of(record.queue_key)), ("NumAppIds", len(record.apps))])
    if record.apps:
        text += aligned(
            [pair for app in record.apps for pair in (("AppId", app.app_id), ("AppKey", hex_of(app.app_key)))]
        )
    return f"\nQueueUriRecord index: {cursor.index}, offset: {cursor.offset}\nQueueUriRecord:\n{text}"


def print_data(cursor: DataCursor) -> str:
    """Format the current record of the DATA file: header, options, properties, and the start of the payload."""
    content = cursor.content()
    record = cursor.record()
    header = record.header
    has_properties = bool(header.flags & DataHeaderFlags.MESSAGE_PROPERTIES)
    text = (
        f"\nDataRecord index: {cursor.index}, offset: {cursor.offset}\nDataHeader: \n"
        f"    HeaderWords:  {header.header_words}\n    OptionsWords: {header.options_words}\n"
        f"    MessageWords: {header.message_words}\n    Flags:\n"
        f"        MESSAGE_PROPERTIES: {'true' if has_properties else 'false'}\n"
    )
    if options := record.options(content):
        text += f"\nOptions: \n\n{_options(options)}"
    payload = record.app_data(content)
    if has_properties:
        properties, payload, fault = _split(record, payload)
        text += f"\nProperties: \n{fault or ''.join(map(_property_line, properties))}"
    text += f"\nPayload: \nFirst {min(len(payload), PAYLOAD_MAX)} bytes of payload: \n"
    text += hex_dump(bytes(payload[:PAYLOAD_MAX]))
    if len(payload) > PAYLOAD_MAX:
        text += f"And {len(payload) - PAYLOAD_MAX} more bytes (redacted)"
    return text


def _split(record: DataRecord, data: memoryview) -> tuple[list[Property], memoryview, str]:
    """Split a message into properties and payload; if that fails, everything is payload, with a reason."""
    try:
        size = properties_size(data)
        return decode_properties(data[:size], record.header.schema_id), data[size:], ""
    except FormatError as fault:
        return [], data, f"    Failed to retrieve message properties: {fault}\n"


def _property_line(item: Property) -> str:
    return f"    Name [{item.name}], Type [{item.type.name}], Value [{_property_value(item)}]\n"


def _property_value(item: Property) -> str:
    value: Any = item.value
    match item.type:
        case PropertyType.BOOL:
            return "true" if value else "false"
        case PropertyType.CHAR:
            number = int.from_bytes(value, "big", signed=True)
            return f"{ascii_dump(value)} (as integer: {number}, as hex: {value[0]:X})"
        case PropertyType.BINARY:
            return bytes(value[:STRING_MAX]).hex().upper()
        case PropertyType.STRING:
            return str(value)[:STRING_MAX]
        case _:
            return str(value)


def _options(options: memoryview) -> str:
    try:
        infos = sub_queue_infos(options)
    except FormatError:
        return "   *** Invalid Options ***\n"
    return "".join(f"      {info}\n" for info in infos)


def print_headers(cursor: Cursor[Any]) -> str:
    file = cursor.opened.file
    text = "BlazingMQ File Header\n" + aligned(
        [
            ("Protocol Version", file.protocol_version),
            ("Bitness", "64" if file.bitness else "32"),
            ("FileType", cursor.opened.file_type.name),
            ("HeaderWords", file.header_words),
            ("PartitionId", file.partition_id),
        ]
    )
    header = cursor.opened.header
    match header:
        case DataFileHeader():
            fields: Fields = [("HeaderWords", header.header_words), ("FileId (FileKey)", hex_of(header.file_key))]
            return f"{text}\n Data File Header: \n{aligned(fields)}\n"
        case JournalFileHeader():
            assert isinstance(cursor, JournalCursor)
            first = _first_sync_point(cursor, header.first_sync_point_after_rollover_offset_words)
            fields = [("HeaderWords", header.header_words), ("RecordWords", header.record_words), *first]
            return (
                f"{text}\nJournal File Header: \n{aligned(fields)}\nJournal SyncPoint:\n{aligned(_last_places(cursor))}"
            )
        case _:
            return f"{text}\n Qlist File Header: \n{aligned([('HeaderWords', header.header_words)])}\n"


_SYNC_POINT = (
    ("type", lambda record: _name(SyncPointType, record.sync_point_type)),
    ("primaryNodeId", lambda record: record.primary_node_id),
    ("primaryLeaseId", lambda record: record.sync_point_primary_lease_id),
    ("sequenceNumber", lambda record: record.sync_point_sequence_number),
    ("dataFileOffset", lambda record: record.data_file_offset_dwords),
    ("timestamp", lambda record: reference_time(record.timestamp)),
    ("epoch", lambda record: record.timestamp),
)


def _first_sync_point(cursor: JournalCursor, offset_words: int) -> Fields:
    record = cursor.record_at(offset_words * 4) if offset_words else None
    return [
        ("First SyncPointRecord offset words", offset_words),
        *(
            (f"First SyncPointRecord {name}", NOT_THERE if record is None else value(record))
            for name, value in _SYNC_POINT
        ),
    ]


def _last_places(cursor: JournalCursor) -> Fields:
    extent = cursor.extent
    fields: list[tuple[str, Any]] = []
    if extent.record_count:
        last = extent.end - (extent.end - extent.first_record_offset) // extent.record_count
        record = cursor.record_at(last)
        fields += [
            ("Last Valid Record Offset", last),
            ("Record Type", kind_of(record)),
            ("Record Timestamp", reference_time(record.timestamp)),
            ("Record Epoch", record.timestamp),
        ]
    else:
        names = ("Record Type", "Record Timestamp", "Record Epoch")
        fields += [("Last Valid Record Offset", 0), *((name, NOT_THERE) for name in names)]
    offset = extent.last_sync_point_offset
    sync_point = None if offset is None else cursor.record_at(offset)
    fields.append(("Last Valid SyncPoint Offset", offset or 0))
    for name, value in _LAST_SYNC_POINT:
        fields.append((name, NOT_THERE if sync_point is None else value(sync_point)))
    return fields


_LAST_SYNC_POINT = (
    ("SyncPoint Timestamp", lambda record: reference_time(record.timestamp)),
    ("SyncPoint Epoch", lambda record: record.timestamp),
    ("SyncPoint SeqNum", lambda record: record.sync_point_sequence_number),
    ("SyncPoint Primary NodeId", lambda record: record.primary_node_id),
    ("SyncPoint Primary LeaseId", lambda record: record.sync_point_primary_lease_id),
    ("SyncPoint DataFileOffset (DWORDS)", lambda record: record.data_file_offset_dwords),
    ("SyncPoint QlistFileOffset (WORDS)", lambda record: record.qlist_file_offset_words),
)


def _name(kind: type[IntEnum | IntFlag], value: int) -> str:
    return next((name for name, each in kind.__members__.items() if each == value), "(* UNKNOWN *)")


def _app_key(key: bytes) -> str:
    return hex_of(key) if any(key) else "** NULL **"
