"""The job of `bmqctl spark-report` on RocketMQ's stores: topics, keys, groups, retries and dead letters.

Spark reduces messages to counts by topic and time. A store has only the groups' present progress, so the lag over time
counts the messages that wait now, by storing time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from bmqctl.pipeline.export.accounting import account_of_stores
from bmqctl.pipeline.export.exported import exported_table
from bmqctl.pipeline.export.manifest import need_manifest
from bmqctl.pipeline.export.output import open_output
from bmqctl.pipeline.report.report import NothingToReport, ReportRequest, account_of, loss_notes
from bmqctl.pipeline.report.report_model import TimeLine
from bmqctl.pipeline.rocketmq.brokers import is_rocketmq
from bmqctl.pipeline.source.options import Table
from bmqctl.pipeline.spark.run_tasks import OnProgress
from bmqctl.pipeline.spark.session import open_session
from bmqctl.stores.rocketmq.read.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, TopicKind

__all__ = ["GroupLag", "HotKey", "LogReport", "LogReportRequest", "Retries", "TopicTraffic", "is_of_logs"]

_MESSAGE_COLUMNS: Final = (
    "broker",
    "topic",
    "queue_id",
    "queue_offset",
    "kind",
    "keys",
    "store_time",
    "size",
    "body_size",
    "reconsume_times",
)
_OF_APPLICATIONS: Final = (TopicKind.ORDINARY, TopicKind.RETRY, TopicKind.DEAD_LETTERS)


@dataclass(frozen=True)
class TopicTraffic:
    """A topic. `peak_per_s` is that of the busiest bucket, `arrivals` counts messages by bucket."""

    topic: str
    kind: str
    messages: int
    body_bytes: int
    log_bytes: int
    peak_per_s: float
    arrivals: list[int] | None


@dataclass(frozen=True)
class HotKey:
    topic: str
    key: str
    messages: int


@dataclass(frozen=True)
class GroupLag:
    """A topic's messages that wait for a group; `over_time` counts those stored by the end of each bucket.

    `oldest_s` is the age of the oldest one at the end of the report's time.
    """

    group: str
    topic: str
    queues: int
    lag: int
    oldest_s: int | None
    over_time: list[int] | None


@dataclass(frozen=True)
class Retries:
    """Messages that a group sent back, by the number of times, and messages that it gave up."""

    group: str
    retried: int
    by_times: dict[int, int]
    dead: int


@dataclass(frozen=True)
class LogReport:
    """The whole report. Times are seconds since 1970; lists are in the order of display."""

    sources: list[str]
    from_s: int
    to_s: int
    bucket_s: int
    messages: int
    body_bytes: int
    kinds: dict[str, int]
    topics: list[TopicTraffic]
    keys: list[HotKey]
    groups: list[GroupLag]
    retries: list[Retries]
    notes: list[str]
    account: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LogReportRequest:
    """A request for a report on RocketMQ's stores, or on an export of them."""

    request: ReportRequest

    def run(self, context: SparkContext, on_progress: OnProgress, /) -> LogReport:
        report = _Making(open_session(context), self.request, on_progress).report()
        account = account_of(context, self.request, on_progress)
        if account.is_sound and not self.request.of_export:
            # Consume queues, from which lag is counted, may be damaged beside a sound log.
            queues = account_of_stores(context, self.request.sources, on_progress, Table.GROUPS)
            account.add(queues)
        return replace(report, account=account.as_json(), notes=[*report.notes, *loss_notes(account)])


def is_of_logs(request: ReportRequest) -> bool:
    """Return whether the sources are RocketMQ's. Raises StoreError or OutputError."""
    if request.of_export:
        return bool(need_manifest(open_output(request.sources[0])).brokers)
    return is_rocketmq(request.sources)


