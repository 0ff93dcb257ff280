"""The losses of a commit log: the account of all its bytes, and the places of records that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.check.entries import ENTRY_BYTES, QueueEntries
from bmqctl.stores.rocketmq.read.derived import QueueKeys, Rows, read_rows, sound_bodies
from bmqctl.stores.rocketmq.read.files import ABORT, OFFSET_MAX, QueueFiles, StoreFiles
from bmqctl.stores.rocketmq.read.records import LogRecords, Numbers
from bmqctl.stores.rocketmq.read.scan import LogFault, LogScan, Loss
from formats.rocketmq.files.consume_queue import FILLER

__all__ = ["LogLosses", "LoggedQueue", "LoggedQueues", "find_losses", "lose_bodies"]

# Records that are compared with their entries at once.
_BATCH: Final = 1 << 16
_OTHER_BODY: Final = "the checksum of the body differs"

Progress = Callable[[int, int], None]


@dataclass
class LoggedQueue:
    """The records of a queue in the log: how many, the numbers of the first and after the last, and their places.

    A topic that is created again numbers its messages from 0: only the later records count. `entries` are those of the
    consume queue, None if it has no files. `wrong` are the numbers whose entry has another place, size or tag than the
    record, or is due at no time that a delay makes, and `unentered` the numbers and places of records without an entry.
    """

    entries: QueueEntries | None
    begin: int = 0
    end: int = 0
    count: int = 0
    first_offset: int = 0
    log_end: int = 0
    wrong: list[Numbers] = field(default_factory=list)
    unentered: list[tuple[Numbers, Numbers]] = field(default_factory=list)

    def add(self, rows: Rows, is_delay: bool) -> int:
        """Count records in the order of the log; return where the last one that has its entry ends, 0 if none has."""
        numbers = rows.numbers
        restarts = np.flatnonzero(numbers <= np.append(self.end - 1, numbers[:-1]))
        if len(restarts):
            rows = rows.where(slice(int(restarts[-1]), None))
            numbers = rows.numbers
            self.count = 0
            self.wrong.clear()
            self.unentered.clear()
        if not self.count:
            self.begin, self.first_offset = int(numbers[0]), int(rows.offsets[0])
        self.end, self.log_end = int(numbers[-1]) + 1, int(rows.offsets[-1] + rows.sizes[-1])
        self.count += len(numbers)
        return 0 if self.entries is None else self._compare(self.entries.at(numbers), rows, is_delay)

    def _compare(self, found: NDArray[Any], rows: Rows, is_delay: bool) -> int:
        _, numbers, offsets, sizes, _, _ = rows
        is_place = (found["physical_offset"] == offsets) & (found["size"] == sizes)
        is_right = is_place & rows.has_codes(found["tags_code"].astype(np.int64), is_delay)
        if is_right.all():
            return self.log_end
        is_written = found["size"] > 0
        is_filler = (found["physical_offset"] == FILLER.physical_offset) & (found["size"] == FILLER.size)
        wrong = is_written & ~is_filler & ~is_right
        if wrong.any():
            self.wrong.append(numbers[wrong])
        if not is_written.all():
            self.unentered.append((numbers[~is_written], offsets[~is_written]))
        right = np.flatnonzero(is_place)
        return int(offsets[right[-1]] + sizes[right[-1]]) if len(right) else 0

    def is_wrong(self, numbers: Numbers, offsets: Numbers) -> NDArray[np.bool_]:
        """Mark the entries, given by their numbers and the places that they name, that are not those of their records.

        An entry after the last record's is one of them if it names a place in front of that record's end.
        """
        known = np.concatenate(self.wrong) if self.wrong else np.zeros(0, np.int64)
        marked: NDArray[np.bool_] = np.isin(numbers, known) | ((numbers >= self.end) & (offsets < self.log_end))
        return marked

    def lacking(self, end: int, entered_to: int) -> tuple[Numbers, Numbers]:
        """Return the numbers and places of records in front of the queue's first file, or from number `end` on.

        Those from `entered_to` of the log on are left out: a broker that starts enters them.
        """
        if self.entries is None or not self.unentered:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        numbers, offsets = (np.concatenate(column) for column in zip(*self.unentered, strict=True))
        outside = (numbers < self.entries.queue.begin // ENTRY_BYTES) | ((numbers >= end) & (offsets < entered_to))
        return numbers[outside], offsets[outside]


class LoggedQueues:
    """The queues that a log's records belong to, and what their consume queues have for these records.

    Records from `end` of the log on are left out. `entered_to` is where the last record that has its entry ends.
    """

    def __init__(self, files: Iterable[QueueFiles] = (), end: int = OFFSET_MAX) -> None:
        self._keys = QueueKeys()
        self._found: dict[int, LoggedQueue] = {}
        self._entries = {self._keys.key(each.topic, each.queue_id): QueueEntries(each) for each in files}
        self._end = end
        self._held: list[NDArray[np.int64]] = []
        self._count = 0
        self.entered_to = 0

    def add(self, records: LogRecords) -> None:
        """Count records, which come in the order of the log."""
        if len(records) and records.offsets[-1] >= self._end:
            records = records.where(records.offsets < self._end)
        rows = read_rows(records, self._keys)
        self._held.append(np.array(rows))
        self._count += len(rows.queues)
        if self._count >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Compare the records that are held back: those of many chunks are compared at once."""
        if self._count:
            columns = np.concatenate(self._held, axis=1)
            columns = columns[:, np.argsort(columns[0], kind="stable")]
            keys, begins = np.unique(columns[0], return_index=True)
            is_delay = self._keys.is_delay(keys).tolist()
            for at, (key, part) in enumerate(zip(keys.tolist(), np.split(columns, begins[1:], axis=1), strict=True)):
                queue = self._found.get(key)
                if queue is None:
                    queue = self._found[key] = LoggedQueue(self._entries.get(key))
                self.entered_to = max(self.entered_to, queue.add(Rows(*part), is_delay[at]))
        self._held, self._count = [], 0

    def get(self, topic: str, queue_id: int) -> LoggedQueue | None:
        """Return the records of a queue; None if there are none."""
        return self._found.get(self._keys.key(topic, queue_id))

    def items(self) -> Iterator[tuple[str, int, LoggedQueue]]:
        """Yield the topic, the number and the records of each queue."""
        for key, queue in self._found.items():
            yield *self._keys.queue(key), queue


