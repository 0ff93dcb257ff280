# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A rollover in slices: what is alive moves to the next set of files while the one in use is still written to.

The journal is walked once, from its first record to whatever its last one is by then, and each record is judged when
its turn comes. A message that is alive then is carried over, and so are, from what was written since the walk began,
the records that say what became of it: it may be confirmed or removed while others move. What is carried over when
nothing is written meanwhile is, byte for byte, what `broker.bmq.store.rollover` carries over.

Until the new journal's header names its first sync point, the old files are what counts, and lack nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import record_keys
from broker.bmq.store.rollover import (
    MAKING,
    copy_queue,
    is_kept_operation,
    write_first_sync_point,
)
from broker.bmq.store.sieve import JournalRows
from formats.bmq.disk.data import MESSAGE_WORDS_MASK
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    ConfirmReason,
    RecordType,
    scan,
    select,
)
from formats.bmq.disk.padding import DWORD, WORD

__all__ = ["LocatedMessage", "Moving", "confirms_ahead"]


class LocatedMessage(Protocol):
    """A message as far as its place goes."""

    offset: int


class _FoundMessages(NamedTuple):
    """Messages alive among some records: their rows, themselves, where they lie in DATA, and their sizes there."""

    rows: NDArray[np.int64]
    messages: list[LocatedMessage]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Moving:
    """Carries over from `files` to `fresh`. `find` gives a message if it is alive when it is called, by queue key and
    GUID; offsets of messages are `base` more than their places in DATA. `queue_keys` are the queues that there are.
    Confirms in the last `ahead` records but one are of a message that is about to be written to the fresh files.
    `journal` are the records that matter, by default all.
    """

    def __init__(
        self,
        files: PartitionFiles,
        fresh: PartitionFiles,
        find: Callable[[bytes], LocatedMessage | None],
        queue_keys: Container[bytes],
        base: int,
        ahead: int = 0,
        journal: JournalRows | None = None,
    ) -> None:
        self.files = files
        self.fresh = fresh
        self._alive = find
        self._queue_keys = queue_keys
        self._base = base
        self._journal = journal or JournalRows(files)
        self._row = 0
        self._rows_before = self._rows  # those that were there when it began
        self._ahead_from = self._rows - 1 - ahead if ahead else sys.maxsize
        self._looked_to = -1  # the messages up to this place in DATA were looked at
        self._outliving: dict[bytes, LocatedMessage] = {}  # removed since it began, and alive as far as it is concerned
        self._removed: set[bytes] = set()  # messages that were carried over and removed since, by queue key and GUID
        self._made: set[bytes] = set()  # the queues that were carried over
        self._moved: list[tuple[list[LocatedMessage], NDArray[np.int64]]] = []  # and where they are now

    @property
    def _rows(self) -> int:
        return len(self._journal)

    @property
    def rows_left(self) -> int:
        """The records that have yet to be looked at."""
        return self._rows - self._row

    def removes(self, queue_key: bytes, guid: bytes, offset: int) -> None:
        """A message that was alive until now is removed."""
        if offset - self._base <= self._looked_to:
            self._removed.add(queue_key + guid)

    def outlives(self, queue_key: bytes, guid: bytes, message: LocatedMessage) -> None:
        """A message is removed, and its record will be behind the rollover: it is carried over all the same."""
        self._outliving[queue_key + guid] = message

    def _find(self, key: bytes) -> LocatedMessage | None:
        """The message alive with a queue key and GUID."""
        return self._alive(key) or self._outliving.get(key)

    # -- the walk

    def advance(self, rows: int, bytes_max: int) -> bool:
        """Look at so many of the next records, and carry over about so many bytes; False if there is no disk for it."""
        journal, behind = self._journal, self._rows
        end = self._row + min(rows, self.rows_left)
        while end < behind and _is_auto_confirm(journal.part(end - 1, end)):
            # It is said of the message behind it: both move, or none.
            end += 1
        part = journal.part(self._row, end)
        found = self._messages(part)
        sums = np.cumsum(found.sizes)
        count = max(1, int(np.searchsorted(sums, bytes_max, side="right")))
        if count < len(found.messages):
            part = part[: found.rows[count - 1] + 1]
            found = _FoundMessages(
                found.rows[:count], found.messages[:count], found.offsets[:count], found.sizes[:count]
            )
        kept = np.concatenate([found.rows, self._confirms(part), self._removals(part), self._queue_ops(part)])
        kept.sort()
        if not self._has_room(len(kept), int(found.sizes.sum())):
            return False
        starts = self._copy_data(found)
        self._copy_records(part[kept], starts)
        if len(found.messages):
            self._moved.append((found.messages, starts))
        self._row += len(part)
        _, offsets = _messages_of(part)
        if len(offsets):
            self._looked_to = int(offsets[-1])
        return True

    def _messages(self, part: NDArray[np.void]) -> _FoundMessages:
        found, at = select(part, RecordType.MESSAGE)
        offsets = MESSAGE_RECORD.column(found, "message_offset_dwords").astype(np.int64) * DWORD
        rows: list[int] = []
        messages: list[LocatedMessage] = []
        base = self._base
        find = self._find
        for row, key, offset in zip(at.tolist(), record_keys(found), offsets.tolist(), strict=True):
            message = find(key)
            # A message is where its record says; another with the same GUID is elsewhere.
            if message is not None and message.offset - base == offset:
                rows.append(row)
                messages.append(message)
        kept = np.array(rows, np.int64)
        places = np.array([message.offset - base for message in messages], np.int64)
        words = np.frombuffer(self.files.data.buffer, ">u4", self.files.data_end // WORD)
        sizes = (words[places // WORD].astype(np.int64) & MESSAGE_WORDS_MASK) * WORD
        return _FoundMessages(kept, messages, places, sizes)

    def _confirms(self, part: NDArray[np.void]) -> NDArray[np.int64]:
        """The confirms of messages alive: behind the message, or, of apps that never wanted it, right before it."""
        confirms, at = select(part, RecordType.CONFIRM)
        if not len(at):
            return at.astype(np.int64)
        auto = CONFIRM_RECORD.column(confirms, "reason") == ConfirmReason.AUTO_CONFIRMED
        rows, offsets = _messages_of(part)
        # How far messages have come at each confirm.
        before = np.concatenate(([self._looked_to], offsets))[np.searchsorted(rows, at)].tolist()
        # The message that comes next, even if it is gone: it has the automatic confirms before it.
        following = np.concatenate((offsets, [-1]))[np.searchsorted(rows, at)].tolist()
        kept = []
        for n, (key, is_auto, row) in enumerate(zip(record_keys(confirms), auto.tolist(), at.tolist(), strict=True)):
            if self._row + row >= self._ahead_from:
                kept.append(row)
                continue
            message = self._find(key)
            if message is None:
                continue
            if is_auto:
                if message.offset - self._base == following[n]:
                    kept.append(row)
            elif message.offset - self._base <= before[n]:
                kept.append(row)
        return np.array(kept, np.int64)

    def _removals(self, part: NDArray[np.void]) -> NDArray[np.int64]:
        """The deletions of messages that were carried over."""
        deletions, at = select(part, RecordType.DELETION)
        is_new = at >= self._rows_before - self._row
        kept = []
        for key, row in zip(record_keys(deletions[is_new]), at[is_new].tolist(), strict=True):
            if key in self._removed:
                self._removed.discard(key)
                kept.append(row)
        return np.array(kept, np.int64)

    def _queue_ops(self, part: NDArray[np.void]) -> NDArray[np.int64]:
        ops, at = select(part, RecordType.QUEUE_OP)
        data = ops.tobytes()
        kept = []
        for n, row in enumerate(at.tolist()):
            op = QUEUE_OP_RECORD.unpack(data, n * JOURNAL_RECORD_SIZE)
            makes = op.queue_op_type in MAKING
            if makes and op.queue_key in self._queue_keys:
                self._made.add(op.queue_key)
            is_new = row >= self._rows_before - self._row
            if op.queue_key in self._made and (is_new or is_kept_operation(op)):
                kept.append(row)
        return np.array(kept, np.int64)

    # -- copying

    def _has_room(self, records: int, size: int) -> bool:
        fresh = self.fresh
        return (
            fresh.journal.reserve(fresh.journal_end + records * JOURNAL_RECORD_SIZE)
            and fresh.data.reserve(fresh.data_end + size)
            and fresh.qlist.reserve(self.files.qlist_end)
        )

    def _copy_data(self, found: _FoundMessages) -> NDArray[np.int64]:
        """Copy DATA records, those that lie together in one piece; where each is now."""
        fresh = self.fresh
        ends = fresh.data_end + np.cumsum(found.sizes)
        starts: NDArray[np.int64] = ends - found.sizes
        breaks = np.flatnonzero(found.offsets[1:] != found.offsets[:-1] + found.sizes[:-1]) + 1
        old, new = self.files.data.buffer, fresh.data.buffer
        for first, behind in pairwise([0, *breaks.tolist(), len(starts)]):
            if first < behind:
                start, end = int(starts[first]), int(ends[behind - 1])
                source = int(found.offsets[first])
                new[start:end] = old[source : source + end - start]
                fresh.data_end = end
        return starts

    def _copy_records(self, kept: NDArray[np.void], starts: NDArray[np.int64]) -> None:
        fresh = self.fresh
        kinds = ANY_RECORD.column(kept, "type")
        kept.view(MESSAGE_RECORD.dtype)["message_offset_dwords"][kinds == RecordType.MESSAGE] = starts // DWORD
        first = fresh.journal_end
        fresh.journal_end += len(kept) * JOURNAL_RECORD_SIZE
        fresh.journal.buffer[first : fresh.journal_end] = kept.tobytes()
        for row in np.flatnonzero(kinds == RecordType.QUEUE_OP).tolist():
            copy_queue(self.files, fresh, first + row * JOURNAL_RECORD_SIZE)

    # -- the end

    def finish(self, first_sync_point: int) -> None:
        """The new set is whole: its header says so."""
        write_first_sync_point(self.fresh, first_sync_point)

    def place(self, count: int, base: int) -> int:
        """Tell so many messages where they are now, `base` more than their places in DATA; how many have been told.

        The newest first: as those that have yet to be told are older, and have smaller offsets, the order is the same
        at any time.
        """
        told = 0
        for message, start in self.take(count):
            message.offset = base + start
            told += 1
        return told

    def take(self, count: int) -> Iterator[tuple[LocatedMessage, int]]:
        """Yield up to `count` messages, newest first, each with its new place in DATA."""
        while self._moved and count:
            messages, starts = self._moved.pop()
            taken = min(len(messages), count)
            count -= taken
            newest = list(zip(messages[-taken:][::-1], starts[-taken:][::-1].tolist(), strict=True))
            if taken < len(messages):
                del messages[-taken:]
                self._moved.append((messages, starts[:-taken]))
            yield from newest

    def forget(self) -> None:
        """Forget where messages are, as nobody will ask."""
        self._moved.clear()
        self._outliving.clear()

    @property
    def is_placed(self) -> bool:
        """Return whether all messages have been told where they are."""
        return not self._moved


def _messages_of(part: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of messages among records, and where these lie in DATA."""
    found, at = select(part, RecordType.MESSAGE)
    offsets = MESSAGE_RECORD.column(found, "message_offset_dwords").astype(np.int64) * DWORD
    return at.astype(np.int64), offsets


def confirms_ahead(files: PartitionFiles) -> int:
    """Count the automatic confirms right before a journal's last record, a sync point that ends it.

    The reference's primary writes them before their message. If that has no room, it rolls over in between, carries
    them over, and writes the message to the new files.
    """
    first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
    records = scan(files.journal.buffer, first, (files.journal_end - first) // JOURNAL_RECORD_SIZE)
    row = behind = max(0, len(records) - 1)
    while row and _is_auto_confirm(records[row - 1 : row]):
        row -= 1
    return behind - row


def _is_auto_confirm(record: NDArray[np.void]) -> bool:
    found, _ = select(record, RecordType.CONFIRM)
    return bool(len(found)) and bool(CONFIRM_RECORD.column(found, "reason")[0] == ConfirmReason.AUTO_CONFIRMED)
