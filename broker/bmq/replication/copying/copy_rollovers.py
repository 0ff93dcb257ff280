# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The rollovers of a replica's copy, each together with the primary's (see `copy_rollover`)."""

from __future__ import annotations

import logging
from typing import Final

from broker.bmq.core.work import Task, Work
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.copying.copy_index import CopyIndex
from broker.bmq.replication.copying.copy_records import CopyRecords, OutOfStep
from broker.bmq.replication.copying.copy_rollover import PLACED_PER_UNIT, CopyRollover
from broker.bmq.replication.copying.places import MessagePlaces
from broker.bmq.replication.positions import NOWHERE
from formats.bmq.disk.journal import RecordType, SyncPointType
from formats.bmq.disk.numbers import RecordNumber
from formats.errors import FormatError

__all__ = ["CopyRollovers"]

log: Final = logging.getLogger("broker.partition")

_JOURNAL_OP: Final = int(RecordType.JOURNAL_OP)


class CopyRollovers:
    """The rollover under way, if any, and the tasks after the last one.

    `rolls_again` is True if the primary has rolled over once more: all further records are for files that do not exist
    yet.
    """

    __slots__ = ("_finishing", "_index", "_kept", "_records", "_rolling", "_stored", "rolls_again")

    def __init__(self, stored: StoredPartition, records: CopyRecords, index: CopyIndex) -> None:
        self._stored = stored
        self._records = records
        self._index = index
        self._rolling: CopyRollover | None = None  # until its new files are whole
        self._kept = NOWHERE  # the last record before them
        self._finishing: Task | None = None  # the rest of a finished rollover
        self.rolls_again = False

    @property
    def is_rolling(self) -> bool:
        """True if a rollover is unfinished: after a restart the store would end with the record before it."""
        return self._rolling is not None

    @property
    def kept(self) -> RecordNumber:
        return self._records.position if self._rolling is None else self._kept

    @property
    def will_roll(self) -> bool:
        return self._rolling is not None and not self._rolling.fault

    @property
    def is_busy(self) -> bool:
        return self._index.places.is_finding or self.will_roll

    @property
    def fault(self) -> str:
        return self._rolling.fault if self._rolling is not None else ""

    def begin_waiting(self) -> bool:
        """Begin the rollover that waits for the previous one; return False if that is unfinished."""
        if self.rolls_again:
            if self._rolling is not None:
                return False
            self.rolls_again = False
            self._begin()
        return True

    def begin_tail(self, record: memoryview, at: int) -> None:
        """Begin the new files with what precedes their first record, for `at`. Raises `OutOfStep` for any other."""
        rolling = self._rolling
        if rolling is None or rolling.begins is not None:
            raise OutOfStep(f"a record for {at}, the journal ends at {self._records.files.journal_end}")
        begins = rolling.tail_before(record, at) if record[0] >> 4 == _JOURNAL_OP else None
        if begins is None:
            raise OutOfStep(f"a record for {at} cannot be the first after a rollover")
        if not rolling.begin_tail(begins):
            raise self._records.no_room(rolling.tail.journal, at)

    def on_sync_point(self, kind: int, *, heals: bool) -> None:
        """Note a sync point that was written; one of a rollover begins another, unless the copy `heals`."""
        rolling = self._rolling
        if rolling is not None and rolling.is_copied:
            # The first record after it: the primary is in its new files.
            self._end(rolling)
        if kind == SyncPointType.ROLLOVER and not self._records.is_fresh and not heals:
            if self._rolling is not None:
                self.rolls_again = True
            else:
                self._begin()

    def _begin(self) -> None:
        records, stored, work = self._records, self._stored, self._stored.work
        old, fresh = records.files, records.create()
        self._kept = records.position
        rolling = self._rolling = CopyRollover(old, fresh, stored.partition_id, stored.rollovers.sieve, stored.removals)
        # Its end is 0, where no record goes, until the start of the tail is known: here, or by the first record.
        records.attach(rolling.tail)
        self._index.places.go_on_in(rolling.tail)
        if work is not None:
            work.start(self._roll_slowly(rolling, work, self._finishing))
            return
        self._copy_all(rolling)

    def _copy_all(self, rolling: CopyRollover) -> None:
        while not (rolling.is_copied or rolling.fault):
            self._advance(rolling, 1 << 40)
        self._end(rolling)
        if rolling.fault:
            raise OutOfStep(rolling.fault)

    def _advance(self, rolling: CopyRollover, units: int) -> int:
        try:
            return rolling.advance(units)
        except FormatError as error:
            self._index.note_rot(error)
            rolling.fault = str(error)
            return units

    def finish(self) -> None:
        """Finish the rollover at once: the node stops, or too many records wait."""
        try:
            if self._rolling is not None and self.will_roll:
                self._finish_placing()
                self._copy_all(self._rolling)
        except OutOfStep as error:
            log.error("Partition [%d]: a rollover is abandoned: %s", self._stored.partition_id, error)
        self._finish_placing()

    def _finish_placing(self) -> None:
        if self._finishing is not None and self._stored.work is not None:
            self._stored.work.complete(self._finishing)

    def _roll_slowly(self, rolling: CopyRollover, work: Work, before: Task | None) -> Task:
        if before is not None:
            # Messages are in the files before the last: first the index must be updated to these.
            yield from before
        stored = self._stored
        while not (rolling.is_copied or rolling.is_over):
            if not work.may_go_on():
                yield
                continue
            work.left -= self._advance(rolling, work.left)
            if rolling.fault:
                return
            if stored.sets.outlives_power:
                # In parts, since flushing everything at the end would take long.
                rolling.fresh.data.flush()
        while not rolling.is_over and stored.sets.removals.catch_up(rolling.old, stored.now.ms):
            work.left = 0
            yield
        if not rolling.is_over:
            self._end(rolling)

    def _end(self, rolling: CopyRollover) -> None:
        """Complete a rollover: from here on a restart uses the new files."""
        stored, old, places = self._stored, rolling.old, self._index.places
        if rolling.fault:
            return
        if rolling.begins is None and not rolling.begin_tail(rolling.fresh.ends):
            rolling.fault = f"no disk space for the files after {old.journal.name}"
            return
        if not rolling.check():
            rolling.fault = f"what was carried over ends at {rolling.fresh.ends}, the primary's at {rolling.begins}"
            return
        stored.sets.keep_removals(old)
        stored.sets.finish(rolling.tail, rolling.write_header)
        stored.records.files = rolling.tail
        self._rolling = None
        rolling.is_over = True
        name = self._records.files.journal.name
        log.info("Partition [%d]: ROLLOVER COMPLETE to %s", stored.partition_id, name)
        task = self._finishing = self._place_all(rolling, places, places.current)
        if stored.work is not None:
            stored.work.add(task)
        else:
            for _ in task:
                """At once."""

    def _place_all(self, rolling: CopyRollover, places: MessagePlaces, now_in: int) -> Task:
        """Update the index to the new files, then close the old ones.

        Unneeded places are walked all the same, to free their memory.
        """
        work = self._stored.work
        before = places.before(now_in)
        while not rolling.is_placed:
            while work is not None and not work.may_go_on():
                yield
            count = 1 << 40 if work is None else max(1, work.left) * PLACED_PER_UNIT
            if work is not None:
                work.left = 0
            for moved, start in rolling.take_moved(count):
                if not places.is_given_up:
                    places.move(moved.key, (before, moved.offset), (now_in, start))
        places.let_go(before)
        self._stored.sets.retire(rolling.old)
        self._finishing = None

    def undo(self) -> bool:
        """Undo an unfinished rollover, since this primary sends no more; return False if there is none."""
        rolling, index = self._rolling, self._index
        self.rolls_again = False
        if rolling is None:
            return False
        self._rolling = None
        rolling.is_over = True
        index.throw_away(rolling.give_up())
        rolling.fresh.remove()
        self._records.attach(rolling.old)
        if rolling.begins is not None:
            # Later records are gone, and with them removals of earlier messages.
            index.rebuild()
        else:
            index.places.go_back()
        return True