@dataclass(frozen=True)
class LogLosses:
    """The account of a log up to `end`, after its last record, its places without a record, and its queues."""

    account: Account
    end: int
    faults: tuple[LogFault, ...]
    queues: LoggedQueues = field(default_factory=LoggedQueues)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that an unfinished write has left after the last record."""
        return sum(fault.size for fault in self.faults if not fault.is_loss)

    def lost(self, offsets: NDArray[Any], loss: Loss) -> NDArray[np.bool_]:
        """Mark the offsets of the log that are in a place with this loss."""
        faults = [fault for fault in self.faults if fault.loss is loss]
        begins = np.array([fault.offset for fault in faults], np.int64)
        ends = np.array([fault.offset + fault.size for fault in faults], np.int64)
        at = np.searchsorted(begins, offsets, "right") - 1
        marked: NDArray[np.bool_] = (at >= 0) & (offsets < np.append(ends, 0)[at])
        return marked


def find_losses(store: StoreFiles, on_progress: Progress = lambda done, total: None) -> LogLosses:
    """Read a whole log, and what its queues have for its records. Raises `OSError` and `NotAStoreFile`."""
    # Imported here: each start of journal dump imports this module, and needs no checks.
    from bmqctl.stores.rocketmq.check.check import old_tail_of

    old_tail = old_tail_of(store, (store.root / ABORT).exists())
    scan, queues = LogScan(store.log), LoggedQueues(store.queues(), OFFSET_MAX if old_tail is None else old_tail)
    faults: list[LogFault] = []
    total = max(1, store.end - scan.begin)
    for chunk in scan.chunks():
        on_progress(chunk.end - scan.begin, total)
        bodies = lose_bodies(scan.account, chunk.records)
        faults += sorted([*chunk.faults, *bodies])
        queues.add(chunk.records)
    queues.flush()
    return LogLosses(scan.account, scan.end, tuple(faults), queues)


def lose_bodies(account: Account, records: LogRecords) -> list[LogFault]:
    """Account for records that were counted as read and whose bodies differ from their checksums as damaged.

    Returns them as faults.
    """
    bad = np.flatnonzero(~sound_bodies(records)).tolist()
    found = [LogFault(int(records.offsets[row]), int(records.sizes[row]), _OTHER_BODY) for row in bad]
    for fault in found:
        account.read(-1, -fault.size)
        account.lose(f"offset {fault.offset} of the commit log: {fault.text}", fault.size)
    return found
