"""The records of a journal that matter to a rollover, found while the journal is written.

A rollover looks for live messages among all records, and nothing is acknowledged meanwhile. In a full journal nearly
all records are of messages that are gone. The sieve drops these in advance, a part of the journal at a time: the
records of a message up to its deletion, the deletions themselves, and sync points. The rest, in order, yields the same
messages, confirms and queues.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.bmq.store.partition_files import PartitionFiles
from broker.common.files import StoreFile
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import ANY_RECORD, RecordType, scan, select
from formats.bmq.disk.keys import KEY_SIZE

__all__ = ["CHUNKS_MAX", "CHUNK_ROWS", "PART_ROWS", "REST_ROWS", "JournalRows", "JournalSieve"]

# Records examined in one part: about a millisecond.
PART_ROWS: Final = 4096
# Maximum number of unexamined records that a rollover sieves before it begins.
REST_ROWS: Final = 32 * PART_ROWS
# Each part's deletions are looked up in all chunks, so their size and number are limited.
CHUNK_ROWS: Final = 8192
CHUNKS_MAX: Final = 16

# Odd, and different in each process, so that no client can choose GUIDs with colliding hashes.
_SECRETS: Final = tuple(np.uint64(hash(f"sieve {n}") & ((1 << 64) - 1) | 1) for n in range(2))
_WHOLE_RECORD: Final = f"V{JOURNAL_RECORD_SIZE}"
_NO_ROWS: Final = np.empty(0, np.int64)

Rows = NDArray[np.int64]
Hashes = NDArray[np.uint64]


class JournalRows:
    """The rows in `kept`, and all from number `behind` on, including rows yet to be written; by default all."""

    __slots__ = ("_behind", "_files", "_first", "_kept")

    def __init__(self, files: PartitionFiles, kept: Rows = _NO_ROWS, behind: int = 0) -> None:
        self._files = files
        self._first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
        self._kept = kept
        self._behind = behind

    def __len__(self) -> int:
        rows = (self._files.journal_end - self._first) // JOURNAL_RECORD_SIZE
        return len(self._kept) + rows - self._behind

    def part(self, start: int, end: int) -> NDArray[np.void]:
        """Return the records with these indexes, to be released soon: a file cannot be closed under a view."""
        journal, kept = self._files.journal.buffer, len(self._kept)
        behind = self._behind - kept
        if start >= kept:
            at = self._first + (behind + start) * JOURNAL_RECORD_SIZE
            return scan(journal, at, max(0, min(end, len(self)) - start))
        records = scan(journal, self._first, behind + max(kept, min(end, len(self))))
        rows = self._kept[start:end]
        if end > kept:
            rows = np.concatenate([rows, np.arange(self._behind, len(records))])
        return _taken(records, rows)


class JournalSieve:
    """The search for the records that matter in the journal in use; a new journal restarts it.

    `advance` must be called a few times a second, so that little is left when a rollover begins.
    """

    def __init__(self) -> None:
        self._journal: StoreFile | None = None
        self._first = 0
        self._row = 0  # the next to examine
        self._operations: list[Rows] = []  # on queues
        self._chunks: list[_Chunk] = []
        self._has_given_up = False

    def advance(self, files: PartitionFiles) -> bool:
        """Examine the next part of the records, if complete; return True if there is another."""
        if self._journal is not files.journal:
            self._begin(files)
        rows = (files.journal_end - self._first) // JOURNAL_RECORD_SIZE
        if rows - self._row < PART_ROWS or self._has_given_up:
            return False
        self._look_at(_records(files), self._row + PART_ROWS)
        return rows - self._row >= PART_ROWS

    def cut(self, files: PartitionFiles) -> None:
        """Note that the last records of a journal, perhaps deletions among them, were truncated."""
        if self._journal is files.journal:
            self._journal = None

    def rows(self, files: PartitionFiles, last: int = 0) -> JournalRows:
        """Return the records that matter, including all of the `last` ones."""
        if self._journal is not files.journal:
            self._begin(files)
        rows = (files.journal_end - self._first) // JOURNAL_RECORD_SIZE
        if rows - self._row <= REST_ROWS:
            while rows - self._row > last and not self._has_given_up:
                self._look_at(_records(files), min(rows - last, self._row + PART_ROWS))
        if self._has_given_up or rows - self._row < last:
            return JournalRows(files)
        parts = [*self._operations, *(chunk.rows for chunk in self._chunks)]
        return JournalRows(files, np.sort(np.concatenate([_NO_ROWS, *parts])), self._row)

    def _begin(self, files: PartitionFiles) -> None:
        self._journal = files.journal
        self._first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
        self._row = 0
        self._operations.clear()
        self._chunks.clear()
        self._has_given_up = False

    def _look_at(self, records: NDArray[np.void], end: int) -> None:
        start, self._row = self._row, end
        part = records[start:end]
        counts = np.bincount(ANY_RECORD.column(part, "type"), minlength=len(RecordType) + 1)
        deletions, deleted_at = select(part, RecordType.DELETION)
        deleted = _Deletions(_Keys.of(deletions), deleted_at + start)
        rows, hashes = [_NO_ROWS], [np.empty(0, np.uint64)]
        for kind in (RecordType.MESSAGE, RecordType.CONFIRM):
            if counts[kind]:
                found, at = select(part, kind)
                keys = _Keys.of(found)
                of_kind = keys.hashes()
                is_kept = ~deleted.ends(of_kind, keys, at + start)
                rows.append((at + start)[is_kept])
                hashes.append(of_kind[is_kept])
        if counts[RecordType.QUEUE_OP]:
            self._operations.append(select(part, RecordType.QUEUE_OP)[1] + start)
        if len(deletions):
            for chunk in self._chunks:
                chunk.drop(deleted, records)
            self._chunks = [chunk for chunk in self._chunks if len(chunk.rows)]
        self._add(_Chunk(np.concatenate(rows), np.concatenate(hashes)))
        if len(self._chunks) > CHUNKS_MAX:
            # Too many messages are alive: the rollover will take long in any case.
            self._has_given_up = True
            self._chunks.clear()

    def _add(self, chunk: _Chunk) -> None:
        chunks = self._chunks
        chunks.append(chunk)
        for at in range(len(chunks) - 2, -1, -1):
            one, other = chunks[at : at + 2]
            if len(one.rows) + len(other.rows) <= CHUNK_ROWS:
                rows, hashes = np.concatenate([one.rows, other.rows]), np.concatenate([one.hashes, other.hashes])
                chunks[at : at + 2] = [_Chunk(rows, hashes)]
                break


class _Keys(NamedTuple):
    """Queue keys and GUIDs of records: bytes, and pairs of numbers."""

    queues: NDArray[np.uint8]
    guids: NDArray[np.uint64]

    @classmethod
    def of(cls, found: NDArray[np.void]) -> _Keys:
        queues, guids = (found[name].reshape(-1, 1).view(np.uint8) for name in ("queue_key", "guid"))
        return cls(queues, np.ascontiguousarray(guids).view(np.uint64))

    @classmethod
    def of_any(cls, records: NDArray[np.void]) -> _Keys:
        keys = cls(np.zeros((len(records), KEY_SIZE), np.uint8), np.zeros((len(records), 2), np.uint64))
        for kind in (RecordType.MESSAGE, RecordType.CONFIRM):
            found, at = select(records, kind)
            of_kind = cls.of(found)
            keys.queues[at], keys.guids[at] = of_kind
        return keys

    def taken(self, which: Rows) -> _Keys:
        return _Keys(self.queues.take(which, axis=0), self.guids.take(which, axis=0))

    def hashes(self) -> Hashes:
        mixed: Hashes = self.guids[:, 0] * _SECRETS[0]
        mixed += self.guids[:, 1] * _SECRETS[1]
        return mixed

    def equal(self, other: _Keys) -> NDArray[np.bool_]:
        same = self.guids == other.guids
        marks: NDArray[np.bool_] = same[:, 0] & same[:, 1] & (self.queues == other.queues).all(axis=1)
        return marks


class _Deletions:
    """The last deletion of each message, sorted by the hashes of their keys."""

    __slots__ = ("hashes", "keys", "rows")

    def __init__(self, keys: _Keys, rows: Rows) -> None:
        hashes = keys.hashes()
        order = np.argsort(hashes)
        ordered = hashes[order]
        if (ordered[1:] == ordered[:-1]).any():
            parts = zip(keys.queues, keys.guids, strict=True)
            last = {(queue.tobytes(), guid.tobytes()): n for n, (queue, guid) in enumerate(parts)}
            kept = np.fromiter(last.values(), np.int64, len(last))
            order = kept[np.argsort(hashes[kept])]
        self.hashes, self.keys, self.rows = hashes[order], keys.taken(order), rows[order]

    def ends(self, hashes: Hashes, keys: _Keys, rows: Rows) -> NDArray[np.bool_]:
        which, of = _pairs(hashes, self.hashes)
        ended = np.zeros(len(hashes), bool)
        if len(which):
            is_so = (self.rows[of] > rows[which]) & self.keys.taken(of).equal(keys.taken(which))
            ended[which[is_so]] = True
        return ended


class _Chunk:
    """Rows of records about messages, sorted by the hashes of their keys."""

    __slots__ = ("hashes", "rows")

    def __init__(self, rows: Rows, hashes: Hashes) -> None:
        order = np.argsort(hashes)
        self.rows: Rows = rows[order]
        self.hashes: Hashes = hashes[order]

    def drop(self, deleted: _Deletions, records: NDArray[np.void]) -> None:
        of, which = _pairs(deleted.hashes, self.hashes)
        if not len(which):
            return
        is_so = deleted.keys.taken(of).equal(_Keys.of_any(_taken(records, self.rows[which])))
        is_kept = np.ones(len(self.rows), bool)
        is_kept[which[is_so]] = False
        self.rows, self.hashes = self.rows[is_kept], self.hashes[is_kept]


def _pairs(some: Hashes, ordered: Hashes) -> tuple[Rows, Rows]:
    """Return the indexes of all pairs of equal hashes; `ordered` is sorted."""
    first = np.searchsorted(ordered, some)
    which = np.flatnonzero(first < len(ordered))
    which = which[ordered[first[which]] == some[which]]
    first = first[which]
    behind = first + 1
    if not (ordered[behind[behind < len(ordered)]] == ordered[first[behind < len(ordered)]]).any():
        # Nearly always, each hash occurs once.
        return which, first
    counts = np.searchsorted(ordered, some[which], "right") - first
    ends = np.cumsum(counts)
    within = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
    return np.repeat(which, counts), np.repeat(first, counts) + within


def _records(files: PartitionFiles) -> NDArray[np.void]:
    """The journal's records, to be released soon: a file cannot be closed under a view."""
    first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
    return scan(files.journal.buffer, first, (files.journal_end - first) // JOURNAL_RECORD_SIZE)


def _taken(records: NDArray[np.void], rows: Rows) -> NDArray[np.void]:
    # numpy's take is ten times as fast on bytes without fields.
    taken: NDArray[np.void] = records.view(_WHOLE_RECORD).take(rows).view(records.dtype)
    return taken
