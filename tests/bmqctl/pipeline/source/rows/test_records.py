from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from formats.bmq.disk.journal import QueueOpType
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.written import WrittenStore
from tests.golden.archives import STORES, storage_records

KEY, GUID, APP = b"queue", bytes(range(16)), b"appid"


def rows_of(store: Path, per_part: int = 1 << 20) -> list[dict[str, Any]]:
    return read_rows(store, recordsPerPartition=str(per_part))


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def as_tool_prints(row: dict[str, Any]) -> dict[str, str]:
    """The row in the words of the reference's storage tool, as far as keys alone can tell."""
    words = {
        "RecordType": row["type"],
        "Offset": row["offset"],
        "PrimaryLeaseId": row["primary_lease_id"],
        "SequenceNumber": row["sequence_number"],
        "Epoch": int(row["timestamp"].timestamp()),
        "QueueKey": row["queue_key"],
        "AppKey": "0000000000" if row["type"] == "QUEUE_OP" and row["app_key"] is None else row["app_key"],
        "GUID": row["guid"],
        "RefCount": row["ref_count"],
        "Crc32c": row["crc32c"],
        "MsgOffsetDwords": None if row["message_offset"] is None else row["message_offset"] // 8,
        "DeletionFlag": row["deletion_flag"],
        "QueueOpType": row["queue_op_type"],
        "QLIST OffsetWords": None if row["queue_op_type"] is None else row["queue_uri_record_offset"] // 4,
        "JournalOpType": row["journal_op_type"],
        "SyncPointType": row["sync_point_type"],
        "SyncPtPrimaryLeaseId": row["sync_point_primary_lease_id"],
        "SyncPtSequenceNumber": row["sync_point_sequence_number"],
        "PrimaryNodeId": row["primary_node_id"],
        "DataFileOffsetDwords": None if row["data_file_offset"] is None else row["data_file_offset"] // 8,
    }
    return {name: str(value) for name, value in words.items() if value is not None}


@pytest.mark.parametrize("name", STORES)
def test_rows_are_what_the_storage_tool_prints(golden: Callable[[str], Path], name: str) -> None:
    not_in_a_row = {"Index", "Timestamp", "QueueUri", "AppId", "FileKey"}
    printed = [
        {key: value for key, value in record.items() if key not in not_in_a_row} for record in storage_records(name)
    ]
    assert [as_tool_prints(row) for row in rows_of(golden(name))] == printed


def test_rows_do_not_depend_on_how_the_journal_is_cut(golden: Callable[[str], Path]) -> None:
    assert rows_of(golden("single-clean"), per_part=7) == rows_of(golden("single-clean"))


def test_each_kind_fills_its_columns_and_no_other(tmp_path: Path) -> None:
    written = WrittenStore(partition_id=5)
    written.queue_op(QueueOpType.PURGE, KEY, APP, words=9, start=1)
    written.message(KEY, GUID, b"12345", ref_count=(1 << 12) + 2)
    written.confirm(KEY, GUID, APP, reason=3)
    written.deletion(KEY, GUID, flag=2)
    written.sync_point()
    rows = [without_nulls(row) for row in rows_of(written.save(tmp_path))]
    every = {"partition_id", "offset", "type", "primary_lease_id", "sequence_number", "timestamp"}
    assert all(row["partition_id"] == 5 and row["primary_lease_id"] == 1 for row in rows)
    assert [row["timestamp"] for row in rows[:2]] == [
        datetime.fromisoformat("2027-01-15T08:00:01Z"),
        datetime.fromisoformat("2027-01-15T08:00:02Z"),
    ]
    key, guid, app = KEY.hex().upper(), GUID.hex().upper(), APP.hex().upper()
    assert [{name: row[name] for name in row if name not in every} for row in rows] == [
        {
            "queue_key": key,
            "app_key": app,
            "queue_op_type": "PURGE",
            "queue_uri_record_offset": 36,
            "start_primary_lease_id": 1,
            "start_sequence_number": 1,
        },
        {
            "queue_key": key,
            "guid": guid,
            "ref_count": 4098,
            "compression": "NONE",
            "crc32c": crc32c(b"12345"),
            "message_offset": 40,
            "stored_size": 5,
            "properties_size": 0,
            "payload_size": 5,
        },
        {"queue_key": key, "app_key": app, "guid": guid, "confirm_reason": "REJECTED|AUTO_CONFIRMED"},
        {"queue_key": key, "guid": guid, "deletion_flag": "TTL_EXPIRATION"},
        {
            "journal_op_type": "SYNCPOINT",
            "sync_point_type": "REGULAR",
            "sync_point_primary_lease_id": 1,
            "sync_point_sequence_number": 5,
            "primary_node_id": 7,
            "data_file_offset": 64,
            "qlist_file_offset": 36,
        },
    ]


def test_values_out_of_range(tmp_path: Path) -> None:
    """A type code without a name is a number, a time beyond year 9999 and an unreadable payload are null."""
    written = WrittenStore()
    written.queue_op(QueueOpType.PURGE, KEY)
    written.message(KEY, GUID)
    written.journal[44 + 12 : 44 + 20] = b"\xff" * 8
    written.journal[44 + 35] = 99
    written.journal[104 + 32 : 104 + 36] = b"\xff" * 4
    first, second = rows_of(written.save(tmp_path))
    assert (first["timestamp"], first["queue_op_type"], first["app_key"]) == (None, "99", None)
    assert second["message_offset"] == 0xFFFFFFFF * 8
    assert (second["stored_size"], second["properties_size"], second["payload_size"]) == (None, None, None)
