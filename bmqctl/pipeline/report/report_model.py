"""The model of a report, and its assembly from counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

__all__ = [
    "AppReport",
    "CompressionReport",
    "Confirms",
    "Latency",
    "Messages",
    "QueueReport",
    "Report",
    "Series",
    "TimeLine",
    "assemble",
    "latency_of",
]

BUCKETS = 180
"""The approximate number of points in a plot over time."""

BARS = 40
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_DAY_S = 86400


class TimeLine(NamedTuple):
    """Time in buckets of `width_s` from `from_s` on, in seconds since 1970; `to_s` is in the last of them."""

    from_s: int
    to_s: int
    width_s: int

    @property
    def bucket_count(self) -> int:
        return (self.to_s - self.from_s) // self.width_s + 1

    @classmethod
    def over(cls, first_s: int, last_s: int) -> TimeLine:
        wanted = (last_s - first_s + 1) / BUCKETS
        days = -(-int(wanted) // _DAY_S) * _DAY_S
        width = next((width for width in _WIDTHS_S if width >= wanted), days + _DAY_S)
        return cls(first_s - first_s % width, last_s, width)


class Messages(NamedTuple):
    """Similar messages: their count, their bytes, and the time buckets of their arrival and removal.

    `posted` and `stored` are the bytes of the `readable` ones; `oldest_s` is the arrival of the first.
    """

    queue: str
    outcome: str
    compression: str | None
    came: int | None
    went: int | None
    messages: int
    payload: int
    posted: int
    stored: int
    readable: int
    oldest_s: int | None


class Confirms(NamedTuple):
    """Similar confirms of one app; `latency_s` is None if the files lack the message."""

    queue: str
    app: str
    reason: str
    latency_s: int | None
    bucket: int | None
    confirms: int


@dataclass(frozen=True)
class Latency:
    """Seconds from arrival to end: exact percentiles, and bars of (from second, to second, count)."""

    count: int
    mean_s: float
    p50_s: int
    p90_s: int
    p99_s: int
    p999_s: int
    max_s: int
    bars: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Series:
    """Counts by time bucket: messages that arrived, were removed, and were alive at its end; and confirms."""

    arrivals: list[int]
    removals: list[int]
    backlog: list[int]
    confirms: list[int]


@dataclass(frozen=True)
class QueueReport:
    """A queue. `peak_per_s` is that of the busiest bucket; `oldest_pending_s` is the oldest message's age."""

    queue: str
    messages: int
    payload_bytes: int
    outcomes: dict[str, int]
    peak_per_s: float
    backlog: int
    backlog_max: int
    oldest_pending_s: int | None
    series: Series | None


@dataclass(frozen=True)
class AppReport:
    """An app of a queue. `rejected` messages were given up after the last attempt; `pending` ones await a confirm."""

    queue: str
    app: str
    confirmed: int
    rejected: int
    auto_confirmed: int
    pending: int
    latency: Latency | None


@dataclass(frozen=True)
class CompressionReport:
    """A queue's messages by algorithm: bytes as posted (properties and payload) and as stored."""

    queue: str
    algorithm: str
    messages: int
    unreadable: int
    posted_bytes: int
    stored_bytes: int


