"""Confirms that a primary has written, and that may go with its lease: too few nodes may have their records.

A primary that lives on when another takes its place tells that one of them, as a hop tells its next upstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from broker.store.partition_files import PartitionFiles
from broker.store.recovery import purges
from formats.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    DELETION_RECORD,
    ConfirmReason,
    DeletionRecordFlag,
    RecordType,
    pack_confirm,
    pack_deletion,
    scan,
    select,
)
from formats.disk.keys import NULL_KEY
from formats.guid import GUID_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["unkept_confirms", "unkept_records"]

# So many of the last records are looked at: a second or two of a busy shard. A purge stands for as many messages.
RECORDS_MAX = 1 << 14


def unkept_records(files: PartitionFiles, primary_lease_id: int, copied_number: int, before: bytes = b"") -> bytes:
    """The last records under a lease behind the one up to which enough nodes have all: those of earlier files, of which
    these were taken `before`, and of these. Behind a purge come records of what it removed, as if each had gone alone.
    """
    journal, end = files.journal.buffer, files.journal_end
    first = open_file(journal, FileType.JOURNAL).first_record_offset
    records = scan(journal, first, (end - first) // JOURNAL_RECORD_SIZE)
    since = max(0, len(records) - RECORDS_MAX)
    found = b""
    for part in (scan(before, 0, len(before) // JOURNAL_RECORD_SIZE), records[since:]):
        found += part[_are_unkept(part, primary_lease_id, copied_number)].tobytes()
    found += b"".join(_of_purges(records, since, primary_lease_id, copied_number))
    return found[-2 * RECORDS_MAX * JOURNAL_RECORD_SIZE :]


def _are_unkept(records: NDArray[Any], primary_lease_id: int, copied_number: int) -> NDArray[Any]:
    is_own: NDArray[Any] = ANY_RECORD.column(records, "primary_lease_id") == primary_lease_id
    return is_own & (ANY_RECORD.column(records, "sequence_number") > copied_number)


def _of_purges(records: NDArray[Any], since: int, primary_lease_id: int, copied_number: int) -> Iterator[bytes]:
    """For each message that an unkept purge removed, a record with the number of the purge.

    The purge leaves no message for a consumer to confirm: its confirm is not written, though it may well be given.
    """
    for queue_key, found in purges(records, since).items():
        for app_key, row in found:
            purge = ANY_RECORD.unpack(records[row].tobytes())
            if purge.primary_lease_id != primary_lease_id or purge.sequence_number <= copied_number:
                continue
            head = purge.primary_lease_id, purge.sequence_number, purge.timestamp
            out = bytearray(JOURNAL_RECORD_SIZE)
            # The oldest are those that consumers have.
            for guid in islice(_guids_before(records[:row], queue_key), RECORDS_MAX):
                if app_key == NULL_KEY:
                    pack_deletion(out, 0, *head, DeletionRecordFlag.NONE, queue_key, guid)
                else:
                    pack_confirm(out, 0, *head, ConfirmReason.CONFIRMED, queue_key, app_key, guid)
                yield bytes(out)


def _guids_before(records: NDArray[Any], queue_key: bytes) -> Iterator[bytes]:
    """The messages of a queue that no record behind them deletes, oldest first."""
    deletions, deleted_at = _of_queue(records, RecordType.DELETION, queue_key)
    deleted = dict(zip(deletions, deleted_at, strict=True))
    for guid, row in zip(*_of_queue(records, RecordType.MESSAGE, queue_key), strict=True):
        if deleted.get(guid, -1) < row:
            yield guid


def _of_queue(records: NDArray[Any], kind: RecordType, queue_key: bytes) -> tuple[list[bytes], list[int]]:
    """The GUIDs of one queue's records of a kind, and their rows."""
    import numpy as np

    found, rows = select(records, kind)
    are_its = found["queue_key"] == np.void(queue_key)
    guids = found["guid"][are_its].tobytes()
    return [guids[at : at + GUID_SIZE] for at in range(0, len(guids), GUID_SIZE)], rows[are_its].tolist()


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
