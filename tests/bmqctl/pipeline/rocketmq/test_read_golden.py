"""Tables of the original's stores: what the Java client read back, and what their files say."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan

import bmqctl.pipeline
from bmqctl.pipeline.reading import tables_of
from bmqctl.pipeline.source.options import BadOption, ReadOptions
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.summary import summarize_log
from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import SystemFlag
from tests.bmqctl.pipeline.reading import read_rows
from tests.golden.rocketmq.stores import read_back, records, unpack

Java = Callable[[str], list[Path]]
# The properties that the client adds to those of the record, or drops.
ADDED = {"MIN_OFFSET", "MAX_OFFSET"}
DROPPED = {"TRACE_CONTEXT"}


def as_read_by_java(row: dict[str, Any]) -> dict[str, Any]:
    def ms(time: datetime) -> int:
        return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    return {
        "topic": row["topic"],
        "queueId": row["queue_id"],
        "queueOffset": row["queue_offset"],
        "commitLogOffset": row["offset"],
        "msgId": row["id"],
        "offsetMsgId": row["offset_id"],
        "storeSize": row["size"],
        "bodyCRC": row["body_crc"],
        "bornHost": f"/{row['born_host']}",
        "storeHost": f"/{row['store_host']}",
        "bornTimestamp": ms(row["born_time"]),
        "storeTimestamp": ms(row["store_time"]),
        "reconsumeTimes": row["reconsume_times"],
        "preparedTransactionOffset": row["prepared_transaction_offset"],
        "flag": row["flag"],
        # The client decompresses, and says so.
        "sysFlag": row["system_flags"] & ~int(SystemFlag.COMPRESSED),
        "properties": {name: value for name, value in row["properties"] if name not in DROPPED},
    }


def test_messages_are_those_that_java_reads_back(java: Java) -> None:
    rows = read_rows(*java("store"), table="messages")
    expected = []
    for found in read_back().values():
        properties = {name: value for name, value in found["properties"].items() if name not in ADDED}
        expected.append({**found, "properties": properties})
    ours = sorted((as_read_by_java(row) for row in rows), key=lambda each: int(each["commitLogOffset"]))
    theirs = sorted(
        ({name: each[name] for name in ours[0]} for each in expected), key=lambda each: int(each["commitLogOffset"])
    )
    assert ours == theirs
    assert len(ours) == 844
    by_topic = Counter(row["topic"] for row in rows)
    assert by_topic == Counter(each["topic"] for each in expected)


def test_payloads_are_the_bodies_that_java_reads_back(java: Java) -> None:
    rows = read_rows(*java("store"), table="payloads")
    assert {row["compression"] for row in rows} >= {"none", "zlib"}
    assert all(row["fault"] is None for row in rows)
    for row in rows:
        found = read_back()[row["offset"]]
        assert row["payload_size"] == len(row["payload"])
        if "bodyB64" in found:
            assert row["payload"] == base64.b64decode(found["bodyB64"])
        else:
            assert hashlib.sha256(row["payload"]).hexdigest() == found["bodySha256"]


def test_each_way_to_split_gives_the_same_rows(java: Java, small_splits: None) -> None:
    (store,) = java("store")
    whole = read_rows(store, table="messages", columns="topic,queue_id,queue_offset,offset,id")
    for size in ("20", "100"):
        options = {"table": "messages", "columns": "topic,queue_id,queue_offset,offset,id", "recordsPerPartition": size}
        read = ReadOptions.parse({"path": str(store), **options})
        parts = tables_of(read.paths).plan(read)
        assert len(parts) > 8
        rows = read_rows(store, filters=(), **options)
        assert sorted(rows, key=lambda row: int(row["offset"])) == whole


def middle_time(rows: list[dict[str, Any]]) -> datetime:
    times = sorted(row["store_time"] for row in rows)
    found: datetime = times[len(times) // 2]
    return found


def test_filters_save_tasks_and_lose_nothing(java: Java, small_splits: None) -> None:
    (store,) = java("store")
    rows = read_rows(store, table="messages")
    time = middle_time(rows)
    cases: dict[str, tuple[tuple[Filter, ...], Callable[[dict[str, Any]], bool]]] = {
        "topic": ((EqualTo(("topic",), "GOne"),), lambda row: row["topic"] == "GOne"),
        "queues": (
            (In(("topic",), ("GNormal", "GFifo")), In(("queue_id",), (1, 2))),
            lambda row: row["topic"] in ("GNormal", "GFifo") and row["queue_id"] in (1, 2),
        ),
        "since": ((GreaterThanOrEqual(("store_time",), time),), lambda row: row["store_time"] >= time),
        "until": ((LessThan(("store_time",), time),), lambda row: row["store_time"] < time),
        "offset": ((LessThan(("offset",), 5000),), lambda row: row["offset"] < 5000),
        "none": ((EqualTo(("topic",), "absent"),), lambda row: False),
    }
    for filters, passes in cases.values():
        found = read_rows(store, filters=filters, table="messages", recordsPerPartition="50")
        assert sorted(row["offset"] for row in found) == [row["offset"] for row in rows if passes(row)]
    options = ReadOptions.parse({"path": str(store), "table": "messages", "recordsPerPartition": "50"})
    tables = tables_of(options.paths)
    assert len(tables.plan(options, cases["offset"][0])) < len(tables.plan(options))
    beyond = (LessThan(("store_time",), time - timedelta(days=1)),)
    assert not tables.plan(options, beyond)
    assert not read_rows(store, filters=beyond, table="messages")


def test_groups_and_topics_are_those_of_the_summary(java: Java) -> None:
    (store,) = java("store")
    summary = summarize_log(open_store(store))
    lags: Counter[tuple[str, str]] = Counter()
    for row in read_rows(store, table="groups"):
        lags[row["group"], row["topic"]] += row["lag"]
        assert (row["waiting_since"] is None) == (row["lag"] == 0)
    assert lags == {(each.group, each.topic): each.lag for each in summary.groups}
    assert sum(lags.values()) > 0
    topics = {row["topic"]: row for row in read_rows(store, table="topics")}
    counted = Counter(row["topic"] for row in read_rows(store, table="messages"))
    assert {name: row["messages"] for name, row in topics.items() if row["messages"]} == counted
    assert topics["GDelay"]["read_queues"] == 4
    assert sum(row["messages"] for row in read_rows(store, table="queues")) == 844
    assert {each.topic: each.size for each in summary.topics} == {
        name: row["bytes"] for name, row in topics.items() if name in {each.topic for each in summary.topics}
    }


def test_messages_that_no_consume_queue_has_yet_are_counted(tmp_path: Path) -> None:
    (store,) = unpack("store", tmp_path)
    before = {(row["topic"], row["queue_id"]): row for row in read_rows(store, table="queues")}
    last = max(before, key=lambda place: int(before[place]["max_offset"]))
    queue = store / "consumequeue" / last[0] / str(last[1])
    for path in queue.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    # Only records after the last entry of any queue are looked for: here the log's last ones, of other queues.
    lost = {(row["topic"], row["queue_id"]): row for row in read_rows(store, table="queues")}
    assert lost[last]["messages"] < before[last]["messages"]
    for path in (store / "consumequeue").glob("*/*/*"):
        path.unlink()
    found = {(row["topic"], row["queue_id"]): row for row in read_rows(store, table="queues")}
    assert found == before


REPLICAS = ("ha-classic/stores", "ha-controller/stores", "ha-truncate/after")


def logged(store: Path) -> list[int]:
    return [offset for offset, record in records(store) if isinstance(record, Record)]


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_are_merged(java: Java, name: str) -> None:
    stores = java(name)
    offsets = logged(stores[0])
    assert offsets
    for order in (stores, stores[::-1]):
        assert [row["offset"] for row in read_rows(*order, table="messages")] == offsets
        topics = read_rows(*order, table="topics")
        assert len({row["broker"] for row in topics}) == 1
        assert sum(row["messages"] for row in topics) == len(offsets)


def test_messages_that_only_a_stale_master_has_are_not_the_brokers(java: Java) -> None:
    """The log of the master that was not yet cut off is read up to where the logs part."""
    (stale,) = java("ha-truncate/before-c1-diverged")
    after = java("ha-truncate/after")
    expected = {row["offset"]: row["id"] for row in read_rows(*after, table="messages")}
    ids = {row["id"] for row in read_rows(stale, table="messages")}
    assert not ids <= set(expected.values())
    for order in ((stale, after[1]), (after[1], stale)):
        rows = read_rows(*order, table="messages")
        assert {row["offset"]: row["id"] for row in rows} == expected
        assert len(rows) == len(expected)
        assert {row["broker"] for row in rows} == {"broker-c"}
    epochs = {row["offset"]: row["epoch"] for row in read_rows(*after, table="messages")}
    assert {epoch for offset, epoch in epochs.items() if offset < 1305} == {1}
    assert {epoch for offset, epoch in epochs.items() if 1305 <= offset < 2088} == {5}


def test_brokers_that_share_nothing_are_two(java: Java) -> None:
    (one,), (other, *_) = java("store"), java("ha-classic/stores")
    rows = read_rows(one, other, table="messages")
    assert Counter(row["broker"] for row in rows) == {one.name: 844, other.name: len(logged(other))}
    found = read_rows(one, other, filters=(EqualTo(("broker",), other.name),), table="messages")
    assert {row["broker"] for row in found} == {other.name}


def test_stores_of_two_systems_are_refused(java: Java, golden: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="one system at a time"):
        read_rows(*java("store"), golden("single-crash"), table="messages")
    with pytest.raises(BadOption, match="RocketMQ stores have no table confirms: they have messages"):
        read_rows(*java("store"), table="confirms")
    with pytest.raises(BadOption, match="BlazingMQ stores have no table groups"):
        read_rows(golden("single-crash"), table="groups")


def test_spark_gets_the_rows_of_the_tasks(spark: SparkSession, java: Java) -> None:
    bmqctl.pipeline.register(spark)
    (store,) = java("store")
    frame = spark.read.format("bmq").option("table", "messages").load(str(store))
    counted = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counted == Counter(each["topic"] for each in read_back().values())
    one = frame.where("topic = 'GOne' and properties['KEYS'] is not null and store_time > '2026-11-22 03:00:00'")
    rows = read_rows(store, table="messages")
    assert one.count() == sum(row["topic"] == "GOne" and row["keys"] is not None for row in rows)
    lag = spark.read.format("bmq").option("table", "groups").load(str(store)).groupBy().sum("lag").collect()[0][0]
    assert lag == sum(row["lag"] for row in read_rows(store, table="groups"))