@dataclass(frozen=True)
class Report:
    """The whole report. Times are seconds since 1970; lists are in the order of display.

    `unmatched` counts confirms of messages that are not in the files: they have no latency.
    """

    sources: list[str]
    from_s: int
    to_s: int
    bucket_s: int
    messages: int
    payload_bytes: int
    outcomes: dict[str, int]
    confirms: int
    rejected: int
    unmatched: int
    latency: Latency | None
    series: Series
    queues: list[QueueReport]
    apps: list[AppReport]
    compression: list[CompressionReport]
    notes: list[str]  # limitations of the numbers
    account: dict[str, Any] = field(default_factory=dict)  # of the store

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def latency_of(seconds: Mapping[int, int]) -> Latency | None:
    """The latency from the count of each number of seconds; None if there are none."""
    count = sum(seconds.values())
    if not count:
        return None
    ordered = sorted(seconds.items())
    places = [*accumulate(number for _, number in ordered)]

    def percentile(share: float) -> int:
        rank = max(1, -(-count * round(share * 1000) // 1000))
        return next(value for (value, _), place in zip(ordered, places, strict=True) if place >= rank)

    mean = sum(value * number for value, number in ordered) / count
    percentiles = [percentile(share) for share in (0.5, 0.9, 0.99, 0.999)]
    p50, p90, p99, p999 = percentiles
    return Latency(count, round(mean, 3), p50, p90, p99, p999, ordered[-1][0], _bars(ordered, p999))


def _bars(ordered: list[tuple[int, int]], p999_s: int) -> list[tuple[int, int, int]]:
    """Bars of one width, at most `BARS`, except the last, which has the slowest thousandth."""
    low, last = min(0, ordered[0][0]), ordered[-1][0]
    width = next((width for width in _WIDTHS_S if p999_s - low < BARS * width), (p999_s - low) // BARS + 1)
    counts = [0] * ((p999_s - low) // width + 1)
    for value, number in ordered:
        counts[min((value - low) // width, len(counts) - 1)] += number
    bars = [(low + place * width, low + (place + 1) * width, count) for place, count in enumerate(counts)]
    start, end, count = bars[-1]
    return [*bars[:-1], (start, max(end, last + 1), count)]


class _Flow:
    def __init__(self, time: TimeLine) -> None:
        self.time = time
        self.arrivals: Counter[int] = Counter()
        self.removals: Counter[int] = Counter()
        self.confirms: Counter[int] = Counter()

    def series(self) -> Series:
        buckets = range(self.time.bucket_count)
        arrivals, removals, confirms = (
            [counts[bucket] for bucket in buckets] for counts in (self.arrivals, self.removals, self.confirms)
        )
        backlog = [*accumulate(came - went for came, went in zip(arrivals, removals, strict=True))]
        return Series(arrivals, removals, backlog, confirms)


def assemble(
    sources: Iterable[str],
    time: TimeLine,
    messages: Iterable[Messages],
    pending: Mapping[tuple[str, str], int],
    confirms: Iterable[Confirms],
    series_max: int,
) -> Report:
    """Assemble the report; the `series_max` largest queues have their own series. `pending` is by queue and app."""
    groups, done = list(messages), list(confirms)
    flows: dict[str, _Flow] = {}
    total = _Flow(time)
    for group in groups:
        for flow in (total, flows.setdefault(group.queue, _Flow(time))):
            # A message without a time counts in the backlog from the start.
            flow.arrivals[group.came or 0] += group.messages
            if group.went is not None:
                flow.removals[group.went] += group.messages
    for confirm in done:
        if confirm.bucket is not None and confirm.reason != "AUTO_CONFIRMED":
            for flow in (total, flows.setdefault(confirm.queue, _Flow(time))):
                flow.confirms[confirm.bucket] += confirm.confirms
    everything: Counter[int] = Counter()
    for confirm in done:
        if confirm.latency_s is not None and confirm.reason == "CONFIRMED":
            everything[confirm.latency_s] += confirm.confirms
    outcomes: Counter[str] = Counter()
    for group in groups:
        outcomes[group.outcome] += group.messages
    return Report(
        sources=list(sources),
        from_s=time.from_s,
        to_s=time.to_s,
        bucket_s=time.width_s,
        messages=sum(group.messages for group in groups),
        payload_bytes=sum(group.payload for group in groups),
        outcomes=dict(outcomes.most_common()),
        confirms=sum(each.confirms for each in done if each.reason == "CONFIRMED"),
        rejected=sum(each.confirms for each in done if each.reason == "REJECTED"),
        unmatched=sum(each.confirms for each in done if each.latency_s is None and each.reason != "AUTO_CONFIRMED"),
        latency=latency_of(everything),
        series=total.series(),
        queues=_queues(groups, flows, time, series_max),
        apps=_apps(done, pending),
        compression=_compression(groups),
        notes=_notes(outcomes),
    )


def _queues(groups: list[Messages], flows: dict[str, _Flow], time: TimeLine, series_max: int) -> list[QueueReport]:
    by_queue: dict[str, list[Messages]] = {}
    for group in groups:
        by_queue.setdefault(group.queue, []).append(group)
    ordered = sorted(by_queue.items(), key=lambda item: (-sum(group.messages for group in item[1]), item[0]))
    reports = []
    for place, (queue, its_groups) in enumerate(ordered):
        series = flows[queue].series()
        outcomes: Counter[str] = Counter()
        for group in its_groups:
            outcomes[group.outcome] += group.messages
        waiting = [group.oldest_s for group in its_groups if group.went is None and group.oldest_s is not None]
        reports.append(
            QueueReport(
                queue=queue,
                messages=sum(outcomes.values()),
                payload_bytes=sum(group.payload for group in its_groups),
                outcomes=dict(outcomes.most_common()),
                peak_per_s=round(max(series.arrivals) / time.width_s, 3),
                backlog=series.backlog[-1],
                backlog_max=max(series.backlog),
                oldest_pending_s=time.to_s - min(waiting) if waiting else None,
                series=series if place < series_max else None,
            )
        )
    return reports


def _apps(confirms: list[Confirms], pending: Mapping[tuple[str, str], int]) -> list[AppReport]:
    by_app: dict[tuple[str, str], list[Confirms]] = {app: [] for app in pending}
    for confirm in confirms:
        by_app.setdefault((confirm.queue, confirm.app), []).append(confirm)
    reports = []
    for (queue, app), its_confirms in by_app.items():
        reasons: Counter[str] = Counter()
        seconds: Counter[int] = Counter()
        for confirm in its_confirms:
            reasons[confirm.reason] += confirm.confirms
            if confirm.latency_s is not None and confirm.reason == "CONFIRMED":
                seconds[confirm.latency_s] += confirm.confirms
        reports.append(
            AppReport(
                queue,
                app,
                reasons["CONFIRMED"],
                reasons["REJECTED"],
                reasons["AUTO_CONFIRMED"],
                pending.get((queue, app), 0),
                latency_of(seconds),
            )
        )

    def slowness(app: AppReport) -> tuple[float, ...]:
        if app.latency is None:
            return (1, 0, 0, 0)
        return (0, -app.latency.p99_s, -app.latency.p50_s, -app.latency.mean_s)

    return sorted(reports, key=lambda app: (slowness(app), app.queue, app.app))


def _compression(groups: list[Messages]) -> list[CompressionReport]:
    sums: dict[tuple[str, str], Counter[str]] = {}
    for group in groups:
        its_sums = sums.setdefault((group.queue, group.compression or "unknown"), Counter())
        its_sums.update(
            messages=group.messages,
            unreadable=group.messages - group.readable,
            posted_bytes=group.posted,
            stored_bytes=group.stored,
        )
    names = ("messages", "unreadable", "posted_bytes", "stored_bytes")
    reports = [CompressionReport(*key, *(values[name] for name in names)) for key, values in sums.items()]
    return sorted(reports, key=lambda each: (-each.stored_bytes, each.queue, each.algorithm))


def _notes(outcomes: Counter[str]) -> list[str]:
    notes = [
        "The files have times in whole seconds: a latency below one second may appear as 0 or 1 s.",
        "Attempts to deliver a message are in no file, so redeliveries cannot be counted: only messages that an app "
        "gave up after its last attempt (rejected).",
        "The confirm of the last app is recorded as the message's deletion; its latency is taken from there.",
        "Messages that a rollover removed before the store was read are not counted.",
    ]
    if outcomes["removed"]:
        notes.append(
            f"{outcomes['removed']:,} messages had left the store between two exports; their outcome is unknown."
        )
    return notes
