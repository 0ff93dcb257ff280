from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bmqctl.pipeline.export.export import ExportRequest, export_store, plan_export
from bmqctl.pipeline.report.report import NothingToReport, ReportRequest
from bmqctl.pipeline.report.report_model import TimeLine, latency_of
from bmqctl.pipeline.spark.run_tasks import quiet
from tests.bmqctl.pipeline.written import TIME, WrittenStore
from tests.golden.archives import truth

# Starting Python workers takes long where many others work too.


def test_percentiles_are_exact() -> None:
    seconds = [*[0] * 500, *[1] * 400, *[7] * 90, *[30] * 9, 4000]
    latency = latency_of(Counter(seconds))
    assert latency is not None
    ordered = sorted(seconds)
    assert [latency.p50_s, latency.p90_s, latency.p99_s, latency.p999_s, latency.max_s] == [
        ordered[rank - 1] for rank in (500, 900, 990, 999, 1000)
    ]
    assert latency.mean_s == pytest.approx(sum(seconds) / len(seconds), abs=0.001)
    assert sum(count for _, _, count in latency.bars) == 1000
    assert latency.bars[0] == (0, 1, 500)
    assert latency.bars[-1] == (30, 4001, 10)
    assert latency_of({}) is None


@pytest.mark.parametrize(("last_s", "width_s"), [(0, 1), (179, 1), (180, 2), (86_399, 600), (10**8, 600_480)])
def test_time_is_cut_into_few_round_buckets(last_s: int, width_s: int) -> None:
    time = TimeLine.over(1_000_000_000, 1_000_000_000 + last_s)
    assert time.width_s == width_s or (width_s > 86_400 and time.width_s % 86_400 == 0)
    assert time.from_s % time.width_s == 0
    assert time.from_s <= 1_000_000_000
    assert time.bucket_count <= 182


def test_a_golden_store_is_summed_up(spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path) -> None:
    store = golden("single-crash")
    report = ReportRequest((str(store),)).run(spark.sparkContext, quiet)
    posted = [message for message in truth("single") if "mem.broadcast" not in message["queue"]]
    assert report.messages == len(posted) == sum(report.series.arrivals)
    assert report.payload_bytes == sum(message["size"] for message in posted)
    assert report.outcomes == {"outstanding": 100, "partially_confirmed": 80, "confirmed": 80, "expired": 30}
    assert report.series.backlog[-1] == 180 == sum(queue.backlog for queue in report.queues)
    by_app = {(app.queue, app.app): app.confirmed for app in report.apps if app.confirmed}
    assert by_app == Counter((message["queue"], app) for message in posted for app in message["confirmed_by"])
    pending = {app.app: app.pending for app in report.apps if "fanout" in app.queue}
    assert pending == {"foo": 0, "bar": 40, "baz": 80}
    (zlib,) = (each for each in report.compression if each.algorithm == "ZLIB")
    assert (zlib.messages, zlib.stored_bytes < zlib.posted_bytes / 10) == (9, True)

    # An export of the store tells the same.
    request = ExportRequest((str(store),), str(tmp_path), tables=("records", "messages", "confirms"))
    export_store(spark.sparkContext, plan_export(request))
    again = ReportRequest((str(tmp_path),), of_export=True).run(spark.sparkContext, quiet)
    assert {**again.as_json(), "sources": []} == {**report.as_json(), "sources": []}


def test_latency_is_of_each_app_and_backlog_of_each_moment(spark: SparkSession, tmp_path: Path) -> None:
    foo, bar, queue = b"foooo", b"baaar", b"queue"
    store = WrittenStore()
    store.queue(queue, "bmq://domain/fanout", ("foo", foo), ("bar", bar))
    for number in range(1, 5):  # in second 2 to 5 after TIME
        store.message(queue, bytes([number]) * 16, ref_count=2)
    for number in (1, 2):
        store.confirm(queue, bytes([number]) * 16, foo)  # 6, 7: after 4 and 4 seconds
    store.deletion(queue, bytes([1]) * 16)  # 8: bar's confirm, after 6 seconds
    store.confirm(queue, bytes([3]) * 16, bar, reason=1)  # 9: rejected
    store.deletion(queue, bytes([4]) * 16, flag=2)  # 10: expired
    report = ReportRequest((str(store.save(tmp_path / "store")),)).run(spark.sparkContext, quiet)
    assert (report.from_s, report.to_s, report.bucket_s) == (TIME + 2, TIME + 10, 1)
    assert report.series.arrivals == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert report.series.removals == [0, 0, 0, 0, 0, 0, 1, 0, 1]
    assert report.series.backlog == [1, 2, 3, 4, 4, 4, 3, 3, 2]
    assert report.series.confirms == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    latencies = [
        (app.app, app.confirmed, app.rejected, app.pending, app.latency and app.latency.max_s) for app in report.apps
    ]
    assert latencies == [("bar", 1, 1, 1, 6), ("foo", 2, 0, 1, 4)]
    (only,) = report.queues
    assert (only.peak_per_s, only.backlog_max, only.oldest_pending_s) == (1.0, 4, 7)


def test_nothing_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = WrittenStore()
    store.sync_point()
    with pytest.raises(NothingToReport, match="no messages"):
        ReportRequest((str(store.save(tmp_path / "store")),)).run(spark.sparkContext, quiet)
    out = tmp_path / "out"
    export_store(spark.sparkContext, plan_export(ExportRequest((str(tmp_path / "store"),), str(out))))
    with pytest.raises(NothingToReport, match="no table confirms"):
        ReportRequest((str(out),), of_export=True).run(spark.sparkContext, quiet)
