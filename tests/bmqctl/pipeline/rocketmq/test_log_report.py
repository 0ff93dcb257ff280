"""Reports on RocketMQ's stores: counts beside those of the rows, and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bmqctl.pipeline.export.export import ExportRequest, export_store, plan_export
from bmqctl.pipeline.report.log_report import LogReport, LogReportRequest, is_of_logs
from bmqctl.pipeline.report.log_report_page import log_report_page
from bmqctl.pipeline.report.report import NothingToReport, ReportRequest
from bmqctl.pipeline.spark.run_tasks import quiet
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.stores.rocketmq.journal.losses_rig import entry_of
from tests.bmqctl.stores.rocketmq.journal.test_queues import write_queue
from tests.bmqctl.stores.rocketmq.logs import message, write_log

Java = Callable[[str], list[Path]]


def report(spark: SparkSession, *sources: Path, of_export: bool = False, most: int = 100) -> LogReport:
    request = ReportRequest(tuple(map(str, sources)), of_export, most)
    assert is_of_logs(request)
    return LogReportRequest(request).run(spark.sparkContext, quiet)


class Cells(HTMLParser):
    """The texts of a page's table cells."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str] = set()

    def handle_data(self, data: str) -> None:
        self.texts.add(data)


def test_a_filter_is_of_one_query_only(spark: SparkSession, java: Java) -> None:
    (store,) = java("store")
    messages = spark.read.format("bmq").option("table", "messages").load(str(store))
    assert (messages.count(), messages.where("topic = 'GOne'").count(), messages.count()) == (844, 650, 844)
    assert messages.where("kind = 'retry'").join(messages, ["topic"]).count() == 4
    pushed = spark.read.format("bmq").option("table", "messages").option("pushdown", "true").load(str(store))
    wanted = pushed.where("topic = 'GOne' and queue_offset >= 600")
    assert "GOne" not in wanted._jdf.queryExecution().executedPlan().toString()
    assert wanted.count() == 50


def test_a_report_counts_what_is_in_the_rows(spark: SparkSession, java: Java, tmp_path: Path) -> None:
    (store,) = java("store")
    rows = read_rows(store, table="messages")
    found = report(spark, store)
    assert found.messages == len(rows) == 844
    assert {topic.topic: topic.messages for topic in found.topics} == Counter(row["topic"] for row in rows)
    assert all(sum(topic.arrivals or ()) == topic.messages for topic in found.topics)
    assert found.body_bytes == sum(row["body_size"] for row in rows)
    (retries,) = [each for each in found.retries if each.group == "CG_retry"]
    assert (retries.retried, retries.by_times, retries.dead) == (2, {1: 1, 2: 1}, 1)
    keys = Counter(
        (row["topic"], key)
        for row in rows
        for key in row["keys"] or ()
        if row["kind"] in ("ordinary", "retry", "dead letters")
    )
    assert {(each.topic, each.key): each.messages for each in found.keys}.items() <= keys.items()
    assert found.keys[0].messages == max(keys.values())
    lags: Counter[tuple[str, str]] = Counter()
    for row in read_rows(store, table="groups"):
        lags[row["group"], row["topic"]] += row["lag"]
    assert {(each.group, each.topic): each.lag for each in found.groups} == lags
    for each in found.groups:
        assert (each.over_time or [0])[-1] == each.lag
        assert (each.oldest_s is None) == (each.lag == 0)

    cells = Cells()
    cells.feed(log_report_page(found))
    assert cells.texts >= {"GOne", "CG_retry", "%RETRY%CG_retry"}

    out = tmp_path / "out"
    export_store(spark.sparkContext, plan_export(ExportRequest((str(store),), str(out))))
    again = report(spark, out, of_export=True)
    assert (again.topics, again.keys, again.retries) == (found.topics, found.keys, found.retries)
    assert again.groups == []


def test_a_report_of_a_sound_log_accounts_for_its_queues(spark: SparkSession, tmp_path: Path) -> None:
    written = write_log(tmp_path, (message(4 * number) for number in range(20)))
    entries = [entry_of(each) for each in written.records]
    write_queue(written, 0, entries)
    found = report(spark, tmp_path)
    assert (found.account["records"], found.account["damaged"], found.account["missing"]) == (20, 0, 0)
    write_queue(written, 0, [*entries[:5], entries[4], *entries[6:]])
    found = report(spark, tmp_path)
    assert (found.account["damaged"], found.account["missing"]) == (1, 0)
    assert "consumequeue/orders/0" in found.notes[-1]


def test_names_of_topics_are_no_markup(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, [message(1, topic="<script>alert(1)</script>", properties={"KEYS": "<b>"})])
    page = log_report_page(report(spark, tmp_path))
    assert "<script>alert(1)" not in page
    assert "&lt;b&gt;" in page


def test_a_store_without_messages_is_nothing_to_report(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    with pytest.raises(NothingToReport, match="no messages"):
        report(spark, tmp_path)
