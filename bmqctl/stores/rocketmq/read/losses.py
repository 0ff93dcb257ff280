"""The losses of a commit log: the account of all its bytes, and the places of lost records."""

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

_BATCH: Final = 1 << 16
_OTHER_BODY: Final = "the checksum of the body differs"

Progress = Callable[[int, int], None]


@dataclass
class LoggedQueue:
    """A queue's records in the log: their count, first number, number after the last, and places.

    A recreated topic numbers its messages from 0, and only the later records count. `entries` are the consume queue's,
    None if it has no files. `wrong` are the numbers whose entry has another place, size or tag than the record, or an
    impossible due time. `unentered` are the numbers and places of records without an entry.
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
        """Count records in log order; return the end of the last one that has its entry, 0 if none has."""
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
        """Mark the entries, given by number and place, that do not match their records.

        An entry after the last record's does not match if its place is before that record's end.
        """
        known = np.concatenate(self.wrong) if self.wrong else np.zeros(0, np.int64)
        marked: NDArray[np.bool_] = np.isin(numbers, known) | ((numbers >= self.end) & (offsets < self.log_end))
        return marked

    def lacking(self, end: int, entered_to: int) -> tuple[Numbers, Numbers]:
        """Return numbers and places of records before the queue's first file, or from number `end` on.

        Omits records from offset `entered_to` on: a starting broker enters them.
        """
        if self.entries is None or not self.unentered:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        numbers, offsets = (np.concatenate(column) for column in zip(*self.unentered, strict=True))
        outside = (numbers < self.entries.queue.begin // ENTRY_BYTES) | ((numbers >= end) & (offsets < entered_to))
        return numbers[outside], offsets[outside]


class LoggedQueues:
    """The queues of a log's records, and the entries that consume queues have for them.

    Records from `end` on are left out. `entered_to` is the end of the last record that has its entry.
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
        if len(records) and records.offsets[-1] >= self._end:
            records = records.where(records.offsets < self._end)
        rows = read_rows(records, self._keys)
        self._held.append(np.array(rows))
        self._count += len(rows.queues)
        if self._count >= _BATCH:
            self.flush()

    def flush(self) -> None:
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
        for key, queue in self._found.items():
            yield *self._keys.queue(key), queue


@dataclass(frozen=True)
class LogLosses:
    """The account of a log up to `end`, the offset after its last record; its places without a record; its queues."""

    account: Account
    end: int
    faults: tuple[LogFault, ...]
    queues: LoggedQueues = field(default_factory=LoggedQueues)

    @property
    def unfinished_bytes(self) -> int:
        return sum(fault.size for fault in self.faults if not fault.is_loss)

    def lost(self, offsets: NDArray[Any], loss: Loss) -> NDArray[np.bool_]:
        faults = [fault for fault in self.faults if fault.loss is loss]
        begins = np.array([fault.offset for fault in faults], np.int64)
        ends = np.array([fault.offset + fault.size for fault in faults], np.int64)
        at = np.searchsorted(begins, offsets, "right") - 1
        marked: NDArray[np.bool_] = (at >= 0) & (offsets < np.append(ends, 0)[at])
        return marked


def find_losses(store: StoreFiles, on_progress: Progress = lambda done, total: None) -> LogLosses:
    """Read a whole log and its queue entries. Raises `OSError` and `NotAStoreFile`."""
    # Imported here: `journal dump` imports this module at each start, and needs no checks.
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
    """Move records whose bodies differ from their checksums from read to damaged, and return them as faults."""
    bad = np.flatnonzero(~sound_bodies(records)).tolist()
    found = [LogFault(int(records.offsets[row]), int(records.sizes[row]), _OTHER_BODY) for row in bad]
    for fault in found:
        account.read(-1, -fault.size)
        account.lose(f"offset {fault.offset} of the commit log: {fault.text}", fault.size)
    return found
