# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The room of a partition's files: the amount that may be added within their limits, and the disk reserved for it.

A message is taken only if it fits together with the records that the stored messages will still need. A full partition
thus refuses messages while consuming goes on.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from broker.bmq.core.messages import Full
from broker.bmq.partition.held_records import HeldRecords
from broker.bmq.partition.records import WRITTEN_BYTES_MIN, PartitionRecords
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE

__all__ = [
    "EARLY_PART",
    "FILE_HEADERS_SIZE_MAX",
    "RECORDS_LEFT_MIN",
    "SPARE_RECORDS_MAX",
    "SYNC_POINTS",
    "SYNC_POINTS_KEPT",
    "PartitionRoom",
    "WantedRoom",
]

log: Final = logging.getLogger("broker.partition")

# Room for sync points and queue operations beyond what is due.
SPARE_RECORDS_MAX: Final = 64
SPARE_PART_MAX: Final = 1 / 16  # of a small journal

# The reference's primary rolls over when a journal has no room for this many records: one, its two sync points, and 16
# purges (mqbs::FileStore, k_REQUESTED_JOURNAL_SPACE). This exceeds the spare room in very small journals only.
RECORDS_LEFT_MIN: Final = 19

# Used part of a file at which a rollover begins if there are very many messages, since it takes long.
EARLY_PART: Final = 7 / 8

# Maximum number of operations on queues held back during a rollover.
HELD_OPERATIONS_MAX: Final = 1 << 16

FILE_HEADERS_SIZE_MAX: Final = 64

# Carried-over records are followed by the old files' last sync point, and by one of the new files' own.
SYNC_POINTS: Final = 2
# Two always have room: a next primary's first, and the one that ends the files.
SYNC_POINTS_KEPT: Final = 2


class WantedRoom(NamedTuple):
    """Room that the new files must have beyond what is carried over and due: bytes, and journal records."""

    data: int = 0
    records: int = 0
    qlist: int = 0


class Draining(Protocol):
    """The remover of messages from a partition that has no room for its reserved records."""

    def tick(self) -> None:
        """Resume pending work; called once a second."""
        ...

    def give_up(self) -> None:
        """Write what still fits: the partition is no longer served here."""
        ...


