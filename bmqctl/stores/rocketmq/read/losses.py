"""The losses of a commit log: the account of all its bytes, and the places of records that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.read.derived import QueueKeys, queues_of, sound_bodies
from bmqctl.stores.rocketmq.read.files import LogFile
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.scan import LogFault, LogScan, Loss

__all__ = ["LogLosses", "LoggedQueue", "LoggedQueues", "find_losses", "lose_bodies"]

_OTHER_BODY: Final = "the checksum of the body differs"

Progress = Callable[[int, int], None]


@dataclass
class LoggedQueue:
    """The records of a queue in the log: how many, the numbers of the first and after the last, and their places."""

    begin: int
    end: int
    count: int
    first_offset: int
    log_end: int


class LoggedQueues:
    """The queues that a log's records belong to."""

    def __init__(self) -> None:
        self._keys = QueueKeys()
        self._found: dict[int, LoggedQueue] = {}

    def add(self, records: LogRecords) -> None:
        """Count records, which come in the order of the log."""
        records, queues = queues_of(records, self._keys)
        order = np.argsort(queues, kind="stable")
        keys, begins, counts = np.unique(queues[order], return_index=True, return_counts=True)
        firsts, lasts = order[begins], order[begins + counts - 1]
        numbers, offsets, ends = records.front("queue_offset"), records.offsets, records.ends + records.offset
        columns = (keys, numbers[firsts], numbers[lasts] + 1, counts, offsets[firsts], ends[lasts])
        for key, *row in zip(*(column.tolist() for column in columns), strict=True):
            found, queue = LoggedQueue(*row), self._found.get(key)
            if queue is None:
                self._found[key] = found
            else:
                queue.end, queue.log_end = found.end, found.log_end
                queue.count += found.count

    def without(self, named: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, LoggedQueue]]:
        """Yield the topic, the number and the records of each queue but those with these topics and numbers."""
        left_out = {self._keys.key(*name) for name in named}
        for key, queue in self._found.items():
            if key not in left_out:
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


def find_losses(
    files: Sequence[LogFile], on_progress: Progress = lambda done, total: None, *, with_queues: bool = True
) -> LogLosses:
    """Read a whole log; count the records of its queues unless told not to. Raises `OSError`."""
    scan, queues = LogScan(files), LoggedQueues()
    faults: list[LogFault] = []
    total = max(1, files[-1].end - scan.begin) if files else 1
    for chunk in scan.chunks():
        on_progress(chunk.end - scan.begin, total)
        bodies = lose_bodies(scan.account, chunk.records)
        faults += sorted([*chunk.faults, *bodies])
        if with_queues and len(chunk.records):
            queues.add(chunk.records)
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
