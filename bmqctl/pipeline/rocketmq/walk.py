"""The records of a broker in a range of its log: from the leading log and, in its gaps, from others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from bmqctl.pipeline.rocketmq.anchors import anchor, queues_of
from bmqctl.pipeline.rocketmq.brokers import ReplicaLog
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.read.losses import lose_bodies
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.scan import LogFault, LogScan

__all__ = ["RangeScan", "read_range"]

Gap = tuple[int, int]
_NEAR_BYTES: Final = 1 << 20


class RangeScan:
    """The records of one log that begin in [`begin`, `end`).

    When all are read, `gaps` are the parts of the range that no record covers, and `faults` the gaps that should have
    had some.
    """

    def __init__(self, log: ReplicaLog, begin: int, end: int) -> None:
        self.begin = begin
        self.end = min(end, log.limit)
        self.gaps: list[Gap] = []
        self.faults: list[LogFault] = []
        self._log = log
        self._rest = (max(begin, self.end), end)

    def records(self) -> Iterator[LogRecords]:
        """Yield the records, which are valid until the next ones are requested. Raises `OSError`."""
        yield from self._records()
        if self._rest[0] < self._rest[1]:
            self.gaps.append(self._rest)

    def _records(self) -> Iterator[LogRecords]:
        if self.begin >= self.end:
            return
        files = self._log.over(self.begin, self.end).files
        if not files:
            self.gaps.append((self.begin, self.end))
            return
        start, at = files[0].begin, self.begin
        if start < self.begin:
            start = at = anchor(files, queues_of(self._log.root), self.begin)
        scan = LogScan(files, start, exact=True, tail=False)
        for chunk in scan.chunks():
            self.faults += chunk.faults
            if len(chunk.records):
                self._note(chunk.records, at)
                inside = self._inside(chunk.records)
                if len(inside):
                    yield inside
            at = max(at, scan.end)
            if max(at, chunk.end) >= self.end:
                break
        self._gap(at, self.end)

    def _note(self, records: LogRecords, at: int) -> None:
        starts = records.offsets
        ends = np.concatenate([[at], records.ends[:-1] + records.offset])
        for index in np.flatnonzero(ends < starts).tolist():
            self._gap(int(ends[index]), int(starts[index]))

    def _gap(self, begin: int, end: int) -> None:
        begin, end = max(begin, self.begin), min(end, self.end)
        if begin < end:
            self.gaps.append((begin, end))

    def _inside(self, records: LogRecords) -> LogRecords:
        starts = records.offsets
        first, last = np.searchsorted(starts, [self.begin, self.end]).tolist()
        return records if first == 0 and last == len(records) else records.where(slice(first, last))


def read_range(
    logs: Sequence[ReplicaLog], begin: int, end: int, written_to: int, failfast: bool, account: Account
) -> Iterator[LogRecords]:
    """Yield the records of a broker in a range of its log, which has records up to `written_to`.

    Other logs' records, for gaps of the first, come after its own. The account gets gaps of all logs when all records
    are read. Raises `OSError` and, in failfast mode, StoreError at damage that no log can fill.
    """
    gaps, faults = [(begin, end)], []
    for number, log in enumerate(logs):
        left: list[Gap] = []
        for around in _together(gaps):
            scan = RangeScan(log, around[0][0], around[-1][1])
            for records in scan.records():
                wanted = records if number == 0 else _in_gaps(records, around, end)
                if len(wanted):
                    account.read(len(wanted), int(wanted.sizes.sum()))
                    if account.compares:
                        lose_bodies(account, wanted)
                    yield wanted
            left += _common(scan.gaps, around)
            faults += scan.faults
        gaps = left
        if not gaps:
            return
    if failfast:
        _fail(logs[0], gaps, faults, end >= written_to)
    for gap in gaps:
        for part_begin, part_end, is_missing in _by_files(logs, gap[0], min(gap[1], written_to)):
            what = "no file has these bytes" if is_missing else "there is no record"
            where = f"{logs[0].root}: {part_end - part_begin} bytes from offset {part_begin} of the commit log: {what}"
            account.lose(where, part_end - part_begin, is_missing=is_missing)


def _by_files(logs: Sequence[ReplicaLog], begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
    at = begin
    for file in sorted((file for log in logs for file in log.files), key=lambda file: file.begin):
        if at < min(file.begin, end):
            yield at, min(file.begin, end), True
        at = max(at, min(file.begin, end))
        if at < min(file.end, end):
            yield at, min(file.end, end), False
        at = max(at, min(file.end, end))
    if at < end:
        yield at, end, True


def _together(gaps: Sequence[Gap]) -> Iterator[list[Gap]]:
    some: list[Gap] = []
    for gap in gaps:
        if some and gap[0] - some[-1][1] > _NEAR_BYTES:
            yield some
            some = []
        some.append(gap)
    if some:
        yield some


def _in_gaps(records: LogRecords, gaps: Sequence[Gap], end: int) -> LogRecords:
    """The records in gaps. A gap up to the end of the range is open."""
    begins, ends = (np.array(side, np.int64) for side in zip(*gaps, strict=True))
    starts = records.offsets
    at = np.searchsorted(begins, starts, "right") - 1
    until = ends[np.maximum(at, 0)]
    wanted = (at >= 0) & (starts < until) & ((records.ends + records.offset <= until) | (until == end))
    return records if wanted.all() else records.where(wanted)


def _common(some: Sequence[Gap], others: Sequence[Gap]) -> list[Gap]:
    found = []
    one = other = 0
    while one < len(some) and other < len(others):
        begin, end = max(some[one][0], others[other][0]), min(some[one][1], others[other][1])
        if begin < end:
            found.append((begin, end))
        if some[one][1] <= others[other][1]:
            one += 1
        else:
            other += 1
    return found


def _fail(log: ReplicaLog, gaps: Sequence[Gap], faults: Sequence[LogFault], is_last: bool) -> None:
    if not is_last:
        faults = [*faults, *(LogFault(begin, end - begin, "holds no record") for begin, end in gaps)]
    for fault in faults:
        if any(begin < fault.offset + fault.size and fault.offset < end for begin, end in gaps):
            raise StoreError(
                f"{log.root}: no record at offset {fault.offset} of the commit log, {fault.size} bytes: {fault.text}; "
                f"`bmqctl journal validate {log.root}` shows all such places, and mode=permissive leaves them out"
            )
