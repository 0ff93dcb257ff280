"""Validation of a RocketMQ store: each record of its commit log, and all data derived from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bmqctl.stores.blazingmq.read.fault_report import Report
from bmqctl.stores.rocketmq.check.index import IndexCheck
from bmqctl.stores.rocketmq.check.progress import (
    CHECKPOINT,
    check_checkpoint,
    check_config,
    check_epochs,
    read_checkpoint,
    read_epochs,
    read_topics,
)
from bmqctl.stores.rocketmq.check.queues import QueueCheck, place_in_log
from bmqctl.stores.rocketmq.faults import CATALOGUE, fault
from bmqctl.stores.rocketmq.read.derived import Columns, QueueKeys, joined, read_columns, sound_bodies
from bmqctl.stores.rocketmq.read.files import ABORT, StoreFiles, open_store
from bmqctl.stores.rocketmq.read.records import LogRecords, Numbers
from bmqctl.stores.rocketmq.read.scan import LogFault, LogScan
from bmqctl.stores.rocketmq.read.tables import EPOCHS
from formats.bmq.stores.faults import Fault

__all__ = ["check_log_store", "old_tail_of"]

Progress = Callable[[int, int], None]

_BATCH: Final = 1 << 16


def find_old_tail(store: StoreFiles, epoch_begins: Sequence[int], dispatched_ms: int | None) -> int | None:
    """The end of the log, if the rest of an older one follows it; otherwise None.

    When its log has diverged from its master's, Apache's broker sets the ends of log and queues back, writes on from
    there, and leaves the rest. That rest is in the last file, and its records are older than the first one of the last
    epoch. Source: AutoSwitchHAClient, MappedFileQueue.truncateDirtyFiles.

    `dispatched_ms` is the time of the log's last message, as noted by a broker that stopped; None after a crash. Raises
    `OSError`.
    """
    begin = max(epoch_begins, default=0)
    if not store.log or not store.begin <= begin < store.end or len(epoch_begins) < 2:
        return None
    first_ms = _stored_ms(store, begin)
    if first_ms is None:
        return None
    end, end_ms, behind = 0, 0, 0
    # The last file may have been created in advance.
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
    for chunk in LogScan(store.log, offset, exact=True).chunks():
        if len(chunk.records):
            is_there = int(chunk.records.offsets[0]) == offset
            return int(chunk.records.stored_ms[0]) if is_there else None
        if chunk.end > offset:
            return None
    return None


class _Held:
    """Columns of records that are not compared yet."""

    def __init__(self, use: Callable[[Columns], None]) -> None:
        self._use = use
        self._parts: list[Columns] = []
        self._count = 0

    def add(self, columns: Columns) -> None:
        self._parts.append(columns)
        self._count += len(columns) + len(columns.keys)
        if self._count >= _BATCH:
            self.flush()

    def flush(self) -> None:
        if self._parts:
            self._use(joined(self._parts))
        self._parts, self._count = [], 0


class _LogCheck:
    """The check of the log's records, and of `queues` and `index` against them."""

    def __init__(self, store: StoreFiles, report: Report, may_lag: bool, old_tail: int | None) -> None:
        self._store = store
        self._report = report
        self._may_lag = may_lag
        self._old_tail = old_tail
        self._queue_keys = QueueKeys()
        self.queues = QueueCheck(store, self._queue_keys, report.note, may_lag, old_tail is not None)
        self.index = IndexCheck(store, report.note, may_lag, old_tail is not None)
        self.last_ms = 0
        self.end = store.begin
        self._held = _Held(self._compare)

    def _compare(self, columns: Columns) -> None:
        self.queues.records(columns.rows)
        self.index.records(columns.keys)

    def run(self, on_progress: Progress) -> None:
        behind: list[LogFault] = []
        for records, faults in self._chunks(on_progress):
            for found in behind:
                self._fault(found, is_last=False)
            behind = []
            for found in faults:
                if len(records) and found.offset < int(records.offsets[-1]):
                    self._fault(found, is_last=False)
                else:
                    behind.append(found)
            if len(records):
                self._records(records)
        self._held.flush()
        for found in behind:
            self._fault(found, is_last=True)
        if self._old_tail is not None:
            self._tell("old-tail", self._old_tail, "records of an older log follow the end of this one")

    def _chunks(self, on_progress: Progress) -> Iterator[tuple[LogRecords, list[LogFault]]]:
        begin, size, end = self._store.begin, self._store.end - self._store.begin, self._old_tail
        scan = LogScan(self._store.log)
        for chunk in scan.chunks():
            records, faults = chunk.records, chunk.faults
            if end is not None and chunk.end > end:
                records = records.where(records.offsets < end)
                faults = [found for found in faults if found.offset < end]
            yield records, faults
            on_progress(chunk.end - begin, size)
        self.end = scan.end if end is None else end

    def _records(self, records: LogRecords) -> None:
        self._report.records += len(records)
        self.last_ms = max(self.last_ms, int(records.stored_ms.max()))
        sound = sound_bodies(records)
        for at in np.flatnonzero(~sound).tolist():
            size = int(records.body_sizes[at])
            reason = f"the body of {size} bytes does not match the checksum of its record"
            self._tell("body-checksum", int(records.offsets[at]), reason)
        self._held.add(read_columns(records, self._queue_keys))

    def _fault(self, found: LogFault, is_last: bool) -> None:
        offset, size, text, _ = found
        if text.startswith("the file"):
            self._tell("log-file-missing", offset, f"{size} bytes of the log: {text}")
        elif is_last:
            code = "torn-tail" if self._may_lag else "log-tail"
            self._tell(code, offset, f"{size} bytes after the last record: {text}")
        else:
            self._tell("record", offset, f"{size} bytes: {text}")

    def _tell(self, code: str, offset: int, reason: str) -> None:
        self._report.note(fault(code, *place_in_log(self._store, offset), f"at offset {offset}: {reason}"))


