"""The losses of a commit log: the account of all its bytes, and the places of records that are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.derived import sound_bodies
from bmqctl.stores.rocketmq.files import LogFile
from bmqctl.stores.rocketmq.records import LogRecords
from bmqctl.stores.rocketmq.scan import LogFault, LogScan, Loss

__all__ = ["LogLosses", "find_losses", "lose_bodies"]

_OTHER_BODY: Final = "the checksum of the body differs"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LogLosses:
    """The account of a log up to `end`, after its last record, and its places without a record."""

    account: Account
    end: int
    faults: tuple[LogFault, ...]

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


def find_losses(files: Sequence[LogFile], on_progress: Progress = lambda done, total: None) -> LogLosses:
    """Read a whole log. Raises `OSError`."""
    scan = LogScan(files)
    faults: list[LogFault] = []
    total = max(1, files[-1].end - scan.begin) if files else 1
    for chunk in scan.chunks():
        on_progress(chunk.end - scan.begin, total)
        bodies = lose_bodies(scan.account, chunk.records)
        for fault in bodies:
            scan.account.read(-1, -fault.size)
        faults += sorted([*chunk.faults, *bodies])
    return LogLosses(scan.account, scan.end, tuple(faults))


def lose_bodies(account: Account, records: LogRecords) -> list[LogFault]:
    """Account for the records whose bodies differ from their checksums as damaged, and return them as faults."""
    bad = np.flatnonzero(~sound_bodies(records)).tolist()
    found = [LogFault(int(records.offsets[row]), int(records.sizes[row]), _OTHER_BODY) for row in bad]
    for fault in found:
        account.lose(f"offset {fault.offset} of the commit log: {fault.text}", fault.size)
    return found
