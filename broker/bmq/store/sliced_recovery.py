# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Recovery in slices: the same results as `broker.bmq.store.recovery.recover`, a part of the journal at a time.

For files whose ends this process knows. The journal is walked twice: `advance` learns which records concern which
message, then `messages` returns the messages that are still wanted, in order. Nothing may be added meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.bmq.store.chunked import Chunked
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import (
    RecoveredMessage,
    RecoveredQueue,
    Refusing,
    apply_queue_op,
    data_headers,
    guids_by_queue,
    is_refused,
    judge,
    last_purges,
    purges,
    record_keys,
    reference_counts,
    refused_by_purges,
    refusing_purges,
)
from broker.bmq.store.sieve import JournalRows
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    ConfirmReason,
    RecordType,
    select,
)
from formats.bmq.disk.keys import KEY_SIZE
from formats.bmq.disk.padding import DWORD

__all__ = ["Alive", "SlicedRecovery"]

_NOBODY: frozenset[bytes] = frozenset()


class _Confirms(NamedTuple):
    """The apps that are done with a message, the apps that never wanted it, and the row of the last such record."""

    done: frozenset[bytes]
    unasked: frozenset[bytes]
    row: int


class Alive(NamedTuple):
    """Messages of a part of the journal that are still wanted, and the apps that are done with each."""

    found: NDArray[np.void]
    keys: list[bytes]
    done: list[frozenset[bytes]]
    offsets: NDArray[np.int64]


