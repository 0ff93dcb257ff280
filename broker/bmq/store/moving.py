# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Rollover in slices: live records move to the next set of files while the current set is still written.

The journal is walked once, up to the end that it has at first. A message that is alive when reached is carried over,
with newer records about it. If nothing is written meanwhile, the result equals that of `broker.bmq.store.rollover` byte
for byte. The old files remain in force until the new journal's header names its first sync point.
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
    offset: int


class _FoundMessages(NamedTuple):
    rows: NDArray[np.int64]
    messages: list[LocatedMessage]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Moving:
    """Copies live records from `files` to `fresh`.

    `find` takes a queue key and GUID, joined, and returns the message if it is alive then. Messages' offsets are `base`
    more than their places in DATA. `queue_keys` are the existing queues. Confirms among the `ahead` records before the
    last one belong to a message that is about to be written to the fresh files. `journal` has the records that matter,
    by default all.
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
        self._rows_before = self._rows  # when the walk began
        self._ahead_from = self._rows - 1 - ahead if ahead else sys.maxsize
        self._looked_to = -1  # messages up to this place in DATA have been examined
        self._outliving: dict[bytes, LocatedMessage] = {}  # removed since, but carried over
        self._removed: set[bytes] = set()  # carried over and removed since, by queue key and GUID
        self._made: set[bytes] = set()  # the queues carried over
        self._moved: list[tuple[list[LocatedMessage], NDArray[np.int64]]] = []  # with their new places

    @property
    def _rows(self) -> int:
        return len(self._journal)

    @property
    def rows_left(self) -> int:
        return self._rows - self._row

    def removes(self, queue_key: bytes, guid: bytes, offset: int) -> None:
        """Note the removal of a message that was alive until now."""
        if offset - self._base <= self._looked_to:
            self._removed.add(queue_key + guid)

    def outlives(self, queue_key: bytes, guid: bytes, message: LocatedMessage) -> None:
        """Carry over a removed message: its deletion will be written after the rollover."""
        self._outliving[queue_key + guid] = message

    def _find(self, key: bytes) -> LocatedMessage | None:
        return self._alive(key) or self._outliving.get(key)

    def advance(self, rows: int, bytes_max: int) -> bool:
        """Examine up to `rows` records and carry over about `bytes_max` bytes; return False if the disk is full."""
        journal, behind = self._journal, self._rows
        end = self._row + min(rows, self.rows_left)
        while end < behind and _is_auto_confirm(journal.part(end - 1, end)):
            # An automatic confirm belongs to the message after it: both move, or neither.
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
            # Another message with the same GUID is elsewhere.
            if message is not None and message.offset - base == offset:
                rows.append(row)
                messages.append(message)
        kept = np.array(rows, np.int64)
        places = np.array([message.offset - base for message in messages], np.int64)
        words = np.frombuffer(self.files.data.buffer, ">u4", self.files.data_end // WORD)
        sizes = (words[places // WORD].astype(np.int64) & MESSAGE_WORDS_MASK) * WORD
        return _FoundMessages(kept, messages, places, sizes)

    def _confirms(self, part: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the rows of confirms of live messages: after the message, or automatic ones right before it."""
        confirms, at = select(part, RecordType.CONFIRM)
        if not len(at):
            return at.astype(np.int64)
        auto = CONFIRM_RECORD.column(confirms, "reason") == ConfirmReason.AUTO_CONFIRMED
        rows, offsets = _messages_of(part)
        # The place in DATA of the last message before each confirm.
        before = np.concatenate(([self._looked_to], offsets))[np.searchsorted(rows, at)].tolist()
        # The place of the next message, alive or not: automatic confirms precede their message.
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

    def _has_room(self, records: int, size: int) -> bool:
        fresh = self.fresh
        return (
            fresh.journal.reserve(fresh.journal_end + records * JOURNAL_RECORD_SIZE)
            and fresh.data.reserve(fresh.data_end + size)
            and fresh.qlist.reserve(self.files.qlist_end)
        )

    def _copy_data(self, found: _FoundMessages) -> NDArray[np.int64]:
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

    def finish(self, first_sync_point: int) -> None:
        write_first_sync_point(self.fresh, first_sync_point)

    def place(self, count: int, base: int) -> int:
        """Set the offsets of up to `count` messages to their new places plus `base`; return how many were set.

        The newest come first: the others have smaller offsets, so offsets are always in order.
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
        self._moved.clear()
        self._outliving.clear()

    @property
    def is_placed(self) -> bool:
        return not self._moved


def _messages_of(part: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    found, at = select(part, RecordType.MESSAGE)
    offsets = MESSAGE_RECORD.column(found, "message_offset_dwords").astype(np.int64) * DWORD
    return at.astype(np.int64), offsets


def confirms_ahead(files: PartitionFiles) -> int:
    """Count the automatic confirms right before the last record, if their message is not written yet.

    The reference's primary writes the confirms of apps that never want a message before the message. If that has no
    room, it rolls over in between, carries them over, and writes the message to the new files.
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
