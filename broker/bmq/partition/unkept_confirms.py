# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Confirms that a primary has written, but whose records may be on too few nodes to survive the end of its lease.

A primary that is replaced while it runs sends them to its successor, as a relay does to its next upstream broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from itertools import islice, takewhile
from typing import Final, NamedTuple

from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    DELETION_RECORD,
    ConfirmReason,
    DeletionRecordFlag,
    RecordType,
    scan,
    select,
)
from formats.bmq.disk.keys import NULL_KEY

__all__ = ["UnkeptPurge", "UnkeptPurges", "unkept_confirms", "unkept_records"]

# Last records that are examined: those of a second or two of a busy partition.
RECORDS_MAX: Final = 1 << 14

# Purges that are remembered.
PURGES_MAX: Final = 64
# Messages remembered of each purge: the oldest, since consumers hold those.
PURGED_MAX: Final = 1 << 14


class UnkeptPurge(NamedTuple):
    """The messages that a purge under this lease removed; a null app key stands for all apps."""

    sequence_number: int
    queue_key: bytes
    app_key: bytes
    guids: tuple[bytes, ...]


class UnkeptPurges:
    """The purges under the current lease whose records may be on too few nodes.

    Confirms of purged messages write no records, so the messages themselves are remembered here.
    """

    def __init__(self) -> None:
        self._purges: deque[UnkeptPurge] = deque(maxlen=PURGES_MAX)

    def add(
        self, number: int, queue_key: bytes, app_key: bytes, guids: Iterable[bytes], awaiting: Container[bytes]
    ) -> None:
        """Note a purge with the sequence number `number`.

        Messages from the first of those `awaiting` copies on are left out: they were not delivered, and may be posted
        again.
        """
        taken = tuple(islice(takewhile(lambda guid: guid not in awaiting, guids), PURGED_MAX))
        self._purges.append(UnkeptPurge(number, queue_key, app_key, taken))

    def behind(self, copied_number: int) -> list[UnkeptPurge]:
        """Return the purges after `copied_number`, up to which enough nodes have all records; forget the others."""
        purges = self._purges
        while purges and purges[0].sequence_number <= copied_number:
            purges.popleft()
        return list(purges)

    def clear(self) -> None:
        self._purges.clear()


def unkept_records(files: PartitionFiles, primary_lease_id: int, copied_number: int, before: bytes = b"") -> bytes:
    """Return the last records of a lease after `copied_number`, up to which enough nodes have all.

    At most `RECORDS_MAX` records are returned. `before` is the result for the files before the last rollover.
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


def unkept_confirms(data: bytes, purges: Iterable[UnkeptPurge] = ()) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """Return confirmed GUIDs by queue key, each with the key of the app that confirmed (null: all apps)."""
    records = scan(data, 0, len(data) // JOURNAL_RECORD_SIZE)
    found: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for purge in purges:
        found.setdefault(purge.queue_key, []).extend((guid, purge.app_key) for guid in purge.guids)
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
