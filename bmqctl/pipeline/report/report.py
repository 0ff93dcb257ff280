"""The job of `bmqctl spark-report`: the outcomes of a store's messages, summed up by Spark.

Spark reduces messages and confirms to counts by queue, app, time and latency. These are few however many messages there
are, and give exact percentiles. Times are in whole seconds, as in the files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from bmqctl.pipeline.export.accounting import account_of_export, account_of_stores
from bmqctl.pipeline.export.exported import exported_table
from bmqctl.pipeline.export.manifest import need_manifest
from bmqctl.pipeline.export.output import open_output
from bmqctl.pipeline.report.report_model import Confirms, Messages, Report, TimeLine, assemble
from bmqctl.pipeline.spark.run_tasks import OnProgress
from bmqctl.pipeline.spark.session import open_session
from bmqctl.stores.blazingmq.read.account import Account

__all__ = ["NothingToReport", "ReportRequest", "account_of", "loss_notes", "make_report"]

_MESSAGE_COLUMNS = (
    "queue_uri",
    "queue_key",
    "arrival_time",
    "removal_time",
    "outcome",
    "compression",
    "stored_size",
    "properties_size",
    "payload_size",
    "pending_apps",
)
_CONFIRM_COLUMNS = ("queue_uri", "queue_key", "app_id", "app_key", "confirm_time", "confirm_reason", "latency_s")


class NothingToReport(Exception):
    """Error that the sources lack messages, or tables that a report needs; one line."""


@dataclass(frozen=True)
class ReportRequest:
    """The sources of a report: stores, or (`of_export`) the directory of one export.

    At most `series_max` queues have their own series.
    """

    sources: tuple[str, ...]
    of_export: bool = False
    series_max: int = 8

    def run(self, context: SparkContext, on_progress: OnProgress, /) -> Report:
        report = make_report(open_session(context), self, on_progress)
        account = account_of(context, self, on_progress)
        return replace(report, account=account.as_json(), notes=[*report.notes, *loss_notes(account)])


def account_of(context: SparkContext, request: ReportRequest, on_progress: OnProgress) -> Account:
    """The account of the stores, or of an export's at the time of writing. Raises StoreError or OutputError."""
    if request.of_export:
        return account_of_export(need_manifest(open_output(request.sources[0])))
    return account_of_stores(context, request.sources, on_progress)


def loss_notes(account: Account) -> list[str]:
    return [] if account.is_sound else [f"The numbers lack what cannot be read of the store: {account.words()}."]


def make_report(session: SparkSession, request: ReportRequest, on_progress: OnProgress) -> Report:
    """Make the report. Raises StoreError or OutputError if a source is unreadable, NothingToReport without messages."""
    messages = _frame(session, request, "messages", _MESSAGE_COLUMNS)
    confirms = _frame(session, request, "confirms", _CONFIRM_COLUMNS)
    on_progress("determining the time span", 0, 0)
    removed = f.max(_seconds("removal_time"))
    span = messages.agg(f.min(_seconds("arrival_time")), f.max(_seconds("arrival_time")), removed).collect()[0]
    confirmed = confirms.agg(f.max(_seconds("confirm_time"))).collect()[0]
    times = [time for time in (*span, *confirmed) if time is not None]
    if not times:
        raise NothingToReport(f"{', '.join(request.sources)}: no messages")
    first = times[0] if span[0] is not None else min(times)
    time = TimeLine.over(first, max(times))
    on_progress("counting messages by queue, outcome and time", 0, 0)
    groups = _message_groups(messages, time)
    pending = _pending(messages)
    on_progress("counting confirms by app, latency and time", 0, 0)
    done = _confirm_groups(confirms, time)
    return assemble(request.sources, time, groups, pending, done, request.series_max)


def _frame(session: SparkSession, request: ReportRequest, table: str, columns: tuple[str, ...]) -> DataFrame:
    if not request.of_export:
        reader = session.read.format("bmq").option("table", table).option("columns", ",".join(columns))
        return reader.load(list(request.sources))
    (source,) = request.sources
    output = open_output(source)
    manifest = need_manifest(output)
    if table not in manifest.tables:
        raise NothingToReport(f"{source} has no table {table}: export it with --tables records,messages,confirms")
    return exported_table(session, output, manifest, table).select(*columns)


def _seconds(column: str) -> Column:
    return f.unix_timestamp(column)


def _queue() -> Column:
    return f.coalesce("queue_uri", "queue_key").alias("queue")


def _bucket(column: str, time: TimeLine) -> Column:
    return f.floor((_seconds(column) - time.from_s) / time.width_s)


def _message_groups(messages: DataFrame, time: TimeLine) -> list[Messages]:
    readable = f.col("stored_size").isNotNull() & f.col("payload_size").isNotNull()
    posted = f.col("payload_size") + f.coalesce("properties_size", f.lit(0))

    def total(column: Column) -> Column:
        return f.coalesce(f.sum(column), f.lit(0))

    keys = [_queue(), f.col("outcome"), f.col("compression")]
    keys += [_bucket("arrival_time", time).alias("came"), _bucket("removal_time", time).alias("went")]
    counts = messages.groupBy(*keys).agg(
        f.count("*"),
        total(f.col("payload_size")),
        total(f.when(readable, posted)),
        total(f.when(readable, f.col("stored_size"))),
        f.count(f.when(readable, 1)),
        f.min(_seconds("arrival_time")),
    )
    return [Messages(*row) for row in counts.collect()]


def _pending(messages: DataFrame) -> dict[tuple[str, str], int]:
    waiting = messages.where(f.size("pending_apps") > 0).select(_queue(), f.explode("pending_apps").alias("app"))
    return {(row.queue, row.app): row["count"] for row in waiting.groupBy("queue", "app").count().collect()}


def _confirm_groups(confirms: DataFrame, time: TimeLine) -> list[Confirms]:
    app = f.coalesce("app_id", "app_key").alias("app")
    bucket = _bucket("confirm_time", time).alias("bucket")
    keys = [_queue(), app, f.col("confirm_reason"), f.col("latency_s"), bucket]
    return [Confirms(*row) for row in confirms.groupBy(*keys).agg(f.count("*")).collect()]
