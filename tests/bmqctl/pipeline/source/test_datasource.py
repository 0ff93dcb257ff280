"""The format `bmq` in a session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bmqctl.pipeline
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.source.lifecycles import lifecycles
from tests.bmqctl.pipeline.source.read_rig import damaged

TABLES = ("records", "messages", "confirms", "queues", "ledger", "payloads", "faults")
GOLD = "bmq://bmq.test.persistent.priority/orders-1"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    bmqctl.pipeline.register(spark)
    return spark


def load(session: SparkSession, *paths: Path | str, **options: str) -> DataFrame:
    names = [str(path) for path in paths]
    return session.read.format("bmq").options(**options).load(names[0] if len(names) == 1 else names)


@pytest.mark.parametrize("table", TABLES)
def test_spark_gets_the_rows_of_the_tasks(session: SparkSession, golden: Callable[[str], Path], table: str) -> None:
    store = golden("single-crash")
    frame = load(session, store, table=table, recordsPerPartition="300")
    rows = read_rows(store, table=table, recordsPerPartition="300")
    text = [name for name, kind in frame.dtypes if kind in ("string", "int", "bigint")]
    found = sorted(str(row.asDict()) for row in frame.select(*text).collect())
    assert found == sorted(str({name: row[name] for name in text}) for row in rows)


def test_counts_and_sums_are_those_of_duckdb(
    session: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """DuckDB counts the CSV of `journal dump`: neither shares code with the source's reader."""
    store = golden("single-crash")
    dump = tmp_path / "dump.csv"
    with dump.open("wb") as file:
        command = [sys.executable, "-c", "from bmqctl.app import main; main()", "journal", "dump", "--output", "csv"]
        subprocess.run([*command, str(store)], stdout=file, check=True)
    counted = duckdb.sql(
        f"SELECT type, queue_uri, count(*), sum(sequence_number), sum(timestamp), sum(ref_count), sum(crc32c)"
        f" FROM read_csv('{dump}') GROUP BY ALL"
    )
    assert counted is not None
    frame = load(session, store).groupBy("type", "queue_uri")
    spark_counted = frame.agg(
        f.count("*"),
        f.sum("sequence_number"),
        f.sum(f.unix_timestamp("timestamp")),
        f.sum("ref_count"),
        f.sum("crc32c"),
    ).collect()
    assert {tuple(row) for row in spark_counted} == {
        (row[0].upper().replace("-", "_"), *row[1:]) for row in counted.fetchall()
    }


def test_filters_are_taken_over(session: SparkSession, golden: Callable[[str], Path]) -> None:
    frame = load(session, golden("single-crash"), table="messages", pushdown="true")
    wanted = (
        (f.col("queue_uri") == GOLD) & (f.col("payload_size") > 100) & f.col("outcome").isin("confirmed", "expired")
    )
    filtered = frame.where(wanted).select("guid", "confirmed_apps")
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan.replace("RuntimeFilters", "")
    # After a cache, Spark applies them itself.
    cached = frame.cache()
    assert sorted(filtered.collect()) == sorted(cached.where(wanted).select("guid", "confirmed_apps").collect())
    assert 0 < filtered.count() < 290
    cached.unpersist()


def test_a_schema_names_the_columns(session: SparkSession, golden: Callable[[str], Path]) -> None:
    reader = session.read.format("bmq").schema("guid string, type string")
    frame = reader.load(str(golden("single-crash"))).where("type = 'DELETION'")
    assert frame.columns == ["guid", "type"]
    assert frame.count() == len([row for row in read_rows(golden("single-crash")) if row["type"] == "DELETION"])


def test_replicas_are_read_together(session: SparkSession, golden: Callable[[str], Path]) -> None:
    nodes = [golden("cluster-node0"), golden("cluster-node2")]
    assert load(session, *nodes).count() == len(read_rows(*nodes))


def test_decoded_payloads_are_columns(session: SparkSession, golden: Callable[[str], Path]) -> None:
    schema = {"payloadFormat": "json", "payloadSchema": "n int, m map<string,int>"}
    frame = load(session, golden("single-crash"), table="payloads", **schema)
    assert frame.select("value.*").columns == ["n", "m"]
    assert frame.where("value is null and value_fault is not null").count() == frame.count() > 0
    properties = frame.select(f.explode("properties").alias("name", "property")).select("property.type").distinct()
    assert {row["type"] for row in properties.collect()} == {"STRING", "INT32", "INT64", "BOOL", "BINARY"}


def test_faults_end_a_job_only_if_asked(session: SparkSession, tmp_path: Path) -> None:
    store = damaged(tmp_path)
    assert load(session, store).count() == 4
    assert load(session, store, table="faults").where("code = 'record-magic'").count() == 1
    with pytest.raises(PySparkException, match="magic at offset 220"):
        load(session, store, mode="failfast").count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "people"}, "'people' is none of records, messages"),
        ({"colums": "guid"}, "colums: unknown option"),
        ({"columns": "colour"}, "records has no colour"),
    ],
)
def test_a_wrong_option_is_told(session: SparkSession, tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        load(session, lifecycles()[0].save(tmp_path / "store"), **options)


@pytest.mark.parametrize(
    ("schema", "said"), [("colour string", "records has no colour"), ("guid bigint", "guid is string, not bigint")]
)
def test_a_wrong_schema_is_told(session: SparkSession, tmp_path: Path, schema: str, said: str) -> None:
    store = lifecycles()[0].save(tmp_path / "store")
    with pytest.raises(PySparkException, match=said):
        session.read.format("bmq").schema(schema).load(str(store)).collect()
