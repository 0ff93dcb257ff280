# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Counters for administrators: messages and bytes, by topic and by group (source: BrokerStatsManager, StatsItem).

Counters begin at 0 with the process. Their values of up to a day ago are remembered, in increasingly coarse steps.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import date, datetime
from typing import Final, NamedTuple

from broker.common.limited_log import LimitedLog
from broker.rocketmq.remoting.requests import Handlers, Request, failure, with_body
from formats.rocketmq.remoting.bodies.statistics import Span, write_broker_stats
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import ViewBrokerStatsDataRequest
from formats.rocketmq.remoting.headers.codec import read_header

__all__ = ["DEAD_LETTERS", "Counter", "Morning", "Statistics"]

log = logging.getLogger("broker.rocketmq")

SAMPLE_MS: Final = 10_000
# A counter takes about 2 KB; later topics and groups are not counted one by one.
COUNTERS_MAX: Final = 50_000
# A counter's key is a topic and a group, which a message can have given.
_KEY_CHARACTERS_MAX: Final = 512
# Maximum of counters sampled in one tick: all of them within `SAMPLE_MS`.
_SAMPLED_AT_ONCE: Final = 6_000
# The original has this count among its metrics only.
DEAD_LETTERS: Final = "DEAD_LETTERS"
# By span (minute, hour and day): the interval of samples, and their number.
_STEPS: Final = ((1, 6), (60, 6), (360, 24))

_SPANS_S: Final = (10, 60, 600)


class Rate:
    """A counter, and its samples."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SPANS_S[-1] + 1)

    def add(self, count: int = 1) -> None:
        self.total += count

    def sample(self, now_ms: int) -> None:
        """Remember the count; to be called once a second."""
        self._samples.append((now_ms, self.total))

    def text(self) -> str:
        return " ".join(str(self._over(span)) for span in _SPANS_S)

    def _over(self, seconds: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        end_ms, end = self._samples[-1]
        begin_ms, begin = self._samples[max(0, len(self._samples) - 1 - seconds)]
        return (end - begin) * 1000 / max(1, end_ms - begin_ms)


class _Sample(NamedTuple):
    at_ms: int
    total: int
    times: int


class Counter:
    """A sum and the number of its additions, with earlier values of both."""

    def __init__(self, now_ms: int) -> None:
        self.total = 0
        self.times = 0
        # As in the original, the first additions count as made in the ten seconds before.
        first = _Sample(now_ms - SAMPLE_MS, 0, 0)
        self._spans = [deque([first], maxlen=kept) for _, kept in _STEPS]

    def add(self, count: int) -> None:
        self.total += count
        self.times += 1

    def sample(self, now_ms: int, number: int) -> None:
        """Remember the sum; `number` counts these calls, every ten seconds."""
        for (step, _), samples in zip(_STEPS, self._spans, strict=True):
            if number % step == 0:
                samples.append(_Sample(now_ms, self.total, self.times))

    def spans(self, now_ms: int) -> list[Span]:
        found = []
        for samples in self._spans:
            at_ms, total, times = samples[0]
            count, adds = self.total - total, self.times - times
            found.append(Span(count, count * 1000 / max(1, now_ms - at_ms), count / adds if adds else 0.0))
        return found


class Morning(NamedTuple):
    """The sums at the last two midnights, or at the start."""

    yesterday: int = 0
    today: int = 0


class Statistics:
    """The counters of a broker. `put` and `found` count all messages."""

    def __init__(self, cluster: str, now_ms: int) -> None:
        self.put = Rate()
        self.found = Rate()
        self.put_bytes = 0
        self.put_morning = self.found_morning = Morning()
        self._cluster = cluster
        self._counters: dict[tuple[str, str], Counter] = {}
        self._day: date | None = None
        self._now_ms = self._sampled_ms = now_ms
        self._samples = 0
        self._unsampled: list[Counter] = []
        self._refusals = LimitedLog(log)
        self.handlers: Handlers = {RequestCode.VIEW_BROKER_STATS_DATA: self._view}

    # -- counting

    def stored(self, topic: str, count: int, size: int) -> None:
        self.put.add(count)
        self.put_bytes += size
        self._add("TOPIC_PUT_NUMS", topic, count)
        self._add("TOPIC_PUT_SIZE", topic, size)
        self._add("BROKER_PUT_NUMS", self._cluster, count)

    def sent(self, topic: str, group: str, count: int, size: int) -> None:
        key = f"{topic}@{group}"
        self.found.add(count)
        self._add("GROUP_GET_NUMS", key, count)
        self._add("GROUP_GET_SIZE", key, size)
        self._add("BROKER_GET_NUMS", self._cluster, count)

    def given_up(self, topic: str, group: str) -> None:
        self._add(DEAD_LETTERS, f"{topic}@{group}", 1)

    def _add(self, name: str, key: str, count: int) -> None:
        counter = self._counters.get((name, key))
        if counter is None:
            if len(self._counters) >= COUNTERS_MAX or len(key) > _KEY_CHARACTERS_MAX:
                self._refusals.add(f"there is no counter {name} of {key[:80]!r}: there are too many", self._now_ms)
                return
            counter = self._counters[name, key] = Counter(self._now_ms)
        counter.add(count)

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda key: key.partition("@")[0] == topic)

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: key.partition("@")[2] == group)

    def _forget(self, concerns: Callable[[str], bool]) -> None:
        for name, key in [each for each in self._counters if concerns(each[1])]:
            del self._counters[name, key]

    # -- the clock

    def tick(self, now_ms: int) -> None:
        """Take samples at most once a second, and note the sums at midnight."""
        self._now_ms = now_ms
        self.put.sample(now_ms)
        self.found.sample(now_ms)
        today = datetime.fromtimestamp(now_ms / 1000).date()
        if self._day is not None and today != self._day:
            self.put_morning = Morning(self.put_morning.today, self.put.total)
            self.found_morning = Morning(self.found_morning.today, self.found.total)
        self._day = today
        if not 0 <= now_ms - self._sampled_ms < SAMPLE_MS:
            self._sampled_ms = now_ms
            self._samples += 1
            self._unsampled = list(self._counters.values())
        for _ in range(min(_SAMPLED_AT_ONCE, len(self._unsampled))):
            self._unsampled.pop().sample(now_ms, self._samples)

    # -- showing

    def totals(self, name: str) -> dict[str, int]:
        return {key: counter.total for (each, key), counter in self._counters.items() if each == name}

    def rate(self, name: str, key: str, now_ms: int) -> float:
        """Return the rate per second over the last minute."""
        counter = self._counters.get((name, key))
        return 0.0 if counter is None else counter.spans(now_ms)[0].per_second

    def _view(self, request: Request) -> Frame:
        header = read_header(ViewBrokerStatsDataRequest, request.fields)
        counter = self._counters.get((header.stats_name, header.stats_key))
        if counter is None:
            text = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return failure(ResponseCode.SYSTEM_ERROR, text)
        return with_body(write_broker_stats(*counter.spans(request.now_ms)))
