"""The counts of each worker, and the account that they add up to.

Nothing is sampled: each message is tracked by its sequence number, with one byte on either side, so that lost and
duplicated messages are identified rather than inferred from totals.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bmqctl.bench.histogram import Histogram, Occupied
from bmqctl.bench.schedule import SECOND_NS
from bmqctl.bench.stamp import MAGIC, STAMP, STAMP_SIZE, Source
from formats.schema import Buffer

__all__ = ["Account", "ConsumerTally", "Intervals", "ProducerTally", "settle"]

FLUSH_AT = 8192
DELIVERIES_MAX = 255
_UNPACK = STAMP.words.unpack_from


class Intervals:
    """A histogram for each second of CLOCK_MONOTONIC; only occupied buckets take memory."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: dict[int, Occupied] = {}

    def record(self, second: int, durations_ns: Sequence[int]) -> None:
        histogram = Histogram()
        histogram.record(durations_ns)
        self._add(second, histogram)

    def merge(self, other: Intervals) -> None:
        for second, histogram in other:
            self._add(second, histogram)

    def _add(self, second: int, histogram: Histogram) -> None:
        if not len(histogram):
            return
        if (before := self._seconds.get(second)) is not None:
            histogram.merge(Histogram.of(before))
        self._seconds[second] = histogram.occupied()

    def __iter__(self) -> Iterator[tuple[int, Histogram]]:
        for second in sorted(self._seconds):
            yield second, Histogram.of(self._seconds[second])

    def since(self, start_ns: int) -> list[tuple[float, Histogram]]:
        """Return the histograms with the start of each second, in seconds after `start_ns`."""
        return [((second * SECOND_NS - start_ns) / SECOND_NS, histogram) for second, histogram in self]


ONLY_SOURCE = Source(0, 0)


@dataclass(slots=True)
class ProducerTally:
    """One producer's side: `accepted[i]` is 1 once message i of queue number `queue` was acked with success."""

    producer: int
    queue: int = 0
    posted: int = 0
    acked: int = 0
    nacks: Counter[str] = field(default_factory=Counter)
    accepted: bytearray = field(default_factory=bytearray)
    ack_latency: Histogram = field(default_factory=Histogram)
    ack_intervals: Intervals = field(default_factory=Intervals)
    last_post_ns: int = 0
    last_ack_ns: int = 0
    _second: int = 0
    _pending: array[int] = field(default_factory=lambda: array("q"))

    def post(self, count: int, now_ns: int) -> None:
        self.posted += count
        self.last_post_ns = now_ns
        self.accepted += bytes(count)

    def ack(self, sequence: int, due_ns: int, now_ns: int) -> None:
        self.accepted[sequence] = 1
        self.acked += 1
        self.last_ack_ns = now_ns
        if now_ns // SECOND_NS != self._second or len(self._pending) >= FLUSH_AT:
            self.flush()
            self._second = now_ns // SECOND_NS
        self._pending.append(now_ns - due_ns)

    def nack(self, status: str, now_ns: int) -> None:
        """Record that the broker refused a message; `status` is the name of the ack's status."""
        self.nacks[status] += 1
        self.last_ack_ns = now_ns

    @property
    def nacked(self) -> int:
        return self.nacks.total()

    def flush(self) -> None:
        self.ack_latency.record(self._pending)
        self.ack_intervals.record(self._second, self._pending)
        self._pending = array("q")


@dataclass(slots=True)
class ConsumerTally:
    """One consumer's side: `deliveries[p][i]` is the number of deliveries of producer p's message i, at most 255."""

    run: int
    source: Source = ONLY_SOURCE
    delivered: int = 0
    confirmed: int = 0
    foreign: int = 0
    reordered: int = 0
    deliveries: dict[int, bytearray] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    intervals: Intervals = field(default_factory=Intervals)
    last_delivery_ns: int = 0
    _second: int = 0
    _newest: dict[int, int] = field(default_factory=dict)
    _pending: array[int] = field(default_factory=lambda: array("q"))

    def deliver(self, payload: Buffer, now_ns: int) -> bool:
        """Count a message; return False if it is not of this run and must not be confirmed."""
        if len(payload) < STAMP_SIZE:
            self.foreign += 1
            return False
        magic, run, producer, sequence, due_ns = _UNPACK(payload)
        if magic != MAGIC or run != self.run:
            self.foreign += 1
            return False
        seen = self.deliveries.get(producer)
        if seen is None:
            seen = self.deliveries[producer] = bytearray()
            self._newest[producer] = -1
        if sequence >= len(seen):
            seen += bytes(max(sequence + 1 - len(seen), FLUSH_AT))
        if not seen[sequence]:
            # A second delivery is a duplicate and does not count as reordered.
            if sequence < self._newest[producer]:
                self.reordered += 1
            else:
                self._newest[producer] = sequence
        if seen[sequence] < DELIVERIES_MAX:
            seen[sequence] += 1
        self.delivered += 1
        self.last_delivery_ns = now_ns
        if now_ns // SECOND_NS != self._second or len(self._pending) >= FLUSH_AT:
            self.flush()
            self._second = now_ns // SECOND_NS
        self._pending.append(now_ns - due_ns)
        return True

    def flush(self) -> None:
        self.latency.record(self._pending)
        self.intervals.record(self._second, self._pending)
        self._pending = array("q")


