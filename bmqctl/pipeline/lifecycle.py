"""From records to messages: what became of each message, put together by Spark.

All records of one GUID of one queue meet in one row, so there is one shuffle. A GUID may come again once its first
message is gone, so a message's own records are those between it and the next message of that GUID; only the automatic
confirms, which the broker writes first, stand before their message.

The broker saves itself the last confirm of a message: a deletion without a reason says that the apps which had not
confirmed by then (one, normally) did. Purges are told by queue, and touch the messages that were there at the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from formats.disk.journal import ConfirmReason, DeletionRecordFlag, RecordType
from formats.disk.queues import Queue

__all__ = ["Outcome", "messages_of", "queues_frame", "with_names"]

QUEUE = ("partition_id", "queue_key")
APP = "struct<app_key: string, app_id: string, since: bigint, until: bigint>"
PURGE = (
    "struct<offset: bigint, timestamp: bigint, app_key: string, start_primary_lease_id: bigint,"
    " start_sequence_number: bigint>"
)
QUEUE_SCHEMA = f"partition_id int, queue_key string, queue_uri string, apps array<{APP}>, purges array<{PURGE}>"


class Outcome(StrEnum):
    """What became of a message."""

    OUTSTANDING = "outstanding"  # no app has confirmed it
    PARTIALLY_CONFIRMED = "partially_confirmed"  # some have, and others are still to
    CONFIRMED = "confirmed"  # all have, and it was deleted
    EXPIRED = "expired"  # deleted when its time to live was over
    NO_QUORUM = "no_quorum"  # deleted since no majority of the cluster received it
    PURGED = "purged"  # an administrator took it from the last apps that it was for


def queues_frame(session: SparkSession, queues: Iterable[Queue]) -> DataFrame:
    """One row per queue, with its apps and purges; small enough to be sent to every executor."""
    rows = [(each.partition_id, each.queue_key, each.uri, each.apps, each.purges) for each in queues]
    return session.createDataFrame(rows, QUEUE_SCHEMA)


def with_names(records: DataFrame, queues: DataFrame) -> DataFrame:
    """The records with `queue_uri` and `app_id` after their keys."""
    named = records.join(f.broadcast(queues.select(*QUEUE, "queue_uri", "apps")), list(QUEUE), "left")
    app = f.filter("apps", lambda app: app["app_key"] == f.col("app_key"))
    named = named.withColumn("app_id", f.get(app, f.lit(0))["app_id"])
    columns = list(records.columns)
    for key, name in (("queue_key", "queue_uri"), ("app_key", "app_id")):
        columns.insert(columns.index(key) + 1, name)
    return named.select(*columns)


def messages_of(records: DataFrame, queues: DataFrame) -> DataFrame:
    """One row per message among `records` (with the columns of `with_names`)."""
    return _judged(_gathered(records).join(f.broadcast(queues.drop("queue_uri")), list(QUEUE), "left"))


def _gathered(records: DataFrame) -> DataFrame:
    """One row per message: its own columns, `confirms` (structs), `deletion` (struct or null)."""

    def all_of(kind: RecordType, *columns: str) -> Column:
        return f.collect_list(f.when(f.col("type") == kind.name, f.struct("offset", *columns)))

    own = (
        "primary_lease_id",
        "sequence_number",
        "timestamp",
        "queue_uri",
        "ref_count",
        "compression",
        "crc32c",
        "message_offset",
        "stored_size",
        "properties_size",
        "payload_size",
    )
    by_guid = records.groupBy(*QUEUE, "guid").agg(
        all_of(RecordType.MESSAGE, *own).alias("messages"),
        all_of(RecordType.CONFIRM, "app_key", "app_id", "confirm_reason").alias("confirms"),
        all_of(RecordType.DELETION, "deletion_flag", "timestamp").alias("deletions"),
    )
    offsets = f.transform("messages", lambda message: message["offset"])
    row = by_guid.where(f.col("guid").isNotNull()).withColumn("offsets", offsets)
    row = row.withColumn("message", f.explode("messages"))
    here = f.col("message.offset")
    automatic = ConfirmReason.AUTO_CONFIRMED.name
    before = f.coalesce(f.array_max(f.filter("offsets", lambda offset: offset < here)), f.lit(-1))
    after = f.coalesce(f.array_min(f.filter("offsets", lambda offset: offset > here)), f.lit((1 << 63) - 1))

    def is_ours(record: Column) -> Column:
        return (record["offset"] > here) & (record["offset"] < after)

    def is_our_confirm(confirm: Column) -> Column:
        early = (confirm["offset"] > before) & (confirm["offset"] < here)
        return f.when(confirm["confirm_reason"] == automatic, early).otherwise(is_ours(confirm))

    return row.select(
        *QUEUE,
        "guid",
        here.alias("journal_offset"),
        *(f.col(f"message.{name}") for name in own),
        f.filter("confirms", is_our_confirm).alias("confirms"),
        f.array_min(f.filter("deletions", is_ours)).alias("deletion"),
    )


def _judged(messages: DataFrame) -> DataFrame:
    """What `_gathered` gave, joined with the queues: who is done with each message, and so its outcome."""
    here = f.col("journal_offset")
    deleted_at = f.col("deletion.offset")

    def was_there(app: Column) -> Column:
        return (app["since"] < here) & (app["until"].isNull() | (app["until"] > here))

    def touches(purge: Column) -> Column:
        lease, start = f.col("primary_lease_id"), purge["start_primary_lease_id"]
        from_start = (lease > start) | ((lease == start) & (f.col("sequence_number") >= purge["start_sequence_number"]))
        in_time = (purge["offset"] > here) & (deleted_at.isNull() | (purge["offset"] < deleted_at))
        return in_time & (purge["app_key"].isNull() | from_start)

    def is_done(app: Column) -> Column:
        return f.exists("confirms", lambda confirm: confirm["app_key"] == app["app_key"])

    def is_purged(app: Column) -> Column:
        return f.exists("purges", lambda purge: purge["app_key"].isNull() | (purge["app_key"] == app["app_key"]))

    frame = (
        messages.withColumn("apps", f.filter(f.coalesce("apps", f.array()), was_there))
        .withColumn("purges", f.filter(f.coalesce("purges", f.array()), touches))
        .withColumn("others", f.filter("apps", lambda app: ~is_done(app)))
        .withColumn("purged", f.filter("others", is_purged))
        .withColumn("others", f.filter("others", lambda app: ~is_purged(app)))
        .withColumn("outcome", _outcome())
    )
    nobody = f.array().cast("array<string>")
    by_deletion = f.when(f.col("outcome") == Outcome.CONFIRMED, _names("others")).otherwise(nobody)
    pending = f.col("outcome").isin(Outcome.OUTSTANDING.value, Outcome.PARTIALLY_CONFIRMED.value)
    purged_at = f.array_max(f.transform("purges", lambda purge: f.timestamp_seconds(purge["timestamp"])))
    removal_time = f.coalesce("deletion.timestamp", f.when(f.col("outcome") == Outcome.PURGED, purged_at))
    return frame.select(
        "partition_id",
        "queue_uri",
        "queue_key",
        "guid",
        f.col("timestamp").alias("arrival_time"),
        "stored_size",
        "properties_size",
        "payload_size",
        "compression",
        "crc32c",
        "primary_lease_id",
        "sequence_number",
        "journal_offset",
        "message_offset",
        "ref_count",
        "outcome",
        removal_time.alias("removal_time"),
        f.array_sort(f.concat(_confirmed(ConfirmReason.CONFIRMED), by_deletion)).alias("confirmed_apps"),
        _confirmed(ConfirmReason.REJECTED).alias("rejected_apps"),
        _confirmed(ConfirmReason.AUTO_CONFIRMED).alias("auto_confirmed_apps"),
        _names("purged").alias("purged_apps"),
        f.when(pending, _names("others")).otherwise(nobody).alias("pending_apps"),
    )


def _outcome() -> Column:
    flag = f.col("deletion.deletion_flag")
    whole_queue = f.exists("purges", lambda purge: purge["app_key"].isNull())
    some_apps = f.size("purged") > 0
    by_purge = whole_queue | (some_apps & (f.size("others") == 0))
    some_confirmed = f.exists(
        "confirms", lambda confirm: confirm["confirm_reason"] != ConfirmReason.AUTO_CONFIRMED.name
    )
    return (
        f.when(flag == DeletionRecordFlag.TTL_EXPIRATION.name, Outcome.EXPIRED)
        .when(flag == DeletionRecordFlag.NO_SC_QUORUM.name, Outcome.NO_QUORUM)
        .when(by_purge, Outcome.PURGED)
        .when(flag.isNotNull(), Outcome.CONFIRMED)
        .when(some_confirmed | some_apps, Outcome.PARTIALLY_CONFIRMED)
        .otherwise(Outcome.OUTSTANDING)
    )


def _confirmed(reason: ConfirmReason) -> Column:
    return _names(f.filter("confirms", lambda confirm: confirm["confirm_reason"].isin(reason.name)))


def _names(apps: Column | str) -> Column:
    """The ids of an array of apps or confirms, or their keys where no id is known."""
    return f.array_sort(f.transform(apps, lambda app: f.coalesce(app["app_id"], app["app_key"])))
