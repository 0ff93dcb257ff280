"""The rest of an old, longer log that Apache's broker leaves after the end of one that it has cut.

A broker whose log has parted from its master's sets the ends of log and queues back, and writes on from there; the
rest stays. It is recognized by its records: they are in the last file, and older than the first one of the last epoch.
Source: AutoSwitchHAClient, MappedFileQueue.truncateDirtyFiles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bmqctl.stores.rocketmq.read.files import StoreFiles
from bmqctl.stores.rocketmq.read.records import Numbers
from bmqctl.stores.rocketmq.read.scan import LogScan

__all__ = ["find_old_tail"]


def find_old_tail(store: StoreFiles, epoch_begins: Sequence[int], dispatched_ms: int | None) -> int | None:
    """Return where the log ends, if the rest of another follows it; None if not.

    `dispatched_ms` is the time of the log's last message, as a broker that was stopped has noted it; None after a
    crash. Raises `OSError`.
    """
    begin = max(epoch_begins, default=0)
    if not store.log or not store.begin <= begin < store.end or len(epoch_begins) < 2:
        return None
    first_ms = _stored_ms(store, begin)
    if first_ms is None:
        return None
    end, end_ms, behind = 0, 0, 0
    # The last file may have been made for records to come.
    files = store.log[-2:]
    for records in (chunk.records for chunk in LogScan(files, max(begin, files[0].begin)).chunks()):
        if len(records):
            times: Numbers = records.stored_ms
            young = np.flatnonzero(times >= first_ms)
            if len(young):
                last = int(young[-1])
                end, end_ms = records.offset + int(records.ends[last]), int(times[last])
                behind = len(records) - 1 - last
            else:
                behind += len(records)
    return end if end and behind and dispatched_ms in (None, end_ms) else None


def _stored_ms(store: StoreFiles, offset: int) -> int | None:
    """The time of the record at an offset."""
    for chunk in LogScan(store.log, offset, exact=True).chunks():
        if len(chunk.records):
            is_there = int(chunk.records.offsets[0]) == offset
            return int(chunk.records.stored_ms[0]) if is_there else None
        if chunk.end > offset:
            return None
    return None
