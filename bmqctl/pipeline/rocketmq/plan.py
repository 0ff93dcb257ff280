"""Tasks of a read of RocketMQ stores: ranges of brokers' logs, or all figures of a broker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql.datasource import Filter, InputPartition

from bmqctl.common.regular import next_data
from bmqctl.pipeline.rocketmq.bounds import LogBounds, log_bounds_of
from bmqctl.pipeline.rocketmq.brokers import Broker, ReplicaLog, find_brokers
from bmqctl.pipeline.rocketmq.walk import RangeScan
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.times import CLOCK_SLACK_S
from bmqctl.stores.rocketmq.read.files import OFFSET_MAX
from bmqctl.stores.rocketmq.read.scan import LogScan

__all__ = ["BrokerPart", "LogExtent", "LogPart", "StorePart", "log_extents", "plan_log"]

_SPLIT_BYTES_MIN: Final = 1 << 20
_SLACK_MS: Final = 1000 * CLOCK_SLACK_S


@dataclass(frozen=True)
class LogPart(InputPartition):
    """The input of one task: the records of a broker that begin in [`begin`, `end`).

    The broker's last record, or damage after it, ends at `written_to`.
    """

    broker: Broker
    begin: int
    end: int
    written_to: int


@dataclass(frozen=True)
class BrokerPart(InputPartition):
    """The input of one task that reads the figures of a broker."""

    broker: Broker


@dataclass(frozen=True)
class StorePart(InputPartition):
    """The input of one task that checks a broker's store."""

    broker: str
    root: Path


class LogExtent(NamedTuple):
    """A broker's log: its begin, and the offset of its last byte, None if it has none."""

    broker: str
    begin: int
    last: int | None
    file: str


def plan_log(options: ReadOptions, filters: Sequence[Filter] = ()) -> list[InputPartition]:
    """Plan the tasks that read a table. Raises StoreError."""
    bounds = log_bounds_of(filters)
    brokers = find_brokers(options.paths)
    wanted = [
        (number, broker)
        for number, broker in enumerate(brokers)
        if bounds.brokers is None or broker.name in bounds.brokers
    ]
    if bounds.is_empty:
        return []
    if options.table is Table.FAULTS:
        return [StorePart(broker.name, log.root) for _, broker in wanted for log in broker.logs]
    if options.table in (Table.GROUPS, Table.TOPICS, Table.QUEUES):
        return [BrokerPart(broker) for _, broker in wanted]
    parts: list[InputPartition] = []
    try:
        for number, broker in wanted:
            # A range begins after the last unwanted record, whether or not a record begins there.
            first = max(options.after.get(number, (0, -1))[1] + 1, bounds.first or 0)
            last = min(
                options.until.get(number, (0, OFFSET_MAX))[1], OFFSET_MAX if bounds.last is None else bounds.last
            )
            parts += _in_time(_splits(broker, first, last + 1, options), bounds)
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}; was the store moved while it was read?") from None
    return parts


def log_extents(options: ReadOptions) -> list[LogExtent]:
    """Return the extent of each broker's log. Raises StoreError."""
    found = []
    for broker in find_brokers(options.paths):
        log = broker.logs[0]
        try:
            end = max((min(each.written_to(), each.limit) for each in broker.logs), default=0)
        except OSError as error:
            raise StoreError(f"{error.filename}: {error.strerror}; was the store moved while it was read?") from None
        begin = min((each.files[0].begin for each in broker.logs if each.files), default=0)
        last_file = next((file for file in log.files if file.begin < end <= file.end), None)
        name = last_file.path.name if last_file is not None else ""
        found.append(LogExtent(broker.name, begin, end - 1 if end > begin else None, name))
    return found


def _splits(broker: Broker, first: int, end: int, options: ReadOptions) -> list[LogPart]:
    """The parts of a broker's log up to its last record, in order.

    Parts in no file are only accounted for. Raises StoreError (failfast) for such gaps.
    """
    size = max(_SPLIT_BYTES_MIN, options.records_per_partition * _record_bytes(broker.logs[0]))
    written_to = max((min(log.written_to(), log.limit) for log in broker.logs), default=0)
    found: list[LogPart] = []
    lost: list[tuple[int, int]] = []
    at = None
    for run_begin, run_end in _runs(broker):
        if at is not None and at >= first and run_begin < end:
            lost.append((at, run_begin))
        at = run_end
        for begin in range(max(run_begin, first), min(run_end, end), size):
            part_end = min(begin + size, run_end, end)
            part = LogPart(broker.over(begin, part_end), begin, part_end, written_to)
            if any(_is_written(log, begin, part_end) for log in part.broker.logs):
                found.append(part)
            else:
                lost.append((begin, part_end))
    for gap in lost:
        if gap[0] >= written_to:
            continue
        if options.failfast:
            raise StoreError(
                f"{broker.logs[0].root}: the commit log has nothing from offset {gap[0]} to {gap[1]}; "
                "mode=permissive leaves it out"
            )
        begin, part_end = max(gap[0], first), min(gap[1], end)
        found.append(LogPart(broker.over(begin, part_end), begin, part_end, written_to))
    return sorted(found, key=lambda part: part.begin)


def _runs(broker: Broker) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for file in sorted((file for log in broker.logs for file in log.files), key=lambda file: file.begin):
        if runs and file.begin <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(runs[-1][1], file.end)
        else:
            runs.append((file.begin, file.end))
    return runs


def _record_bytes(log: ReplicaLog) -> int:
    for chunk in LogScan(log.files, tail=False).chunks():
        if len(chunk.records):
            return max(1, int(chunk.records.sizes.mean()))
    return 1


def _is_written(log: ReplicaLog, begin: int, end: int) -> bool:
    for file in log.over(begin, end).files:
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            found = next_data(descriptor, max(begin, file.begin) - file.begin)
        finally:
            os.close(descriptor)
        if found is not None and file.begin + found < min(end, file.end):
            return True
    return False


def _in_time(parts: list[LogPart], bounds: LogBounds) -> list[LogPart]:
    if bounds.since_ms is None and bounds.until_ms is None:
        return parts
    timed = [(part, time) for part in parts for time in _first_times(part)]
    wanted = []
    for (part, first), after in zip(timed, [*(time for _, time in timed[1:]), None], strict=True):
        if bounds.since_ms is not None and after is not None and after + _SLACK_MS < bounds.since_ms:
            continue
        if bounds.until_ms is not None and first is not None and first - _SLACK_MS > bounds.until_ms:
            continue
        wanted.append(part)
    return wanted


def _first_times(part: LogPart) -> list[int | None]:
    """The time of the first record of a part in milliseconds, None if damaged; empty if no record begins in it.

    Bodies may be larger than parts.
    """
    scan = RangeScan(part.broker.logs[0], part.begin, part.end)
    for records in scan.records():
        return [int(records.stored_ms[0])]
    return [None] if scan.faults or (scan.gaps and len(part.broker.logs) > 1) else []