class SlicedRecovery:
    """The recovery of one set of files. `queues` are complete once it `is_read`. `journal` has the records that matter.

    If it `remembers`, it adds to `gone`, as in `Recovered`, for the caller to take out; and messages whose removal is
    not in the journal to `ended`.
    """

    def __init__(self, files: PartitionFiles, *, remembers: bool = False, journal: JournalRows | None = None) -> None:
        self._files = files
        self._remembers = remembers
        self.gone: deque[tuple[bytes, bytes]] = deque()
        self.ended: deque[tuple[bytes, bytes]] = deque()
        self._journal = journal or JournalRows(files)
        self._rows = len(self._journal)
        self._row = self._told = 0
        self.queues: dict[bytes, RecoveredQueue] = {}
        self._alive: Chunked[int] = Chunked()  # by queue key and GUID: the row of the newest message
        self._confirms: Chunked[_Confirms] = Chunked()
        self._purges: dict[bytes, list[tuple[bytes, int]]] = {}
        self._last_purges: dict[bytes, int] = {}
        self._refusing: list[Refusing] = []
        self._refused: dict[bytes, int] = {}  # rows of the deletions of unacknowledged messages

    @property
    def timestamp(self) -> int:
        """Time of the last record, in seconds since the epoch."""
        if not self._rows:
            return 0
        return int(ANY_RECORD.column(self._journal.part(self._rows - 1, self._rows), "timestamp")[0])

    def _part(self, start: int, rows: int) -> NDArray[np.void]:
        return self._journal.part(start, min(start + rows, self._rows))

    def advance(self, rows: int) -> None:
        start = self._row
        part = self._part(start, rows)
        self._row += len(part)
        self._look_at_queues(part, start)
        found, at = select(part, RecordType.MESSAGE)
        self._alive.put(record_keys(found), (at + start).tolist())
        since = self._look_at_deletions(part, start)
        self._look_at_confirms(part, start, since)

    @property
    def is_read(self) -> bool:
        return self._row == self._rows

    def _look_at_queues(self, part: NDArray[np.void], start: int) -> None:
        found, at = select(part, RecordType.QUEUE_OP)
        data = found.tobytes()
        for n, row in enumerate((at + start).tolist()):
            op = QUEUE_OP_RECORD.unpack(data, n * JOURNAL_RECORD_SIZE)
            apply_queue_op(self._files, self.queues, op, row)
        for key, ops in purges(part).items():
            self._purges.setdefault(key, []).extend((app_key, start + row) for app_key, row in ops)
        self._refusing += refusing_purges(part, start)
        self._last_purges.update({key: start + row for key, row in last_purges(purges(part)).items()})

    def _look_at_deletions(self, part: NDArray[np.void], start: int) -> dict[bytes, int]:
        """Apply deletions; return the row of each message's last one: confirms before it are of no later message."""
        found, at = select(part, RecordType.DELETION)
        since: dict[bytes, int] = {}
        alive, confirms = self._alive, self._confirms
        are_refused = is_refused(found)
        if self._remembers and len(found):
            self.gone.extend(guids_by_queue(found[~are_refused]).items())
        for key, row, refused in zip(record_keys(found), (at + start).tolist(), are_refused.tolist(), strict=True):
            if refused:
                self._refused[key] = row
            newest = alive.get(key)
            if newest is not None and newest < row:
                alive.take(key)
            since[key] = row
            confirms.take(key)
        return since

    def _look_at_confirms(self, part: NDArray[np.void], start: int, since: dict[bytes, int]) -> None:
        found, at = select(part, RecordType.CONFIRM)
        if not len(found):
            return
        auto = (CONFIRM_RECORD.column(found, "reason") == ConfirmReason.AUTO_CONFIRMED).tolist()
        app_keys = found["app_key"].tolist()
        confirms, last_purge = self._confirms, self._last_purges
        columns = zip(record_keys(found), app_keys, auto, (at + start).tolist(), strict=True)
        for key, app_key, is_auto, row in columns:
            purged = last_purge.get(key[:KEY_SIZE], -1)
            if row <= max(purged, since.get(key, -1)):
                continue
            done, unasked, before = confirms.get(key) or (_NOBODY, _NOBODY, row)
            if before < purged:
                done = unasked = _NOBODY
            app = {app_key}
            confirms[key] = _Confirms(done, unasked | app, row) if is_auto else _Confirms(done | app, unasked, row)

    @property
    def is_told(self) -> bool:
        return self._told == self._rows

    def alive(self, rows: int) -> Alive:
        """Return the messages still wanted among the next `rows` records, each once."""
        start = self._told
        part = self._part(start, rows)
        self._told += len(part)
        found, at = select(part, RecordType.MESSAGE)
        kept, keys, done = [], [], []
        alive, confirms = self._alive, self._confirms
        counts = reference_counts(found).tolist()
        last_purge = self._last_purges
        purged: list[int] = []
        ended: list[int] = []  # without a deletion: see `broker.bmq.store.recovery`
        for n, (key, row, count) in enumerate(zip(record_keys(found), (at + start).tolist(), counts, strict=True)):
            if row < last_purge.get(key[:KEY_SIZE], -1) and row > self._refused.get(key, -1):
                purged.append(n)
            if alive.get(key) != row:
                continue
            alive.take(key)
            queue = self.queues.get(key[:KEY_SIZE])
            said = confirms.take(key)
            if queue is None:
                continue
            if said is None or said.row <= last_purge.get(queue.key, -1):
                said = _Confirms(_NOBODY, _NOBODY, 0)
            found_done = judge(queue, row, count, said.done, said.unasked, self._purges.get(queue.key, ()))
            if found_done is not None:
                kept.append(n)
                keys.append(key)
                done.append(found_done)
            elif row > last_purge.get(queue.key, -1):
                ended.append(n)
        if ended:
            self.ended.extend(guids_by_queue(found[np.array(ended, np.int64)]).items())
        if self._remembers and (ended or purged):
            gone = np.array(sorted(ended + purged), np.int64)
            if self._refusing:
                gone = gone[~refused_by_purges(found[gone], at[gone] + start, self._refusing)]
            self.gone.extend(guids_by_queue(found[gone]).items())
        found = found[np.array(kept, np.int64)]
        offsets = MESSAGE_RECORD.column(found, "message_offset_dwords").astype(np.int64) * DWORD
        return Alive(found, keys, done, offsets)

    def messages(self, rows: int) -> list[RecoveredMessage]:
        """Return the messages of `alive` with all that is known of them."""
        found, keys, done, offsets = self.alive(rows)
        columns = (
            keys,
            offsets.tolist(),
            reference_counts(found).tolist(),
            MESSAGE_RECORD.column(found, "compression").tolist(),
            *data_headers(self._files, offsets),
            done,
            MESSAGE_RECORD.column(found, "timestamp").tolist(),
            MESSAGE_RECORD.column(found, "crc32c").tolist(),
        )
        return [RecoveredMessage(key[KEY_SIZE:], key[:KEY_SIZE], *rest) for key, *rest in zip(*columns, strict=True)]
