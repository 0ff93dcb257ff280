"""A topic of RocketMQ as a stream, and rows sent to one, with a real node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from bmqctl.testing import RocketProcess
from formats.rocketmq.properties import decode_properties
from tests.bmqctl.pipeline.live.topics import committed, make_topic, messages_of, send
from tests.waiting import WAIT_S, eventually

TOO_SLOW = "Python worker failed to connect back"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("node") / "store", grpc_port=0) as running:
        yield running


def stream(spark: SparkSession, node: RocketProcess, topic: str, **options: object) -> DataFrame:
    given = {"nameserver": node.nameserver, "topic": topic, "group": "lake"} | options
    return spark.readStream.format("bmq").options(**{name: str(value) for name, value in given.items()}).load()


class Sink:
    """Runs queries that write to Parquet, in one place, with one checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.checkpoint = directory / "checkpoint"
        self.out = directory / "out"

    def drain(self, frame: DataFrame) -> list[int]:
        """Take what there is; return the sizes of the batches."""
        for starts_left in reversed(range(3)):
            writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
            query = writer.trigger(availableNow=True).start(str(self.out))
            try:
                assert query.awaitTermination(WAIT_S)
                break
            except StreamingQueryException as fault:
                # Spark gives the reader's process 10 s to start, whatever its settings: too few if many others work.
                if TOO_SLOW not in str(fault) or not starts_left:
                    raise
        return [each["numInputRows"] for each in query.recentProgress]

    def numbers(self) -> list[int]:
        return sorted(int(row.properties["n"]) for row in self.rows())

    def rows(self) -> list[Any]:
        return self.spark.read.parquet(str(self.out)).collect()


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Sink:
    return Sink(spark, tmp_path)


def test_a_topic_is_read_once_over_restarts(spark: SparkSession, node: RocketProcess, sink: Sink) -> None:
    make_topic(node, "read", 2)
    send(node, "read", range(50))
    frame = stream(spark, node, "read", maxMessagesPerBatch=20, partitions=2)
    assert [count for count in sink.drain(frame) if count] == [20, 20, 10]
    assert sink.numbers() == list(range(50))
    rows = {int(row.properties["n"]): row for row in sink.rows()}
    assert {bytes(row.payload) for row in rows.values()} == {b"message %d" % number for number in range(50)}
    assert (rows[7].topic, rows[7].queue_id, rows[7].queue_offset) == ("read", 1, 3)
    assert (rows[7].id, rows[7].keys, rows[7].tags, rows[7].fault) == (f"{7:032X}", ["k7", "all"], "t", None)
    # Spark commits a batch when it plans the next one.
    assert sum(committed(node, "read", "lake").values()) == 40
    # The checkpoint goes on, wherever the group is.
    node.restart(signal.SIGKILL)
    send(node, "read", range(50, 60))
    sink.drain(frame)
    assert sink.numbers() == list(range(60))


def test_a_batch_that_was_not_committed_is_the_same_again(spark: SparkSession, node: RocketProcess, sink: Sink) -> None:
    make_topic(node, "again", 2)
    send(node, "again", range(10))
    failing = stream(spark, node, "again").selectExpr("properties", "raise_error('spoilt') as nothing")
    writer = failing.writeStream.format("parquet").option("checkpointLocation", str(sink.checkpoint))
    with pytest.raises(StreamingQueryException, match="spoilt"):
        writer.trigger(availableNow=True).start(str(sink.out)).awaitTermination(WAIT_S)
    # Messages that came meanwhile are in another batch.
    send(node, "again", range(10, 15))
    counts = sink.drain(stream(spark, node, "again").selectExpr("properties", "'' as nothing"))
    assert [count for count in counts if count] == [10, 5]
    assert sink.numbers() == list(range(15))


DRIVER = """
import sys
from bmqctl.pipeline.spark.session import local_session

nameserver, topic, directory = sys.argv[1:]
with local_session(cores=1, memory="512m", quick=True) as spark:
    options = dict(nameserver=nameserver, topic=topic, maxMessagesPerBatch="50", patienceSeconds="120")
    stream = spark.readStream.format("bmq").options(**options).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    writer.start(f"{directory}/out").awaitTermination()
"""


def test_a_broker_and_a_driver_that_are_killed_neither_lose_nor_repeat(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    count = 1000
    (tmp_path / "tmp").mkdir()
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        make_topic(node, "killed", 2)
        send(node, "killed", range(count))
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, node.nameserver, "killed", str(tmp_path)],
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            start_new_session=True,
        )
        try:
            commits = sink.checkpoint / "commits"
            eventually(lambda: len([*commits.glob("[0-9]*")]) > 1, timeout_s=WAIT_S)
            node.restart(signal.SIGKILL)
            before = len([*commits.glob("[0-9]*")])
            # The query outlives the broker.
            eventually(lambda: len([*commits.glob("[0-9]*")]) > before + 1, timeout_s=WAIT_S)
            assert driver.poll() is None
        finally:
            driver.kill()
            driver.wait()
        eventually(lambda: not is_running(driver.pid), timeout_s=WAIT_S)
        sink.drain(stream(spark, node, "killed"))
        assert sink.numbers() == list(range(count))


