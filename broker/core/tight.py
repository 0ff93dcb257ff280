"""A shard whose journal has no room for all that outstanding messages will need: it lets go of what it has, and takes
nothing in.

Our primaries keep that room free; the reference's do not, and files never grow beyond their limits. So whoever takes
over what such a primary has filled writes what removes messages as long as there is room, then rolls over, which makes
room for twice as many, and so on. A confirm of one app among several makes no room: it is written while there is room
for the removal of all messages besides, and waits in memory otherwise, where the removal of its message takes its
place. Whoever is killed then delivers to that app again.

Records are held in memory for the length of a step (`broker.core.held_records`), and sorted then. What a rollover
carries over is what the files say, as at a replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from broker.core.held_records import HeldRecords
from broker.core.messages import Full
from broker.core.sliced_rollover import SYNC_POINTS, SYNC_POINTS_KEPT
from broker.core.work import Task
from broker.store.chunked import Chunked
from broker.store.moving import Moving
from broker.store.recovery import record_keys
from broker.store.sliced_recovery import SlicedRecovery
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import QUEUE_OP_RECORD, RecordType, scan, select
from formats.disk.keys import KEY_SIZE

if TYPE_CHECKING:
    from broker.core.shard import Shard

__all__ = ["Tight", "removing_first"]

log = logging.getLogger("broker.shard")

# A rollover must get rid of so many messages at least, or of all, and of as many as it carries over.
REMOVED_MIN = 16
# If it may be the last, it must get rid of one for so many that it carries over.
ENDING_PART = 8


class _Place:
    """A message that the files say is alive: its queue key and GUID, and where it is in DATA."""

    __slots__ = ("key", "offset")

    def __init__(self, key: bytes, offset: int) -> None:
        self.key = key
        self.offset = offset


class _Woken(HeldRecords):
    """Records in memory; each calls `wake`."""

    __slots__ = ("_end", "_wake")

    def __init__(self, records_max: int, number: int, records: bytes, wake: Callable[[], None]) -> None:
        self._end = 0
        self._wake: Callable[[], None] = lambda: None
        super().__init__(records_max, 0, number)
        self.journal.buffer[: len(records)] = records
        self._end = len(records)
        self._wake = wake

    @property
    def journal_end(self) -> int:
        return self._end

    @journal_end.setter
    def journal_end(self, end: int) -> None:
        self._end = end
        self._wake()


class Tight:
    """Serves such a shard until all that is due has room."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._messages = shard.message_count  # at the last rollover
        self._is_woken = False
        self._may_roll = True  # it may get rid of something, or has not been tried
        self._has_no_disk = False  # the last rollover had none
        if self._room < REMOVED_MIN:
            # Each lease has taken some of it.
            self._roll_over()
        self._hold(b"")

    def _hold(self, records: bytes) -> None:
        shard = self._shard
        held = _Woken(shard.held_max + len(records) // JOURNAL_RECORD_SIZE, shard.sequence_number, records, self._wake)
        shard.hold_in(held)

    def _wake(self) -> None:
        work = self._shard.work
        if work is not None and not self._is_woken:
            self._is_woken = True
            work.add(self._task())

    def _task(self) -> Task:
        self._is_woken = False
        if self._shard.tight is self:
            self.drain()
        yield from ()

    def tick(self) -> None:
        """Once a second: there may be disk for a rollover that had none, and work that nobody has done yet."""
        self._may_roll |= self._has_no_disk
        self.drain()

    def drain(self) -> None:
        """Write what fits; the shard is itself again if nothing is left and all that is due has room."""
        shard = self._shard
        removing, others = removing_first(shard.take_held())
        removing = self._remove(removing)
        while removing and self._roll_over():
            removing = self._remove(removing)
        messages = shard.message_count
        if self._is_worth_it(messages):
            self._roll_over()
        if not removing:
            others = self._write(others, self._room - messages - REMOVED_MIN)
        if removing or others or not shard.end_tight():
            self._hold(removing + others)

    def _is_worth_it(self, messages: int) -> bool:
        """Return whether so much is gone that a rollover ends this, or frees as much as it carries over."""
        shard, gone = self._shard, self._messages - messages
        if shard.has_room_for_due:
            return False
        least = messages // ENDING_PART if shard.would_have_room else messages
        return gone >= min(max(REMOVED_MIN, least), self._messages)

    def give_up(self) -> None:
        """The shard is served here no longer: write what still fits."""
        removing, others = removing_first(self._shard.take_held())
        self._may_roll = False
        if not self._write(removing, self._room):
            self._write(others, self._room)

    @property
    def _room(self) -> int:
        """The number of records that still fit."""
        shard = self._shard
        return (shard.limits.journal - shard.files.journal_end) // JOURNAL_RECORD_SIZE - SYNC_POINTS_KEPT

    def _remove(self, records: bytes) -> bytes:
        """Write records that remove something, as many as fit; the rest."""
        left = self._write(records, self._room)
        self._may_roll |= len(left) < len(records)
        return left

    def _write(self, records: bytes, room: int) -> bytes:
        """Write as many as there is room and disk for; the rest."""
        shard, count = self._shard, min(len(records) // JOURNAL_RECORD_SIZE, room)
        size = count * JOURNAL_RECORD_SIZE
        files = shard.files
        if count <= 0 or not files.journal.reserve(files.journal_end + size):
            return records
        part = HeldRecords(count, 0, shard.sequence_number)
        part.journal.buffer[:size] = records[:size]
        part.journal_end = size
        shard.sequence_number = part.append_to(files, shard.sequence_number)
        return records[size:]

    def _roll_over(self) -> bool:
        """Make room, if it has not been tried since something was written; whether there is some."""
        if not self._may_roll:
            return False
        self._may_roll = False
        shard = self._shard
        self._messages = shard.message_count
        try:
            with shard.rollover_change():
                self._move()
        except Full as full:
            self._has_no_disk = True
            log.warning("Partition [%d]: %s", shard.partition_id, full)
        else:
            self._has_no_disk = False
        return self._room > 0

    def _move(self) -> None:
        """Roll over with what the files say is alive, if that makes room. `Full` if there is no disk."""
        shard = self._shard
        old = shard.files
        fresh = shard.create_files()
        log.info("Partition [%d]: Initiating rollover of %s", shard.partition_id, old.journal.name)
        recovery = SlicedRecovery(old)
        rows = old.journal_end // JOURNAL_RECORD_SIZE
        recovery.advance(rows)
        _, keys, _, offsets = recovery.alive(rows)
        alive: Chunked[_Place] = Chunked()
        alive.put(keys, map(_Place, keys, offsets.tolist()))
        moving = Moving(old, fresh, alive.get, recovery.queues, 0)
        while moving.rows_left:
            if not moving.advance(moving.rows_left, 1 << 62):
                fresh.remove()
                raise Full("STORAGE_FAILURE", f"partition {shard.partition_id}: no disk for new files")
        end = fresh.journal_end + SYNC_POINTS * JOURNAL_RECORD_SIZE
        if end + SYNC_POINTS_KEPT * JOURNAL_RECORD_SIZE >= min(shard.limits.journal, old.journal_end):
            fresh.remove()
            log.warning("Partition [%d]: a rollover of %s makes no room", shard.partition_id, old.journal.name)
            return
        if not fresh.journal.reserve(end):
            fresh.remove()
            raise Full("STORAGE_FAILURE", f"partition {shard.partition_id}: no disk for new files")
        shard.change_files(fresh, moving.finish, offsets_from=0)
        self._place(moving)
        try:
            old.retire()
        except OSError as error:
            shard.note_not_retired(old, error)

    def _place(self, moving: Moving) -> None:
        """Tell messages where they are now; of some that the files had, only the removal has yet to be written."""
        shard, told = self._shard, 0
        for place, start in moving.take(1 << 62):
            assert isinstance(place, _Place)
            message = shard.stores.get(place.key[:KEY_SIZE], {}).get(place.key[KEY_SIZE:])
            if message is not None:
                message.offset = start
                told += 1
        assert told == shard.message_count, "every message is in the files"


def removing_first(records: bytes) -> tuple[bytes, bytes]:
    """Sort records of a shard that takes no messages: those that remove something, and the confirms of what is left."""
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
