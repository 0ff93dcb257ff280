from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
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

from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.plan import Part, plan
from bmqctl.pipeline.source.pushdown import Bounds, bounds_of, can_push, kept
from bmqctl.pipeline.source.tables import table_schema
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.written import TIME, WrittenStore

GOLD = "bmq://bmq.test.persistent.priority/orders-1"


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# A filter, and the rows that it keeps of: text a, b, null; numbers 1, 2, null; times 10, 20, null.
CASES: list[tuple[Filter, list[int]]] = [
    (EqualTo(("text",), "a"), [0]),
    (EqualNullSafe(("text",), "b"), [1]),
    (In(("text",), ("a", "b", "c")), [0, 1]),
    (Not(In(("text",), ("a",))), [1]),
    (Not(EqualTo(("text",), "a")), [1]),
    (Not(EqualNullSafe(("text",), "a")), [1, 2]),
    (IsNull(("text",)), [2]),
    (IsNotNull(("text",)), [0, 1]),
    (Not(IsNull(("text",))), [0, 1]),
    (StringStartsWith(("text",), "a"), [0]),
    (StringEndsWith(("text",), "b"), [1]),
    (StringContains(("text",), "."), []),
    (Not(StringContains(("text",), "a")), [1]),
    (GreaterThan(("text",), "a"), [1]),
    (EqualTo(("number",), 2), [1]),
    (GreaterThan(("number",), 1), [1]),
    (GreaterThanOrEqual(("number",), 1), [0, 1]),
    (LessThan(("number",), 1), []),
    (LessThanOrEqual(("number",), 1 << 40), [0, 1]),
    (In(("number",), (1, 1 << 40)), [0]),
    (Not(GreaterThan(("number",), 1)), [0]),
    (EqualTo(("time",), at(20)), [1]),
    (LessThan(("time",), at(20)), [0]),
    (EqualTo(("flag",), True), [0]),
]


@pytest.mark.parametrize(("one", "rows"), CASES)
def test_filters_keep_what_spark_keeps(one: Filter, rows: list[int]) -> None:
    batch = pa.record_batch(
        {
            "row": pa.array([0, 1, 2]),
            "text": pa.array(["a", "b", None]),
            "number": pa.array([1, 2, None], pa.int32()),
            "time": pa.array([10_000_000, 20_000_000, None], pa.timestamp("us", tz="UTC")),
            "flag": pa.array([True, False, None]),
        }
    )
    assert can_push(batch.schema, one)
    assert kept(batch, [one]).column("row").to_pylist() == rows


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("nowhere",), "a"),
        EqualTo(("confirmed_apps", "x"), "a"),
        EqualTo(("confirmed_apps",), ["a"]),
        EqualTo(("guid",), 7),
        EqualTo(("payload_size",), "7"),
        EqualTo(("payload_size",), True),
        GreaterThan(("payload_size",), 1 << 63),
        EqualTo(("arrival_time",), datetime(2026, 1, 1)),
        Not(EqualTo(("guid",), None)),
    ],
)
def test_filter_that_cannot_be_applied_is_left_to_spark(one: Filter) -> None:
    assert not can_push(table_schema(Table.MESSAGES), one)


def test_bounds_are_the_narrowest() -> None:
    filters = [
        In(("partition_id",), (1, 2, 3)),
        EqualTo(("partition_id",), 2),
        EqualTo(("queue_uri",), GOLD),
        GreaterThan(("timestamp",), at(10)),
        GreaterThanOrEqual(("timestamp",), at(20)),
        LessThan(("timestamp",), at(99)),
        GreaterThan(("arrival_time",), at(50)),
        Not(EqualTo(("partition_id",), 9)),
    ]
    bounds = bounds_of(filters, "timestamp")
    assert (bounds.partitions, bounds.queue_uris, bounds.queue_keys) == (frozenset([2]), frozenset([GOLD]), None)
    assert (bounds.since, bounds.until) == (20, 99)
    assert bounds_of([], "timestamp") == bounds_of([IsNull(("timestamp",))], "timestamp") == Bounds()


FILTERS: list[tuple[str, Filter, Callable[[dict[str, Any]], bool]]] = [
    ("records", EqualTo(("type",), "CONFIRM"), lambda row: row["type"] == "CONFIRM"),
    ("records", EqualTo(("queue_uri",), GOLD), lambda row: row["queue_uri"] == GOLD),
    ("records", IsNull(("queue_uri",)), lambda row: row["queue_uri"] is None),
    ("records", GreaterThan(("sequence_number",), 100), lambda row: row["sequence_number"] > 100),
    ("messages", EqualTo(("queue_uri",), GOLD), lambda row: row["queue_uri"] == GOLD),
    ("messages", EqualTo(("outcome",), "confirmed"), lambda row: row["outcome"] == "confirmed"),
    ("confirms", EqualTo(("app_id",), "foo"), lambda row: row["app_id"] == "foo"),
    ("payloads", LessThan(("payload_size",), 100), lambda row: row["payload_size"] < 100),
    ("queues", EqualTo(("domain",), "bmq.gold.ttl"), lambda row: row["domain"] == "bmq.gold.ttl"),
    ("ledger", EqualTo(("type",), "COMMIT"), lambda row: row["type"] == "COMMIT"),
]


@pytest.mark.parametrize(("table", "one", "wanted"), FILTERS)
def test_filtered_rows_are_those_of_all(
    golden: Callable[[str], Path], table: str, one: Filter, wanted: Callable[[dict[str, Any]], bool]
) -> None:
    store = golden("single-crash")
    rows = read_rows(store, table=table)
    found = [row for row in rows if wanted(row)]
    assert 0 < len(found) < len(rows)
    assert read_rows(store, table=table, filters=(one,)) == found


def test_times_filter_every_table_by_its_own_column(golden: Callable[[str], Path]) -> None:
    store = golden("single-crash")
    for table, name in (("records", "timestamp"), ("messages", "arrival_time"), ("confirms", "confirm_time")):
        rows = read_rows(store, table=table)
        times = sorted(row[name] for row in rows)
        middle = times[len(times) // 2]
        for one in (GreaterThanOrEqual((name,), middle), LessThan((name,), middle)):
            found = read_rows(store, table=table, filters=(one,))
            after = isinstance(one, GreaterThanOrEqual)
            assert found == [row for row in rows if (row[name] >= middle) == after]


def test_records_out_of_bounds_are_not_read(tmp_path: Path) -> None:
    for partition_id in (0, 1):
        store = WrittenStore(partition_id)
        for _ in range(20_000):
            store.sync_point()
        store.save(tmp_path)
    options = ReadOptions.parse({"path": str(tmp_path), "recordsPerPartition": "1000"})

    def read(*filters: Filter) -> set[int]:
        parts = plan(options, filters)
        assert all(isinstance(part, Part) for part in parts)
        return {part.segments[0].place for part in parts if isinstance(part, Part)}

    assert len(plan(options)) == 40
    assert len(plan(options, [EqualTo(("partition_id",), 1)])) == 20
    # A new primary's clock may be an hour slow.
    assert read(GreaterThan(("timestamp",), at(TIME + 13_600))) == {*range(9000, 20_000, 1000)}
    assert read(LessThan(("timestamp",), at(TIME + 6_400))) == {*range(0, 10_000, 1000)}
    assert read(GreaterThan(("timestamp",), at(TIME + 1_000_000))) == set()
