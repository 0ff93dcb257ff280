"""Columns of a journal's records as the reference's storage tool prints them (`--details --print-mode json-pretty`).

All values are strings; a number without a name is `(* UNKNOWN *)`. Source: m_bmqstoragetool::RecordDetailsPrinter.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from enum import IntEnum, IntFlag
from typing import Any

from bmqctl.stores.blazingmq.read.columns import Column, Columns, Constant, Derived, Hex, Number, Value
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.wanted import Wanted
from formats.bmq.disk.journal import DeletionRecordFlag, JournalOpType, QueueOpType, RecordType, SyncPointType
from formats.bmq.disk.keys import NULL_KEY, hex_of
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["FOOTERS", "not_found", "reference_columns", "reference_time"]

NO_NAME = "** NULL **"
UNKNOWN = "(* UNKNOWN *)"
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")

FOOTERS = {
    RecordType.CONFIRM: "ConfirmRecords",
    RecordType.DELETION: "DeletionRecords",
    RecordType.MESSAGE: "MessageRecords",
    RecordType.QUEUE_OP: "QueueOpRecords",
    RecordType.JOURNAL_OP: "JournalOpRecords",
}
"""Names of the counts after the records, in order."""


def reference_columns(names: QueueNames, payload: Derived | None = None) -> dict[int, tuple[Columns, ...]]:
    queue = Derived(
        (Column("QueueKey"), Column("QueueUri")), ("queue_key",), lambda key: (hex_of(key), names.uris.get(key))
    )
    app = Derived((Column("AppKey"), Column("AppId")), ("queue_key", "app_key"), lambda *keys: _app(names, *keys))
    guid = Hex("GUID", "guid")

    def of(kind: RecordType, *own: Columns) -> tuple[Columns, ...]:
        return (Constant("RecordType", kind.name), *_HEADER, *own)

    return {
        RecordType.MESSAGE: of(
            RecordType.MESSAGE,
            queue,
            Hex("FileKey", "file_key"),
            Number("RefCount", "ref_count_high", low="ref_count_low"),
            Number("MsgOffsetDwords", "message_offset_dwords"),
            guid,
            Number("Crc32c", "crc32c"),
            *(() if payload is None else (payload,)),
        ),
        RecordType.CONFIRM: of(RecordType.CONFIRM, queue, app, guid),
        RecordType.DELETION: of(
            RecordType.DELETION, queue, _code("DeletionFlag", "deletion_flag", DeletionRecordFlag), guid
        ),
        RecordType.QUEUE_OP: of(RecordType.QUEUE_OP, queue, app, _QUEUE_OP),
        RecordType.JOURNAL_OP: of(
            RecordType.JOURNAL_OP,
            _code("JournalOpType", "journal_op_type", JournalOpType),
            _code("SyncPointType", "sync_point_type", SyncPointType),
            Number("SyncPtPrimaryLeaseId", "sync_point_primary_lease_id"),
            Number("SyncPtSequenceNumber", "sync_point_sequence_number"),
            Number("PrimaryNodeId", "primary_node_id"),
            Number("DataFileOffsetDwords", "data_file_offset_dwords"),
        ),
    }


def not_found(unseen: Collection[Wanted]) -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = {}
    for wanted in sorted(unseen, key=str):
        if isinstance(wanted, bytes):
            lists.setdefault("GuidsNotFound", []).append(hex_of(wanted))
        elif isinstance(wanted, RecordNumber):
            number = {"leaseId": str(wanted.primary_lease_id), "sequenceNumber": str(wanted.sequence_number)}
            lists.setdefault("SequenceNumbersNotFound", []).append(number)
        else:
            lists.setdefault("OffsetsNotFound", []).append(wanted)
    return lists


def reference_time(seconds: int) -> str:
    """Format a time as in `21NOV2026_05:11:04.000000`; `0` if beyond the year 9999."""
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return "0"
    return f"{time.day:02}{MONTHS[time.month - 1]}{time.year:04}_{time:%H:%M:%S}.000000"


def _app(names: QueueNames, queue_key: bytes, app_key: bytes) -> tuple[Value, ...]:
    if queue_key not in names.uris:
        return hex_of(app_key), None
    return hex_of(app_key), names.app_ids.get((queue_key, app_key), NO_NAME) if app_key != NULL_KEY else NO_NAME


def _named(kind: type[IntEnum | IntFlag], code: int) -> str:
    """Name a code; the reference names only single flags."""
    return {member.value: name for name, member in kind.__members__.items()}.get(code, UNKNOWN)


def _code(name: str, field: str, kind: type[IntEnum | IntFlag]) -> Derived:
    return Derived((Column(name),), (field,), lambda code: (_named(kind, code),))


def _queue_op(kind: int, offset_words: int) -> tuple[Value, ...]:
    names_queue = kind in (QueueOpType.CREATION, QueueOpType.ADDITION)
    return _named(QueueOpType, kind), offset_words if names_queue else None


_HEADER: tuple[Columns, ...] = (
    Number("Index", "index"),
    Number("Offset", "offset"),
    Number("PrimaryLeaseId", "primary_lease_id"),
    Number("SequenceNumber", "sequence_number"),
    Derived((Column("Timestamp"), Column("Epoch")), ("timestamp",), lambda t: (reference_time(t), t)),
)
_QUEUE_OP = Derived(
    (Column("QueueOpType"), Column("QLIST OffsetWords")), ("queue_op_type", "queue_uri_record_offset_words"), _queue_op
)
