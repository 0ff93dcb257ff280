"""A partition whose journal has no room for the records that its outstanding messages will need: it is only drained.

This broker's primaries keep that room free; the reference's do not, and files never grow beyond their limits. A primary
that takes over such a full journal writes records that remove messages while there is room, then rolls over, which
makes room for twice as many, and so on. A confirm of one app among several frees no room: it is written only if there
is also room for the removal of all messages. Otherwise it waits in memory until the removal of its message replaces it;
if the process is killed before, the message is delivered to that app again.

Records are collected in memory (`broker.bmq.partition.held_records`), and sorted and written at the end of the step, or
after a rollover in slices (`broker.bmq.partition.tight_rollover`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from broker.bmq.core.messages import Full
from broker.bmq.core.work import Task
from broker.bmq.partition.held_records import HeldRecords
from broker.bmq.partition.rollover_ports import RollingPartition
from broker.bmq.partition.room import SYNC_POINTS_KEPT
from broker.bmq.partition.tight_rollover import TightRollover
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import record_keys
from broker.common.faults import Change
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import QUEUE_OP_RECORD, RecordType, scan, select
from formats.bmq.disk.keys import KEY_SIZE

__all__ = ["Tight", "removing_first"]

log: Final = logging.getLogger("broker.partition")

# Minimum number of messages that a rollover must remove, unless it removes all; and no fewer than it carries over.
REMOVED_MIN: Final = 16
# If it may be the last one, it must remove at least one message for this many that it carries over.
ENDING_PART: Final = 8

# Records written at a time.
RECORDS_MAX: Final = 1 << 12


class _Woken(HeldRecords):
    """Records in memory; each calls `wake`."""

    __slots__ = ("_end", "_wake")

    def __init__(self, records_max: int, wake: Callable[[], None]) -> None:
        self._end = 0
        self._wake: Callable[[], None] = lambda: None
        super().__init__(records_max, 0, 0)
        self._wake = wake

    def empty(self, number: int) -> None:
        """Discard the records; the next one follows the record with that number."""
        self._end = 0
        self.number = number

    @property
    def journal_end(self) -> int:
        return self._end

    @journal_end.setter
    def journal_end(self, end: int) -> None:
        self._end = end
        self._wake()


class DrainedPartition(RollingPartition, Protocol):
    """A partition without room for its reserved records."""

    def change(self) -> Change:
        """Return the change of a rollover, which must not be continued after a partial failure."""
        ...

    def roll_slowly(self, rolling: TightRollover) -> None: ...


class Tight:
    """Drains such a partition, from `begin` until there is room for all reserved records.

    The partition's records are collected in `_held`, and sorted into `_removing` and `_others` at the end of the step.
    """

    def __init__(self, partition: DrainedPartition) -> None:
        self._partition = partition
        self._work = partition.work
        self._held = _Woken(partition.room.held_max, self._wake)
        self._number = partition.records.sequence_number  # of the last record in the files
        self._removing = bytearray()  # records that remove messages, in their order
        self._others = bytearray()  # confirms of one app among several
        self._messages = partition.records.message_count  # number of messages at the last rollover
        self._rolling: TightRollover | None = None
        self._is_woken = False
        self._may_roll = True  # a rollover may free something, or has not been tried
        self._has_no_disk = False  # the last rollover lacked disk space

    def begin(self) -> None:
        self._hold()
        if self._room < REMOVED_MIN:
            # Each lease has taken some of it.
            self._roll_over()

    def _take(self) -> None:
        records = self._partition.records.take_held()
        self._partition.records.sequence_number = self._number
        if records:
            removing, others = removing_first(records)
            self._removing += removing
            self._others += others

    def _hold(self) -> None:
        self._held.empty(self._number + (len(self._removing) + len(self._others)) // JOURNAL_RECORD_SIZE)
        self._partition.records.hold_in(self._held)

    def _wake(self) -> None:
        if self._work is not None and not self._is_woken:
            self._is_woken = True
            self._work.add(self._task())

    def _task(self) -> Task:
        while self._partition.room.tight is self and not self._drain():
            yield
        self._is_woken = False

    def tick(self) -> None:
        """Retry a rollover that found too little disk space, and resume pending work; called once a second."""
        self._may_roll |= self._has_no_disk
        self._wake()
        while self._work is None and self._partition.room.tight is self and not self._drain():
            """Nothing is done in slices."""

    def _drain(self) -> bool:
        """Write records that fit; return True if no more can be done now.

        The partition leaves this state if no record is left and there is room for all reserved ones.
        """
        self._take()
        is_done = self._is_moving or self._write_some()
        if not (self._is_moving or self._removing or self._others) and self._partition.room.end_tight():
            return True
        self._hold()
        return is_done

    @property
    def _is_moving(self) -> bool:
        return self._rolling is not None and not self._rolling.is_changed

    def _write_some(self) -> bool:
        """Write records, removals first, and roll over if that frees room; return like `_drain`."""
        if self._removing:
            written = self._write_removing(RECORDS_MAX)
            self._may_roll |= written > 0
            if self._removing:
                return not ((written and self._room > 0) or self._roll_over())
        messages = self._partition.records.message_count
        if self._is_worth_it(messages) and self._roll_over():
            return False
        return self._write_others(self._room - messages - REMOVED_MIN, messages)

    def _write_removing(self, count_max: int) -> int:
        count = max(0, min(self._room, count_max))
        written = self._append(bytes(self._removing[: count * JOURNAL_RECORD_SIZE]))
        del self._removing[: written * JOURNAL_RECORD_SIZE]
        return written

    def _write_others(self, room: int, messages: int) -> bool:
        """Write confirms of remaining messages as far as there is `room` for records; return like `_drain`."""
        if not self._others or room <= 0 < messages:
            return True
        part = bytes(self._others[: RECORDS_MAX * JOURNAL_RECORD_SIZE])
        found, _ = select(scan(part, 0, len(part) // JOURNAL_RECORD_SIZE), RecordType.CONFIRM)
        rows = [row for row, key in enumerate(record_keys(found)) if self._is_here(key)]
        fitting = rows[: max(0, room)]
        if fitting and not self._append(found[fitting].tobytes()):
            return True
        looked_at = len(found) if len(fitting) == len(rows) else rows[len(fitting)]
        del self._others[: looked_at * JOURNAL_RECORD_SIZE]
        return not self._others or looked_at < len(found)

    def _is_here(self, key: bytes) -> bool:
        store = self._partition.records.stores.get(key[:KEY_SIZE])
        return store is not None and key[KEY_SIZE:] in store

    def _is_worth_it(self, messages: int) -> bool:
        """Return True if a rollover would end the shortage, or free as much as it carries over."""
        partition, gone = self._partition, self._messages - messages
        if partition.room.has_room_for_due:
            return False
        least = messages // ENDING_PART if partition.room.would_have_room else messages
        return gone >= min(max(REMOVED_MIN, least), self._messages)

    def give_up(self) -> None:
        self._take()
        self._write_removing(self._room)
        while not (self._removing or self._write_others(self._room, 0)):
            """All at once."""

    @property
    def _room(self) -> int:
        partition = self._partition
        return (
            partition.room.limits.journal - partition.records.files.journal_end
        ) // JOURNAL_RECORD_SIZE - SYNC_POINTS_KEPT

    def _append(self, records: bytes) -> int:
        """Write records for which there is room; return their number, 0 if there is too little disk space."""
        partition, count = self._partition, len(records) // JOURNAL_RECORD_SIZE
        files = partition.records.files
        if not (count and files.journal.reserve(files.journal_end + len(records))):
            return 0
        part = HeldRecords(count, 0, self._number)
        part.journal.buffer[:] = records
        part.journal_end = len(records)
        self._number = partition.records.sequence_number = part.append_to(files, self._number)
        return count

    def _roll_over(self) -> bool:
        """Begin a rollover unless one was tried since the last write; return True if begun."""
        if not self._may_roll or self._rolling is not None:
            return False
        self._may_roll = False
        partition = self._partition
        self._messages = partition.records.message_count
        try:
            with partition.change():
                fresh = partition.sets.create(partition.room.limits)
        except Full as full:
            self._has_no_disk = True
            log.warning("Partition [%d]: %s", partition.partition_id, full)
            return False
        log.info(
            "Partition [%d]: Initiating rollover of %s", partition.partition_id, partition.records.files.journal.name
        )
        self._has_no_disk = False
        rolling = self._rolling = TightRollover(partition, fresh, self._change_files, self._rollover_is_over)
        partition.roll_slowly(rolling)
        if self._work is None:
            rolling.complete()
            self._take()
        return True

    def _change_files(self, fresh: PartitionFiles, write_header: Callable[[int], None]) -> None:
        partition = self._partition
        self._take()
        with partition.change():
            partition.change_files(fresh, write_header)
        self._number = partition.records.sequence_number
        self._hold()
        self._wake()

    def _rollover_is_over(self) -> None:
        assert self._rolling is not None
        self._has_no_disk = self._rolling.has_no_disk
        self._rolling = None
        if self._partition.room.tight is self:
            self._wake()


def removing_first(records: bytes) -> tuple[bytes, bytes]:
    """Sort the records of a partition that takes no messages: return removals, and the confirms of other messages."""
    found = scan(records, 0, len(records) // JOURNAL_RECORD_SIZE)
    confirms, at = select(found, RecordType.CONFIRM)
    deletions, _ = select(found, RecordType.DELETION)
    removed = set(record_keys(deletions))
    purged = {}
    ops, rows = select(found, RecordType.QUEUE_OP)
    data = ops.tobytes()
    for n, row in enumerate(rows.tolist()):
        purged[QUEUE_OP_RECORD.unpack(data, n * JOURNAL_RECORD_SIZE).queue_key] = row
    is_other = np.zeros(len(found), bool)
    is_confirm = is_other.copy()
    is_confirm[at] = True
    for key, row in zip(record_keys(confirms), at.tolist(), strict=True):
        is_other[row] = key not in removed and purged.get(key[:KEY_SIZE], -1) < row
    return found[~is_confirm].tobytes(), found[is_other].tobytes()
