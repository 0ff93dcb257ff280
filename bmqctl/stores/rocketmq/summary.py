"""Figures of a RocketMQ store: its log, topics and groups, and waiting messages. Bodies are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.read.files import QueueFiles, StoreFiles
from bmqctl.stores.rocketmq.read.losses import LogLosses, find_losses
from bmqctl.stores.rocketmq.read.queues import QueueFigures, entry_at, read_queues, stored_ms_at
from bmqctl.stores.rocketmq.read.scan import LogScan
from bmqctl.stores.rocketmq.read.tables import read_delays, read_progress
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, HALF_TOPIC, TRANSACTION_GROUP, TopicKind, kind_of

__all__ = ["GroupFigures", "LogFigures", "LogSummary", "QueueProgress", "TopicFigures", "summarize_log"]

Progress = Callable[[int, int], None]


@dataclass
class LogFigures:
    """The commit log: its files, their offsets, and the end of the written part.

    `not_in_queues` counts the records after the last one that a consume queue names; `account` covers all bytes up to
    the end, after which an unfinished write left `unfinished_bytes`.
    """

    begin: int
    end: int
    files: int
    not_in_queues: int = 0
    account: Account = field(default_factory=Account)
    unfinished_bytes: int = 0


@dataclass
class TopicFigures:
    """A topic and its queues."""

    topic: str
    kind: TopicKind
    queues: list[QueueFigures]

    @property
    def messages(self) -> int:
        return sum(queue.entries for queue in self.queues)

    @property
    def damaged(self) -> int:
        return sum(queue.damaged for queue in self.queues)

    @property
    def missing(self) -> int:
        return sum(queue.missing for queue in self.queues)

    @property
    def size(self) -> int:
        return sum(queue.size for queue in self.queues)

    @property
    def first_ms(self) -> int | None:
        return min((queue.first_ms for queue in self.queues if queue.first_ms is not None), default=None)

    @property
    def last_ms(self) -> int | None:
        return max((queue.last_ms for queue in self.queues if queue.last_ms is not None), default=None)

    @property
    def per_s(self) -> float:
        """Messages per second between the first and the last; 0 if both have the same time."""
        first, last = self.first_ms, self.last_ms
        return 0.0 if first is None or last is None or last <= first else 1000 * (self.messages - 1) / (last - first)


@dataclass
class QueueProgress:
    """The next offset of a group in a queue, and the number of messages waiting for it."""

    queue_id: int
    offset: int
    lag: int


@dataclass
class GroupFigures:
    """A group's progress in a topic; `oldest_ms` is the storing time of the oldest waiting message."""

    group: str
    topic: str
    queues: list[QueueProgress]
    oldest_ms: int | None = None

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)


@dataclass
class LogSummary:
    """All figures. `delayed` counts waiting messages by level; `faults` are unreadable files."""

    log: LogFigures
    topics: list[TopicFigures]
    groups: list[GroupFigures]
    delayed: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def messages(self, *kinds: TopicKind) -> int:
        return sum(topic.messages for topic in self.topics if topic.kind in kinds)

    def lag(self, kind: TopicKind) -> int:
        return sum(group.lag for group in self.groups if kind_of(group.topic) is kind)

    @property
    def unsettled(self) -> int:
        """Half messages that the broker has yet to examine, an upper bound of open transactions."""
        return sum(each.lag for each in self.groups if (each.group, each.topic) == (TRANSACTION_GROUP, HALF_TOPIC))


def summarize_log(
    store: StoreFiles,
    wanted: Callable[[str], bool] = lambda topic: True,
    on_progress: Progress = lambda done, total: None,
) -> LogSummary:
    """Compute the figures of the wanted topics. Raises `OSError` and `NotAStoreFile`."""
    losses = find_losses(store, on_progress)
    every = read_queues(store, losses)
    queues = [queue for queue in every if wanted(queue.topic)]
    topics = [
        TopicFigures(name, kind_of(name), list(each)) for name, each in groupby(queues, lambda queue: queue.topic)
    ]
    summary = LogSummary(_log_figures(store, every, losses), topics, [])
    by_place = {(queue.topic, queue.queue_id): queue for queue in every}
    files = {(queue.topic, queue.queue_id): queue for queue in store.queues()}
    for (topic, group), progress in read_progress(store, summary.faults).items():
        if wanted(topic):
            summary.groups.append(_group(store, group, topic, progress, by_place, files))
    delays = read_delays(store, summary.faults)
    for queue in every:
        if queue.topic == DELAY_TOPIC:
            level = queue.queue_id + 1
            summary.delayed[level] = max(0, queue.end - max(queue.begin, delays.get(level, 0)))
    return summary


def _log_figures(store: StoreFiles, queues: Iterable[QueueFigures], losses: LogLosses) -> LogFigures:
    known = max((queue.log_end for queue in queues if queue.log_end <= store.end), default=0)
    scan = LogScan(store.log, known or None, exact=True, tail=False)
    more = sum(len(chunk.records) for chunk in scan.chunks())
    return LogFigures(
        store.begin, max(scan.end, losses.end), len(store.log), more, losses.account, losses.unfinished_bytes
    )


def _group(
    store: StoreFiles,
    group: str,
    topic: str,
    progress: dict[int, int],
    queues: dict[tuple[str, int], QueueFigures],
    files: dict[tuple[str, int], QueueFiles],
) -> GroupFigures:
    found = GroupFigures(group, topic, [])
    times = []
    for queue_id, offset in sorted(progress.items()):
        queue = queues.get((topic, queue_id))
        lag = 0 if queue is None else max(0, queue.end - max(offset, queue.begin))
        found.queues.append(QueueProgress(queue_id, offset, lag))
        if queue is not None and lag:
            entries = files.get((topic, queue_id))
            place = None if entries is None else entry_at(entries, max(offset, queue.begin))
            times.append(None if place is None else stored_ms_at(store.log, *place))
    # A queue from which the group took nothing has no progress.
    for (name, queue_id), queue in queues.items():
        if name == topic and queue_id not in progress and queue.entries:
            found.queues.append(QueueProgress(queue_id, queue.begin, queue.entries))
            times.append(queue.first_ms)
    found.oldest_ms = min((time for time in times if time is not None), default=None)
    return found
