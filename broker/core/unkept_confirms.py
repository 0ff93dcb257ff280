"""Confirms that a primary has written, and that may go with its lease: too few nodes may have their records.

A primary that lives on when another takes its place tells that one of them, as a hop tells its next upstream.
"""

from __future__ import annotations

from broker.store.partition_files import PartitionFiles
from formats.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    DELETION_RECORD,
    ConfirmReason,
    DeletionRecordFlag,
    RecordType,
    scan,
    select,
)
from formats.disk.keys import NULL_KEY

__all__ = ["unkept_confirms", "unkept_records"]

# So many of the last records are looked at: a second or two of a busy shard.
RECORDS_MAX = 1 << 14


def unkept_records(files: PartitionFiles, primary_lease_id: int, copied_number: int, before: bytes = b"") -> bytes:
    """The last records under a lease behind the one up to which enough nodes have all: those of earlier files, of which
    these were taken `before`, and of these.
    """
    journal, end = files.journal.buffer, files.journal_end
    first = open_file(journal, FileType.JOURNAL).first_record_offset
    count = min((end - first) // JOURNAL_RECORD_SIZE, RECORDS_MAX)
    found = b""
    for records in (
        scan(before, 0, len(before) // JOURNAL_RECORD_SIZE),
        scan(journal, end - count * JOURNAL_RECORD_SIZE, count),
    ):
        is_own = ANY_RECORD.column(records, "primary_lease_id") == primary_lease_id
        found += records[is_own & (ANY_RECORD.column(records, "sequence_number") > copied_number)].tobytes()
    return found[-RECORDS_MAX * JOURNAL_RECORD_SIZE :]


def unkept_confirms(data: bytes) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """By queue key, GUIDs with the key of the app that is done with the message, or a null key for all apps."""
    records = scan(data, 0, len(data) // JOURNAL_RECORD_SIZE)
    found: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for record in _records_of(select(records, RecordType.CONFIRM)[0].tobytes()):
        confirm = CONFIRM_RECORD.unpack(record)
        if confirm.reason != ConfirmReason.AUTO_CONFIRMED:
            found.setdefault(confirm.queue_key, []).append((confirm.guid, confirm.app_key))
    for record in _records_of(select(records, RecordType.DELETION)[0].tobytes()):
        deletion = DELETION_RECORD.unpack(record)
        # The last confirm of a message is its deletion; expired messages go anyway, and refused ones may come again.
        if deletion.deletion_flag == DeletionRecordFlag.NONE:
            found.setdefault(deletion.queue_key, []).append((deletion.guid, NULL_KEY))
    return found


def _records_of(data: bytes) -> list[bytes]:
    return [data[at : at + JOURNAL_RECORD_SIZE] for at in range(0, len(data), JOURNAL_RECORD_SIZE)]