def is_running(group: int) -> bool:
    """Return True if a process of this group exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def sent(node: RocketProcess, topic: str) -> dict[int, list[tuple[bytes, dict[str, str]]]]:
    return {
        queue: [(bytes(record.body), decode_properties(record.properties)) for record in records]
        for queue, records in messages_of(node, topic).items()
    }


def test_rows_become_messages(spark: SparkSession, node: RocketProcess) -> None:
    make_topic(node, "typed", 2)
    frame = spark.createDataFrame(
        [("zero", (5, "näme", True, None), "k0", "t", None), ("one", None, None, None, 1)],
        "payload string, properties struct<n: int, text: string, yes: boolean, no: short>, keys string, tags string, "
        "queue_id int",
    )
    writer = frame.coalesce(1).write.format("bmq").mode("append").option("nameserver", node.nameserver)
    writer.option("topic", "typed").save()
    found = sent(node, "typed")
    ((body, properties),) = found[0]
    unique_id = properties.pop("UNIQ_KEY")
    assert (body, properties.pop("WAIT", "true")) == (b"zero", "true")
    assert len(unique_id) == 32
    # The broker adds its own.
    given = {"n": "5", "text": "näme", "yes": "true", "TAGS": "t", "KEYS": "k0"}
    assert {**properties, **given} == properties
    assert properties.keys() - given.keys() <= {"MSG_REGION", "CLUSTER", "TRACE_ON"}
    assert [body for body, _ in found[1]] == [b"one"]


def test_each_row_may_say_its_topic_and_a_key_keeps_rows_together(spark: SparkSession, node: RocketProcess) -> None:
    for topic in ("even", "odd"):
        make_topic(node, topic, 4)
    frame = spark.range(400).selectExpr(
        "if(id % 2 = 0, 'even', 'odd') as topic",
        "cast(id as string) as payload",
        "map('customer', cast(id % 10 as string), 'n', cast(id as string)) as properties",
    )
    frame.coalesce(1).write.format("bmq").mode("append").options(nameserver=node.nameserver, key="customer").save()
    for begin, topic in enumerate(("even", "odd")):
        found = sent(node, topic)
        assert sorted(int(body) for each in found.values() for body, _ in each) == [*range(begin, 400, 2)]
        queues = Counter((properties["customer"], queue) for queue, each in found.items() for _, properties in each)
        assert len(queues) == 5
        for each in found.values():
            numbers = [int(body) for body, _ in each]
            assert numbers == sorted(numbers)


def test_a_batch_that_is_sent_again_has_the_same_ids(spark: SparkSession, node: RocketProcess, tmp_path: Path) -> None:
    """A batch is repeated after a driver was killed between its last acknowledgment and its commit."""
    make_topic(node, "twice", 2)
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    spark.range(40).selectExpr("cast(id as string) as payload").coalesce(1).write.parquet(str(source))
    frame = spark.readStream.schema("payload string").parquet(str(source))
    writer = frame.writeStream.format("bmq").options(nameserver=node.nameserver, topic="twice")
    for _ in range(2):
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        for commit in (checkpoint / "commits").iterdir():
            commit.unlink()
    ids = Counter(properties["UNIQ_KEY"] for each in sent(node, "twice").values() for _, properties in each)
    assert len(ids) == 40
    assert set(ids.values()) == {2}


def test_impossible_send_or_read_fails_the_query(spark: SparkSession, node: RocketProcess) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as payload", "map('DELAY', '3') as properties")
    writer = rows.write.format("bmq").mode("append").options(nameserver=node.nameserver, patienceSeconds="0.5")
    with pytest.raises(PySparkException, match="the nameserver knows no such topic"):
        rows.select("payload").write.format("bmq").mode("append").options(
            nameserver=node.nameserver, patienceSeconds="0.5", topic="nowhere"
        ).save()
    make_topic(node, "delays", 1)
    with pytest.raises(PySparkException, match="property 'DELAY': a name that messages cannot have"):
        writer.option("topic", "delays").save()
    with pytest.raises(PySparkException, match="messages cannot be withdrawn"):
        rows.write.format("bmq").mode("overwrite").options(nameserver=node.nameserver, topic="delays").save()
    with pytest.raises(PySparkException, match="a topic is read as a stream"):
        spark.read.format("bmq").options(nameserver=node.nameserver, topic="delays").load().collect()
