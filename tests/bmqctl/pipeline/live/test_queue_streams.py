"""A live queue as a stream, and rows posted to one: with a real node, and the official client at the other end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blazingmq
import pytest
import trio
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bmqctl.client.session import Session
from bmqctl.testing import NodeProcess
from formats.bmq.wire.ack import AckStatus
from tests.rigs.official import Client, queue_name
from tests.waiting import WAIT_S, eventually

TOO_SLOW = "Python worker failed to connect back"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "store") as running:
        yield running


def post(node: NodeProcess, uri: str, count: int, first: int = 0) -> None:
    """Messages `first` and those after it, all acked."""

    async def main() -> None:
        acks: list[AckStatus] = []
        done = trio.Event()

        def on_acks(answers: list[Any]) -> None:
            acks.extend(each.status for each in answers)
            if len(acks) == count:
                done.set()

        async with Session.connect("127.0.0.1", node.port, None, on_acks) as session:
            queue = await session.open_queue(uri, write=True)
            for number in range(first, first + count):
                queue.post_nowait(b"message %d" % number, {"n": number})
            await done.wait()
        assert set(acks) == {AckStatus.SUCCESS}

    trio.run(main)


def left(node: NodeProcess, uri: str) -> list[bytes]:
    """Return the unconfirmed messages that a consumer of the queue receives now."""
    with Client(node.uri) as client:
        client.open(uri, read=True, max_unconfirmed_messages=100_000)
        client.barrier()
        return client.payloads(uri)


def stream(spark: SparkSession, node: NodeProcess, uri: str, **options: object) -> DataFrame:
    given = {"broker": node.uri, "queue": uri, "drainSeconds": 0.3} | options
    return spark.readStream.format("bmq").options(**{name: str(value) for name, value in given.items()}).load()


class Sink:
    """Starts queries that write to Parquet, in one place, with one checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.checkpoint = directory / "checkpoint"
        self.out = directory / "out"

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger or {"processingTime": "0 seconds"}).start(str(self.out))

    def drain(self, frame: DataFrame) -> list[dict[str, Any]]:
        """Take what there is; the batches' progress."""
        for starts_left in reversed(range(3)):
            query = self.start(frame, availableNow=True)
            try:
                assert query.awaitTermination(WAIT_S)
                break
            except StreamingQueryException as fault:
                # Spark gives the reader's process 10 s to start, whatever its settings: too few if many others work.
                if TOO_SLOW not in str(fault) or not starts_left:
                    raise
        return [dict(each) for each in query.recentProgress]

    def rows(self) -> list[Any]:
        return self.spark.read.parquet(str(self.out)).collect()


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Sink:
    return Sink(spark, tmp_path)


def numbers(sink: Sink) -> list[int]:
    return sorted(int(row.properties["n"].value) for row in sink.rows())


def test_an_app_of_a_fan_out_is_consumed_and_confirmed(spark: SparkSession, node: NodeProcess, sink: Sink) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    left(node, f"{uri}?id=foo")
    post(node, uri, 50)
    frame = stream(spark, node, f"{uri}?id=foo", maxMessagesPerBatch=20)
    progress = sink.drain(frame)
    assert [each["numInputRows"] for each in progress] == [20, 20, 10, 0]
    rows = sink.rows()
    assert {(row.queue_uri, row.app_id, row.fault) for row in rows} == {(uri, "foo", None)}
    assert sorted(row.payload for row in rows) == sorted(b"message %d" % number for number in range(50))
    assert numbers(sink) == list(range(50))
    # Confirmed, and for this app only.
    assert left(node, f"{uri}?id=foo") == []
    assert len(left(node, f"{uri}?id=bar")) == 50
    # The same checkpoint goes on with what is new, and asked for.
    post(node, uri, 10, 50)
    sink.drain(stream(spark, node, f"{uri}?id=foo", expression="n < 54"))
    assert numbers(sink) == list(range(54))
    assert len(left(node, f"{uri}?id=foo")) == 6


def test_a_stream_that_runs_confirms_its_last_batch_though_nothing_follows(
    spark: SparkSession, node: NodeProcess, sink: Sink
) -> None:
    uri = queue_name()
    post(node, uri, 30)
    # So few may be unconfirmed that the broker waits for confirms more than once.
    query = sink.start(stream(spark, node, uri, maxUnconfirmed=8))
    try:
        eventually(lambda: sum(each["numInputRows"] for each in query.recentProgress) == 30, WAIT_S)
        eventually(lambda: bool(query.recentProgress) and query.recentProgress[-1]["numInputRows"] == 0, WAIT_S)
    finally:
        query.stop()
    assert query.exception() is None
    assert numbers(sink) == list(range(30))
    assert left(node, uri) == []


def test_a_batch_that_fails_is_not_confirmed(spark: SparkSession, node: NodeProcess, sink: Sink) -> None:
    uri = queue_name()
    post(node, uri, 5)
    frame = stream(spark, node, uri)
    query = sink.start(frame.selectExpr("raise_error('spoilt') as nothing"), availableNow=True)
    with pytest.raises(StreamingQueryException, match="spoilt"):
        query.awaitTermination(WAIT_S)
    assert len(left(node, uri)) == 5
    # Planned and not finished: the batch is made again, empty, and what was in it comes in the next.
    shutil.rmtree(sink.out, ignore_errors=True)
    progress = sink.drain(frame.select("guid", "properties"))
    assert [each["numInputRows"] for each in progress] == [0, 5, 0]
    assert numbers(sink) == list(range(5))
    assert left(node, uri) == []


