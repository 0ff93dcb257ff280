# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Durability: flushing to the disk, beyond what the kernel does by itself.

Written pages outlive the process, but not a power failure. `NEVER` leaves it at that, as the reference does. `INTERVAL`
limits the loss. `ALWAYS` is group commit: a step's records are on the disk before any output of the step leaves the
node, so acks, receipts and votes name only records on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from broker.bmq.core.ledger import Ledger
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.partition_files import PartitionFiles
from broker.common.files import Directory, StoreFile

__all__ = ["NEVER", "Durability", "FsyncMode", "FsyncPolicy", "parse_fsync"]

INTERVAL_MS_MAX: Final = 3_600_000


class FsyncMode(Enum):
    NEVER = "never"
    INTERVAL = "every N milliseconds"
    ALWAYS = "always"


class FsyncPolicy(NamedTuple):
    """The policy; `interval_ms` is for INTERVAL."""

    mode: FsyncMode
    interval_ms: int = 0


NEVER: Final = FsyncPolicy(FsyncMode.NEVER)


def parse_fsync(text: str) -> FsyncPolicy:
    """Parse `never`, `always`, or an interval in milliseconds. Raises ValueError for anything else."""
    if text in ("never", "always"):
        return FsyncPolicy(FsyncMode(text))
    if text.isascii() and text.isdigit() and 1 <= int(text) <= INTERVAL_MS_MAX:
        return FsyncPolicy(FsyncMode.INTERVAL, int(text))
    raise ValueError(f"{text!r} is neither never, nor always, nor milliseconds from 1 to {INTERVAL_MS_MAX}")


class _Synced(NamedTuple):
    """The flushed state of a partition. The ends alone would not reveal a rewritten tail."""

    files: PartitionFiles
    data_end: int
    qlist_end: int
    journal_end: int
    primary_lease_id: int
    sequence_number: int


class Durability:
    """Tracks data written since the last flush."""

    def __init__(self, partitions: Iterable[StoredPartition], ledger: Ledger) -> None:
        self._partitions = tuple(partitions)
        self._ledger = ledger
        # Data present at the start may be an earlier process's, never flushed.
        self._synced: dict[int, _Synced] = {}
        self._ledger_synced: tuple[StoreFile | None, int] = (None, 0)

    def unsynced(self) -> list[StoreFile | Directory]:
        """Return the files to flush, in this order; they count as flushed from here on.

        DATA, QLIST and the names of new files come before the journal that refers to them: a journal without the others
        would look like one whose files were removed.
        """
        found: list[StoreFile | Directory] = []
        for partition in self._partitions:
            self._look_at(partition, found)
        ledger = self._ledger
        if self._ledger_synced != (ledger.file, ledger.end) and ledger.file is not None:
            found.append(ledger.file)
            if self._ledger_synced[0] is not ledger.file:
                found.append(ledger.directory)
            self._ledger_synced = (ledger.file, ledger.end)
        return found

    def _look_at(self, partition: StoredPartition, found: list[StoreFile | Directory]) -> None:
        files = partition.files
        now = _Synced(
            files,
            files.data_end,
            files.qlist_end,
            files.journal_end,
            partition.primary_lease_id,
            partition.sequence_number,
        )
        before = self._synced.get(partition.partition_id)
        if now == before:
            return
        self._synced[partition.partition_id] = now
        is_new = before is None or before.files is not files
        # A tail that was truncated and rewritten under another lease may end at the same offset.
        is_other = before is None or is_new or before.primary_lease_id != now.primary_lease_id
        if is_other or before is None or before.data_end != now.data_end:
            found.append(files.data)
        if is_other or before is None or before.qlist_end != now.qlist_end:
            found.append(files.qlist)
        if is_new:
            found.append(files.directory)
        found.append(files.journal)

    def sync(self) -> None:
        for each in self.unsynced():
            each.flush()
