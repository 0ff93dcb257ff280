"""A replica's rollover: its primary goes on in new files, and what was carried over is the same here.

With very many messages it goes on in slices. What was alive at the last record of the old files is found in them
(`broker.store.sliced_recovery`) and carried over (`broker.store.moving`); a copy of that record, a sync point, follows.
Meanwhile the primary's next records are written to the new files, behind that copy: where it is, the first of them
says. Until all is there, and is as long as the primary's, the old files are what a next process goes on with; so no
receipt is sent, and nobody is told how far this node is. Nothing more is needed from the primary for that.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.store.chunked import Chunked
from broker.store.moving import Moving
from broker.store.partition_files import Ends, PartitionFiles
from broker.store.rollover import clear_header, copy_sync_point, write_header
from broker.store.sliced_recovery import SlicedRecovery
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import JOURNAL_OP_RECORD, SyncPointType
from formats.disk.padding import DWORD, WORD
from formats.schema import Buffer

__all__ = ["PLACED_PER_UNIT", "ROWS_PER_UNIT", "CopyRollover", "Place"]

# So many records are looked at for a unit of work, and so many bytes moved.
ROWS_PER_UNIT = 3
BYTES_PER_UNIT = 4096
PLACED_PER_UNIT = 4


class Place:
    """A message alive: its key (queue key and GUID), and the offset of its DATA record in the old files."""

    __slots__ = ("key", "offset")

    def __init__(self, key: bytes, offset: int) -> None:
        self.key = key
        self.offset = offset


class CopyRollover:
    """One rollover: `advance` until it `is_copied`; `tail` is what the next records are written to.

    `begins` is where the tail does, with a copy of the last record of `old`; None before that is known. `fault` says
    why it came to nothing.
    """

    def __init__(self, old: PartitionFiles, fresh: PartitionFiles, partition_id: int) -> None:
        self.old = old
        self.fresh = fresh
        self._ended = bytes(old.journal.buffer[old.journal_end - JOURNAL_RECORD_SIZE : old.journal_end])
        self._partition_id = partition_id
        # The tail is there before what goes in front of it.
        clear_header(fresh)
        self.tail = PartitionFiles(fresh.directory, fresh.timestamp, fresh.journal, fresh.data, fresh.qlist)
        self.begins: Ends | None = None
        self.is_copied = False
        self.is_over = False
        self.fault = ""
        self._recovery = SlicedRecovery(old)
        self._alive: Chunked[Place] = Chunked()  # by key
        self._moving: Moving | None = None

    def advance(self, units: int) -> int:
        """Do about so much; how much was done."""
        rows = max(1, units) * ROWS_PER_UNIT
        recovery, moving = self._recovery, self._moving
        if not recovery.is_read:
            recovery.advance(rows)
        elif not recovery.is_told:
            _, keys, _, offsets = recovery.alive(rows)
            self._alive.put(keys, map(Place, keys, offsets.tolist()))
        elif moving is None:
            self._moving = Moving(self.old, self.fresh, self._alive.get, recovery.queues, 0)
        elif moving.rows_left:
            before = self.fresh.data_end
            if not moving.advance(rows, max(1, units) * BYTES_PER_UNIT):
                self.fault = f"no disk for what follows {self.old.journal.name}"
            return 1 + rows // ROWS_PER_UNIT + (self.fresh.data_end - before) // BYTES_PER_UNIT
        else:
            self.is_copied = True
        return max(1, units)

    def tail_before(self, record: Buffer, at: int) -> Ends | None:
        """Return the start of the tail if the first record behind a rollover is for `at`; None if it cannot be."""
        sync_point = JOURNAL_OP_RECORD.unpack(record)
        data, qlist = sync_point.data_file_offset_dwords * DWORD, sync_point.qlist_file_offset_words * WORD
        begins = Ends(at - JOURNAL_RECORD_SIZE, data, qlist)
        old, least = self.old, self.fresh.ends
        if sync_point.sync_point_type != SyncPointType.REGULAR or not all(
            low <= each <= max(low, high) for low, each, high in zip(least, begins, old.ends, strict=True)
        ):
            return None
        return None if self.is_copied and begins != least else begins

    def begin_tail(self, begins: Ends) -> bool:
        """Write the first record of the new files' own there; False if there is no disk for it."""
        tail = self.tail
        if not tail.journal.reserve(begins.journal + JOURNAL_RECORD_SIZE):
            return False
        self.begins = begins
        tail.journal_end, tail.data_end, tail.qlist_end = begins
        copy_sync_point(tail, self._ended)
        return True

    def check(self) -> bool:
        """Return whether what was carried over is as long as the primary's."""
        return self.is_copied and self.fresh.ends == self.begins

    def write_header(self) -> None:
        """The new files are whole."""
        assert self.begins is not None
        write_header(self.fresh, self._partition_id, self.begins.journal)

    def take_moved(self, count: int) -> Iterator[tuple[Place, int]]:
        """Yield up to `count` of the messages carried over, newest first, each with its new place in DATA."""
        assert self._moving is not None
        for place, start in self._moving.take(count):
            assert isinstance(place, Place)
            self._alive.take(place.key)
            yield place, start

    def give_up(self) -> list[dict[bytes, Place]]:
        """Give the rollover up, and return the memory that is to be given back."""
        self._moving = None
        alive, self._alive = self._alive, Chunked()
        return alive.chunks

    @property
    def is_placed(self) -> bool:
        """Return whether all have been taken."""
        return self._moving is None or self._moving.is_placed
