"""The job behind `bmqctl spark-export`: a store to two Parquet tables, and what they hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bmqctl.pipeline.columns import INVALID
from bmqctl.pipeline.lifecycle import messages_of, queues_frame, with_names
from bmqctl.pipeline.queues import load_queues
from bmqctl.pipeline.session import local_session
from bmqctl.pipeline.source import FORMAT, RECORDS_PER_PARTITION
from bmqctl.pipeline.stores import Partition, find_ledgers, find_partitions

__all__ = [
    "MESSAGES",
    "RECORDS",
    "OutputExists",
    "Plan",
    "QueueSummary",
    "SparkFailed",
    "Summary",
    "export_store",
    "plan_export",
    "run_export",
]

RECORDS = "records"
MESSAGES = "messages"
RECORDS_PER_SHUFFLE = 100_000
QUICK_RECORDS = 200_000


class OutputExists(Exception):
    """There is an earlier export where the new one should go; the message is its path."""


class SparkFailed(Exception):
    """Spark gave up; the message is the first line of its own."""


@dataclass(frozen=True)
class QueueSummary:
    """A queue's messages by outcome, and bytes of payload as posted."""

    uri: str
    outcomes: dict[str, int]
    payload_bytes: int

    @property
    def messages(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True)
class Summary:
    """What was written. `records` counts by type."""

    records: dict[str, int]
    queues: list[QueueSummary]

    @property
    def invalid(self) -> int:
        """Records that could not be read."""
        return self.records.get(INVALID, 0)


@dataclass(frozen=True)
class Plan:
    """A store that can be read and a place for its tables: what to check before Spark starts."""

    store: Path
    out: Path
    partitions: list[Partition]

    @property
    def tables(self) -> list[Path]:
        return [self.out / RECORDS, self.out / MESSAGES]

    @property
    def record_count(self) -> int:
        return sum(partition.extent.record_count for partition in self.partitions)


def plan_export(store: Path, out: Path, *, overwrite: bool = False) -> Plan:
    """StoreError if the store cannot be read; OutputExists if `out` has tables already, unless they may go."""
    plan = Plan(store, out, find_partitions(store))
    for table in plan.tables:
        if table.exists() and not overwrite:
            raise OutputExists(str(table))
    return plan


def run_export(
    plan: Plan,
    *,
    cores: int | None = None,
    memory: str = "2g",
    records_per_partition: int = RECORDS_PER_PARTITION,
    on_step: Callable[[str], None] = lambda step: None,
) -> Summary:
    """`export_store` in a session of its own; NoFitJava without a Java, SparkFailed if Spark does not manage."""
    try:
        with local_session(cores, memory, quick=plan.record_count < QUICK_RECORDS) as session:
            return export_store(session, plan, records_per_partition=records_per_partition, on_step=on_step)
    except (PySparkException, Py4JError) as fault:
        raise SparkFailed(str(fault).strip().partition("\n")[0]) from fault


def export_store(
    session: SparkSession,
    plan: Plan,
    *,
    records_per_partition: int = RECORDS_PER_PARTITION,
    on_step: Callable[[str], None] = lambda step: None,
) -> Summary:
    """Write `out`/records and `out`/messages, in the place of earlier ones.

    Both appear when both are complete: until then they are written to a directory beside them.
    """
    # Spark's default of 200 is for clusters: on a small store its tasks cost more than they do.
    session.conf.set("spark.sql.shuffle.partitions", max(4, plan.record_count // RECORDS_PER_SHUFFLE))
    plan.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=plan.out) as name:
        work = Path(name)
        on_step(f"reading {plan.record_count:,} journal records")
        queues = queues_frame(session, load_queues(plan.partitions, find_ledgers(plan.store)))
        reader = session.read.format(FORMAT).option("recordsPerPartition", records_per_partition)
        with_names(reader.load(str(plan.store)), queues).write.parquet(str(work / RECORDS))
        on_step("joining messages with their confirms, deletions and purges")
        records = session.read.parquet(str(work / RECORDS))
        messages_of(records, queues).write.parquet(str(work / MESSAGES))
        on_step("counting")
        summary = _summarize(session, work)
        for table in plan.tables:
            if table.exists():
                shutil.rmtree(table)
            (work / table.name).rename(table)
    return summary


def _summarize(session: SparkSession, tables: Path) -> Summary:
    records = session.read.parquet(str(tables / RECORDS)).groupBy("type").count().collect()
    groups = (
        session.read.parquet(str(tables / MESSAGES))
        .groupBy(f.coalesce("queue_uri", "queue_key").alias("uri"), "outcome")
        .agg(f.count("*").alias("messages"), f.coalesce(f.sum("payload_size"), f.lit(0)).alias("payload_bytes"))
        .collect()
    )
    queues: dict[str, QueueSummary] = {}
    for row in sorted(groups):
        before = queues.get(row.uri, QueueSummary(row.uri, {}, 0))
        outcomes = {**before.outcomes, row.outcome: row.messages}
        queues[row.uri] = QueueSummary(row.uri, outcomes, before.payload_bytes + row.payload_bytes)
    return Summary({row["type"]: row["count"] for row in sorted(records)}, [*queues.values()])
