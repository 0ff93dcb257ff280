"""Comparison of two RocketMQ stores: logs, epochs, consume queues, and progress of groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from bmqctl.stores.rocketmq.log_diff import LogDiff, Status, compare_logs
from bmqctl.stores.rocketmq.queue_diff import QueueDiff, compare_queues
from bmqctl.stores.rocketmq.read.files import StoreFiles
from bmqctl.stores.rocketmq.read.tables import CommonEpoch, common_epoch, read_delays, read_epochs, read_progress
from formats.rocketmq.files.epochs import EpochEntry

__all__ = ["DelayDiff", "ProgressDiff", "StoreDiff", "compare_stores"]

Progress = Callable[[int, int], None]


class ProgressDiff(NamedTuple):
    """The next offset of a group in a queue, in both stores; None where there is none."""

    group: str
    topic: str
    queue_id: int
    offsets: tuple[int | None, int | None]


class DelayDiff(NamedTuple):
    """The next offset of a delay level, in both stores; None where there is none."""

    level: int
    offsets: tuple[int | None, int | None]


@dataclass
class StoreDiff:
    """The comparison of two stores. `faults` are unreadable files.

    `common_epoch` comes from the epochs; the comparison of the logs does not rely on it.
    """

    log: LogDiff
    epochs: tuple[list[EpochEntry] | None, list[EpochEntry] | None] = (None, None)
    common_epoch: CommonEpoch | None = None
    queues: list[QueueDiff] = field(default_factory=list)
    progress: list[ProgressDiff] = field(default_factory=list)
    delays: list[DelayDiff] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.log.status is Status.EQUAL and not (self.queues or self.progress or self.delays)

    @property
    def contradicts_epochs(self) -> bool:
        """Return whether the logs diverge where their epochs say that they agree."""
        parted = self.log.first_difference
        return parted is not None and self.common_epoch is not None and parted.offset < self.common_epoch.end


def compare_stores(
    a: StoreFiles, b: StoreFiles, samples_max: int, on_progress: Progress = lambda done, total: None
) -> StoreDiff:
    """Compare two stores in constant memory. Raises `OSError` and `NotAStoreFile`."""
    found = StoreDiff(compare_logs(a.log, b.log, samples_max, on_progress))
    ours, theirs = found.epochs = read_epochs(a, found.faults), read_epochs(b, found.faults)
    if ours is not None and theirs is not None:
        ends = [replica.end for replica in found.log.replicas]
        found.common_epoch = common_epoch(ours, ends[0], theirs, ends[1])
    found.queues = list(compare_queues(a, b, found.log.compared_from))
    found.progress = _compare_progress(a, b, found.faults)
    delays = read_delays(a, found.faults), read_delays(b, found.faults)
    found.delays = [
        DelayDiff(level, (delays[0].get(level), delays[1].get(level)))
        for level in sorted(delays[0].keys() | delays[1].keys())
        if delays[0].get(level) != delays[1].get(level)
    ]
    return found


def _compare_progress(a: StoreFiles, b: StoreFiles, faults: list[str]) -> list[ProgressDiff]:
    ours, theirs = read_progress(a, faults), read_progress(b, faults)
    found = []
    for topic, group in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get((topic, group), {}), theirs.get((topic, group), {})
        found += [
            ProgressDiff(group, topic, queue_id, (one.get(queue_id), other.get(queue_id)))
            for queue_id in sorted(one.keys() | other.keys())
            if one.get(queue_id) != other.get(queue_id)
        ]
    return found