@dataclass(frozen=True, slots=True)
class Account:
    """The outcome of all messages of a run.

    `lost`: acked with success but not delivered, once for each app or broadcast consumer that lacks it. `unanswered`:
    posted, neither acked nor nacked. `duplicated`: deliveries after a message's first to an app or broadcast consumer.
    `reordered`: first deliveries to a consumer after that of a later message of the same producer. `foreign`: other
    messages in the queue, left unconfirmed.
    """

    posted: int
    acked: int
    nacked: int
    unanswered: int
    delivered: int
    confirmed: int
    lost: int
    duplicated: int
    reordered: int
    foreign: int
    nacks: dict[str, int]
    ack_latency: Histogram
    latency: Histogram
    ack_intervals: Intervals
    intervals: Intervals
    last_post_ns: int
    last_ack_ns: int
    last_delivery_ns: int

    @property
    def clean(self) -> bool:
        """True if every message was accepted, and every accepted message was delivered."""
        return not (self.lost or self.nacked or self.unanswered)


def _times_delivered(consumers: Sequence[ConsumerTally], producer: int, size: int) -> NDArray[np.int64]:
    times = np.zeros(size, np.int64)
    for consumer in consumers:
        seen = np.frombuffer(consumer.deliveries.get(producer, b""), np.uint8)[:size]
        times[: len(seen)] += seen
    return times


def settle(producers: Sequence[ProducerTally], consumers: Sequence[ConsumerTally]) -> Account:
    """Add up the workers' counts; without consumers no message counts as lost."""
    latency, ack_latency = Histogram(), Histogram()
    intervals, ack_intervals = Intervals(), Intervals()
    nacks: Counter[str] = Counter()
    lost = duplicated = 0
    readers: dict[Source, list[ConsumerTally]] = {}
    for consumer in consumers:
        consumer.flush()
        latency.merge(consumer.latency)
        intervals.merge(consumer.intervals)
        readers.setdefault(consumer.source, []).append(consumer)
    for producer in producers:
        producer.flush()
        ack_latency.merge(producer.ack_latency)
        ack_intervals.merge(producer.ack_intervals)
        nacks.update(producer.nacks)
        accepted = np.frombuffer(producer.accepted, np.uint8)
        for source, sharing in readers.items():
            if source.queue != producer.queue:
                continue
            times = _times_delivered(sharing, producer.producer, len(accepted))
            duplicated += int(np.maximum(times - 1, 0).sum())
            lost += int(((times == 0) & (accepted == 1)).sum())
    posted = sum(p.posted for p in producers)
    acked = sum(p.acked for p in producers)
    return Account(
        posted=posted,
        acked=acked,
        nacked=nacks.total(),
        unanswered=posted - acked - nacks.total(),
        delivered=sum(c.delivered for c in consumers),
        confirmed=sum(c.confirmed for c in consumers),
        lost=lost,
        duplicated=duplicated,
        reordered=sum(c.reordered for c in consumers),
        foreign=sum(c.foreign for c in consumers),
        nacks=dict(sorted(nacks.items())),
        ack_latency=ack_latency,
        latency=latency,
        ack_intervals=ack_intervals,
        intervals=intervals,
        last_post_ns=max((p.last_post_ns for p in producers), default=0),
        last_ack_ns=max((p.last_ack_ns for p in producers), default=0),
        last_delivery_ns=max((c.last_delivery_ns for c in consumers), default=0),
    )
