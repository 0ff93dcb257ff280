"""Bounds of the wanted rows of RocketMQ's tables, derived from filters. They save work, and may keep too much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from bmqctl.pipeline.source.pushdown import values_of
from bmqctl.stores.rocketmq.read.filters import LogFilters, LogSelector

__all__ = ["LogBounds", "log_bounds_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class LogBounds:
    """Inclusive bounds of messages; None is unbounded. Times are in milliseconds."""

    brokers: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    first: int | None = None
    last: int | None = None

    @property
    def is_empty(self) -> bool:
        spans = ((self.since_ms, self.until_ms), (self.first, self.last))
        return any(low is not None and high is not None and low > high for low, high in spans) or any(
            values is not None and not values for values in (self.brokers, self.topics, self.queue_ids)
        )

    def selector(self) -> LogSelector:
        until = None if self.until_ms is None else self.until_ms + 1
        return LogSelector(
            LogFilters(
                self.topics or frozenset(), self.queue_ids or frozenset(), since_ms=self.since_ms, until_ms=until
            )
        )


def log_bounds_of(filters: Sequence[Filter]) -> LogBounds:
    since, until = _span(filters, "store_time", _milliseconds)
    first, last = _span(filters, "offset", int)
    return LogBounds(
        values_of(filters, "broker"),
        values_of(filters, "topic"),
        values_of(filters, "queue_id"),
        since,
        until,
        first,
        last,
    )


def _milliseconds(value: datetime) -> int:
    return (value - _EPOCH) // _MILLISECOND


def _span(filters: Iterable[Filter], name: str, number: Any) -> tuple[int | None, int | None]:
    lows, highs = [], []
    for one in filters:
        value = getattr(one, "value", None)
        if getattr(one, "attribute", ()) == (name,) and isinstance(value, (int, datetime)):
            if isinstance(one, (EqualTo, GreaterThan, GreaterThanOrEqual)):
                lows.append(number(value))
            if isinstance(one, (EqualTo, LessThan, LessThanOrEqual)):
                highs.append(number(value))
    return max(lows, default=None), min(highs, default=None)