class _Making:
    def __init__(self, session: SparkSession, request: ReportRequest, on_progress: OnProgress) -> None:
        self.session = session
        self.request = request
        self.on_progress = on_progress
        self.messages = self._messages()

    def report(self) -> LogReport:
        """Make the report. Raises StoreError or OutputError for a bad source, NothingToReport without messages."""
        self.on_progress("determining the time span", 0, 0)
        span = self.messages.agg(f.min(_seconds()), f.max(_seconds())).collect()[0]
        if span[0] is None:
            raise NothingToReport(f"{', '.join(self.request.sources)}: no messages")
        time = TimeLine.over(*span)
        self.on_progress("counting messages by topic and time", 0, 0)
        topics = self._topics(time)
        self.on_progress("counting keys, and messages that were sent back", 0, 0)
        keys, retries = self._keys(), self._retries()
        self.on_progress("counting what waits for groups", 0, 0)
        groups = [] if self.request.of_export else self._groups(time)
        kinds: dict[str, int] = {}
        for topic in topics:
            kinds[topic.kind] = kinds.get(topic.kind, 0) + topic.messages
        return LogReport(
            sources=list(self.request.sources),
            from_s=time.from_s,
            to_s=time.to_s,
            bucket_s=time.width_s,
            messages=sum(kinds.values()),
            body_bytes=sum(topic.body_bytes for topic in topics),
            kinds=dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
            topics=topics,
            keys=keys,
            groups=groups,
            retries=retries,
            notes=_notes(self.request),
        )

    def _messages(self) -> DataFrame:
        if not self.request.of_export:
            reader = self.session.read.format("bmq").option("table", "messages")
            return reader.option("columns", ",".join(_MESSAGE_COLUMNS)).load(list(self.request.sources))
        output = open_output(self.request.sources[0])
        manifest = need_manifest(output)
        if "messages" not in manifest.tables:
            raise NothingToReport(f"{self.request.sources[0]} has no table messages: export it too")
        return exported_table(self.session, output, manifest, "messages").select(*_MESSAGE_COLUMNS)

    def _topics(self, time: TimeLine) -> list[TopicTraffic]:
        """The topics, most messages first."""
        counts = self.messages.groupBy("topic", "kind", _bucket(time).alias("bucket")).agg(
            f.count("*"), f.sum("body_size"), f.sum("size")
        )
        arrivals: dict[tuple[str, str], list[int]] = {}
        sizes: dict[tuple[str, str], list[int]] = {}
        for topic, kind, bucket, messages, body_bytes, log_bytes in counts.collect():
            arrivals.setdefault((topic, kind), [0] * time.bucket_count)[bucket or 0] += messages
            size = sizes.setdefault((topic, kind), [0, 0])
            size[0] += body_bytes
            size[1] += log_bytes
        ordered = sorted(arrivals, key=lambda each: (-sum(arrivals[each]), each))
        return [
            TopicTraffic(
                topic,
                kind,
                sum(arrivals[topic, kind]),
                sizes[topic, kind][0],
                sizes[topic, kind][1],
                round(max(arrivals[topic, kind]) / time.width_s, 3),
                arrivals[topic, kind] if place < self.request.series_max else None,
            )
            for place, (topic, kind) in enumerate(ordered)
        ]

    def _keys(self) -> list[HotKey]:
        wanted = self.messages.where(f.col("kind").isin([kind.value for kind in _OF_APPLICATIONS]))
        counted = wanted.select("topic", f.explode("keys").alias("key")).groupBy("topic", "key").count()
        most = counted.orderBy(f.desc("count"), "topic", "key").limit(self.request.series_max)
        return [HotKey(*row) for row in most.collect()]

    def _retries(self) -> list[Retries]:
        """The groups that sent messages back, most messages first."""
        sent_back = self.messages.where(f.col("kind").isin([TopicKind.RETRY.value, TopicKind.DEAD_LETTERS.value]))
        by_times: dict[str, dict[int, int]] = {}
        dead: dict[str, int] = {}
        for topic, kind, times, count in sent_back.groupBy("topic", "kind", "reconsume_times").count().collect():
            if kind == TopicKind.RETRY:
                of_group = by_times.setdefault(topic.removeprefix(RETRY_PREFIX), {})
                of_group[times] = of_group.get(times, 0) + count
            else:
                group = topic.removeprefix(DEAD_LETTER_PREFIX)
                dead[group] = dead.get(group, 0) + count
        found = [
            Retries(
                group,
                sum(by_times.get(group, {}).values()),
                dict(sorted(by_times.get(group, {}).items())),
                dead.get(group, 0),
            )
            for group in by_times.keys() | dead.keys()
        ]
        return sorted(found, key=lambda each: (-each.dead, -each.retried, each.group))

    def _groups(self, time: TimeLine) -> list[GroupLag]:
        """The progress of groups, most lag first."""
        progress = self.session.read.format("bmq").option("table", "groups").load(list(self.request.sources))
        totals = progress.groupBy("group", "topic").agg(
            f.count("*"), f.sum("lag"), f.min(f.unix_timestamp("waiting_since"))
        )
        rows = sorted(totals.collect(), key=lambda row: (-row[3], row[0], row[1]))
        behind = {(row[0], row[1]) for row in rows[: self.request.series_max] if row[3]}
        series = self._waiting(progress, time) if behind else {}
        return [
            GroupLag(
                group,
                topic,
                queues,
                lag,
                None if since is None else max(0, time.to_s - since),
                series.get((group, topic), [0] * time.bucket_count) if (group, topic) in behind else None,
            )
            for group, topic, queues, lag, since in rows
        ]

    def _waiting(self, progress: DataFrame, time: TimeLine) -> dict[tuple[str, str], list[int]]:
        following = f.greatest(f.coalesce("offset", f.lit(0)), f.coalesce("min_offset", f.lit(0))).alias("following")
        late = progress.where("lag > 0").select("broker", "group", "topic", "queue_id", following)
        waiting = self.messages.join(f.broadcast(late), ["broker", "topic", "queue_id"])
        waiting = waiting.where(f.col("queue_offset") >= f.col("following"))
        counts: dict[tuple[str, str], list[int]] = {}
        for group, topic, bucket, count in waiting.groupBy("group", "topic", _bucket(time)).count().collect():
            counts.setdefault((group, topic), [0] * time.bucket_count)[bucket or 0] += count
        return {each: [*accumulate(count)] for each, count in counts.items()}


def _seconds() -> Column:
    return f.unix_timestamp("store_time")


def _bucket(time: TimeLine) -> Column:
    return f.floor((_seconds() - time.from_s) / time.width_s)


def _notes(request: ReportRequest) -> list[str]:
    notes = [
        "Messages that were deleted with the oldest files of a log before the store was read are not counted.",
        "A message that is sent back is stored again: each time is a message of the group's retry topic.",
    ]
    if request.of_export:
        return [*notes, "An export has no groups: their lag is told by a report on the store."]
    return [
        *notes,
        "The store says how far a group is, not when it was there: the lag over time is of the messages that wait now, "
        "by when they were stored.",
    ]
