"""Filters pushed down by Spark: the choice of supported ones, the bounds they imply, and their application.

Every accepted filter is applied to the finished rows, exactly as Spark would; `Bounds` only saves work, and may keep
too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

__all__ = ["Bounds", "bounds_of", "can_push", "kept", "values_of"]

_COMPARE: dict[type[Filter], Callable[..., Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_TEXT: dict[type[Filter], Callable[..., Any]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}


@dataclass(frozen=True)
class Bounds:
    """Inclusive bounds of the wanted rows, None if unbounded; `since` and `until` are in seconds."""

    partitions: frozenset[int] | None = None
    queue_uris: frozenset[str] | None = None
    queue_keys: frozenset[str] | None = None
    types: frozenset[str] | None = None
    since: int | None = None
    until: int | None = None

    def wants_partition(self, partition_id: int) -> bool:
        return self.partitions is None or partition_id in self.partitions


def can_push(schema: pa.Schema, one: Filter) -> bool:
    """Return True if `kept` can apply the filter to rows with the columns in `schema`."""
    if isinstance(one, Not):
        return can_push(schema, one.child)
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return False
    kind = schema.field(path[0]).type
    if isinstance(one, (IsNull, IsNotNull)):
        return True
    values = one.value if isinstance(one, In) else (getattr(one, "value", None),)
    return all(_fits(kind, value) for value in values) and type(one) in (*_COMPARE, *_TEXT, In, EqualNullSafe)


def _fits(kind: pa.DataType, value: Any) -> bool:
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
    return pa.types.is_timestamp(kind) and isinstance(value, datetime) and value.tzinfo is not None


def kept(batch: pa.RecordBatch, filters: Iterable[Filter]) -> pa.RecordBatch:
    """Select the rows that pass all filters; a filter that evaluates to null drops the row."""
    mask: Any = None
    for one in filters:
        passes = _passes(batch, one)
        mask = passes if mask is None else pc.and_kleene(mask, passes)
    return batch if mask is None else batch.filter(mask)


def _passes(batch: pa.RecordBatch, one: Filter) -> pa.Array:
    if isinstance(one, Not):
        return pc.invert(_passes(batch, one.child))
    column = batch.column(one.attribute[0])  # type: ignore[attr-defined]
    if isinstance(one, IsNull):
        return pc.is_null(column)
    if isinstance(one, IsNotNull):
        return pc.is_valid(column)
    kind = pa.int64() if pa.types.is_integer(column.type) else column.type
    if isinstance(one, In):
        found = pc.is_in(column.cast(kind), value_set=pa.array(list(one.value), kind))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    if isinstance(one, EqualNullSafe):
        return pc.fill_null(pc.equal(column, pa.scalar(one.value, kind)), False)
    if type(one) in _TEXT:
        return _TEXT[type(one)](column, one.value)  # type: ignore[attr-defined]
    return _COMPARE[type(one)](column, pa.scalar(one.value, kind))  # type: ignore[attr-defined]


def bounds_of(filters: Sequence[Filter], time_column: str) -> Bounds:
    since, until = [], []
    for one in filters:
        if getattr(one, "attribute", ()) == (time_column,) and isinstance(getattr(one, "value", None), datetime):
            seconds = int((one.value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())  # type: ignore[attr-defined]
            if isinstance(one, (EqualTo, GreaterThan, GreaterThanOrEqual)):
                since.append(seconds)
            if isinstance(one, (EqualTo, LessThan, LessThanOrEqual)):
                until.append(seconds)
    return Bounds(
        values_of(filters, "partition_id"),
        values_of(filters, "queue_uri"),
        values_of(filters, "queue_key"),
        values_of(filters, "type"),
        max(since, default=None),
        min(until, default=None),
    )


def values_of(filters: Sequence[Filter], name: str) -> frozenset[Any] | None:
    """The values that a column may have; None for any."""
    found: frozenset[Any] | None = None
    for one in filters:
        if getattr(one, "attribute", ()) == (name,):
            if isinstance(one, In):
                these = frozenset(one.value)
            elif isinstance(one, (EqualTo, EqualNullSafe)):
                these = frozenset([one.value])
            else:
                continue
            found = these if found is None else found & these
    return found
