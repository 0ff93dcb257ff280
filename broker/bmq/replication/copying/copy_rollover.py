# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A replica's rollover: it carries over the same messages as its primary, which continues in new files.

With very many messages it works in slices. The messages alive at the last record of the old files, a sync point, are
found in them (`store.sliced_recovery`) and carried over (`store.moving`); a copy of that record follows. Meanwhile the
primary's next records are written after that copy, whose place follows from the first of them. Until the new files are
complete, and as long as the primary's, the next process would start from the old ones; so the replica sends no receipt
and reports no new position.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.bmq.store.chunked import Chunked
from broker.bmq.store.moving import Moving, confirms_ahead
from broker.bmq.store.partition_files import FileEnds, PartitionFiles
from broker.bmq.store.removals import Removals
from broker.bmq.store.rollover import clear_header, copy_sync_point, write_header
from broker.bmq.store.sieve import JournalSieve
from broker.bmq.store.sliced_recovery import SlicedRecovery
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import JOURNAL_OP_RECORD, SyncPointType
from formats.bmq.disk.padding import DWORD, WORD
from formats.schema import Buffer

__all__ = ["PLACED_PER_UNIT", "ROWS_PER_UNIT", "AliveMessage", "CopyRollover"]

# Records examined, and bytes moved, for a unit of work.
ROWS_PER_UNIT: Final = 3
BYTES_PER_UNIT: Final = 4096
PLACED_PER_UNIT: Final = 4


class AliveMessage:
    """A message alive: its key (queue key and GUID), and its offset in the old DATA."""

    __slots__ = ("key", "offset")

    def __init__(self, key: bytes, offset: int) -> None:
        self.key = key
        self.offset = offset


class CopyRollover:
    """One rollover: `advance` until it `is_copied`; the next records are written to `tail`.

    `begins` is the start of the tail, with a copy of the last record of `old`; None before that is known. `fault` is
    the reason of a failure.
    """

    def __init__(
        self,
        old: PartitionFiles,
        fresh: PartitionFiles,
        partition_id: int,
        sieve: JournalSieve | None = None,
        removals: Removals | None = None,
    ) -> None:
        self.old = old
        self.fresh = fresh
        self._ended = bytes(old.journal.buffer[old.journal_end - JOURNAL_RECORD_SIZE : old.journal_end])
        self._partition_id = partition_id
        self._removals = removals
        # The tail may be written before the part in front of it is complete.
        clear_header(fresh)
        self.tail = PartitionFiles(fresh.directory, fresh.timestamp, fresh.journal, fresh.data, fresh.qlist)
        self.begins: FileEnds | None = None
        self.is_copied = False
        self.is_over = False
        self.fault = ""
        self._ahead = confirms_ahead(old)
        # The records at the end are looked at as they are.
        self._journal = (sieve or JournalSieve()).rows(old, 1 + self._ahead)
        self._recovery = SlicedRecovery(old, journal=self._journal)
        self._alive: Chunked[AliveMessage] = Chunked()  # by key
        self._moving: Moving | None = None

    def advance(self, units: int) -> int:
        rows = max(1, units) * ROWS_PER_UNIT
        recovery, moving = self._recovery, self._moving
        if not recovery.is_read:
            recovery.advance(rows)
        elif not recovery.is_told:
            _, keys, _, offsets = recovery.alive(rows)
            self._alive.put(keys, map(AliveMessage, keys, offsets.tolist()))
            while recovery.ended and self._removals is not None:
                self._removals.note(*recovery.ended.popleft())
        elif moving is None:
            self._moving = Moving(self.old, self.fresh, self._alive.get, recovery.queues, 0, self._ahead, self._journal)
        elif moving.rows_left:
            before = self.fresh.data_end
            if not moving.advance(rows, max(1, units) * BYTES_PER_UNIT):
                self.fault = f"no disk space for the files after {self.old.journal.name}"
            return 1 + rows // ROWS_PER_UNIT + (self.fresh.data_end - before) // BYTES_PER_UNIT
        else:
            self.is_copied = True
        return max(1, units)

    def tail_before(self, record: Buffer, at: int) -> FileEnds | None:
        """Return the start of the tail if the first record after the rollover is for `at`; None if it cannot be."""
        sync_point = JOURNAL_OP_RECORD.unpack(record)
        data, qlist = sync_point.data_file_offset_dwords * DWORD, sync_point.qlist_file_offset_words * WORD
        begins = FileEnds(at - JOURNAL_RECORD_SIZE, data, qlist)
        old, least = self.old, self.fresh.ends
        if sync_point.sync_point_type != SyncPointType.REGULAR or not all(
            low <= each <= max(low, high) for low, each, high in zip(least, begins, old.ends, strict=True)
        ):
            return None
        return None if self.is_copied and begins != least else begins

    def begin_tail(self, begins: FileEnds) -> bool:
        """Write the tail's first record at `begins`; return False if there is too little disk space."""
        tail = self.tail
        if not tail.journal.reserve(begins.journal + JOURNAL_RECORD_SIZE):
            return False
        self.begins = begins
        tail.journal_end, tail.data_end, tail.qlist_end = begins
        copy_sync_point(tail, self._ended)
        return True

    def check(self) -> bool:
        """Return True if what was carried over is as long as the primary's."""
        return self.is_copied and self.fresh.ends == self.begins

    def write_header(self) -> None:
        """Write the journal's header, which makes the new files valid."""
        assert self.begins is not None
        write_header(self.fresh, self._partition_id, self.begins.journal)

    def take_moved(self, count: int) -> Iterator[tuple[AliveMessage, int]]:
        """Yield up to `count` of the messages carried over, newest first, each with its new place in DATA."""
        assert self._moving is not None
        for place, start in self._moving.take(count):
            assert isinstance(place, AliveMessage)
            self._alive.take(place.key)
            yield place, start

    def give_up(self) -> list[dict[bytes, AliveMessage]]:
        self._moving = None
        alive, self._alive = self._alive, Chunked()
        return alive.chunks

    @property
    def is_placed(self) -> bool:
        return self._moving is None or self._moving.is_placed