class PartitionRoom:
    """The room for records within `limits`, up to which a primary fills its files.

    Messages up to `data_granted` and `journal_granted` need not ask. `tight` is set while there is no room for the
    reserved records; messages are refused unless `available`.
    """

    __slots__ = (
        "_limits",
        "_records",
        "alarmed",
        "available",
        "closed",
        "data_granted",
        "full",
        "journal_granted",
        "spare_records",
        "tight",
    )

    def __init__(self, records: PartitionRecords, limits: PartitionLimits) -> None:
        self._records = records
        self.limits = limits
        self.journal_granted = 0
        self.data_granted = 0
        self.tight: Draining | None = None
        self.full = ""  # reason for which the last rollover was refused, until the next tick
        self.alarmed = False  # the alarm that it is full has been raised
        self.closed = False  # a message had no room: all are refused until a rollover frees some
        self.available = True

    @property
    def limits(self) -> PartitionLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: PartitionLimits) -> None:
        self._limits = limits
        records = int(limits.journal // JOURNAL_RECORD_SIZE * SPARE_PART_MAX)
        self.spare_records = max(SYNC_POINTS_KEPT, min(SPARE_RECORDS_MAX, records))

    def exceeds_limits(self) -> bool:
        """Return True if the files were filled under larger limits: earlier ones, or another primary's."""
        files, limits = self._records.files, self._limits
        return files.journal_end > limits.journal or files.data_end > limits.data or files.qlist_end > limits.qlist

    def widen_limits(self) -> None:
        files, limits = self._records.files, self._limits
        records = self._records.due + self.spare_records + SYNC_POINTS
        self.limits = PartitionLimits(
            journal=max(limits.journal, files.journal_end + records * JOURNAL_RECORD_SIZE),
            data=max(limits.data, files.data_end),
            qlist=max(limits.qlist, files.qlist_end),
        )

    @property
    def least(self) -> int:
        """The size of a journal with only messages, and what is due."""
        records = self._records
        return FILE_HEADERS_SIZE_MAX + (records.message_count + records.due + SYNC_POINTS) * JOURNAL_RECORD_SIZE

    @property
    def would_have_room(self) -> bool:
        return self.least + self.spare_records * JOURNAL_RECORD_SIZE <= self._limits.journal

    @property
    def has_room_for_due(self) -> bool:
        """Return True if the journal has room for all records that outstanding messages will still need."""
        return self._end_with(self._records.due) <= self._limits.journal

    def _end_with(self, due: int) -> int:
        return self._records.files.journal_end + (due + self.spare_records) * JOURNAL_RECORD_SIZE

    def reserve_due(self) -> bool:
        return self.has_room_for_due and self._records.files.journal.reserve(self._end_with(self._records.due))

    @property
    def held_max(self) -> int:
        return self._records.due + self.spare_records + HELD_OPERATIONS_MAX

    @property
    def journal_late(self) -> int:
        """The offset in the journal beyond which a rollover is due, if it is worthwhile."""
        return self._limits.journal - max(RECORDS_LEFT_MIN, self.spare_records) * JOURNAL_RECORD_SIZE

    def has_room(self, records: int) -> bool:
        if self.tight is not None:
            return False
        written = self._records
        records += written.due + written.records_held + SYNC_POINTS_KEPT
        return written.files.journal_end + records * JOURNAL_RECORD_SIZE <= self._limits.journal

    def has_qlist_room(self, size: int) -> bool:
        return self._records.files.qlist_end + self._records.qlist_held + size <= self._limits.qlist

    def reserve_journal(self, records: int) -> bool:
        written = self._records
        out, size = written.out, (written.due + records) * JOURNAL_RECORD_SIZE
        if not out.journal.reserve(out.journal_end + size):
            return False
        held = self._held_for_files
        return held is None or written.files.journal.reserve(written.files.journal_end + held.journal_end + size)

    def reserve_qlist(self, size: int) -> bool:
        out, files = self._records.out, self._records.files
        if not out.qlist.reserve(out.qlist_end + size):
            return False
        held = self._held_for_files
        return held is None or files.qlist.reserve(files.qlist_end + held.qlist_end + size)

    @property
    def _held_for_files(self) -> HeldRecords | None:
        """The records that these files get if a rollover is given up: disk is reserved for them here, too."""
        return self._records.held if self.tight is None else None

    def has_room_for(self, size: int, due: int) -> bool:
        """Return True if several messages have room, reserved if need be, and no rollover has to make some, or might.

        Their records in DATA are of `size` bytes together, and with them `due` records are due.
        """
        files, limits = self._records.files, self._limits
        data_end, journal_end = files.data_end + size, self._end_with(due)
        if (
            not self.available
            or self.tight is not None
            or self.closed
            or data_end > limits.data * EARLY_PART
            or journal_end > min(limits.journal * EARLY_PART, self.journal_late)
        ):
            return False
        if journal_end <= self.journal_granted:
            if size < WRITTEN_BYTES_MIN:
                if not files.data.reserve(data_end):
                    return False
                self.data_granted = files.data.granted
            return True
        if size < WRITTEN_BYTES_MIN and data_end > self.data_granted:
            # On a nearly full disk it matters which file gets the last of it, and for which message.
            return False
        if not files.journal.reserve(journal_end):
            return False
        self._grant_journal()
        return True

    def reserve(self, size: int, due: int, *, grants: bool) -> None:
        """Reserve disk for a message of `size` bytes in DATA and everything then due; raise `Full` if there is none.

        With `grants`, messages that fit what the files now have need not ask.
        """
        files = self._records.files
        if not (files.data.reserve(files.data_end + size) and files.journal.reserve(self._end_with(due))):
            raise Full("STORAGE_FAILURE", f"partition {self._records.partition_id}: the disk is full")
        if grants:
            self.data_granted = files.data.granted
            self._grant_journal()

    def _grant_journal(self) -> None:
        end = self.journal_late + self.spare_records * JOURNAL_RECORD_SIZE
        self.journal_granted = min(self._records.files.journal.granted, end)

    def revoke(self) -> None:
        self.journal_granted = self.data_granted = 0

    def check(self, wanted: WantedRoom) -> None:
        files, limits, due = self._records.files, self._limits, self._records.due
        if (
            files.data_end + wanted.data > limits.data
            or files.qlist_end + wanted.qlist > limits.qlist
            or files.journal_end + (due + wanted.records) * JOURNAL_RECORD_SIZE > limits.journal
        ):
            partition_id = self._records.partition_id
            raise Full("STORAGE_FAILURE", f"the files of partition {partition_id} are full after a rollover")

    def tell_full(self, reason: str) -> None:
        """Refuse what asks for a rollover until the next tick, and raise the alarm once."""
        self.full = reason
        if not self.alarmed:
            log.error("PANIC [PARTITION_READONLY] Partition [%d]: is full: %s", self._records.partition_id, reason)
            self.alarmed = True

    def end_tight(self) -> bool:
        """Take messages again if everything due has room, and disk; return True if so."""
        if not self.reserve_due():
            return False
        self.tight = None
        self.full = ""
        self.alarmed = self.closed = False
        log.info("Partition [%d]: has room for all reserved records", self._records.partition_id)
        return True

    def clear(self) -> None:
        self.full = ""
        self.alarmed = self.closed = False
        self.revoke()

    def set_available(self, available: bool) -> None:
        """Accept or refuse new messages; existing ones can still be confirmed and removed."""
        self.available = available
        self.revoke()
        text = "Partition [%d]: status changed to %s"
        log.info(text, self._records.partition_id, "AVAILABLE" if available else "UNAVAILABLE")
