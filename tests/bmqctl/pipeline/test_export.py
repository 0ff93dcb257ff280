from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from bmqctl.pipeline.export import OutputExists, Summary, export_store, plan_export
from formats.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType
from formats.disk.keys import DEFAULT_APP_KEY
from tests.bmqctl.pipeline.written import WrittenStore
from tests.golden.archives import storage_records, truth


def export(spark: SparkSession, store: Path, out: Path, records_per_partition: int = 100_000) -> Summary:
    return export_store(spark, plan_export(store, out), records_per_partition=records_per_partition)


def read(spark: SparkSession, table: Path) -> list[Row]:
    return spark.read.parquet(str(table)).collect()


def test_a_golden_store_gives_what_the_client_posted(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    summary = export(spark, golden("single-crash"), tmp_path, records_per_partition=200)
    printed = storage_records("single-crash")
    assert summary.records == dict(Counter(record["RecordType"] for record in printed))

    records = sorted(read(spark, tmp_path / "records"), key=lambda row: row.offset)
    assert [(row.queue_uri, row.app_id) for row in records] == [
        (record.get("QueueUri"), None if record["RecordType"] == "QUEUE_OP" else record.get("AppId"))
        for record in printed
    ]
    assert len({*(tmp_path / "records").glob("part-*")}) == 3

    messages = {row.guid: row for row in read(spark, tmp_path / "messages")}
    posted = [message for message in truth("single") if "mem.broadcast" not in message["queue"]]
    assert len(messages) == len(posted) == 290
    for message in posted:
        row = messages[message["guid"].upper()]
        assert (row.queue_uri, row.payload_size) == (message["queue"], message["size"])
        assert row.outcome == expected_outcome(message)
        assert row.confirmed_apps == sorted(message["confirmed_by"])
        assert bool(row.properties_size) == bool(message["properties"])
        if "fanout" in message["queue"]:
            assert row.pending_apps == sorted({"foo", "bar", "baz"} - {*message["confirmed_by"]})
    assert {queue.uri: queue.outcomes for queue in summary.queues} == {
        "bmq://bmq.gold.ttl/short-1": {"expired": 30},
        "bmq://bmq.test.persistent.fanout/prices-1": {"partially_confirmed": 80},
        "bmq://bmq.test.persistent.priority/orders-1": {"confirmed": 60, "outstanding": 60},
        "bmq://bmq.test.persistent.priority/orders-zlib-1": {"confirmed": 20, "outstanding": 40},
    }
    for queue in summary.queues:
        assert queue.payload_bytes == sum(message["size"] for message in posted if message["queue"] == queue.uri)


def expected_outcome(message: dict[str, Any]) -> str:
    if "ttl" in message["queue"]:
        return "expired"
    if "fanout" in message["queue"]:
        return "partially_confirmed"
    return "confirmed" if message["confirmed_by"] else "outstanding"


Q, F, GONE, UNKNOWN = b"queue", b"fanou", b"gone!", b"?????"
FOO, BAR, BAZ = b"foooo", b"baaar", b"baaaz"


def guid(number: int) -> bytes:
    return bytes(15) + bytes([number])


def lifecycles() -> tuple[WrittenStore, dict[int, tuple[Any, ...]]]:
    """A store with one message for each way to end, and what is to be said of each.

    That is: outcome, confirmed, rejected, automatically confirmed, purged and pending apps.
    """
    store = WrittenStore(partition_id=1)
    said: dict[int, tuple[Any, ...]] = {}
    store.queue(Q, "bmq://domain/priority", ("__default", DEFAULT_APP_KEY))
    store.queue(F, "bmq://domain/fanout", ("foo", FOO), ("bar", BAR))
    store.queue(GONE, "bmq://domain/gone", ("__default", DEFAULT_APP_KEY))

    store.message(Q, guid(1))
    store.deletion(Q, guid(1), DeletionRecordFlag.IMPLICIT_CONFIRM)
    said[1] = ("confirmed", ["__default"], [], [], [], [])
    store.message(Q, guid(2))
    store.deletion(Q, guid(2), DeletionRecordFlag.NO_SC_QUORUM)
    said[2] = ("no_quorum", [], [], [], [], [])

    store.message(F, guid(3), ref_count=2)
    store.confirm(F, guid(3), BAR, ConfirmReason.REJECTED)
    store.deletion(F, guid(3))
    said[3] = ("confirmed", ["foo"], ["bar"], [], [], [])
    store.message(F, guid(4), ref_count=2)
    store.confirm(F, guid(4), FOO)
    store.deletion(F, guid(4), DeletionRecordFlag.TTL_EXPIRATION)
    said[4] = ("expired", ["foo"], [], [], [], [])
    # The broker writes automatic confirms before the message, and does not count them as references.
    store.confirm(F, guid(5), FOO, ConfirmReason.AUTO_CONFIRMED)
    store.message(F, guid(5), ref_count=1)
    said[5] = ("outstanding", [], [], ["foo"], [], ["bar"])

    # bar is purged from the second of these on; the first was not there any more, the last comes later.
    store.message(F, guid(6), ref_count=2)
    start = store.message(F, guid(7), ref_count=2)
    store.message(F, guid(8), ref_count=2)
    store.confirm(F, guid(8), FOO)
    store.message(F, guid(9), ref_count=2)
    store.confirm(F, guid(9), BAR)
    store.queue_op(QueueOpType.PURGE, F, BAR, start=start)
    store.deletion(F, guid(8))
    store.message(F, guid(10), ref_count=2)
    said[6] = ("outstanding", [], [], [], [], ["bar", "foo"])
    said[7] = ("partially_confirmed", [], [], [], ["bar"], ["foo"])
    said[8] = ("purged", ["foo"], [], [], ["bar"], [])
    said[9] = ("partially_confirmed", ["bar"], [], [], [], ["foo"])
    said[10] = ("outstanding", [], [], [], [], ["bar", "foo"])

    # An app that came later has nothing to do with what was there before, nor one that went with what comes after.
    store.queue(F, "bmq://domain/fanout", ("baz", BAZ), kind=QueueOpType.ADDITION)
    store.queue_op(QueueOpType.DELETION, F, BAR)
    store.message(F, guid(11), ref_count=2)
    store.confirm(F, guid(11), FOO)
    said[11] = ("partially_confirmed", ["foo"], [], [], [], ["baz"])

    store.message(GONE, guid(12))
    store.deletion(GONE, guid(12))
    store.message(GONE, guid(13))
    store.queue_op(QueueOpType.PURGE, GONE)
    store.message(GONE, guid(14))
    said[12] = ("confirmed", ["__default"], [], [], [], [])
    said[13] = ("purged", [], [], [], ["__default"], [])
    said[14] = ("outstanding", [], [], [], [], ["__default"])

    store.message(UNKNOWN, guid(15))
    store.confirm(UNKNOWN, guid(15), FOO)
    said[15] = ("partially_confirmed", [FOO.hex().upper()], [], [], [], [])
    return store, said


def test_every_way_that_a_message_can_end(spark: SparkSession, tmp_path: Path) -> None:
    store, said = lifecycles()
    # A GUID may come again once its first message is gone.
    for number in (1, 2):
        store.message(Q, guid(number))
    store.deletion(Q, guid(2))
    again: dict[int, tuple[Any, ...]] = {
        1: ("outstanding", [], [], [], [], ["__default"]),
        2: ("confirmed", ["__default"], [], [], [], []),
    }
    store.sync_point()
    store.journal[44 + 56] ^= 0xFF  # the CREATION of `priority`, of which the QLIST still tells

    # Rows of an unknown queue must survive, and so must a record that is none.
    summary = export(spark, store.save(tmp_path / "store"), tmp_path / "out")
    assert summary.invalid == 1
    rows = sorted(read(spark, tmp_path / "out" / "messages"), key=lambda row: row.journal_offset)
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        apps = (row.confirmed_apps, row.rejected_apps, row.auto_confirmed_apps, row.purged_apps, row.pending_apps)
        found.setdefault(int(row.guid, 16), []).append((row.outcome, *apps))
    assert found == {number: [what, again[number]] if number in again else [what] for number, what in said.items()}
    ended = {int(row.guid, 16): row.removal_time.second for row in rows if row.removal_time is not None}
    assert set(ended) == {1, 2, 3, 4, 8, 12, 13}


def test_tables_replace_earlier_ones_only_when_told(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    other = tmp_path / "records" / "part-of-an-earlier-export.parquet"
    other.parent.mkdir()
    other.touch()
    (tmp_path / "notes.txt").touch()
    store = WrittenStore()
    store.save(tmp_path / "store")
    with pytest.raises(OutputExists, match="/records"):
        plan_export(tmp_path / "store", tmp_path)
    summary = export_store(spark, plan_export(tmp_path / "store", tmp_path, overwrite=True))
    assert (summary.records, summary.queues) == ({}, [])
    assert not other.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["messages", "notes.txt", "records", "store"]
    assert read(spark, tmp_path / "messages") == []


def test_the_logs_of_others_go_on(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    assert spark.range(1).count() == 1
    logging.getLogger("another").error("said beside Spark")
    assert "said beside Spark" in caplog.text