def test_rows_become_messages_and_messages_rows(spark: SparkSession, node: NodeProcess, sink: Sink) -> None:
    """Posted from typed columns, read as a stream, written on by another: the official client reads the end of it."""
    first, second = queue_name(), queue_name()
    frame = spark.createDataFrame(
        [("payload 0", (b"\0\xff", -5, 1 << 40, "näme", True, None)), ("payload 1", None)],
        "payload string, properties struct<bin: binary, int: int, long: bigint, text: string, yes: boolean, no: short>",
    )
    frame.write.format("bmq").mode("append").option("broker", node.uri).option("queue", first).save()
    relay = stream(spark, node, first).writeStream.format("bmq").option("broker", node.uri).option("queue", second)
    relay = relay.option("checkpointLocation", str(sink.checkpoint)).option("compression", "zlib")
    assert relay.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    assert left(node, first) == []
    with Client(node.uri) as client:
        client.open(second, read=True)
        found = {each.data: each for each, _ in client.wait_for_messages(2)}
    wanted = {"bin": b"\0\xff", "int": -5, "long": 1 << 40, "text": "näme", "yes": True}
    assert found[b"payload 0"].properties == wanted
    assert found[b"payload 0"].property_types["int"] is blazingmq.PropertyType.INT32
    assert found[b"payload 1"].properties == {}


def test_each_row_may_say_its_queue(spark: SparkSession, node: NodeProcess) -> None:
    uris = [queue_name() for _ in range(2)]
    frame = spark.range(7).selectExpr(
        f"if(id % 2 = 0, '{uris[0]}', '{uris[1]}') as queue_uri",
        "cast(cast(id as string) as binary) as payload",
        "map('id', id) as properties",
        "id as other",
    )
    frame.write.format("bmq").mode("append").option("broker", node.uri).save()
    assert sorted(left(node, uris[0])) == [b"0", b"2", b"4", b"6"]
    assert sorted(left(node, uris[1])) == [b"1", b"3", b"5"]


def test_a_batch_that_is_posted_again_is_there_once(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    """A batch is repeated after a driver was killed between its last ack and its commit."""
    uri = queue_name()
    source = tmp_path / "in"
    spark.range(40).selectExpr("cast(id as string) as payload").coalesce(1).write.parquet(str(source))
    frame = spark.readStream.schema("payload string").parquet(str(source))
    checkpoint = tmp_path / "checkpoint"
    writer = frame.writeStream.format("bmq").option("broker", node.uri).option("queue", uri)
    for _ in range(2):
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        assert [each["numInputRows"] for each in query.recentProgress] == [40]
        for commit in (checkpoint / "commits").iterdir():
            commit.unlink()
    assert sorted(map(int, left(node, uri))) == list(range(40))


def test_impossible_post_or_read_fails_the_query(spark: SparkSession, node: NodeProcess, sink: Sink) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as payload")
    writer = rows.write.format("bmq").mode("append").option("broker", node.uri)
    with pytest.raises(PySparkException, match=r"cannot open bmq://no\.such\.domain/q"):
        writer.option("queue", "bmq://no.such.domain/q").save()
    with pytest.raises(PySparkException, match="messages cannot be withdrawn"):
        rows.write.format("bmq").mode("overwrite").option("queue", queue_name()).save()
    query = sink.start(stream(spark, node, queue_name("bmq.test.persistent.fanout")), availableNow=True)
    with pytest.raises(StreamingQueryException, match="requires an appId"):
        query.awaitTermination(WAIT_S)
    with pytest.raises(PySparkException, match="a live queue is read as a stream"):
        spark.read.format("bmq").option("queue", queue_name()).load().collect()


DRIVER = """
import sys
from bmqctl.pipeline.spark.session import local_session

broker, queue, directory = sys.argv[1:]
with local_session(cores=1, memory="512m", quick=True) as spark:
    stream = spark.readStream.format("bmq").options(broker=broker, queue=queue, maxMessagesPerBatch="50").load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    writer.start(f"{directory}/out").awaitTermination()
"""


def test_a_driver_that_is_killed_loses_nothing(
    spark: SparkSession, node: NodeProcess, sink: Sink, tmp_path: Path
) -> None:
    uri, count = queue_name(), 1000
    post(node, uri, count)
    (tmp_path / "tmp").mkdir()
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, node.uri, uri, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        start_new_session=True,
    )
    try:
        # In the middle of it: some batches are committed, and others planned.
        eventually(lambda: len([*sink.checkpoint.glob("commits/*")]) > 2, timeout_s=WAIT_S)
    finally:
        driver.kill()
        driver.wait()
    # The processes that it had started end by themselves.
    eventually(lambda: not is_running(driver.pid), timeout_s=WAIT_S)
    done = set(numbers(sink))
    not_confirmed = {int(payload.split()[1]) for payload in left(node, uri)}
    assert 0 < len(not_confirmed) < count
    assert set(range(count)) - not_confirmed <= done
    sink.drain(stream(spark, node, uri))
    assert set(numbers(sink)) == set(range(count))
    assert left(node, uri) == []


def is_running(group: int) -> bool:
    """Return True if a process of this group exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