def check_log_store(path: Path, limit: int, on_progress: Progress) -> Report:
    """Check the store that contains `path`. Raises `NotAStoreFile` and `OSError`."""
    report = Report(limit, catalogue=CATALOGUE, unit="records")
    # First: a broker that stops meanwhile has entered everything.
    store = open_store(path)
    may_lag = (store.root / ABORT).exists()
    if may_lag:
        report.note(fault("not-stopped", str(store.root / ABORT), 0, "the broker has not removed it by stopping"))
    report.files = [str(file.path) for file in store.log]
    report.add(_size_faults(store))
    log = _LogCheck(store, report, may_lag, old_tail_of(store, may_lag))
    log.run(on_progress)
    log.queues.end(log.end, read_topics(store))
    log.index.end()
    for queue in store.queues():
        report.files += [str(file.path) for file in queue.files]
    report.files += map(str, store.index_files)
    if store.log:
        check_checkpoint(store, log.end, log.last_ms, report.note)
    check_epochs(store, log.end, report.note)
    report.files += [str(store.root / name) for name in (CHECKPOINT, EPOCHS) if (store.root / name).exists()]
    report.files += check_config(store, log.queues.ends, report.note)
    return report


def old_tail_of(store: StoreFiles, may_lag: bool) -> int | None:
    """The end of the log, if the rest of an older one follows it; otherwise None. Raises `OSError`."""
    epochs = read_epochs(store)
    checkpoint = read_checkpoint(store)
    dispatched_ms = None if may_lag or checkpoint is None else checkpoint.consume_queue_ms
    return find_old_tail(store, [entry.start_offset for entry in epochs], dispatched_ms)


def _size_faults(store: StoreFiles) -> Iterator[Fault]:
    sizes = [file.end - file.begin for file in store.log]
    for file, size in zip(store.log, sizes, strict=True):
        if size != max(sizes):
            yield fault("log-file-size", str(file.path), 0, f"has {size} bytes, the largest file {max(sizes)}")
